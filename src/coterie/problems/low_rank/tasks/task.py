"""The base of all tasks: learn a d × m matrix W from the samples of many agents, F(W) = Σ_j F_j(W).

The four functions of a task in the paper (Zheng, Bellet, Gallinari, section 3.3):

| paper        | code                     | meaning
|
|--------------|--------------------------|------------------------------------------------------------|
| `stats`      | `Task.stats`             | the sufficient information of one agent, an
`Information`  |
| `update`     | `Information.move`       | W ← (1 − γ) W + γ·scale·u vᵀ, without forming W
|
| `linesearch` | `Information.gradients`  | φ'(γ), φ''(γ) for φ(γ) = F_j((1 − γ) W + γ·scale·u vᵀ):
|
|              |                          | their sums give γ
|
| `loss`       | `Information.loss`       | F_j(W): a sum over samples, never a mean
|

An `Information` also multiplies ∇F_j(W) by vectors. Its "dense" form keeps d × m matrices, its
"implicit" form (the paper's "low-rank") nothing larger than the agent's own n_j × (d + m) numbers.

With an intercept the scores are (X − 1x̄ᵀ) W + 1bᵀ, with `Means` that all parties agree on; X is
never written down without its means. For least squares b is the mean of the labels, whatever W is.
For classes, and for entries with a number of every row and column, b follows W
(`certificate.intercepts`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.data.remote_table import AnyTable
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, host
from coterie.numerics.backends import backend
from coterie.numerics.losses import Fit

INFORMATION = ("auto", "dense", "implicit")
DEVICE_NUMBERS = 1 << 28
"""Numbers of X and of the scores that a certificate processes together on a GPU."""


class Means(NamedTuple):
    """The means of all parties' data, which an intercept subtracts at W = 0."""

    left: FloatArray
    """x̄, the mean of every column of X; for entries, the mean of every row of the matrix."""
    right: FloatArray
    """b at W = 0: the mean of every label, or the logarithm of every class's share; for entries,
    the mean of every column of the matrix.
    """


class Information(ABC):
    """The sufficient information of one agent's samples at the current W. Vectors may be blocks:
    (m,) or (m, k).
    """

    dtype: np.dtype[Any]
    """The precision of its messages."""

    @property
    def b(self) -> FloatArray | None:
        """The intercept of centred columns, if it follows W."""
        return None

    @abstractmethod
    def forward(self, u: FloatArray) -> Any:
        """X u for left vectors u, an argument of the functions below."""

    @abstractmethod
    def reset(self, left: FloatArray, right: FloatArray, scores: Any = None) -> None:
        """Set W = left rightᵀ; `scores` is `forward(left)`, if it is known."""

    @abstractmethod
    def times(self, v: FloatArray) -> FloatArray:
        """∇F_j(W) v."""

    @abstractmethod
    def times_transposed(self, u: FloatArray) -> FloatArray:
        """∇F_j(W)ᵀ u."""

    @abstractmethod
    def matrix(self) -> Any:
        """∇F_j(W) as a d × m matrix, where the data is."""

    def gradient(self) -> FloatArray:
        """∇F_j(W) as an array for a message."""
        gradient: FloatArray = host(self.matrix())
        return gradient.copy()

    @abstractmethod
    def move(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        """W ← (1 − γ) W + γ·scale·u vᵀ."""

    @abstractmethod
    def gradients(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        """φ'(γ) and φ''(γ) on the way from W to scale·u vᵀ."""

    @abstractmethod
    def loss(self) -> float:
        """F_j(W)."""

    @abstractmethod
    def inner(self) -> float:
        """⟨∇F_j(W), W⟩."""

    @abstractmethod
    def squared_norm(self) -> float:
        """‖∇F_j(W)‖²_F."""

    @abstractmethod
    def curvature(self, basis: FloatArray, scores: Any, new: int) -> FloatArray:
        """The last `new` columns of a matrix M_j with F_j(U S Vᵀ) − its linear part ≤ ½⟨S, M_j S⟩,
        U = `basis`.
        """

    @abstractmethod
    def projected(self, basis: FloatArray, scores: Any, right: FloatArray) -> FloatArray:
        """Uᵀ ∇F_j(W) V for U = `basis`, V = `right`."""

    def put(self, b: FloatArray) -> None:
        """Another intercept, if it follows W."""
        raise NotImplementedError

    def gradient_of_intercept(self) -> FloatArray:
        """∂F_j/∂b, and a diagonal that is at least the second derivative."""
        raise NotImplementedError

    def curvature_of_intercept(self, x: FloatArray) -> FloatArray:
        """∂²F_j/∂b² x."""
        raise NotImplementedError


class OnBackend(Information):
    """An `Information` whose large arrays are on the device of the data; it remembers the last
    scores that it computed.

    Where columns are centred, the linear map is X̃ = X − 1x̄ᵀ, as a product with X and one of a
    single column.
    """

    X: Any

    def __init__(self, X: Any, means: Means | None = None):
        self.backend = backend(X)
        self.dtype = self.backend.dtype
        self.centre: Any = None
        self.ones: Any = None
        if means is not None:
            self.centre = self.backend.converted(means.left)
            self.ones = self.backend.converted(np.ones(X.shape[0]))
        self._last: tuple[FloatArray, Any] | None = None

    def _scores(self, u: FloatArray) -> Any:
        """X̃ u."""
        if self._last is None or self._last[0] is not u:
            local = self.backend.converted(u)
            scores = self.backend.product(self.X, local)
            if self.centre is not None:
                scores = scores - self._outer(self.ones, self.centre @ local)
            self._last = u, scores
        return self._last[1]

    def _adjoint(self, z: Any) -> Any:
        """X̃ᵀ z."""
        return self._less_means(self.backend.adjoint(self.X, z), z)

    def _gram(self, R: Any) -> Any:
        """X̃ᵀ R as a dense array."""
        return self._less_means(self.backend.gram(self.X, R), R)

    def _gram_square(self, R: Any) -> float:
        """‖X̃ᵀ R‖²_F."""
        if self.centre is None:
            return self.backend.gram_square(self.X, R)
        G = self._gram(R)
        return self.backend.total(G, G)

    def _less_means(self, product: Any, z: Any) -> Any:
        if self.centre is None:
            return product
        return product - self._outer(self.centre, self.ones @ z)

    @staticmethod
    def _outer(column: Any, row: Any) -> Any:
        if row.ndim:
            return column[:, None] * row
        return column * row


@dataclass(frozen=True)
class Task(Fit):
    """A convex, smooth loss of a matrix. Subclasses are frozen dataclasses of their parameters."""

    name: ClassVar[str]
    kind: ClassVar[str]
    """"numbers" (rows of them), "classes" (one label per row) or "entries" (of the matrix itself).
    """
    exact: ClassVar[bool]
    """Whether F equals the quadratic with that `curvature`, which bounds it otherwise."""
    quadratic: ClassVar[bool]
    """Whether φ is a parabola, so that one pair of derivatives gives the best step size."""
    smooth: ClassVar[bool] = True
    """Whether the loss has a derivative everywhere, as for a `Loss`."""
    stages = 1
    """Number of problems in sequence, each in a ball with weights from the matrix before."""
    block_rows: ClassVar[int] = 8192
    """Number of samples that a certificate processes together."""

    @abstractmethod
    def prepared(self, tables: Sequence[Table]) -> tuple[list[Table], npt.NDArray[Any] | None]:
        """The tables checked (errors name the party), with labels as `stats` takes them, and the
        classes, if any.
        """

    def with_classes(self, classes: npt.NDArray[Any] | None) -> Task:
        """This task with the classes of all tables."""
        return self

    @property
    def outputs(self) -> int:
        """The number of columns of W, if that does not depend on the data."""
        raise NotImplementedError

    def size(self, table: AnyTable) -> tuple[int, int]:
        """(d, m): the size of W."""
        labels = math.prod(table.outputs or ())
        return self.size_for(table.d, labels)

    @abstractmethod
    def size_for(self, columns: int, labels: int) -> tuple[int, int]:
        """(d, m) for rows with that many columns and labels."""

    @abstractmethod
    def stats(
        self, table: Table, information: str = "auto", means: Means | None = None
    ) -> Information:
        """The sufficient information of one agent, at W = 0; "dense", "implicit", or "auto", the
        cheaper one.

        With `means` there is an intercept.
        """

    def sums(self, table: Table, left: FloatArray | None = None) -> FloatArray:
        """The sums for the means: Σ s x of every column; then, given these, Σ s y of every column
        of W.
        """
        raise NotImplementedError

    def mean(self, sums: FloatArray, total: float, left: FloatArray | None = None) -> FloatArray:
        """The left means, and then the right ones, from the `sums` of all parties and the weight of
        their rows.
        """
        return sums / total

    def blocks(self, table: Table) -> Iterator[Table]:
        """The table, a few rows at a time."""
        if backend(table.X).fast:
            rows = max(self.block_rows, DEVICE_NUMBERS // sum(self.size(table)))
        else:
            rows = self.block_rows
        for start in range(0, table.n, rows):
            end = min(start + rows, table.n)
            yield table.take_rows(np.arange(start, end))

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values; `task(**settings)` makes the same task."""
        return {"name": self.name, **asdict(self)}


def column_sums(table: Table) -> FloatArray:
    """Σ s x of every column."""
    home = backend(table.X)
    weights: FloatArray
    if table.weights is None:
        weights = np.ones(table.n)
    else:
        weights = table.weights
    return home.to_numpy(home.adjoint(table.X, home.converted(weights)))


def refuse_empty(tables: Sequence[Table]) -> None:
    """Every party of a low-rank problem needs rows: its gradient has directions of its own."""
    for table in tables:
        if table.n == 0:
            raise InvalidData(
                f"party {table.name!r} has no rows. Leave it out, or split over fewer agents."
            )
