"""`kind.problems`: checks a problem, and completes it once data, classes or the network are
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from coterie.data.remote_table import AnyTable
from coterie.problems.parts.data import Classes
from coterie.problems.problem import K

if TYPE_CHECKING:
    from coterie.networks import Network


class Problems(Generic[K]):
    """Checks and completes problems. The defaults serve one score per row and any network."""

    usual_intercept: ClassVar[bool] = False
    """Whether problems have an intercept by default."""
    only_sums: ClassVar[bool] = False
    """Split by users: whether users send only sums, which can be secure."""
    graph_is_data: ClassVar[bool] = False
    """Whether edges of the network join similar users. Messages then travel as if through a server.
    """

    def check(self, problem: K) -> None:
        """Refuse parameters that problems of this kind cannot have, such as an intercept."""

    def check_columns(self, problem: K, columns: int) -> None:
        """Refuse a problem for another number of columns."""

    def check_network(self, network: Any) -> None:
        """Refuse a network that this kind cannot use."""

    def outputs(self, problem: K) -> int:
        """The number of scores of a row."""
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

    def for_tables(self, problem: K, tables: Sequence[AnyTable]) -> K:
        """The problem, once the data is known. Tables of the columns' ranges suffice."""
        return problem

    def for_graph(self, problem: K, graph: Network) -> K:
        """The problem, once the network is known."""
        return problem
