"""What every task can do: learn a d × m matrix W from the samples of many agents, F(W) = Σ_j F_j(W).

The four functions that the paper asks of a task (Zheng, Bellet, Gallinari, section 3.3), in our words:

| paper        | code                  | meaning                                                                       |
|--------------|-----------------------|-------------------------------------------------------------------------------|
| `stats`      | `Task.stats`          | the sufficient information of one agent, an `Information`                     |
| `update`     | `Information.move`    | W ← (1 − γ) W + γ·scale·u vᵀ, without forming W                               |
| `linesearch` | `Information.slopes`  | φ'(γ), φ''(γ) for φ(γ) = F_j((1 − γ) W + γ·scale·u vᵀ): summed, they give γ   |
| `loss`       | `Information.loss`    | F_j(W): a sum over samples, never a mean                                      |

An `Information` also multiplies ∇F_j(W) by vectors. In its "dense" form it keeps d × m matrices, in the "implicit" form
(the paper's "low-rank") nothing larger than the agent's own n_j × (d + m) numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray, host
from coterie.backends import backend
from coterie.data import Table
from coterie.errors import InvalidData

INFORMATION = ("auto", "dense", "implicit")
DEVICE_NUMBERS = 1 << 28
"""Numbers of X and of the scores that a certificate looks at together on a GPU."""


class Information(ABC):
    """What one agent keeps of its samples and of the current W. Vectors may be blocks: (m,) or (m, k)."""

    dtype: np.dtype[Any]
    """The precision of its messages."""

    @abstractmethod
    def image(self, u: FloatArray) -> Any:
        """What the data makes of left vectors, to be handed to the functions below: X u."""

    @abstractmethod
    def reset(self, left: FloatArray, right: FloatArray, image: Any = None) -> None:
        """W = left rightᵀ; `image` is that of `left`, if it is known already."""

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
        """The same as an array that can travel."""
        gradient: FloatArray = host(self.matrix())
        return gradient.copy()

    @abstractmethod
    def move(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        """W ← (1 − γ) W + γ·scale·u vᵀ."""

    @abstractmethod
    def slopes(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
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
    def curvature(self, basis: FloatArray, image: Any, new: int) -> FloatArray:
        """The last `new` columns of a matrix M_j with F_j(U S Vᵀ) − its linear part ≤ ½⟨S, M_j S⟩, U = `basis`."""

    @abstractmethod
    def projected(self, basis: FloatArray, image: Any, right: FloatArray) -> FloatArray:
        """Uᵀ ∇F_j(W) V for U = `basis`, V = `right`."""


class OnBackend(Information):
    """An `Information` whose large arrays are where those of the data are; it knows the last image that it computed."""

    def __init__(self, X: Any):
        self.backend = backend(X)
        self.dtype = self.backend.dtype
        self._last: tuple[FloatArray, Any] | None = None

    def _product(self, matrix: Any, u: FloatArray) -> Any:
        """matrix · u, computed once for the same u."""
        if self._last is None or self._last[0] is not u:
            self._last = u, self.backend.product(matrix, self.backend.here(u))
        return self._last[1]


@dataclass(frozen=True)
class Task(ABC):
    """A convex, smooth loss of a matrix. Subclasses are frozen dataclasses of their parameters."""

    name: ClassVar[str]
    kind: ClassVar[str]
    """"numbers" (rows of them), "classes" (one label per row) or "entries" (of the matrix itself)."""
    exact: ClassVar[bool]
    """Whether F is the quadratic that `curvature` says, and not only below it."""
    quadratic: ClassVar[bool]
    """Whether φ is a parabola, so that one pair of slopes gives the best step."""
    smooth: ClassVar[bool] = True
    """Whether there is no kink, as of a `Loss`."""
    for_vectors: ClassVar[bool] = False
    """Whether it also takes penalties of vectors, of all coefficients in one: the model is then a linear one."""
    block_rows: ClassVar[int] = 8192
    """How many samples a certificate looks at together."""

    @abstractmethod
    def prepared(self, tables: Sequence[Table]) -> tuple[list[Table], npt.NDArray[Any] | None]:
        """The tables checked (errors name the party), with labels as `stats` takes them, and the classes, if any."""

    def with_classes(self, classes: npt.NDArray[Any] | None) -> Task:
        """This task with what all tables together said."""
        return self

    @property
    def outputs(self) -> int:
        """How many columns W has, if that does not depend on the data."""
        raise NotImplementedError

    @abstractmethod
    def size(self, table: Table) -> tuple[int, int]:
        """(d, m): the size of W."""

    @abstractmethod
    def stats(self, table: Table, information: str = "auto") -> Information:
        """The sufficient information of one agent, at W = 0; "dense", "implicit", or what costs less."""

    def blocks(self, table: Table) -> Iterator[Table]:
        """The table a few rows at a time."""
        rows = (
            max(self.block_rows, DEVICE_NUMBERS // sum(self.size(table))) if backend(table.X).fast else self.block_rows
        )
        for start in range(0, table.n, rows):
            yield table.take_rows(np.arange(start, min(start + rows, table.n)))

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values: what `task(**settings)` needs to make this task again."""
        return {"name": self.name, **asdict(self)}


def refuse_empty(tables: Sequence[Table]) -> None:
    """Every party of a low-rank problem needs rows: its gradient has directions of its own."""
    for table in tables:
        if table.n == 0:
            raise InvalidData(f"party {table.name!r} has no rows. Leave it out, or split over fewer agents.")
