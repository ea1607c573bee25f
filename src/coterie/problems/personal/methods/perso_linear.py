"""Perso-linear, what paper 001 compares Dada with: linear models of users who learn by gossip on a
collaboration graph ("Decentralized Collaborative Learning of Personalized Models over Networks",
Vanhaesebrouck, Bellet, Tommasi).

    f(θ) = Σ_k d_k c_k (1/m_k) Σ_i max(0, 1 − y_i⟨x_i, θ_k⟩) + (μ/2) Σ_{k<l} w_kl ‖θ_k − θ_l‖²

| paper     | code              | meaning
            |
|-----------|-------------------|--------------------------------------------------------------------------------------|
| θ_k       | `x[self.head:]`   | its own model: one number a column, without an intercept
            |
| θ̃_k^l     | `copies`          | the models of its neighbours as it was sent them last
             |
| c_k       | `confidence`      | m_k / max m_l
            |
| W, d_k    | `weights`         | the weights of its neighbours `peers`, and their sum
            |
| 2DZ       |                   | bits of one iteration: two models
            |

A user that wakes up draws one of its neighbours. The two exchange their models, and each then takes
the minimiser of
its own part of f, given the models of its neighbours that it knows:
`numerics/kernels/hinge_block.py`. The paper bounds no norm; β is there for the proof, and should be
large. On a learned graph, degree and loss ride along with a model.
`dada-linear` is ours: the loss of Dada, an intercept, and a model goes to all neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.methods.method import Method
from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.hinge_block import hinge_block, mean_hinge
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.personal.methods.dada import HEAD, Dada, State
from coterie.problems.personal.problem import Personal, confidence, margins
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Ask, Protocol, Publication
from coterie.run.disclosure import LABELS_OF_MODEL, NO_SUMS, Disclosure


@dataclass(frozen=True)
class _Tuning(Tuning):
    sweeps: int = tuned(
        200,
        (
            "Passes over its own rows in which a user solves its part; the next one goes on from "
            "there."
        ),
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class Acquaintance(State):
    """Where one user stands, and what it knows of its neighbours' models."""

    copies: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    """One row a neighbour; NaN: it has not been sent yet, and the edge does not pull."""
    multipliers: FloatArray = field(default_factory=lambda: np.empty(0))
    """Of its own rows, from where the next step goes on."""
    met: int = -1
    """Whom the last wake-up exchanged models with, and `shown`, what that one is sent."""
    shown: FloatArray | None = None


@dataclass(frozen=True)
class PersoLinear(Dada):
    """Personal linear models as published: the hinge loss, and two models an iteration."""

    name: ClassVar[str] = "perso-linear"
    state: ClassVar[type[Any]] = Acquaintance
    summary: ClassVar[str] = (
        "a linear model for every user as published: hinge loss, models exchanged in pairs"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "your model, one number per column, to one neighbour at a time; on a learned graph "
            "with your loss and "
            "degree, and to who asks"
        ),
        learned=LABELS_OF_MODEL,
        secure=NO_SUMS,
    )

    @property
    def head(self) -> int:
        """How many numbers stand before the model in a message: those that a graph is learned
        from.
        """
        if self.learn:
            return HEAD
        return 0

    def adapted(self, problem: Personal) -> tuple[Method[Any, Personal], Personal]:
        if isinstance(problem, Personal):
            problem = problem.but(predictors="linear", norm="l2", hinge=True)
        return super().adapted(problem)

    # -- the life of a user ------------------------------------------------------------------------

    def start(self, agent: Agent[Personal]) -> Protocol[State]:
        yield from ()
        columns = agent.problem.base.count
        peers = np.array(agent.neighbours, np.intp)
        x = np.zeros(self.head + columns)
        nobody = np.empty(0, np.intp)
        if self.learn:
            x[0], x[1] = sum(agent.ties), confidence(agent) * mean_hinge(margins(agent), x[HEAD:])
        # Everybody begins at zero, and everybody knows that.
        copies = np.zeros((len(peers), columns))
        ties = np.array(agent.ties, float)
        return Acquaintance(
            x, peers, ties, nobody, np.empty(0), copies=copies, multipliers=np.zeros(agent.data.n)
        )

    def warmed(self, agent: Agent[Personal], state: State, point: Point) -> State:
        assert isinstance(state, Acquaintance)
        x = state.x.copy()
        x[self.head :] = point.w
        return self._now(agent, state, x, np.full_like(state.copies, np.nan), state.multipliers)

    def round(self, agent: Agent[Personal], state: State, t: int) -> Protocol[State]:
        assert isinstance(state, Acquaintance)
        phase = self.phase((t - 1) // agent.count + 1)
        if phase == "graph":
            return (yield from self.graph_turn(agent, state, t))
        if phase == "alone" or not state.peers.size:
            return self._moved(agent, state, state.copies, alone=True)
        state = self._begun(state)
        peer = int(state.peers[agent.random(t).integers(state.peers.size)])
        theirs = yield Ask((peer,), again=True)
        if peer not in theirs:
            return replace(state, changed=0, told=None, met=-1, shown=None)
        return self._moved(agent, state, self._with_copy(state, peer, theirs[peer]), met=peer)

    def receive(
        self, agent: Agent[Personal], state: State, sender: int, note: tuple[float, ...]
    ) -> State:
        assert isinstance(state, Acquaintance)
        if self.learn and len(note) <= HEAD:
            return _aligned(state, super().receive(agent, state, sender, note), {})
        if sender not in state.peers:
            return state
        state = self._begun(state)
        return self._moved(agent, state, self._with_copy(state, sender, np.array(note)))

    def graph_turn(self, agent: Agent[Personal], state: State, t: int) -> Protocol[State]:
        assert isinstance(state, Acquaintance)
        turn = super().graph_turn(agent, state, t)
        theirs = yield next(turn)
        try:
            turn.send(theirs)
        except StopIteration as end:
            return _aligned(state, end.value, {peer: x[HEAD:] for peer, x in theirs.items()})
        raise AssertionError("a graph step asks once")

    def publish(self, agent: Agent[Personal], state: State) -> Publication:
        assert isinstance(state, Acquaintance)
        if state.told is not None:
            graph = super().publish(agent, state)
            return Publication(state.x, HEAD, False, 0, (), graph.notes)
        if state.shown is None:
            notes = {}
        else:
            notes = {state.met: tuple(state.shown.tolist())}
        return Publication(state.x, self.head, False, state.changed, (), notes)

    def point(self, agent: Agent[Personal], state: State) -> Point:
        return Point(
            state.x[self.head :], np.concatenate([state.peers.astype(float), state.weights])
        )

    # -- its own model -----------------------------------------------------------------------------

    def _begun(self, state: Acquaintance) -> Acquaintance:
        """As published, everybody begins at zero again when the first graph is there."""
        if not self.learn or state.together or self.schedule != "paper":
            return state
        x = state.x.copy()
        x[HEAD:] = 0.0
        copies = np.zeros_like(state.copies)
        multipliers = np.zeros_like(state.multipliers)
        return replace(state, x=x, together=True, copies=copies, multipliers=multipliers)

    def _with_copy(self, state: Acquaintance, peer: int, message: FloatArray) -> FloatArray:
        copies = state.copies.copy()
        copies[np.searchsorted(state.peers, peer)] = message[self.head :]
        return copies

    def _moved(
        self,
        agent: Agent[Personal],
        state: Acquaintance,
        copies: FloatArray,
        *,
        alone: bool = False,
        met: int = -1,
    ) -> Acquaintance:
        """Its own part of f at its minimum, given the others; alone, a proximal step of length 1 on
        c_k L_k.
        """
        problem = agent.problem
        x = state.x.copy()
        u = state.multipliers.copy()
        known = ~np.isnan(copies).any(axis=1)
        degree = float(state.weights[known].sum())
        s = confidence(agent)
        q = 1.0
        centre = x[self.head :]
        if not alone and degree * problem.mu > 0:
            # Σ_l w_kl θ̃_k^l / d_k, and all divided by d_k
            q = problem.mu
            centre = state.weights[known] @ copies[known] / degree
        x[self.head :] = hinge_block(
            margins(agent), np.ascontiguousarray(centre), s, q, problem.beta, u, TUNING.sweeps
        )
        return self._now(agent, state, x, copies, u, met, state.x if met >= 0 else None)

    def _now(
        self,
        agent: Agent[Personal],
        state: Acquaintance,
        x: FloatArray,
        copies: FloatArray,
        multipliers: FloatArray,
        met: int = -1,
        shown: FloatArray | None = None,
    ) -> Acquaintance:
        if self.learn:
            x[1] = confidence(agent) * mean_hinge(margins(agent), x[HEAD:])
        changed = int(np.count_nonzero(x[self.head :] != state.x[self.head :]))
        parts: dict[str, Any] = {
            "copies": copies,
            "multipliers": multipliers,
            "met": met,
            "shown": shown,
        }
        return replace(state, x=x, changed=changed, told=None, **parts)


def _aligned(before: Acquaintance, after: State, theirs: dict[int, FloatArray]) -> Acquaintance:
    """The State after the graph changed: models that are known stay, and those that were sent
    come.
    """
    copies = np.full((len(after.peers), before.copies.shape[1]), np.nan)
    places: npt.NDArray[np.intp] = np.searchsorted(before.peers, after.peers)
    for row, (peer, place) in enumerate(zip(after.peers.tolist(), places.tolist(), strict=True)):
        if peer in theirs:
            copies[row] = theirs[peer]
        elif place < len(before.peers) and before.peers[place] == peer:
            copies[row] = before.copies[place]
    parts = {
        name: getattr(after, name)
        for name in ("x", "peers", "weights", "received", "views", "told", "together")
    }
    return replace(before, **parts, copies=copies, changed=0, met=-1, shown=None)
