"""The index of a kind of problem: names, classes, and one small object for each part that depends
on the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from coterie.data.labels import Labels
from coterie.numerics.losses import Fit
from coterie.problems.parts.data import Data
from coterie.problems.parts.local import Local
from coterie.problems.parts.models import M, Models
from coterie.problems.parts.problems import Problems
from coterie.problems.parts.proof import Proof
from coterie.problems.parts.report import Report
from coterie.problems.parts.stats import Stats
from coterie.problems.problem import K

if TYPE_CHECKING:
    from coterie.methods import Method


class Kind(ABC, Generic[K, M]):
    """One kind of problem. Everything that depends on the kind is in one of its objects."""

    name: ClassVar[str]
    called: ClassVar[str]
    """The name of its models in reports."""
    losses: ClassVar[Mapping[str, type[Fit]]] = {}
    """The losses of a `Problem` of this kind, by name."""
    loss_class: ClassVar[type[Fit] | None] = None
    """The class of these losses. It also recognises a loss that is given as an object."""
    for_matrices: ClassVar[bool] = False
    """Whether the penalty is on matrices."""
    model_class: type[M]
    methods: ClassVar[tuple[type[Method[Any, Any]], ...]] = ()
    """Methods that only this kind has; they are registered with the kind."""
    exact_methods: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """By split, the names of methods that may replace a stalled method of an automatic run, in
    order of preference.
    """

    labels: ClassVar[Labels] = Labels()
    """The columns of labels."""
    data: Data[K] = Data()
    """Checks tables and encodes labels."""
    problems: Problems[K] = Problems()
    """Checks and completes problems."""
    local: Local[K] = Local()
    """Computes the loss of an agent's own rows."""

    @property
    @abstractmethod
    def proof(self) -> Proof[K]:
        """Introduces agents and certifies points."""

    @property
    @abstractmethod
    def models(self) -> Models[K, M]:
        """Assembles models from points and takes them apart."""

    @property
    @abstractmethod
    def report(self) -> Report[K, M]:
        """Describes problems and models in words."""

    @property
    def stats(self) -> Stats[K, M]:
        """Evaluates models and computes standard errors."""
        return Stats()
