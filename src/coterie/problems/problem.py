"""The problem: loss + penalty. Only this file divides a sum of losses by n.

    P(w) = (1/n) Σ_i s_i ℓ(x_iᵀw + b; y_i) + g(w)                  n = Σ_i s_i, the total weight
    (the number of samples)
    D(v) = −(1/n) Σ_i s_i ℓ*(v_i; y_i) − g*(−(1/n) Xᵀ(s∘v))        with Σ_i s_i v_i = 0 if there is
    an intercept b

With an offset, a number o_i of every sample is added to its score: ℓ(x_iᵀw + b + o_i; y_i), and
−o_i v_i to ℓ*.

P(w) ≥ D(v) for all w and all v in the domain, so P(w) − D(v) bounds the distance of P(w) from the
minimum. An intercept is the last coordinate of w, and has no penalty.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem, NotRegistered, UnknownName, did_you_mean
from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import LOSSES, Fit, Loss
from coterie.numerics.penalties import PENALTIES, Penalty, Step, penalty
from coterie.problems import kinds
from coterie.problems.column_penalties import (
    ColumnsOfAll,
    Factors,
    Pending,
    of_parties,
    strengths_of,
    with_factors,
)
from coterie.problems.low_rank.tasks import TASKS

if TYPE_CHECKING:
    from coterie.problems.kind import Kind


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    F = TypeVar("F", bound=Fit, default=Loss, covariant=True)
    P = TypeVar("P", bound="AnyProblem", default="Problem[Loss]", covariant=True)
    Q = TypeVar("Q", bound="AnyProblem", default="Problem[Loss]")
    K = TypeVar("K", bound="AnyProblem")
else:
    from typing import TypeVar

    F = TypeVar("F")
    P = TypeVar("P")
    Q = TypeVar("Q")
    K = TypeVar("K")


class AnyProblem(ABC):
    """A convex problem of any kind."""

    intercept: bool
    """Whether the model has an intercept. For `None`, the kind determines it."""
    offset: bool
    """Whether a number of every row is added to its score. `solve` sets it, if the data has
    offsets.
    """

    @property
    @abstractmethod
    def kind(self) -> Kind[Any, Any]:
        """The objects that depend on the kind of problem: labels, local loss, proof, model,
        report.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that defines the problem, as plain values."""

    @cached_property
    def outputs(self) -> int:
        """The number of scores of a row: one, or one for each class."""
        return self.kind.problems.outputs(self)

    def with_classes(self, classes: npt.NDArray[Any] | None) -> Self:
        """The same problem with the classes of all parties, if it depends on them."""
        found: Self = self.kind.problems.with_classes(self, classes)
        return found

    def flattened(self, columns: int) -> Self:
        """The same problem for coefficients of several scores in one vector; the coefficients of a
        column are adjacent.
        """
        found: Self = self.kind.problems.flattened(self, columns)
        return found

    def with_offset(self) -> Self:
        """The same problem with a number of every row added to its score."""
        raise InvalidProblem(f"a {self.kind.called} takes no offset. Leave it out.")

    def with_columns(self, columns: ColumnsOfAll) -> Self:
        """The same problem for these columns of all parties, if its penalty depends on them."""
        return self

    def restrict(self, columns: npt.NDArray[np.intp]) -> Self:
        """The same problem with the part of the penalty that acts on those columns."""
        raise InvalidProblem(f"a {self.kind.called} has no parts by columns.")

    # -- values, from sums over samples ------------------------------------------------------------

    def primal(self, losses: float, total: float, penalty_value: float) -> float:
        """P from Σ s_i ℓ_i, n and g(w)."""
        return losses / total + penalty_value

    def dual(self, conjugates: float, total: float, penalty_conjugate: float) -> float:
        """D from Σ s_i ℓ*_i, n and g*(−Xᵀ(s∘v)/n)."""
        return -conjugates / total - penalty_conjugate

    def negative_gradient(self, adjoint: FloatArray, total: float) -> FloatArray:
        """−Xᵀ(s∘v)/n from the sum Xᵀ(s∘v), the argument of g*."""
        return adjoint / -total


@dataclass(frozen=True, init=False)
class Problem(AnyProblem, Generic[F]):
    """(1/n) Σ loss(x_i·w + b, y_i) + g(w), by names or objects.

    Problem(loss="logistic", penalty="l1", strength=1e-3)
    Problem(loss="huber", penalty="elasticnet", strength=0.1, l1_ratio=0.5, threshold=1.35,
    intercept=False) Problem(loss=Quantile(level=0.9), penalty=Box(lower=0.0, upper=1.0))
    Problem(loss="multinomial", penalty="traceball", radius=30.0)

    The loss determines the kind of problem (`kind`). With a penalty on matrices, the model is a
    matrix of low rank. "multinomial" is a linear model of several classes, or a low-rank model with
    such a penalty. "cox" is proportional hazards; with agent_strata=True, data in one piece may be
    split over agents, each a stratum.

    Linear models and models of several classes have an intercept without a penalty;
    `intercept=False` leaves it out. Models with a penalty on matrices have none unless
    `intercept=True`, and cox never has one.

    Parameters that the loss does not have go to the penalty. An unknown parameter is an error that
    lists the known ones.

    `factors` multiply the strength of l1, l2 or elasticnet column by column: a list with one number
    per column, or a dict by the names of columns, 1 for the others. A column with factor 0 is
    unpenalised. A strength of several numbers has one per column. For data split by features, a
    list of penalties has one for the columns of each party.

    Problem(loss="logistic", penalty="l1", strength=1e-2, factors={"age": 0})
    Problem(loss="squared", penalty=[L1(0.1), L2(0.5)])
    """

    loss: F
    penalty: Penalty
    intercept: bool
    offset: bool = field(repr=False)
    _kind: Kind[Any, Any] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        loss: str | Fit = "squared",
        penalty: str | Penalty | Sequence[Any] = "none",
        strength: float | Sequence[float] | None = None,
        *,
        intercept: bool | None = None,
        offset: bool = False,
        factors: Factors | None = None,
        **parameters: Any,
    ):
        strength, factors = _of_columns(strength, factors)
        if strength is not None:
            parameters["strength"] = strength
        if isinstance(penalty, str) and penalty == "none" and strength == 0:
            del parameters["strength"]
        if isinstance(penalty, Sequence) and not isinstance(penalty, str):
            penalty = of_parties(penalty, parameters.pop("strength", 1.0))
        if isinstance(penalty, Penalty):
            for_matrices = penalty.for_matrices
        else:
            for_matrices = PENALTIES[penalty].for_matrices
        kind = _kind_for(loss, for_matrices)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "loss", _make_fit(kind, loss, parameters))
        made = _make_penalty(penalty, parameters)
        if factors is not None:
            made = with_factors(made, factors)
        object.__setattr__(self, "penalty", made)
        if intercept is None:
            chosen = self.kind.problems.usual_intercept
        else:
            chosen = bool(intercept)
        object.__setattr__(self, "intercept", chosen)
        object.__setattr__(self, "offset", bool(offset))
        self.kind.problems.check(self)
        if parameters:
            self._refuse(parameters, isinstance(penalty, Penalty))

    def _refuse(self, unused: dict[str, Any], penalty_is_object: bool) -> None:
        """Refuse parameters that neither the loss nor the penalty has taken."""
        of_loss = _parameter_names(type(self.loss))
        of_penalty = _parameter_names(type(self.penalty))
        if penalty_is_object and set(unused) <= set(of_penalty):
            raise InvalidProblem(
                f"the penalty is given as an object: put {', '.join(unused)} into it."
            )
        known = sorted({*of_loss, *of_penalty, "intercept", "factors"})
        given = ", ".join(sorted(unused))
        hint = did_you_mean(next(iter(unused)), known)
        message = (
            f"loss {self.loss.name!r} with penalty {self.penalty.name!r} does not take {given}; it "
            f"takes {', '.join(known)}. {hint}"
        )
        raise InvalidProblem(message.rstrip())

    # -- the kind of problem -----------------------------------------------------------------------

    @property
    def kind(self) -> Kind[Any, Any]:
        """The objects that depend on the kind of problem: labels, local loss, proof, model, report.

        It travels with the problem: a worker need not have registered a kind that is pickled by
        value.
        """
        return self._kind

    def changed(self, **parts: Any) -> Self:
        """The same problem with another loss, penalty, intercept or offset."""
        return type(self)(**{**self._parameters(), **parts})

    def _parameters(self) -> dict[str, Any]:
        """The arguments that make this problem again."""
        return {
            "loss": self.loss,
            "penalty": self.penalty,
            "intercept": self.intercept,
            "offset": self.offset,
        }

    def with_offset(self) -> Self:
        return self.changed(offset=True)

    def with_columns(self, columns: ColumnsOfAll) -> Self:
        if not isinstance(self.penalty, Pending):
            return self
        return self.changed(penalty=self.penalty.resolved(columns))

    # -- the penalty on vectors that may end with an intercept -------------------------------------

    def prox(self, w: FloatArray, step: Step, intercept: bool | None = None) -> FloatArray:
        """prox_{step g}(w), which keeps the intercept. `intercept=False` is for a block of columns
        without it.

        The step is one number, or one per entry of w as `tied` gives them.
        """
        free = self.free(intercept)
        if not free:
            return self.penalty.prox(w, step)
        result = w.copy()
        if isinstance(step, np.ndarray):
            step = step[:-free]
        result[:-free] = self.penalty.prox(w[:-free], step)
        return result

    def tied(self, steps: FloatArray, intercept: bool | None = None) -> FloatArray:
        """Steps per entry of w that `prox` can take: lower where the penalty ties columns
        together.
        """
        coefficients = self.penalty.tied(self.coefficients(steps, intercept))
        return np.append(coefficients, steps[coefficients.size :])

    def coefficients(self, w: FloatArray, intercept: bool | None = None) -> FloatArray:
        """w without its intercept, or intercepts."""
        return w[: len(w) - self.free(intercept)]

    def free(self, intercept: bool | None = None) -> int:
        """The number of entries at the end of w that have no penalty."""
        if intercept is None:
            intercept = self.intercept
        return intercept * self.outputs

    # -- for data split by features ----------------------------------------------------------------

    def restrict(self, columns: npt.NDArray[np.intp]) -> Self:
        return self.changed(penalty=self.penalty.restrict(columns))

    def settings(self) -> dict[str, Any]:
        """Everything that defines the problem, as plain values for JSON (infinite bounds are
        "inf").
        """
        loss_settings = _spelt_out(self.loss.settings())
        penalty_settings = _spelt_out(self.penalty.settings())
        settings = {
            "loss": loss_settings,
            "penalty": penalty_settings,
            "intercept": self.intercept,
        }
        if self.offset:
            settings["offset"] = True
        return settings

    @staticmethod
    def from_settings(settings: dict[str, Any]) -> Problem[Any]:
        """The problem with these `settings()`; an unknown name has to be registered first."""
        parts = _read_back(settings)
        try:
            chosen = penalty(**parts["penalty"])
            named = dict(parts["loss"])
            name = named.pop("name", None)
            kind = _kind_for(name, chosen.for_matrices)
            fit = kind.losses[name](**named)
        except UnknownName as error:
            if isinstance(error.name, str):
                raise NotRegistered(error) from None
            raise
        offset = parts.get("offset", False)
        return Problem(fit, chosen, intercept=parts["intercept"], offset=offset)


def _of_columns(
    strength: float | Sequence[float] | None, factors: Factors | None
) -> tuple[float | None, Factors | None]:
    """The strength as one number, and the factors of columns. Strengths of columns are factors of
    strength 1.
    """
    several = strengths_of(strength)
    if several is None:
        one: Any = strength
        return one, factors
    if factors is not None:
        raise InvalidProblem(
            "strength has one number per column, and factors multiply one strength. Give a single "
            "strength with factors, or leave factors out."
        )
    return 1.0, several


def _parameter_names(entry: type[Fit] | type[Penalty]) -> list[str]:
    return [field.name for field in fields(entry)]


def _kind_for(given: str | Fit, for_matrices: bool) -> Kind[Any, Any]:
    """The kind that has this loss."""
    for kind in kinds():
        if kind.for_matrices == for_matrices and _takes(kind, given):
            return kind
    if isinstance(given, Fit):
        name = given.name
    else:
        name = given
    fitting = _losses_of_kinds(for_matrices)
    others = _losses_of_kinds(not for_matrices)
    if for_matrices and name in others:
        raise InvalidProblem(
            f"{name} with a penalty on matrices is not known; use one of {', '.join(fitting)}."
        )
    if name in others:
        raise InvalidProblem(
            f"{name} fits a matrix: give it a penalty on matrices, penalty='traceball' with "
            "radius=."
        )
    if for_matrices:
        raise TASKS.unknown(name, also=fitting)
    raise LOSSES.unknown(name, also=fitting)


def _takes(kind: Kind[Any, Any], given: str | Fit) -> bool:
    """Whether this may be the loss of a problem of that kind."""
    if isinstance(given, Fit):
        return kind.loss_class is not None and isinstance(given, kind.loss_class)
    return isinstance(given, str) and given in kind.losses


def _losses_of_kinds(for_matrices: bool) -> list[str]:
    names: list[str] = []
    for kind in kinds():
        if kind.for_matrices == for_matrices:
            names += kind.losses
    return names


def _make_fit(kind: Kind[Any, Any], given: str | Fit, parameters: dict[str, Any]) -> Any:
    if isinstance(given, Fit):
        return given
    entry = kind.losses[given]
    own = [name for name in _parameter_names(entry) if name in parameters]
    return entry(**{name: parameters.pop(name) for name in own})


def _make_penalty(given: str | Penalty, parameters: dict[str, Any]) -> Penalty:
    if isinstance(given, Penalty):
        return given
    entry = PENALTIES[given]
    own = [name for name in _parameter_names(entry) if name in parameters]
    for parameter in fields(entry):
        name = parameter.name
        required = parameter.default is MISSING and parameter.default_factory is MISSING
        if required and name not in own:
            meant = [other for other in parameters if did_you_mean(other, [name])]
            if meant:
                spelt = f" You gave {meant[0]}, which is not its name."
            else:
                spelt = ""
            raise InvalidProblem(
                f"penalty {given!r} needs {name}, e.g. Problem(penalty={given!r}, "
                f"{name}=...).{spelt}"
            )
    return penalty(given, **{name: parameters.pop(name) for name in own})


def _spelt_out(value: Any) -> Any:
    """The same value with infinities as text and tuples as lists, as JSON has neither."""
    if isinstance(value, dict):
        return {name: _spelt_out(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_spelt_out(part) for part in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def _read_back(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _read_back(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_read_back(part) for part in value]
    if value in ("inf", "-inf"):
        return float(value)
    return value
