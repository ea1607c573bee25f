"""`kind.local`: the loss of one agent's own rows at a model."""

from __future__ import annotations

from typing import Any, ClassVar, Generic

from coterie.numerics.arrays import Design, FloatArray, about_means, is_sparse
from coterie.numerics.local_loss import SMALL
from coterie.problems.problem import K
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol
from coterie.run.disclosure import Protocols


class Local(Generic[K]):
    """Computes with an agent's own rows. The defaults serve one score per row."""

    batches: ClassVar[tuple[str, ...]] = ()
    """Splits in which small agents may be computed in one batch, for losses of one score per row.
    """

    most_in_batch: ClassVar[int] = SMALL
    """Most numbers that an agent of a batch holds."""

    finds_strengths: Protocols = ()
    """The protocols of `gradient_at_constant` that send something: each carries `@discloses`."""

    def evened(self, agent: Agent[K]) -> Agent[K]:
        """The agent with rows of weight 0 after its own, so that agents of about equal size can be
        computed in one batch; by default as it is.
        """
        return agent

    def moves_labels(self, problem: K) -> bool:
        """Whether an offset, and the constant of the null model, are subtracted from the labels."""
        return False

    def design(self, agent: Agent[K]) -> Design:
        """The agent's rows as a linear map."""
        X = agent.data.X
        intercept = agent.problem.intercept
        if agent.split != "features" or not intercept:
            return Design(X, intercept)
        if is_sparse(X) or not X.size:
            return Design(X, agent.has_intercept)
        centre = X.mean(axis=0, dtype=float)
        squares = Design(X).squares()
        return about_means(X, agent.has_intercept, centre, squares, float(len(X)))

    def centred(self, agent: Agent[K]) -> Design:
        """The agent's rows about the means of all rows, after the introduction."""
        known = agent.known
        assert known.centre is not None
        assert known.lengths is not None
        return about_means(agent.data.X, True, known.centre, known.lengths, known.total, known.unit)

    def view(self, agent: Agent[K], w: FloatArray, design: Design) -> Any:
        """The local loss at w: scores, losses, gradients, and the parts that methods of this kind
        need.
        """
        raise NotImplementedError(f"{agent.problem.kind.name} has no view of a vector")

    def losses(self, agent: Agent[K], w: FloatArray) -> float:
        """Σ s ℓ of the agent's own rows at w."""
        losses: float = agent.at(w).losses
        return losses

    def gradient_at_constant(self, agent: Agent[K]) -> Protocol[FloatArray]:
        """The gradient of the mean loss at coefficients of 0 and the best intercept, or its size.

        `path` derives the largest strength from it.
        """
        raise NotImplementedError(f"{agent.problem.kind.name} has no strength")
