"""Perso-linear, the baseline of Dada in paper 001: users learn linear models by gossip on a
collaboration graph ("Decentralized Collaborative Learning of Personalized Models over Networks",
Vanhaesebrouck, Bellet, Tommasi).

    f(θ) = Σ_k d_k c_k (1/m_k) Σ_i max(0, 1 − y_i⟨x_i, θ_k⟩) + (μ/2) Σ_{k<l} w_kl ‖θ_k − θ_l‖²

| paper  | code            | meaning                                                     |
|--------|-----------------|-------------------------------------------------------------|
| θ_k    | `x[self.head:]` | the user's model: one number per column, without intercept  |
| θ̃_k^l  | `copies`        | the last model that the user received from each neighbour   |
| c_k    | `confidence`    | m_k / max m_l                                               |
| W, d_k | `weights`       | the weights of the user's neighbours `peers`, and their sum |
| 2DZ    |                 | bits of one iteration: two models                           |

A user that wakes up draws one of its neighbours. The two users exchange their models. Each user
then minimises its own part of f, given the models of its neighbours that it knows
(`numerics/kernels/hinge_block.py`). The paper does not bound the norm of a model. The proof needs
the bound β, which should be large. On a learned graph, a message also has the degree and the loss
of the user.

`dada-linear` is a method of Coterie: it has the loss of Dada and an intercept, and a user sends
its model to all neighbours.
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
from coterie.run.disclosure import LABELS_OF_MODEL, NO_SUMS, WOKEN, Disclosure


@dataclass(frozen=True)
class _Tuning(Tuning):
    sweeps: int = tuned(
        200,
        (
            "Largest number of passes of a user over its rows in one wake-up. The next wake-up "
            "continues from there."
        ),
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class Acquaintance(State):
    """The state of one user, with the models of its neighbours that it knows."""

    copies: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    """One row per neighbour. A row is NaN until the neighbour's model has arrived; until then the
    edge has no effect on the user's model.
    """
    multipliers: FloatArray = field(default_factory=lambda: np.empty(0))
    """Multipliers of the user's own rows, from which the next step starts."""
    met: int = -1
    """The neighbour that exchanged models in the last wake-up; −1 if there is none."""
    shown: FloatArray | None = None
    """The message that the neighbour `met` receives."""


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
        unbounded=WOKEN,
    )

    @property
    def head(self) -> int:
        """The number of entries before the model in a message. The graph is learned from these
        entries; a given graph needs none.
        """
        if self.learn:
            return HEAD
        return 0

    def adapted(self, problem: Personal) -> tuple[Method[Any, Personal], Personal]:
        if isinstance(problem, Personal):
            problem = problem.but(predictors="linear", norm="l2", hinge=True)
        return super().adapted(problem)

    # -- the rounds of a user ----------------------------------------------------------------------

    def start(self, agent: Agent[Personal]) -> Protocol[State]:
        yield from ()
        columns = agent.problem.base.count
        peers = np.array(agent.neighbours, np.intp)
        x = np.zeros(self.head + columns)
        no_users = np.empty(0, np.intp)
        if self.learn:
            x[0], x[1] = sum(agent.ties), confidence(agent) * mean_hinge(margins(agent), x[HEAD:])
        # Every user begins at zero, and all users know that.
        copies = np.zeros((len(peers), columns))
        ties = np.array(agent.ties, float)
        return Acquaintance(
            x, peers, ties, no_users, np.empty(0), copies=copies, multipliers=np.zeros(agent.data.n)
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
            return replace(state, changed=0, graph_messages=None, met=-1, shown=None)
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
        if state.graph_messages is not None:
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

    # -- the model of a user -----------------------------------------------------------------------

    def _begun(self, state: Acquaintance) -> Acquaintance:
        """With the published schedule, every user begins at zero again after the first graph is
        learned.
        """
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
        """Minimise the user's part of f, given the other models. With `alone`, take a proximal step
        with step size 1 on c_k L_k.
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
            # The centre is Σ_l w_kl θ̃_k^l / d_k. The objective is divided by d_k.
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
        return replace(state, x=x, changed=changed, graph_messages=None, **parts)


def _aligned(before: Acquaintance, after: State, theirs: dict[int, FloatArray]) -> Acquaintance:
    """The state after the graph changed: it keeps the known models of neighbours, and adds the
    received ones.
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
        for name in ("x", "peers", "weights", "received", "views", "graph_messages", "together")
    }
    return replace(before, **parts, copies=copies, changed=0, met=-1, shown=None)
