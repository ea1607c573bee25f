"""Linear models: one coefficient per column, fitted to data split by samples or by features."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from coterie.numerics.losses import LOSSES, Loss
from coterie.problems.linear.model import LinearModel
from coterie.problems.one_score import OneScoreData, OneScoreLocal
from coterie.problems.problem import Problem
from coterie.problems.rows import RowProblems, RowsKind

if TYPE_CHECKING:
    from coterie.problems.linear.proof import LinearProof
    from coterie.problems.linear.stats import LinearStats


class LinearData(OneScoreData[Problem[Loss]]):
    """Labels may come with offsets. Tensors stay on their device where rows are split."""

    fields: ClassVar[tuple[str, ...]] = ("weights", "offset")

    def on_device(self, split: str, tensors: bool) -> bool:
        return tensors and split == "samples"


class LinearProblems(RowProblems[Problem[Loss]]):
    """Usually with an intercept."""

    usual_intercept = True


class LinearLocal(OneScoreLocal[Problem[Loss]]):
    """Small agents are computed in one batch where rows are split."""

    batches: ClassVar[tuple[str, ...]] = ("samples",)

    def moves_labels(self, problem: Problem[Loss]) -> bool:
        return problem.loss.moves_with_labels


class LinearKind(RowsKind[Problem[Loss], LinearModel]):
    """A loss and a penalty of a vector."""

    name = "linear"
    called = "linear model"
    losses = LOSSES
    loss_class = Loss
    model_class = LinearModel
    exact_methods: ClassVar[dict[str, tuple[str, ...]]] = {
        "samples": ("newton", "interior-point"),
        "features": ("blocks",),
    }
    data = LinearData()
    problems = LinearProblems()
    local = LinearLocal()

    @property
    def proof(self) -> LinearProof:
        from coterie.problems.linear.proof import LinearProof

        return LinearProof()

    @property
    def stats(self) -> LinearStats:
        from coterie.problems.linear.stats import LinearStats

        return LinearStats()
