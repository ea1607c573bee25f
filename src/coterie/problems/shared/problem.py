"""A common linear model, and penalised deviations of every user from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import as_number
from coterie.numerics.losses import Loss
from coterie.numerics.penalties import Penalty
from coterie.numerics.penalties.l2 import L2
from coterie.problems import kind_named
from coterie.problems.problem import Problem

if TYPE_CHECKING:
    from coterie.problems.kind import Kind

STRENGTH = 1e-3
"""Default strength of the common model's l2 penalty, and default of ν if μ is infinite."""


@dataclass(frozen=True, init=False)
class Shared(Problem[Loss]):
    """A common linear model, and penalised deviations of every user from it. The objective is

        (1/N) Σ_u Σ_i s_i ℓ(⟨x_i, w + δ_u⟩ + b + β_u)  +  g(w)  +  (μ/2) Σ_u ‖δ_u‖²  +  (ν/2) Σ_u
        β_u²

    Shared(loss="logistic", penalty="l2", strength=1e-3, mu=0.1)
    Shared(loss="squared", penalty="l1", strength=1e-2, mu=math.inf, nu=1e-3)

    loss, penalty   as in `Problem`: the penalty is that of the common coefficients w
    mu              μ: strength of the penalty on the deviations of users' coefficients; inf: no
                    user's coefficients deviate
    nu              ν: strength of the penalty on the deviations of users' intercepts; default: μ,
                    or 0.001 if μ is inf; inf: no user's intercept deviates

    Assume N rows in all and K users with about N/K rows each. Then μ = 0.1/K has the effect on one
    user that an l2 penalty of strength 0.1 has in a separate problem for this user. μ = ν = inf
    gives one model for all users. Small μ and ν give almost separate models.
    """

    mu: float
    nu: float

    def __init__(
        self,
        loss: str | Loss = "logistic",
        penalty: str | Penalty = "l2",
        strength: float | None = None,
        *,
        mu: float = 0.01,
        nu: float | None = None,
        intercept: bool | None = None,
        **parameters: Any,
    ):
        if penalty == "l2" and strength is None:
            strength = STRENGTH
        super().__init__(loss, penalty, strength, intercept=intercept, **parameters)
        if self.penalty.for_matrices or not isinstance(self.loss, Loss):
            raise InvalidProblem(
                "models with deviations take a loss of one score, and a penalty of a vector."
            )
        for name, value in {"mu": mu, "nu": mu if nu is None else nu}.items():
            if not as_number(value) > 0:
                raise InvalidProblem(
                    f"{name} must be a positive number or inf, not {value!r}. With inf, no user "
                    "deviates."
                )
        usual = mu if math.isfinite(mu) else STRENGTH
        object.__setattr__(self, "mu", float(mu))
        object.__setattr__(
            self, "nu", float(usual if nu is None else nu) if self.intercept else math.inf
        )

    @property
    def kind(self) -> Kind[Any, Any]:
        """The kind of shared problems."""
        return kind_named("shared")

    @property
    def deviations(self) -> tuple[L2 | None, L2 | None]:
        """The penalties of one user's deviations, of coefficients and of the intercept. None means
        that these do not deviate.
        """
        first, second = (
            L2(number) if math.isfinite(number) else None for number in (self.mu, self.nu)
        )
        return first, second

    def but(self, **changes: Any) -> Shared:
        """The same problem with some parameters changed."""
        return self.changed(**changes)

    def _parameters(self) -> dict[str, Any]:
        return {**super()._parameters(), **self._own()}

    def settings(self) -> dict[str, Any]:
        """Everything that defines the problem, as plain values."""
        own = {
            name: str(value) if math.isinf(value) else value for name, value in self._own().items()
        }
        return {**super().settings(), "shared": own}

    def _own(self) -> dict[str, float]:
        return {"mu": self.mu, "nu": self.nu}

    @staticmethod
    def from_settings(settings: dict[str, Any]) -> Shared:
        """The problem that `settings()` described."""
        base = Problem.from_settings(settings)
        own = {name: float(value) for name, value in settings["shared"].items()}
        return Shared(base.loss, base.penalty, intercept=base.intercept, **own)
