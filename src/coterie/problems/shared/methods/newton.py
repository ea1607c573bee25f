"""Newton's method for a common model and deviations of every user: `shared-newton`.

    F_u(w) = min over δ of Σ_i s_i ℓ(⟨x_i, w + δ⟩) + N (μ/2) ‖δ‖²

The full Hessian has an arrow shape: a common block, and one block per user. ∇²F_u is the Schur
complement of the user's block, which `reduced` computes.

A user with few rows would disclose these rows by its ∇²F_u. The method refuses users with no more
rows than columns, unless `few_rows` allows them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.quasi_newton.searched_rows import curvatures_of
from coterie.methods.second_order.newton import (
    ProximalNewton,
    State,
    most_of_newtons_search,
    most_with_losses,
)
from coterie.methods.second_order.oracle import Aim, Kept, Oracle, Taken
from coterie.methods.second_order.quadratic_models import most_from_hessian
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed
from coterie.problems.problem import Problem
from coterie.problems.shared.methods.deviations import best_dual, deviation, reduced
from coterie.problems.shared.methods.shared import check_shared, parts_of, shared_point
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Disclosure


class UserOracle(Oracle):
    """The loss of a user as a function of the common model, minimised over the user's deviation.
    `state.own` is the deviation from which the minimisation starts.
    """

    def __init__(self, agent: Agent, state: State):
        super().__init__(agent, state.w)
        self._scores = agent.centred.forward(state.w)
        self._best = deviation(agent, self._scores, state.own)
        self._deviations = {0.0: self._best.own}

    @property
    def losses(self) -> Any:
        return self._best.value

    @property
    def gradient(self) -> FloatArray:
        return self.agent.centred.adjoint(self.agent.weighted(best_dual(self.agent, self._best)))

    def hessian(self, *more: FloatArray) -> FloatArray:
        curvature = self.agent.loss.curvature(self._best.scores, self.agent.exact_labels)
        H = reduced(self.agent, curvatures_of(self.agent, curvature))
        rows, columns = np.triu_indices(H.shape[-1])
        return np.concatenate([H[..., rows, columns], *more], axis=-1)

    def values(self, target: FloatArray, step_sizes: FloatArray) -> FloatArray:
        change = self.agent.centred.forward(target) - self._scores
        values = []
        for step_size in step_sizes.tolist():
            best = deviation(self.agent, self._scores + step_size * change, self._best.own)
            self._deviations[step_size] = best.own
            values.append(best.value)
        return np.array(values).T

    def kept_after(self, aim: Aim, taken: Taken) -> Kept:
        return Kept(own=self._deviations[taken.step_size])


@dataclass(frozen=True)
class SharedNewton(ProximalNewton):
    """Newton's method on the common model. Every user eliminates its own block of the Hessian."""

    name: ClassVar[str] = "shared-newton"
    split: ClassVar[str] = "users"
    family: ClassVar[str] = "shared"
    summary: ClassVar[str] = (
        "a common linear model and deviations of every user: few rounds, a number per two columns"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the gradient and the Hessian of your loss, one number per column and one per pair "
        "of columns, as part "
        "of a sum",
        learned=(
            "second moments of your rows, with new weights in each round: of a few rows the rows "
            "themselves"
        ),
        secure=TOTALS,
        most=lambda case: most_with_losses(most_from_hessian(case.width)),
        sometimes=most_of_newtons_search,
        before=lambda case: (1, 1),
    )
    uses_network: ClassVar[bool] = False

    few_rows: bool = False
    """Whether users with no more rows than columns may take part."""

    def check(self, problem: Problem, network: Network) -> None:
        check_shared(self.name, problem)

    def start(self, agent: Agent) -> Protocol[State]:
        users = agent.exact_labels.shape[:-1]
        if not self.few_rows:
            is_small = np.asarray(agent.own_rows <= agent.data.d, float)
            few = yield Sum(is_small.reshape(*users, 1))
            if few[0] > 0:
                raise InvalidProblem(
                    f"{self.name}: {int(few[0])} of {agent.count} users have no more rows than "
                    "columns, and their matrices would disclose these rows. Use method='shared', "
                    "or few_rows=True if they may be disclosed."
                )
        state = yield from super().start(agent)
        return replace(state, own=np.zeros((*users, len(state.w))))

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        own, common = parts_of(agent, point.w.astype(float))
        return replace(state, w=sealed(agent.centred.inner(common)), own=own)

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        return ("own",)

    def expected_gap(self, agent: AgentForm, state: State) -> float | None:
        # A certificate costs one number per column, and a round one number per pair of columns.
        return None

    def oracle(self, agent: Agent, state: State) -> UserOracle:
        return UserOracle(agent, state)

    def point(self, agent: Agent, state: State) -> Point:
        return shared_point(agent, state.w, state.own)
