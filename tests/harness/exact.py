"""Objectives in 60 digits, and reference models that are better than what float64 can find."""

from __future__ import annotations

import mpmath as mp
import numpy as np

from coterie.problems.problem import Problem

DIGITS = 60
SMOOTH = ("squared", "logistic", "squared_hinge", "huber", "poisson", "gamma")


def dense(X) -> np.ndarray:
    return np.asarray(X.todense() if hasattr(X, "todense") else X, float)


def numbers(values) -> list[mp.mpf]:
    """Exactly these floats."""
    return [mp.mpf(float(value)) for value in np.ravel(values)]


def _number(value) -> mp.mpf:
    return value if isinstance(value, mp.mpf) else mp.mpf(float(value))


class Exact:
    """A problem on pooled data: P(w, b) for w and b given as floats or as 60-digit numbers."""

    def __init__(self, problem: Problem, X, y, weights=None, offset=None):
        self.problem = problem
        self.rows = [numbers(row) for row in dense(X)]
        self.y = numbers(y)
        self.s = numbers(np.ones(len(self.y)) if weights is None else weights)
        self.o = numbers(np.zeros(len(self.y)) if offset is None else offset)
        self.n = mp.fsum(self.s)

    def primal(self, w, b) -> mp.mpf:
        """P(w, b)."""
        with mp.workdps(DIGITS):
            w, b = [_number(value) for value in w], _number(b)
            samples = zip(self.rows, self.y, self.s, self.o, strict=True)
            losses = mp.fsum(s * self.loss(mp.fdot(row, w) + b + o, y) for row, y, s, o in samples)
            return losses / self.n + self.penalty(w)

    def loss(self, u, y) -> mp.mpf:
        loss = self.problem.loss
        r, m = u - y, 1 - y * u
        if loss.name == "huber":
            h = mp.mpf(loss.threshold)
            return r * r / 2 if abs(r) <= h else h * abs(r) - h * h / 2
        return {
            "squared": lambda: r * r / 2,
            "logistic": lambda: (
                mp.log1p(mp.exp(-y * u)) if y * u > 0 else mp.log1p(mp.exp(y * u)) - y * u
            ),
            "poisson": lambda: mp.exp(u) - y * u,
            "gamma": lambda: y * mp.exp(-u) + u,
            "hinge": lambda: max(m, mp.mpf(0)),
            "squared_hinge": lambda: max(m, mp.mpf(0)) ** 2,
            "absolute": lambda: abs(r),
            "quantile": lambda: max(-loss.level * r, (1 - mp.mpf(loss.level)) * r),
        }[loss.name]()

    def penalty(self, w) -> mp.mpf:
        """g(w); bounds and balls are given by whoever makes w, with the package's own tolerance for
        rounding.
        """
        penalty = self.problem.penalty
        if penalty.name in ("none", "nonnegative", "box", "l1ball"):
            return mp.mpf(0)
        strength = mp.mpf(penalty.strength)
        if penalty.name == "group":
            members = [
                [v for v, g in zip(w, penalty.groups, strict=True) if g == label]
                for label in set(penalty.groups)
            ]
            return strength * mp.fsum(mp.sqrt(len(part)) * mp.norm(part) for part in members)
        l1, l2 = mp.fsum(map(abs, w)), mp.fsum(v * v for v in w) / 2
        ratio = {"l1": mp.mpf(1), "l2": mp.mpf(0)}.get(penalty.name)
        ratio = mp.mpf(penalty.l1_ratio) if ratio is None else ratio
        return strength * (ratio * l1 + (1 - ratio) * l2)

    def polished(self, w, b, steps: int = 8) -> tuple[list[mp.mpf], mp.mpf]:
        """Newton's method in 60 digits from there, for smooth losses with l2 or no penalty: better
        than any float.
        """
        with mp.workdps(DIGITS):
            point = [mp.mpf(float(value)) for value in w] + (
                [mp.mpf(float(b))] if self.problem.intercept else []
            )
            ridge = (
                mp.mpf(self.problem.penalty.strength)
                if self.problem.penalty.name == "l2"
                else mp.mpf(0)
            )
            d = len(w)
            best = self.primal(point[:d], point[d] if self.problem.intercept else 0)
            for _ in range(steps):
                step = self._newton_step(point, ridge, d)
                if step is None:
                    break
                moved = [a + s for a, s in zip(point, step, strict=True)]
                value = self.primal(moved[:d], moved[d] if self.problem.intercept else 0)
                if value >= best:
                    break
                point, best = moved, value
            return point[:d], point[d] if self.problem.intercept else mp.mpf(0)

    def _newton_step(self, point, ridge, d):
        size = len(point)
        gradient, hessian = mp.matrix(size, 1), mp.matrix(size, size)
        for row, y, s, o in zip(self.rows, self.y, self.s, self.o, strict=True):
            x = row + [mp.mpf(1)] * (size - d)
            slope, curve = self._derivatives(mp.fdot(x, point) + o, y)
            for i in range(size):
                gradient[i] += s * slope * x[i] / self.n
                for j in range(size):
                    hessian[i, j] += s * curve * x[i] * x[j] / self.n
        for i in range(d):
            gradient[i] += ridge * point[i]
            hessian[i, i] += ridge
        try:
            return list(mp.lu_solve(hessian, -gradient))
        except (ZeroDivisionError, ValueError):
            return None

    def _derivatives(self, u, y):
        name, one = self.problem.loss.name, mp.mpf(1)
        r, m = u - y, 1 - y * u
        if name == "squared":
            return r, one
        if name == "logistic":
            p = 1 / (1 + mp.exp(y * u))
            return -y * p, p * (1 - p)
        if name == "poisson":
            return mp.exp(u) - y, mp.exp(u)
        if name == "gamma":
            return 1 - y * mp.exp(-u), y * mp.exp(-u)
        if name == "huber":
            h = mp.mpf(self.problem.loss.threshold)
            return (r, one) if abs(r) <= h else (mp.sign(r) * h, mp.mpf(0))
        return (-2 * y * m, 2 * one) if m > 0 else (mp.mpf(0), mp.mpf(0))


class ExactSoftmax:
    """Several classes on pooled data: P at a point, the coefficients and the intercept of every
    class.
    """

    def __init__(self, problem: Problem, X, y, weights=None):
        self.problem, self.d = problem, X.shape[1]
        self.rows = [[*numbers(row), mp.mpf(1)] for row in dense(X)]
        self.classes, places = np.unique(y, return_inverse=True)
        self.y = places.tolist()
        self.s = numbers(np.ones(len(self.y)) if weights is None else weights)
        self.n = mp.fsum(self.s)
        self.ridge = mp.mpf(problem.penalty.strength) if problem.penalty.name == "l2" else mp.mpf(0)

    def point(self, model) -> list[list[mp.mpf]]:
        """The model's numbers, exactly."""
        held = zip(model.coef_, np.broadcast_to(model.intercept_, len(model.coef_)), strict=True)
        return [[*numbers(coef), mp.mpf(float(b))] for coef, b in held]

    def length(self, point) -> mp.mpf:
        """The norm of the coefficients."""
        return mp.norm([v for row in point for v in row[: self.d]])

    def primal(self, point) -> mp.mpf:
        """P, for no penalty or l2."""
        losses = mp.mpf(0)
        for row, y, s in zip(self.rows, self.y, self.s, strict=True):
            scores = [mp.fdot(row, own) for own in point]
            most = max(scores)
            losses += s * (most - scores[y] + mp.log(mp.fsum(mp.exp(u - most) for u in scores)))
        return losses / self.n + self.ridge * self.length(point) ** 2 / 2

    def polished(self, model, steps: int = 5) -> list[list[mp.mpf]]:
        """Newton's method in 60 digits from that model."""
        with mp.workdps(DIGITS):
            point = self.point(model)
            best = self.primal(point)
            for _ in range(steps):
                step = self._newton_step(point)
                size = len(self.rows[0])
                moved = [
                    [v + step[c * size + j] for j, v in enumerate(row)]
                    for c, row in enumerate(point)
                ]
                value = self.primal(moved)
                if value >= best:
                    break
                point, best = moved, value
            return point

    def _newton_step(self, point):
        classes, size = len(point), len(self.rows[0])
        used = size if self.problem.intercept else size - 1
        gradient, hessian = mp.matrix(classes * size, 1), mp.matrix(classes * size, classes * size)
        for row, y, s in zip(self.rows, self.y, self.s, strict=True):
            scores = [mp.fdot(row, own) for own in point]
            most = max(scores)
            shares = [mp.exp(u - most) for u in scores]
            p = [share / mp.fsum(shares) for share in shares]
            for c in range(classes):
                for j in range(used):
                    gradient[c * size + j] += s * (p[c] - (y == c)) * row[j] / self.n
                for k in range(classes):
                    curve = s * p[c] * ((c == k) - p[k]) / self.n
                    for j in range(used):
                        for i in range(used):
                            hessian[c * size + j, k * size + i] += curve * row[j] * row[i]
        for c in range(classes):
            for j in range(self.d):
                gradient[c * size + j] += self.ridge * point[c][j]
                hessian[c * size + j, c * size + j] += self.ridge
        # What all classes have in common changes nothing: the smallest curvature is 0.
        largest = max(hessian[i, i] for i in range(classes * size))
        for i in range(classes * size):
            hessian[i, i] += largest * mp.mpf(10) ** -25 + mp.mpf(10) ** -45
        return mp.lu_solve(hessian, -gradient)
