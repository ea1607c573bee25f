"""The problem: loss + penalty. The only place where a sum of losses is divided by n.

    P(w) = (1/n) Σ_i s_i ℓ(x_iᵀw + b; y_i) + g(w)                  n = Σ_i s_i, the total weight (the number of samples)
    D(v) = −(1/n) Σ_i s_i ℓ*(v_i; y_i) − g*(−(1/n) Xᵀ(s∘v))        with Σ_i s_i v_i = 0 if there is an intercept b

P(w) ≥ D(v) for all w and all v in the domain, so P(w) − D(v) bounds how far w is from the optimum. The intercept is the
last coordinate of w wherever there is one, and is never penalised.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray
from coterie.errors import InvalidProblem
from coterie.losses import LOSSES, Loss, loss
from coterie.penalties import PENALTIES, Penalty, penalty

__all__ = ["Problem"]


@dataclass(frozen=True, init=False)
class Problem:
    """(1/n) Σ loss(x_i·w + b, y_i) + g(w), by names or objects.

    Problem(loss="logistic", penalty="l1", strength=1e-3)
    Problem(loss="huber", penalty="elasticnet", strength=0.1, l1_ratio=0.5, threshold=1.35, intercept=True)
    Problem(loss=Quantile(level=0.9), penalty=Box(lower=0.0, upper=1.0))

    Parameters that are not the loss's go to the penalty; an unknown one is an error that lists the known ones.
    """

    loss: Loss
    penalty: Penalty
    intercept: bool

    def __init__(
        self,
        loss: str | Loss = "squared",
        penalty: str | Penalty = "none",
        strength: float | None = None,
        *,
        intercept: bool = False,
        **parameters: Any,
    ):
        if strength is not None:
            parameters["strength"] = strength
        if penalty == "none" and strength == 0:
            del parameters["strength"]
        object.__setattr__(self, "loss", _make_loss(loss, parameters))
        object.__setattr__(self, "penalty", _make_penalty(penalty, parameters))
        object.__setattr__(self, "intercept", bool(intercept))
        if parameters and isinstance(penalty, Penalty) and set(parameters) <= set(_parameter_names(type(penalty))):
            raise InvalidProblem(f"the penalty is given as an object: put {', '.join(parameters)} into it.")
        if parameters:
            known = sorted({*_parameter_names(type(self.loss)), *_parameter_names(type(self.penalty))})
            given = ", ".join(sorted(parameters))
            raise InvalidProblem(
                f"loss {self.loss.name!r} with penalty {self.penalty.name!r} does not take {given}"
                f"{'; it takes ' + ', '.join(known) if known else ''}."
            )

    # -- values, from sums over samples that somebody else has collected ---------------------------------------------

    def primal(self, losses: float, total: float, penalty_value: float) -> float:
        """P from Σ s_i ℓ_i, n and g(w)."""
        return losses / total + penalty_value

    def dual(self, conjugates: float, total: float, penalty_conjugate: float) -> float:
        """D from Σ s_i ℓ*_i, n and g*(−Xᵀ(s∘v)/n)."""
        return -conjugates / total - penalty_conjugate

    def slope(self, adjoint: FloatArray, total: float) -> FloatArray:
        """−Xᵀ(s∘v)/n from the sum Xᵀ(s∘v): the point at which g* is evaluated."""
        return adjoint / -total

    # -- the penalty on vectors that may end with an intercept -------------------------------------------------------

    def prox(self, w: FloatArray, step: float, intercept: bool | None = None) -> FloatArray:
        """prox_{step g}(w), leaving the intercept alone. `intercept=False` for a block of columns without it."""
        if not (self.intercept if intercept is None else intercept):
            return self.penalty.prox(w, step)
        result = w.copy()
        result[:-1] = self.penalty.prox(w[:-1], step)
        return result

    def coefficients(self, w: FloatArray, intercept: bool | None = None) -> FloatArray:
        """w without its intercept."""
        return w[:-1] if (self.intercept if intercept is None else intercept) else w

    # -- for data split by features ----------------------------------------------------------------------------------

    def restrict(self, columns: npt.NDArray[np.intp]) -> Problem:
        """The same problem with the part of the penalty that acts on those columns."""
        return Problem(self.loss, self.penalty.restrict(columns), intercept=self.intercept)

    def settings(self) -> dict[str, Any]:
        """Everything that defines the problem, as plain values that JSON knows (infinite bounds are written "inf")."""
        loss_settings, penalty_settings = _spelt_out(self.loss.settings()), _spelt_out(self.penalty.settings())
        return {"loss": loss_settings, "penalty": penalty_settings, "intercept": self.intercept}

    @staticmethod
    def from_settings(settings: dict[str, Any]) -> Problem:
        """The problem that `settings()` described."""
        parts = _read_back(settings)
        return Problem(loss(**parts["loss"]), penalty(**parts["penalty"]), intercept=parts["intercept"])


def _parameter_names(entry: type[Loss] | type[Penalty]) -> list[str]:
    return [field.name for field in fields(entry)]


def _make_loss(given: str | Loss, parameters: dict[str, Any]) -> Loss:
    if isinstance(given, Loss):
        return given
    own = [name for name in _parameter_names(LOSSES[given]) if name in parameters]
    return loss(given, **{name: parameters.pop(name) for name in own})


def _make_penalty(given: str | Penalty, parameters: dict[str, Any]) -> Penalty:
    if isinstance(given, Penalty):
        return given
    own = [name for name in _parameter_names(PENALTIES[given]) if name in parameters]
    required = [f.name for f in fields(PENALTIES[given]) if f.default is MISSING and f.default_factory is MISSING]
    for name in required:
        if name not in own:
            raise InvalidProblem(f"penalty {given!r} needs {name}, e.g. Problem(penalty={given!r}, {name}=...).")
    return penalty(given, **{name: parameters.pop(name) for name in own})


def _spelt_out(value: Any) -> Any:
    """The same value with infinities as text and tuples as lists, as JSON has neither."""
    if isinstance(value, dict):
        return {name: _spelt_out(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_spelt_out(part) for part in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _read_back(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _read_back(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_read_back(part) for part in value]
    return float(value) if value in ("inf", "-inf") else value
