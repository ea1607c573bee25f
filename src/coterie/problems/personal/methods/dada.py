"""Dada, "Communication-Efficient and Decentralized Multi-Task Boosting while Learning the
Collaboration Graph" (Zantedeschi, Bellet, Tommasi): one boosted classifier per user, and the graph
of the users that learn from each other.

| paper     | code                    | meaning                                               |
|-----------|-------------------------|-------------------------------------------------------|
| K, κ      | `agent.count`, `sample` | number of users; of users sampled in a graph step     |
| α_k       | `x[HEAD:]`              | the user's model: one weight per base predictor       |
| d_k, w_kl | `x[0]`, `weights`       | the user's degree; the weights of its `peers`         |
| L_k, c_k  | `x[1]` = c_k L_k        | the log-sum loss on the user's own rows; confidence   |
| A_k       | `margins(agent)`        | y_i h_j(x_i)                                          |
| γ⁽ᵗ⁾      | `gamma`                 | 2K/(t + 2K), with t the number of wake-ups of all     |
| p, Δ      | `price`                 | the linear part of h, divided by μ                    |
| L_κ       | `smoothness`            | 2μ((κ + 1)/δ² + λ)                                    |

Given the graph, a user that wakes up takes one step on its own block of (1). The published step is
a Frank-Wolfe step. The default is a *pairwise* step: it moves weight from the worst base predictor
in use to the best one, by exact line search. Given the models, the user minimises

    h(w) = Σ_k d_k c_k L_k + μ (½ Σ_{k<l} w_kl ‖α_k − α_l‖² − Σ_k log(d_k + δ) + λ ‖w‖²)
    (3)

over its weights to κ sampled users: by the published gradient step (5), or by default exactly.
`likeness="models"` uses (3) unchanged. The default, `likeness="trials"`, replaces the linear part
of (3) by the error rates of the two users' models on each other's rows. User k receives the model
of user l in any case. It applies this model to its own rows and sends the error rate to user l.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem, UnknownName
from coterie.methods.auto.costs import Sizes
from coterie.methods.method import Method
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, as_number, whole_number
from coterie.numerics.kernels.boosting import (
    descent_step,
    frank_wolfe_step,
    graph_block,
    graph_gradient_step,
    graph_value,
    log_sum,
    pairwise_step,
    shares_wrong,
)
from coterie.numerics.kernels.rows import entries, entry, with_entries, with_entry, without_largest
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.personal.problem import Personal, confidence, curvature, margins, pooled_step
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Ask, IndexArray, Protocol, Publication
from coterie.run.disclosure import LABELS_OF_MODEL, NO_SUMS, WOKEN, Disclosure

HEAD = 2
"""Number of entries before the model in a message: the degree and the weighted loss."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    trials: float = tuned(
        10.0, "Cost of a wrong prediction in a trial, on the scale of the logarithms in h."
    )
    remembered: int = tuned(
        512, "Number of other users on whose rows a user remembers the error of its model."
    )
    revisited: int = tuned(
        20, "Neighbours that a graph step asks again, at most.", "measured: Moons, two seeds"
    )
    common_steps: int = tuned(
        30, "Steps of the common model, on the rows of all users, before models are personal."
    )
    passed_on: int = tuned(
        3, "Users of its view that a user names in a note, where it knows only some of them."
    )
    inner_steps: int = tuned(20, "Descent steps of a dense model in one wake-up.")


TUNING = _Tuning()
VIEWS = 0x13
"""Number of the random stream for changes of views."""
Phase = Literal["alone", "graph", "models"]
Objective = tuple[FloatArray, float, float]
"""Parts of a user's objective: the linear term from its neighbours' models, the factor of its loss,
and the factor of ½‖α‖².
"""


@dataclass(frozen=True, slots=True)
class State:
    """The state of one user between two wake-ups."""

    x: FloatArray
    """The numbers that other users see: degree, weighted loss, model."""
    peers: npt.NDArray[np.intp]
    weights: FloatArray
    received: npt.NDArray[np.intp]
    """The users that sent the error rate of this user's model on their rows; `views` has the
    rates.
    """
    views: FloatArray
    changed: int = 0
    """Number of entries of the model that changed in the last wake-up."""
    graph_messages: FloatArray | None = None
    """The messages to single users after a graph step, one column per user: its number, its weight,
    the error rate of its model, and whether the edge is new. None after other steps.
    """
    together: bool = False
    """Whether the user has begun to learn with its neighbours."""
    place: int = -1
    """The base predictor of the Frank-Wolfe step in the last wake-up; −1 after other steps."""
    move: float = 0.0
    """The step size of that step, with the sign of the direction."""
    still: int = 0
    """Number of successive graph steps of this phase without an improvement; `graph_stop`."""
    turn: int = -1
    """The phase of the graph of the last graph step."""
    view: npt.NDArray[np.intp] | None = None
    """The other users that this user knows; None: all."""
    notes: int = 0
    """Number of notes received, which determines what they replace in the view."""


@dataclass(frozen=True)
class Dada(Method[State, Personal]):
    """Learn the models and the graph alternately, or only the models if the graph is given."""

    name: ClassVar[str] = "dada"
    split: ClassVar[str] = "users"
    family: ClassVar[str] = "personal"
    summary: ClassVar[str] = "a boosted model for every user, near those of similar users"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "your model, your loss and degree, to each neighbour, and to each party that asks to "
            "learn the graph; "
            "and to those that you asked, how often their models are wrong on your rows"
        ),
        learned=(
            f"{LABELS_OF_MODEL}; with few rows, you may be recognised by the predictors that you "
            "chose"
        ),
        secure=NO_SUMS,
        unbounded=WOKEN,
    )
    discloses_labels: ClassVar[bool] = False

    step: str = "pairwise"
    """The step on a model: "pairwise", or "frank-wolfe" as published."""
    local_steps: int = 1
    """Number of pairwise steps that a user takes in one wake-up."""
    graph_step: str = "exact"
    """The step on a row of the graph: "exact", or "gradient"."""
    graph_factor: float | None = None
    """Step size of gradient steps, as a multiple of 1/L_κ; 1 as published. None: the step size is
    1/L, with the curvature L at the current row.
    """
    likeness: str = "trials"
    """The measure of similarity of two users: "trials" of their models on each other's rows, or
    the distance of their "models" as published.
    """
    schedule: str = "auto"
    """"auto", or "paper". With "paper", models start again from zero after the rounds alone; 20
    rounds of models then follow each 10 rounds of the graph.
    """
    sample: int = 10
    """κ: number of users that a user asks in a graph step."""
    known: int | None = None
    """Number of other users that a user knows in addition to its neighbours: a peer sampling
    service. Notes of graph steps name a few users, who replace others in the receiver's view.
    None: a user knows all others.
    """
    nearest: int | None = None
    """Largest number of neighbours: the most similar users stay (Remark 1). None: the minimum of h
    determines the number.
    """
    revisit: bool = True
    """Whether a graph step also sets the weights of neighbours again, of at most 20. It costs two
    more numbers per neighbour.
    """
    begin: str = "zeros"
    """The first boosted models: "zeros" as published, or near the "global" one, by steps on the
    rows of all users.
    """
    cache: bool = True
    """Whether users keep the models that they received in graph steps (Appendix C)."""
    alternations: int | None = 5
    """Number of phases that learn the graph. None: the run alternates until its end, as
    published.
    """
    alone: int | None = None
    """Number of rounds alone at the start. None: 10; 2 with begin="global"; 30 as published."""
    graph_rounds: int | None = None
    """Number of rounds in each phase of the graph. None: 20; 10 as published."""
    model_rounds: int | None = None
    """Number of rounds of the models between two phases of the graph. None: 10; 20 as published,
    which is 2000 wake-ups of 100 users; 2 are 200.
    """
    graph_stop: float | None = None
    """A user ends its graph steps of a phase when its part of h improves relatively by less than
    this number, in as many successive steps as ask every other user once. Published: 1e-6, of h.
    None: users take all steps.
    """
    learn: bool = False
    """Whether the graph is learned; `solve` sets it."""

    def __post_init__(self) -> None:
        for name, known in {
            "step": ("frank-wolfe", "pairwise"),
            "graph_step": ("exact", "gradient"),
            "likeness": ("models", "trials"),
            "schedule": ("auto", "paper"),
            "begin": ("zeros", "global"),
        }.items():
            if getattr(self, name) not in known:
                raise UnknownName(f"{name} of {self.name}", getattr(self, name), known)
        for name in ("local_steps", "sample"):
            whole_number(f"{self.name}: {name}", getattr(self, name))
        for name in ("known", "nearest", "alternations", "alone", "graph_rounds", "model_rounds"):
            if getattr(self, name) is not None:
                whole_number(f"{self.name}: {name}", getattr(self, name))
        if self.graph_stop is not None and not 0 < as_number(self.graph_stop) < 1:
            raise InvalidProblem(
                f"{self.name}: graph_stop is a relative improvement between 0 and 1, such as 1e-6, "
                f"not {self.graph_stop!r}."
            )
        if self.graph_factor is not None and not as_number(self.graph_factor) > 0:
            raise InvalidProblem(
                f"{self.name}: graph_factor is above 0 (1: as published), not "
                f"{self.graph_factor!r}."
            )

    @classmethod
    def score(
        cls, problem: Personal, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        if cls is Dada:
            return (1.0, "users learn from similar users")
        return None

    def check(self, problem: Personal, network: Network) -> None:
        if problem.hinge != (self.name == "perso-linear"):
            raise InvalidProblem(
                f"{self.name} needs a personal problem as it is, e.g. co.Personal(beta=10, mu=1)."
            )
        if self.known is not None and problem.hinge:
            raise InvalidProblem(
                "perso-linear has no peer sampling: its users know all others. Leave known out, "
                "or use method='dada'."
            )
        if self.learn and self.likeness == "models" and problem.mu == 0:
            raise InvalidProblem(
                "with mu=0 there is nothing to learn a graph from. Use method='local', or mu > 0."
            )

    def adapted(self, problem: Personal) -> tuple[Method[Any, Personal], Personal]:
        learn = problem.learned
        return replace(self, learn=learn), problem

    def settings(self) -> dict[str, Any]:
        """The name and the parameters. Newer parameters are left out at their defaults, so that
        the settings in older files stay the same.
        """
        usual = {"graph_factor": None, "begin": "zeros", "alone": None, "graph_rounds": None}
        usual |= {"known": None, "model_rounds": None, "graph_stop": None}
        return {
            name: x
            for name, x in super().settings().items()
            if name not in usual or x != usual[name]
        }

    # -- the schedule ------------------------------------------------------------------------------

    @property
    def asynchronous(self) -> bool:
        return True

    @property
    def rhythm(self) -> tuple[int, int, int]:
        """The numbers of rounds alone, of each phase of the graph, and of each phase of the
        models.
        """
        usual = (
            2 if self.begin == "global" else 10,
            20,
            10,
        )  # many rounds alone undo the effect of a good first model
        if self.schedule == "paper":
            alone = 30
            graph = 10
            models = 20
        else:
            alone, graph, models = usual
        return self.alone or alone, self.graph_rounds or graph, self.model_rounds or models

    @property
    def settles_after(self) -> int:
        alone, graph, models = self.rhythm
        if not self.learn:
            return 0
        if self.alternations is None:
            return sys.maxsize
        return alone + (self.alternations - 1) * (graph + models) + graph

    def phase(self, round: int) -> Phase:
        """The phase of round 1, 2, ..."""
        if not self.learn:
            return "models"
        alone, graph, models = self.rhythm
        if round <= alone:
            return "alone"
        turn, place = divmod(round - alone - 1, graph + models)
        if self._alternates(turn) and place < graph:
            return "graph"
        return "models"

    def _alternates(self, turn: int) -> bool:
        """Whether phase `turn` = 0, 1, ... of the graph is learned."""
        return self.alternations is None or turn < self.alternations

    def gamma(self, K: int, t: int) -> float:
        """γ⁽ᵗ⁾ = 2K/(t + 2K), with t the number of steps on models since they started from zero."""
        alone, graph, models = self.rhythm
        round, place = divmod(t - 1, K)
        if self.learn and round >= alone:
            turns, into = divmod(round - alone, graph + models)
            if self.alternations is None or turns < self.alternations:
                into = max(into - graph, 0)
            else:
                turns = self.alternations
            round = turns * models + into
            if self.schedule != "paper":
                round += alone
        return 2 * K / (round * K + place + 2 * K)

    # -- the rounds of a user ----------------------------------------------------------------------

    def start(self, agent: Agent[Personal]) -> Protocol[State]:
        yield from ()
        problem = agent.problem
        x = np.zeros(HEAD + problem.base.count)
        if self.begin == "global" and problem.norm == "l1":
            for _ in range(TUNING.common_steps):
                x[HEAD:] = yield from pooled_step(agent, x[HEAD:])
        x[0] = sum(agent.ties)
        x[1] = confidence(agent) * log_sum(margins(agent), x[HEAD:])
        peers = np.array(agent.neighbours, np.intp)
        weights = np.array(agent.ties, float)
        none = np.empty(0, np.intp)
        return State(x, peers, weights, none, np.empty(0), view=self._first_view(agent))

    def _first_view(self, agent: Agent[Personal]) -> npt.NDArray[np.intp] | None:
        """The users that a user knows at the start: a random choice."""
        if not self.learn or self.known is None:
            return None
        size = min(self.known, agent.count - 1)
        drawn = agent.random(0).choice(agent.count - 1, size, replace=False)
        return np.sort(drawn + (drawn >= agent.index))

    def warmed(self, agent: Agent[Personal], state: State, point: Point) -> State:
        x = state.x.copy()
        x[HEAD:] = point.w
        x[1] = confidence(agent) * log_sum(margins(agent), x[HEAD:])
        return replace(state, x=x)

    def round(self, agent: Agent[Personal], state: State, t: int) -> Protocol[State]:
        round = (t - 1) // agent.count + 1
        if self.learn and self.phase(round) == "graph":
            return (yield from self.graph_turn(agent, state, t))
        x = state.x.copy()
        alpha = x[HEAD:]
        together = not self.learn or round > self.rhythm[0]
        if self.schedule == "paper" and together and not state.together:
            alpha[:] = 0.0
        objective = yield from _objective(agent, state)
        kept = (state.peers, state.weights, state.received, state.views)
        place = -1
        move = 0.0
        if self.step != "pairwise" and agent.problem.norm == "l1":
            place, move = self._published_step(agent, alpha, objective, t)
            changed = 1
        else:
            changed = self._stepped(agent, state, alpha, objective)
        if self.learn:
            x[1] = confidence(agent) * log_sum(margins(agent), alpha)
        return State(
            x,
            *kept,
            changed,
            None,
            together,
            place,
            move,
            state.still,
            state.turn,
            state.view,
            state.notes,
        )

    def _published_step(
        self, agent: Agent[Personal], alpha: FloatArray, objective: Objective, t: int
    ) -> tuple[int, float]:
        """Take the Frank-Wolfe step in place. Return its base predictor, and its step size with the
        sign of the direction; (−1, 0) if no direction descends.
        """
        # α_k ← (1 − γ) α_k + γ s_k
        # (2)
        gamma = self.gamma(agent.count, t)
        shrunk = alpha * (1.0 - gamma)
        A = margins(agent)
        place = int(frank_wolfe_step(A, alpha, *objective, agent.problem.beta, gamma))
        if alpha[place] == shrunk[place]:
            return -1, 0.0
        return place, math.copysign(gamma, alpha[place] - shrunk[place])

    def _stepped(
        self, agent: Agent[Personal], state: State, alpha: FloatArray, objective: Objective
    ) -> int:
        """Take a step on the user's model in place. Return the number of coefficients that
        changed.
        """
        problem = agent.problem
        A = margins(agent)
        if problem.norm == "l2":
            descent_step(A, alpha, *objective, problem.beta, curvature(agent), TUNING.inner_steps)
            return alpha.size
        changed = pairwise_step(A, alpha, *objective, problem.beta)
        if self.local_steps <= 1:
            return changed
        for _ in range(self.local_steps - 1):
            if not pairwise_step(A, alpha, *objective, problem.beta):
                break
        return int(np.count_nonzero(alpha != state.x[HEAD:]))

    def graph_turn(self, agent: Agent[Personal], state: State, t: int) -> Protocol[State]:
        """Ask κ users for their models, and set the weights of the edges to them. `publish` sends
        them these weights.
        """
        problem = agent.problem
        state = self._in_turn(agent, state, t)
        if self._is_still(agent, state):
            return replace(state, changed=0, graph_messages=None, place=-1)
        random = agent.random(t)
        asked = self._asked(agent, state, random)
        theirs = yield Ask(tuple(asked.tolist()), again=not self.cache)
        peers = np.array(sorted(theirs), np.intp)
        if not peers.size:
            return replace(state, changed=0, graph_messages=None, place=-1)
        messages = np.array([theirs[peer] for peer in peers.tolist()])
        now = entries(state.peers, state.weights, peers, np.zeros(len(peers)))
        price, trials = self.price(agent, state, peers, messages)
        lam = problem.lam
        delta = problem.delta
        others = messages[:, 0] - now + delta
        own = state.x[0] - now.sum() + delta
        if self.graph_step == "exact":
            w = graph_block(price, others, own, lam)
        else:
            degrees = messages[:, 0] + delta, state.x[0] + delta
            w = graph_gradient_step(price, *degrees, lam, now, delta, self.graph_factor)
        if self.nearest is not None:
            w[self.too_far(state, peers, price, w)] = 0.0
        keys, values = with_entries(state.peers, state.weights, peers, w)
        x = state.x.copy()
        graph_messages = np.array([peers.astype(float), w, trials, (w > 0) & (now == 0)])
        if state.view is not None:
            size = min(TUNING.passed_on, state.view.size)
            named = [random.choice(state.view, size, replace=False) for _ in peers]
            graph_messages = np.concatenate([graph_messages, np.transpose(named)])
        still = 0
        if self.graph_stop is not None:
            before = graph_value(price, others, own, lam, now)
            after = graph_value(price, others, own, lam, w)
            if before - after < self.graph_stop * abs(before):
                still = state.still + 1
        x[0] = values.sum()
        return replace(
            state,
            x=x,
            peers=keys,
            weights=values,
            changed=0,
            graph_messages=graph_messages,
            place=-1,
            still=still,
        )

    def _asked(
        self, agent: Agent[Personal], state: State, random: np.random.Generator
    ) -> IndexArray:
        """The users that are asked for their models: some at random, and known neighbours."""
        if state.view is None:
            drawn = self._sampled(random, agent.count, agent.index)
        else:
            size = min(self.sample, state.view.size)
            drawn = random.choice(state.view, size, replace=False)
        again = state.peers
        if again.size > TUNING.revisited:  # bounds the cost of a wake-up with many neighbours
            again = random.choice(again, TUNING.revisited, replace=False)
        if self.revisit:
            return np.union1d(drawn, again)
        return drawn

    def _in_turn(self, agent: Agent[Personal], state: State, t: int) -> State:
        """The state at a graph step. In a new phase of the graph, the user starts again."""
        if self.graph_stop is None:
            return state
        alone, graph, models = self.rhythm
        turn = ((t - 1) // agent.count - alone) // (graph + models)
        if turn == state.turn:
            return state
        return replace(state, turn=turn, still=0)

    def _is_still(self, agent: Agent[Personal], state: State) -> bool:
        """Whether the user has ended its graph steps of this phase."""
        if self.graph_stop is None:
            return False
        return state.still * min(self.sample, agent.count - 1) >= agent.count - 1

    def price(
        self,
        agent: Agent[Personal],
        state: State,
        peers: npt.NDArray[np.intp],
        messages: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """The linear part of h divided by μ, for each of these users, and the error rates of their
        models on this user's rows (zeros with `likeness="models"`).
        """
        problem = agent.problem
        models = messages[:, HEAD:]
        if self.likeness == "models":
            apart = models - state.x[HEAD:]
            # p/μ + ½Δ,   p_kl = c_k L_k + c_l L_l,   Δ_kl = ‖α_k − α_l‖²
            # (4)
            unlike = (state.x[1] + messages[:, 1]) / problem.mu + 0.5 * np.einsum(
                "ij,ij->i", apart, apart
            )
            return unlike, np.zeros(len(peers))
        wrong = shares_wrong(models @ margins(agent).T)
        return TUNING.trials * (wrong + entries(state.received, state.views, peers, wrong)), wrong

    def too_far(
        self, state: State, peers: npt.NDArray[np.intp], price: FloatArray, w: FloatArray
    ) -> npt.NDArray[np.bool_]:
        """Mark the users in `peers` that exceed the limit `nearest`: the least similar ones.
        Neighbours that are not in `peers` count towards the limit.
        """
        assert self.nearest is not None
        places = self.nearest - int(np.isin(state.peers, peers, invert=True).sum())
        far = np.ones(len(peers), bool)
        far[np.argsort(np.where(w > 0, price, np.inf), kind="stable")[: max(places, 0)]] = False
        return far

    def receive(
        self, agent: Agent[Personal], state: State, sender: int, note: tuple[float, ...]
    ) -> State:
        if state.view is not None:
            state = self._with_view(agent, state, sender, note)
        received = state.received
        views = state.views
        if self.likeness == "trials":
            received, views = with_entry(received, views, sender, note[1], True)
        if received.size > TUNING.remembered:
            received, views = without_largest(received, views)
        if note[0] == 0.0 and not entry(state.peers, state.weights, sender, 0.0):
            # Most users that ask are not neighbours, and do not become neighbours.
            return self._after_note(state, state.x, state.peers, state.weights, received, views)
        keys, values = with_entry(state.peers, state.weights, sender, note[0], False)
        x = state.x.copy()
        x[0] = values.sum()
        return self._after_note(state, x, keys, values, received, views)

    @staticmethod
    def _after_note(
        state: State,
        x: FloatArray,
        peers: npt.NDArray[np.intp],
        weights: FloatArray,
        received: npt.NDArray[np.intp],
        views: FloatArray,
    ) -> State:
        """The state with these first fields. `replace` is slower, and notes are many."""
        return State(
            x,
            peers,
            weights,
            received,
            views,
            together=state.together,
            still=state.still,
            turn=state.turn,
            view=state.view,
            notes=state.notes,
        )

    def _with_view(
        self, agent: Agent[Personal], state: State, sender: int, note: tuple[float, ...]
    ) -> State:
        """The state that knows the sender and the users that it named. They replace others at
        random.
        """
        assert state.view is not None
        assert self.known is not None
        first = 2 if self.likeness == "trials" else 1
        random = np.random.default_rng([agent.seed, 1 + agent.index, state.notes, VIEWS])
        view = set(state.view.tolist())
        for user in (sender, *map(int, note[first:])):
            if user in view or user == agent.index or not 0 <= user < agent.count:
                continue
            if len(view) >= self.known:
                view.remove(sorted(view)[random.integers(len(view))])
            view.add(user)
        return replace(state, view=np.array(sorted(view), np.intp), notes=state.notes + 1)

    def publish(self, agent: Agent[Personal], state: State) -> Publication:
        sparse = agent.problem.norm == "l1"
        if state.graph_messages is None:
            step = (state.place, state.move) if state.place >= 0 else None
            return Publication(
                state.x,
                HEAD,
                sparse,
                state.changed,
                state.peers,
                step=step,
                radius=agent.problem.beta,
            )
        peers, weights, trials, new, *named = state.graph_messages
        numbers = [weights]
        if self.likeness == "trials":
            numbers.append(trials)
        numbers += named
        notes = {
            int(peer): tuple(note)
            for peer, note in zip(peers, np.transpose(numbers).tolist(), strict=True)
        }
        return Publication(
            state.x,
            HEAD,
            sparse,
            0,
            (),
            notes,
            tuple(int(peer) for peer in peers[new > 0]),
            radius=agent.problem.beta,
        )

    def neighbours(self, agent: Agent[Personal], state: State) -> IndexArray | None:
        return state.peers

    def drawn(self, agent: Agent[Personal], who: int, t: int) -> IndexArray | None:
        if not self.learn or self.phase((t - 1) // agent.count + 1) != "graph":
            return np.empty(0, np.intp)
        if self.known is not None:
            return None
        return self._sampled(agent.random_of(who, t), agent.count, who)

    def _sampled(self, random: np.random.Generator, count: int, who: int) -> IndexArray:
        """The users that user `who` asks in a graph step: κ others at random."""
        others = min(self.sample, count - 1)
        if not others:
            return np.empty(0, np.intp)
        drawn = random.choice(count - 1, others, replace=False)
        drawn += drawn >= who
        return drawn

    def point(self, agent: Agent[Personal], state: State) -> Point:
        return Point(state.x[HEAD:], np.concatenate([state.peers.astype(float), state.weights]))


def _objective(agent: Agent[Personal], state: State) -> Protocol[Objective]:
    """Ask the neighbours for their models, and return the parts of the user's objective."""
    if not state.peers.size:
        return np.zeros(state.x.size - HEAD), confidence(agent), 0.0
    degree = state.x[0]
    mu = agent.problem.mu
    # μ Σ_l w_kl α_l, from the messages of the neighbours
    pull = mu * (yield Ask(state.peers, state.weights))[HEAD:]
    return pull, degree * confidence(agent), mu * degree
