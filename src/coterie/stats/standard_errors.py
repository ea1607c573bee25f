"""Compute standard errors, tests and intervals of the coefficients, from one more round at the
fitted model.

    J = Σ s ℓ'' x xᵀ       information; gamma, model-based: the expected one, Σ s x xᵀ, as
                           statsmodels has it
    φ = Σ s ℓ'² / (n − k)   dispersion of squared (the residual variance) and gamma (Pearson's); 1
                            for all others
    model      φ J⁻¹
    robust     c J⁻¹ (Σ s ℓ'² x xᵀ) J⁻¹
    clustered  c J⁻¹ (Σ_c g_c g_cᵀ) J⁻¹, g_c = Σ s ℓ' x

Weights s have one of three meanings, as in Stata:

    frequency  [fw]  a row counts s times: n = Σ s
    precision  [aw]  s is an inverse variance up to a factor: s is scaled to a sum of n rows
    sampling   [pw]  s is an inverse probability of selection: Σ s² ℓ'² x xᵀ in the middle, and
                     never φ J⁻¹

The last two do not depend on the scale of s. Corrections c, for n rows, k coefficients and C
clusters:

    HC0, CR0   1                                  z
    HC1        n/(n − k)                          z; squared: t with n − k degrees of freedom
    CR1        C/(C − 1), squared: · (n − 1)/(n − k)   t with C − 1 (Stata's)
    CR1S       C/(C − 1) · (n − 1)/(n − k)        z (the default of statsmodels)
    CR2        adjusted scores (see `information`)     t with Satterthwaite's degrees of freedom

Without a choice: HC0; for sampling weights Stata's n/(n − k) for squared and n/(n − 1) for all
others. Clusters: CR1S (cox: CR0; sampling weights: CR1), and below 30 of them CR2, or CR1 where
parties share clusters and for cox.

For cox, J is the Hessian of the partial likelihood, and a row's score is that of Lin and Wei
(1989). Losses that are not likelihoods but have a second derivative (huber) are M-estimators: they
have a sandwich, and no model-based errors.

Each agent adds up its own rows. For a cluster at one party, that party sends the product of the
cluster's score with itself, as part of a sum. For a cluster at several parties, the parties send
the sum of its scores. Softmax has one class more than it needs: the coefficients are differences
from the first class. After a preparation, coefficients are given in the raw units of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from coterie.api.inference import Inference
from coterie.choices import CORRECTIONS, KINDS, WEIGHTS
from coterie.errors import InvalidData, InvalidProblem, UnknownName
from coterie.numerics.arrays import FloatArray, as_number
from coterie.numerics.losses import Fit
from coterie.problems.models import Model
from coterie.problems.parts.stats import has_standard_errors
from coterie.problems.problem import AnyProblem, Problem
from coterie.run.agent import SummaryStatistics
from coterie.stats.information import Asking, Totals

CLOSE = 0.1
"""Largest distance of a coefficient from the best model's, in standard errors."""
NOTHING, ALMOST_NOTHING = 1e-6, 1e-2
"""Clustered errors below this share of those of independent rows are rounding; the second is for
rough fits.
"""
FEW = 30
"""With fewer clusters, z and uncorrected standard errors are too small."""
STATA = "HC0 · n/(n − 1)"
"""The correction of Stata's robust errors for all models but least squares."""


@dataclass(frozen=True)
class Question:
    """The standard errors that a user asks for."""

    kind: str = "model"
    weights: str | None = None
    """The meaning of weights; None: they are counts, if they are whole numbers."""
    correction: str | None = None
    """None: the default."""
    level: float = 0.95
    second_best: bool = False
    """Whether clusters are few, and parties cannot send the sums that CR2 needs of them."""

    @staticmethod
    def of(
        kind: str, weights: str | None = None, correction: str | None = None, level: float = 0.95
    ) -> Question:
        """Check the question. Sampling weights have robust errors in place of model-based ones, as
        in Stata.
        """
        if kind not in KINDS:
            raise UnknownName("kind of inference", kind, KINDS)
        if weights is not None and weights not in WEIGHTS:
            raise UnknownName("meaning of weights", weights, WEIGHTS)
        if not 0 < as_number(level) < 1:
            raise InvalidProblem(f"level is between 0 and 1, e.g. 0.95, not {level!r}.")
        if kind == "model" and weights == "sampling":
            kind = "robust"
        if correction is not None:
            _check_correction(kind, correction)
        return Question(kind, weights, correction, level)

    @property
    def counted(self) -> bool:
        """Whether a weight counts as that many rows."""
        return self.weights in (None, "frequency")

    def settled(self, problem: Problem[Fit], clusters: int, local: bool) -> Question:
        """The same question with a correction; `local`: whether CR2 can have the sums that it
        needs of each cluster.
        """
        adjustable = problem.kind.stats.adjustable
        if self.correction == "CR2" and not adjustable:
            raise InvalidProblem(
                f"correction='CR2' is not for {problem.loss.name}. Use correction='CR1'."
            )
        if self.correction is not None:
            return self
        few = self.kind == "clustered" and clusters < FEW
        correction = self._usual(problem, clusters, local)
        second_best = few and adjustable and not local
        return replace(self, correction=correction, second_best=second_best)

    def _usual(self, problem: Problem[Fit], clusters: int, local: bool) -> str:
        stats_of = problem.kind.stats
        if self.kind == "model":
            return ""
        if self.kind == "robust":
            if self.weights != "sampling":
                return "HC0"
            if stats_of.is_least_squares(problem):
                return "HC1"
            return STATA
        if clusters < FEW and local and stats_of.adjustable:
            return "CR2"
        if clusters < FEW or self.weights == "sampling":
            return "CR1"
        return stats_of.usual_correction

    def asking(self, model: Model[Problem[Fit]], shared: tuple[int, ...] = ()) -> Asking:
        """The sums that agents compute for this question."""
        adjusted = self.correction == "CR2"
        return Asking(self.kind, shared, self.counted, adjusted, units_of(model))


def _check_correction(kind: str, correction: str) -> None:
    known = [name for names in CORRECTIONS.values() for name in names]
    if correction not in known:
        raise UnknownName("correction", correction, known)
    if correction in CORRECTIONS[kind]:
        return
    fitting = CORRECTIONS[kind]
    fix = "leave the correction out, or use kind='robust' or kind='clustered'"
    if fitting:
        fix = "use " + " or ".join(f"correction={name!r}" for name in fitting)
    raise InvalidProblem(f"correction={correction!r} is not for kind={kind!r}: {fix}.")


def check_clusters(kind: str, clusters: Any) -> None:
    """Refuse clusters for another kind than "clustered", and this one without clusters."""
    if kind == "clustered" and clusters is None:
        fix = "give clusters=, the cluster of each row"
    elif kind != "clustered" and clusters is not None:
        fix = "leave clusters out"
    else:
        return
    raise InvalidProblem(f"kind={kind!r}: {fix}, or use another kind.")


def questions_of(written: Inference) -> list[Question]:
    """The questions that can have this answer.

    The meaning of weights and the correction were either given or chosen.
    """
    weights = written.weights or None
    meanings = [weights]
    if weights == "frequency":
        meanings.append(None)
    questions = []
    for meaning in meanings:
        for second_best in (False, True):
            question = Question(
                written.kind, meaning, written.correction, written.level, second_best
            )
            questions.append(question)
    return questions


@dataclass(frozen=True)
class Received:
    """The sums of all agents at a fitted model."""

    asking: Asking
    sums: FloatArray
    statistics: SummaryStatistics
    parties: int
    clusters: int
    """The number of clusters."""


def summarised(
    model: Model[Problem[Fit]], tolerance: float, asked: Question, received: Received
) -> Inference:
    """The answer for a model that was fitted to that tolerance."""
    problem = model.problem
    stats_of = problem.kind.stats
    clusters = received.clusters
    names, fitted = stats_of.coefficients(model)
    events = stats_of.events(problem)
    totals = Totals(received.sums, len(names), received.statistics, received.asking, events)
    refuse_fractional(asked.weights, totals.fractional)
    if asked.counted:
        n = received.statistics.total
    else:
        n = totals.rows
    found = _covariance(problem, totals, names, asked, n, clusters)
    estimates = fitted
    if received.asking.units is not None:
        estimates = received.asking.units @ fitted
    errors = np.sqrt(np.maximum(np.diag(found.covariance), 0.0))
    distance = _distance(asked.kind, names, errors, totals, tolerance)
    degrees = _degrees(problem, asked, n, len(names), clusters, found.degrees)
    statistic = "z"
    law = stats.norm()
    if degrees is not None:
        statistic = "t"
        law = stats.t(degrees)
    statistics = estimates / errors
    reach = law.ppf((1 + asked.level) / 2) * errors
    intervals = np.column_stack([estimates - reach, estimates + reach])
    p_values = 2 * law.sf(np.abs(statistics))
    meaning = ""
    if totals.weighted:
        meaning = asked.weights or "frequency"
    in_fitted_units = None
    if model.preparation is not None and model.preparation.standardised:
        in_fitted_units = fitted
    return Inference(
        kind=asked.kind,
        names=names,
        estimates=estimates,
        standard_errors=errors,
        statistics=statistics,
        p_values=p_values,
        intervals=intervals,
        covariance=found.covariance,
        level=float(asked.level),
        statistic=statistic,
        rows=n,
        dispersion=found.dispersion,
        distance=distance,
        ratios=stats_of.ratios,
        about=_about(model, asked, n, clusters),
        weights=meaning,
        correction=asked.correction or "",
        degrees=degrees,
        notes=tuple(_notes(model, asked, totals, n, received.parties)),
        warnings=tuple(_warnings(asked, totals, clusters, degrees)),
        fitted=in_fitted_units,
        clusters=clusters,
        clusters_shared=len(received.asking.shared),
        sums=received.sums,
    )


def _distance(
    kind: str, names: tuple[str, ...], errors: FloatArray, totals: Totals, tolerance: float
) -> float:
    """The distance of the coefficients from the best ones, in standard errors. Refused for models
    that fit all rows or clusters exactly, or whose fit is rough.
    """
    steps = np.abs(totals.step())
    if kind == "clustered":
        _refuse_exhausted(names, errors, totals.usual_errors(), steps)
    if not (np.isfinite(errors).all() and (errors > 0).all()):
        raise InvalidData(
            "the model fits every row exactly: the data does not show how uncertain it is."
        )
    distance = float((steps / errors).max())
    _refuse_unfinished(tolerance, distance)
    return distance


# -- refusals --------------------------------------------------------------------------------------


def check_problem(problem: AnyProblem, split: str, kind: str = "model") -> None:
    """Refuse, with the reason, a problem whose coefficients have no standard errors of that
    kind.
    """
    if not has_standard_errors(problem):
        raise InvalidProblem(
            f"there are no standard errors for a {problem.kind.called}: only for models of rows."
        )
    if problem.loss.dispersion is None:
        name = problem.loss.name
        if not problem.loss.smooth:
            raise InvalidProblem(
                f"the {name} loss has no second derivative, which standard errors need. "
                f"{_INSTEAD.get(name, 'Bootstrap the fit')}."
            )
        if kind == "model":
            raise InvalidProblem(
                f"the {name} loss is not a likelihood, so it has no model-based standard errors. "
                "Use kind='robust', or kind='clustered' with clusters: sandwich standard errors "
                "hold for it."
            )
    if not problem.penalty.is_zero:
        raise InvalidProblem(
            f"the {problem.penalty.name} penalty biases the coefficients, so that standard errors "
            "and intervals would not hold. Fit again with penalty 'none'."
        )
    if split != "samples":
        raise InvalidProblem(
            f"inference is for data split by samples; this is split by {split}, where parties "
            "would have to send products of their columns with those of others."
        )


_INSTEAD = {
    "absolute": (
        "Fit with loss='huber' and a small threshold and use kind='robust', or bootstrap the fit"
    ),
    "quantile": (
        "Bootstrap the fit; for the median, loss='huber' with a small threshold and kind='robust' "
        "is near it"
    ),
    "hinge": "Fit with loss='logistic', or with loss='squared_hinge' and kind='robust'",
}
"""Advice for losses without standard errors."""


def refuse_few_clusters(model: Model[Problem[Fit]], count: int) -> None:
    """Refuse fewer clusters than coefficients, and a single cluster."""
    needed = count_coefficients(model)
    if count < max(needed, 2):
        raise InvalidData(
            f"there are {count} clusters and {needed} coefficients: clustered standard errors "
            "need at least as many clusters as coefficients, and two. Use robust standard errors, "
            "or fewer columns."
        )


def count_coefficients(model: Model[Problem[Fit]]) -> int:
    """The number of coefficients with standard errors."""
    names, _ = model.problem.kind.stats.coefficients(model)
    return len(names)


def refuse_fractional(weights: str | None, fractional: int) -> None:
    """Refuse to guess the meaning of weights that are not counts."""
    if weights is None and fractional:
        raise InvalidData(
            f"{fractional} of the rows have weights that are not whole numbers, so the weights are "
            "not counts. State their meaning: weights='sampling' (inverse probabilities of "
            "selection), weights='precision' (inverse variances), or weights='frequency'."
        )


def _refuse_exhausted(
    names: tuple[str, ...], errors: FloatArray, usual: FloatArray, steps: FloatArray
) -> None:
    """Refuse coefficients that fit every cluster exactly; `usual`: the errors of independent
    rows.
    """
    rough = steps > CLOSE * errors
    shares = np.where(rough, ALMOST_NOTHING, NOTHING)
    nothing = errors < shares * usual
    if nothing.any():
        exact = [name for name, none in zip(names, nothing, strict=True) if none]
        involved = ", ".join(exact)
        raise InvalidData(
            f"the clusters do not determine how uncertain the coefficients of {involved} are: "
            "every "
            "cluster is fitted exactly, because as many columns are constant within clusters as "
            "there are clusters. Leave columns out, or use robust standard errors."
        )


def _refuse_unfinished(tolerance: float, distance: float) -> None:
    if distance > CLOSE:
        tol = tolerance * (0.1 * CLOSE / distance) ** 2
        raise InvalidData(
            f"the model is not exact enough: a coefficient is about {distance:.2g} standard errors "
            f"from the best one. Fit again with tol={tol:.0e}."
        )


# -- numbers ---------------------------------------------------------------------------------------


def units_of(model: Model[Problem[Fit]]) -> FloatArray | None:
    """The matrix from the coefficients of prepared columns to those of raw units; None: they are
    equal.
    """
    if model.preparation is None:
        return None
    A, constants = model.preparation.units()
    d = len(A)
    if np.array_equal(A, np.eye(d)) and not constants.any():
        return None
    block = np.eye(d + model.problem.intercept)
    block[:d, :d] = A.T
    if model.problem.intercept:
        block[d, :d] = constants
    one = np.eye(model.problem.kind.stats.blocks(model))
    return np.kron(one, block)


@dataclass(frozen=True)
class Uncertainty:
    """The covariance of the reported coefficients, and the numbers that it follows from."""

    covariance: FloatArray
    dispersion: float
    degrees: FloatArray | None
    """The degrees of freedom of CR2."""


def _covariance(
    problem: Problem[Fit],
    totals: Totals,
    names: tuple[str, ...],
    asked: Question,
    n: float,
    clusters: int,
) -> Uncertainty:
    """The covariance of the reported coefficients."""
    k = totals.k
    if n <= k:
        raise InvalidData(
            f"{n:g} rows do not determine how uncertain {k} coefficients are. There must be more "
            "rows "
            "than coefficients; a weight counts as that many rows."
        )
    curved = ""
    if problem.loss.name == "huber":
        curved = "within the threshold"
    may_be_infinite = problem.kind.stats.may_be_infinite(problem)
    half = totals.half(names, may_be_infinite, curved)
    scale = 1.0
    if not asked.counted:
        # Weights that are not counts are scaled so that their sum is the number of rows.
        scale = n / totals.statistics.total
    dispersion = 1.0
    if problem.loss.dispersion:
        dispersion = scale * totals.residuals / (n - k)
    degrees = None
    inner: FloatArray
    if asked.kind == "model":
        inner = dispersion / scale * (half @ half.T)
    elif asked.correction == "CR2":
        inner, degrees = totals.adjusted(half)
    else:
        factor = _correction(problem, asked, n, k, clusters)
        inner = factor * totals.sandwich(half)
    plain = totals.plain
    covariance: FloatArray = plain @ inner @ plain.T
    symmetric = (covariance + covariance.T) / 2
    return Uncertainty(symmetric, dispersion, degrees)


def _correction(problem: Problem[Fit], asked: Question, n: float, k: int, clusters: int) -> float:
    """The factor of the sandwich."""
    correction = asked.correction
    if correction in ("HC0", "CR0"):
        return 1.0
    if correction == "HC1":
        return n / (n - k)
    if correction == STATA:
        return n / (n - 1)
    assert correction in ("CR1", "CR1S")
    factor = clusters / (clusters - 1)
    if correction == "CR1S" or problem.kind.stats.is_least_squares(problem):
        return factor * (n - 1) / (n - k)
    return factor


def _degrees(
    problem: Problem[Fit],
    asked: Question,
    n: float,
    k: int,
    clusters: int,
    adjusted: FloatArray | None,
) -> FloatArray | None:
    """The degrees of freedom of t for every coefficient; None: tests are of z."""
    if asked.correction == "CR2":
        return adjusted
    if asked.correction == "CR1":
        return np.full(k, clusters - 1.0)
    exact = asked.kind == "model" or asked.correction == "HC1"
    if exact and problem.kind.stats.is_least_squares(problem):
        return np.full(k, n - k)
    return None


# -- words -----------------------------------------------------------------------------------------


def _about(model: Model[Problem[Fit]], asked: Question, n: float, clusters: int) -> str:
    """Loss, kind and clusters, in words."""
    problem = model.problem
    reference = problem.kind.stats.reference(model)
    text = f"{problem.loss.name}{reference}: {asked.kind} standard errors"
    if asked.correction not in ("", "CR1S", "CR0"):
        text += f" ({asked.correction})"
    if asked.kind == "clustered":
        text += f" by {clusters} clusters"
    return f"{text}, n = {n:.10g}"


def _notes(
    model: Model[Problem[Fit]], asked: Question, totals: Totals, n: float, parties: int
) -> list[str]:
    """Notes on events, units and the meaning of weights."""
    problem = model.problem
    notes: list[str] = problem.kind.stats.notes(model, totals.events, n)
    strata = problem.kind.report.note(problem, parties)
    if strata:
        notes.append(f"baseline hazards: {strata.rstrip('.').lower()}")
    notes.append(f"coefficients: {problem.kind.stats.meaning(problem)} per unit of the column")
    if totals.asking.units is not None:
        notes[-1] += ", in raw units (the fit scaled the columns)"
        constant = problem.kind.stats.constant(model)
        if constant and not problem.intercept:
            notes.append(
                f"constant: {constant:.5g} (fixed: the columns were centred, and there is no "
                "intercept)"
            )
    if totals.weighted:
        notes.append(f"weights: {_MEANINGS[asked.weights]}")
    return notes


_MEANINGS = {
    None: "frequency, because all are whole numbers (a row counts as that many rows; state it if "
    "they are sampling or precision weights)",
    "frequency": "frequency (a row counts as that many rows)",
    "sampling": "sampling (inverse probabilities of selection; their scale does not matter)",
    "precision": "precision (inverse variances; their scale does not matter)",
}


def _warnings(
    asked: Question, totals: Totals, clusters: int, degrees: FloatArray | None
) -> list[str]:
    """Reasons why the numbers may be less reliable than they look."""
    found = []
    if asked.weights == "frequency" and totals.fractional:
        found.append(
            f"{totals.fractional} of the frequency weights are not whole numbers, but they count "
            "equal rows. If they are not counts, use weights='sampling' or weights='precision'."
        )
    if asked.kind == "clustered" and clusters < FEW:
        used = f"{asked.correction}, {_tests(degrees)}"
        text = f"there are only {clusters} clusters ({used}). Intervals may still be too short."
        if asked.second_best:
            text += (
                " CR2 is more reliable. It needs each cluster within one party, and between "
                "organisations budgets that allow its sums."
            )
        found.append(text)
    return found


def _tests(degrees: FloatArray | None) -> str:
    """The statistic of the tests, in words."""
    if degrees is None:
        return "z"
    span = f"{degrees.min():.3g}"
    most = f"{degrees.max():.3g}"
    if most != span:
        span += f" to {most}"
    return f"t with {span} degrees of freedom"
