"""`kind.problems`: how a problem is checked, and completed once data, classes or the network are
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from coterie.data import Table
from coterie.problems.parts.data import Classes
from coterie.problems.problem import K

if TYPE_CHECKING:
    from coterie.networks import Network


class Problems(Generic[K]):
    """Checks and completes problems. The defaults serve one score a row and any network."""

    usual_intercept: ClassVar[bool] = False
    """Whether problems have an intercept unless they say otherwise."""
    only_sums: ClassVar[bool] = False
    """Split by users: whether users send only sums, which can be secure."""
    graph_is_data: ClassVar[bool] = False
    """Whether the network says which users are similar. Messages then travel as if through a
    server.
    """

    def check(self, problem: K) -> None:
        """Refuse what no problem of this kind can have, such as an intercept."""

    def check_columns(self, problem: K, columns: int) -> None:
        """Refuse a problem that is made for another number of columns."""

    def check_network(self, network: Any) -> None:
        """Refuse a network that this kind has no use for."""

    def outputs(self, problem: K) -> int:
        """How many scores a row has."""
        return 1

    def with_classes(self, problem: K, classes: Classes) -> K:
        """The problem, once the classes of all parties are known."""
        return problem

    def flattened(self, problem: K, columns: int) -> K:
        """The problem for all coefficients in one vector; the coefficients of one column are
        adjacent.
        """
        return problem

    def wants_ranges(self, problem: K) -> bool:
        """Whether `for_tables` needs the least and the largest value of every column."""
        return False

    def for_tables(self, problem: K, tables: Sequence[Table]) -> K:
        """The problem, once the data is known. Tables of the columns' ranges suffice."""
        return problem

    def for_graph(self, problem: K, graph: Network) -> K:
        """The problem, once the network is known."""
        return problem
