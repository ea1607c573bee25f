"""Linear models: one coefficient a column, learned from data split by samples or by features."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import LOSSES, Loss
from coterie.problems.kind import Protocols
from coterie.problems.linear.model import LinearModel
from coterie.problems.one_score import OneScoreKind
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, Facts
from coterie.run.certificate import ANY, Bound, Point
from coterie.run.collectives import Talk

if TYPE_CHECKING:
    from coterie.problems.linear.stats import LinearStats


class LinearKind(OneScoreKind[Problem[Loss], LinearModel]):
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
    cohorts: ClassVar[tuple[str, ...]] = ("samples",)
    beside: ClassVar[tuple[str, ...]] = ("weights", "offset")

    def on_device(self, split: str, tensors: bool) -> bool:
        return tensors and split == "samples"

    def moves_labels(self, problem: Problem[Loss]) -> bool:
        return problem.loss.moves_with_labels

    def introduce(self, agent: Agent[Problem[Loss]]) -> Talk[Facts]:
        from coterie.problems.linear import proof

        return proof.introduce(agent)

    def certify(
        self, agent: Agent[Problem[Loss]], point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Talk[Bound]:
        from coterie.problems.linear import proof

        return proof.certify(agent, point, target, radius)

    @property
    def proves(self) -> Protocols:
        from coterie.problems.linear import proof

        return proof.PROTOCOLS

    def dual_at(self, agent: Agent[Problem[Loss]], w: FloatArray) -> FloatArray | None:
        from coterie.problems.linear import proof

        return proof.dual_at(agent, w)

    @property
    def stats(self) -> LinearStats:
        from coterie.problems.linear.stats import LinearStats

        return LinearStats()
