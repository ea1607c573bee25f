"""Columns sent once, each party's under a secret rotation, to the party with the labels: for many
rows and few columns.

    X_j R_j        n · d_j numbers, hop by hop to the agent with the labels; R_j a random rotation
                   that j alone knows
    R_jᵀ w_j       the coefficients, back in one `Sum`, where a rotation leaves the penalty as it
                   is: none, l2, groups (each is rotated by itself); the agent with the labels
                   solved the whole problem: `pooled.py`
    rounds         for l1 and elasticnet those of `lbfgs`, with messages of a number per column:
                   `couriers.py`

Agents of one owner do not rotate, so that there l1 needs no rounds either.
No message and no certificate tells the slope of the loss at single rows, so parties without labels
do not learn them. The others have to trust the agent with the labels: it proves the gap with the
columns that it was sent.

The way is a tree of shortest paths. A block that passes through others is encrypted for the agent
with the labels (X25519, HKDF, ChaCha20-Poly1305); all of this is said with `Ask(tell=)`, so that it
is billed hop by hop.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem, MissingExtra, ProtocolError
from coterie.methods.auto.costs import Sizes
from coterie.methods.columns import couriers, pooled
from coterie.methods.columns.column_costs import cheaper, moves, numbers_sent, per_row, seconds
from coterie.methods.quasi_newton.lbfgs import SCORE, ColumnsState, Lbfgs
from coterie.methods.quasi_newton.pairs import Memory, most_of_products
from coterie.methods.quasi_newton.rounds import NOTHING, has_threshold, nothing
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Ask, Protocol, Sum
from coterie.run.disclosure import Case, Counts, Disclosure

KEY_BYTES = 32
NONCE = bytes(12)
"""Every key encrypts one message."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    pairs: int = tuned(
        10,
        "Pairs to remember beside l1: messages of 2 k² numbers would be most of what rounds send.",
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State(ColumnsState):
    """That of `lbfgs`, and what was sent before the first round."""

    rotation: FloatArray = field(default_factory=nothing)
    place: int = 0
    columns: FloatArray = field(default_factory=nothing)
    """Everybody's rotated columns, at the labels; elsewhere an empty array as wide."""
    at_once: bool = False
    """Whether the agent with the labels solves the whole problem, without rounds."""
    groups: FloatArray = field(default_factory=nothing)
    """To which group each of everybody's columns belongs, at the labels; empty without groups."""


class Way(NamedTuple):
    """The way to the agent with the labels, as one agent knows it."""

    distance: int
    parent: int
    children: tuple[int, ...]
    depth: int
    """The largest distance."""


@dataclass(frozen=True)
class Blocks(Lbfgs):
    """L-BFGS whose rounds cost a number per column, after the columns were sent once under secret
    rotations.
    """

    name: ClassVar[str] = "blocks"
    state: ClassVar[type] = State
    summary: ClassVar[str] = (
        "columns sent once, rotated, to the party with the labels: for many rows, every loss"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "your columns, once, each row multiplied by a secret rotation, to the label party "
            "alone (encrypted where "
            "they pass through others); with an l1 penalty then in every round one rotated number "
            "per column, and "
            "inner products of your steps as part of a sum"
        ),
        learned=(
            "the label party: all distances and angles between rows in your columns; columns that "
            "are independent "
            "and not normal, or binary, can be unmixed (ICA), and a single column is there up to "
            "its sign. Columns "
            "of a group are rotated among themselves only. Other parties: their own coefficients "
            "and gradients, a "
            "number per column and, with l1, round, and no labels while there are more rows than "
            "these numbers"
        ),
        secure="the same for the label party: columns go to it alone, and are no sums",
        most=lambda case: _most(case),
        before=lambda case: None,
        setup="how many hops each party is from the label party; a public key of the label party",
    )
    tells_labels: ClassVar[bool] = False
    moves_columns: ClassVar[bool] = True
    first_look: ClassVar[int] = 1

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        if (
            sizes is None
            or not _is_for(problem)
            or not moves(sizes)
            or find_spec("cryptography") is None
        ):
            return None
        if _has_groups(problem) and not pooled.fits(sizes.columns):
            return None
        sent = numbers_sent(problem, network, sizes)
        if _has_groups(problem):
            other = "tree"
        else:
            other = "lbfgs"
        each = per_row(sent, sizes.rows)
        taken = seconds(problem, network, sizes)
        return SCORE + cheaper(taken, "blocks", other), (
            f"to move the columns once is expected to send about {each['blocks']} numbers per "
            "row, against "
            f"{each[other]} for {other}, which leaves them where they are, and to take about "
            f"{taken['blocks']:.2g} s, "
            f"against {taken[other]:.2g} s, {sizes.link}"
        )

    @classmethod
    def rescues(cls, problem: Problem, sizes: Sizes) -> bool:
        """Where the columns are moved to the labels and the whole problem is solved there."""
        alone = _is_for(problem) and not _has_kinks_along_axes(problem)
        return (
            pooled.fits(sizes.columns)
            and find_spec("cryptography") is not None
            and (alone or not sizes.apart)
        )

    def check(self, problem: Problem, network: Network) -> None:
        if not _is_for(problem) and not _has_equal_bounds(problem):
            raise InvalidProblem(
                "blocks is for the penalties none, l2, l1, elasticnet and group, and this "
                "problem has "
                f"{problem.penalty.name!r}. Use {self.instead}."
            )

    def _pairs(self, agent: Agent) -> int:
        if has_threshold(agent):
            return min(super()._pairs(agent), TUNING.pairs)
        return super()._pairs(agent)

    def start(self, agent: Agent) -> Protocol[State]:
        rotation = rotation_of(agent)
        sent = yield from _gathered(agent, rotation)
        return (
            yield from self._with(agent, agent.first_model().astype(float), None, rotation, sent)
        )

    def warm(self, agent: Agent, state: ColumnsState, point: Point) -> Protocol[State]:
        assert isinstance(state, State)
        sent = Sent(state.place, state.columns, state.at_once, state.groups)
        return (yield from self._with(agent, point.w.astype(float), point.v, state.rotation, sent))

    def _with(
        self, agent: Agent, w: FloatArray, dual: FloatArray | None, rotation: FloatArray, sent: Sent
    ) -> Protocol[State]:
        if sent.at_once:
            if dual is not None and agent.data.y is not None:
                v = dual
            else:
                v = NOTHING
            plain = ColumnsState(w, NOTHING, Memory.empty(0, 0), NOTHING, v=v, cost=0.0)
        else:
            plain = yield from self._started(
                agent, w, dual, couriers.Blocks(rotation, sent.place, sent.columns)
            )
        known: dict[str, Any] = {field.name: getattr(plain, field.name) for field in fields(plain)}
        return State(**known, rotation=rotation, **sent._asdict())

    def round(self, agent: Agent, state: ColumnsState, t: int) -> Protocol[State]:
        assert isinstance(state, State)
        if not state.at_once:
            after = yield from super().round(agent, state, t)
            assert isinstance(after, State)
            return after
        width = state.columns.shape[1]
        if agent.data.y is None:
            received = yield Sum(np.zeros(width))
            return replace(
                state, w=state.rotation @ received[state.place : state.place + len(state.rotation)]
            )
        w, v = _solved_once(agent, state)
        own = agent.data.d
        yield Sum(w[own : own + width])
        return replace(state, w=np.delete(w, np.s_[own : own + width]), v=v)

    def courier(self, agent: Agent, state: ColumnsState) -> couriers.Sums | couriers.Blocks:
        assert isinstance(state, State)
        return couriers.Blocks(state.rotation, state.place, state.columns)

    def point(self, agent: Agent, state: ColumnsState) -> Point:
        # Proofs of this run take the same way: no slopes at single rows are told.
        agent.scratch["courier"] = self.courier(agent, state)
        if state.v.size:
            return super().point(agent, state)
        return Point(state.w.astype(agent.design.dtype))


def _most(case: Case) -> Counts | None:
    """The largest counts of a round: as those of `lbfgs`, with a number per column of all parties
    in place of a row.
    """
    if case.all_columns is None:
        return None
    collectives, numbers = most_of_products(Lbfgs.memory, 2, _has_kinks_along_axes(case.problem))
    return collectives + 2, numbers + 2 * case.all_columns + 7


def _solved_once(agent: Agent, state: State) -> tuple[FloatArray, FloatArray]:
    """What the agent with the labels comes to: a further round would come to the same."""
    known = agent.scratch.get("pooled")
    if known is not None and known[0] is state.columns and known[1] is agent.problem:
        solution: tuple[FloatArray, FloatArray] = known[2]
        return solution
    solution = pooled.solved(agent, state.columns, state.groups)
    if not agent.should_stop():
        agent.scratch["pooled"] = state.columns, agent.problem, solution
    return solution


def rotation_of(agent: Agent) -> FloatArray:
    """A random rotation of its columns, uniform among all that leave groups together.

    Agents of one owner, and the labels' own, need none.
    """
    rotation = np.eye(agent.data.d)
    if not _rotates(agent):
        return rotation
    random = agent.private_random(0)
    groups = _groups_of(agent)
    for group in np.unique(groups) if groups.size else [None]:
        if group is None:
            mine = np.arange(agent.data.d)
        else:
            mine = np.flatnonzero(groups == group)
        Q, R = np.linalg.qr(random.standard_normal((len(mine), len(mine))))
        rotation[np.ix_(mine, mine)] = Q * np.where(np.diag(R) < 0, -1.0, 1.0)
    return rotation


def _rotates(agent: Agent) -> bool:
    return agent.data.y is None and bool(agent.secret)


def _groups_of(agent: Agent) -> FloatArray:
    """The number of the group of each of its columns, counted from 0 at every agent; without groups
    an empty array.
    """
    pieces = agent.problem.penalty.pieces
    if pieces is None or pieces.groups is None:
        return NOTHING
    return pieces.groups.astype(float)


def _has_groups(problem: Problem) -> bool:
    return problem.penalty.pieces is not None and problem.penalty.pieces.groups is not None


def _is_for(problem: Problem) -> bool:
    """Whether its penalty is none, l2, l1 or both, or groups."""
    pieces = problem.penalty.pieces
    return pieces is not None and not set(pieces.kinds) - {"l1", "groups"}


def _has_kinks_along_axes(problem: Problem) -> bool:
    """Whether a rotation of the columns changes the penalty: l1 and bounds."""
    pieces = problem.penalty.pieces
    return pieces is not None and bool({"l1", "bounds"} & set(pieces.kinds))


def _has_equal_bounds(problem: Problem) -> bool:
    """Whether its penalty is one lower and one upper bound for all coefficients."""
    pieces = problem.penalty.pieces
    return (
        pieces is not None
        and pieces.kinds == ["bounds"]
        and np.ndim(pieces.lower) == np.ndim(pieces.upper) == 0
    )


# -- the columns' way ------------------------------------------------------------------------------


class Sent(NamedTuple):
    """What an agent knows when the columns were sent: see `State`."""

    place: int
    columns: FloatArray
    at_once: bool
    groups: FloatArray


class Announced(NamedTuple):
    """What all agents know of the columns before these are sent."""

    widths: npt.NDArray[np.intp]
    """The columns of each agent without labels; 0 for the agent with the labels."""
    columns: int
    """Of all agents."""
    rotated: bool
    """Whether the columns of some agent are rotated."""
    dtype: np.dtype[Any]
    """In which numbers they are sent."""

    def place(self, agent: Agent) -> int:
        """Where the columns of that agent begin among those of all without labels."""
        return int(self.widths[: agent.index].sum())


def _gathered(agent: Agent, rotation: FloatArray) -> Protocol[Sent]:
    """Where its columns begin among those of all without labels, and at the labels these
    columns.
    """
    announced = yield from _announced(agent, rotation)
    at_once = _at_once(agent.problem, announced)
    groups = NOTHING
    if _has_groups(agent.problem):
        groups = yield from _all_groups(agent, announced)
    way = yield from _found(agent)
    key = _private_key(agent)
    has_labels = agent.data.y is not None
    public = yield from _public_key(agent, key if has_labels else None)
    bundle: FloatArray = np.empty(0, announced.dtype)
    if not has_labels and len(rotation):
        block = np.column_stack(
            [agent.design.forward(column.astype(announced.dtype)) for column in rotation.T]
        )
        if way.distance > 1:
            keys = (key, public)
        else:
            keys = None
        bundle = _packed(agent.index, block, keys)
    bundle = yield from _passed_on(way, bundle)
    place = announced.place(agent)
    if not has_labels:
        columns = np.empty((0, int(announced.widths.sum())), announced.dtype)
        return Sent(place, columns, at_once, NOTHING)
    found = _unpacked(bundle, announced.widths, agent.data.n, key)
    columns = np.empty((agent.data.n, 0), announced.dtype)
    if found:
        columns = np.hstack([found[index] for index in sorted(found)])
    return Sent(place, columns, at_once, groups)


def _announced(agent: Agent, rotation: FloatArray) -> Protocol[Announced]:
    """How many columns each agent has, and whether some are rotated."""
    if agent.data.y is not None:
        own_width = 0
    else:
        own_width = len(rotation)
    own = [float(agent.data.d), float(_rotates(agent))]
    told = yield Sum(np.append(agent.one_hot(own_width), own))
    dtype = agent.design.dtype
    # A proof knows what rounding to double precision can do; columns as they are stored are not
    # rounded at all.
    if told[-1] or agent.problem.intercept:
        dtype = np.dtype(float)
    return Announced(told[:-2].astype(int), int(told[-2]), bool(told[-1]), dtype)


def _at_once(problem: Problem, announced: Announced) -> bool:
    """Whether the agent with the labels solves the whole problem in one round; refuses a problem
    that needs it.
    """
    at_once = pooled.fits(announced.columns) and not (
        _has_kinks_along_axes(problem) and announced.rotated
    )
    if _has_equal_bounds(problem) and not at_once:
        raise InvalidProblem(
            "between organisations, and for many columns, blocks is for the penalties none, l2, "
            "l1, elasticnet and "
            f"group; this problem has {problem.penalty.name!r}. Use tree."
        )
    if _has_groups(problem) and not at_once:
        raise InvalidProblem(
            f"blocks solves problems with groups of at most {pooled.WIDEST} columns; this one has "
            f"{announced.columns}. "
            "Use tree."
        )
    return at_once


def _all_groups(agent: Agent, announced: Announced) -> Protocol[FloatArray]:
    """The group of every column that is sent; no two agents have a group in common."""
    mine = np.zeros(int(announced.widths.sum()))
    if agent.data.y is None:
        place = announced.place(agent)
        mine[place : place + agent.data.d] = _groups_of(agent)
    groups: FloatArray = yield Sum(mine)
    if groups.size:
        owners = np.repeat(np.arange(agent.count), announced.widths)
        groups = groups + (1 + groups.max()) * (1 + owners)
    return groups


def _passed_on(way: Way, bundle: FloatArray) -> Protocol[FloatArray]:
    """That bundle with those of all agents whose way leads through this one; the farthest agents
    send first.
    """
    nothing = np.empty(0, bundle.dtype)
    for distance in range(way.depth, 0, -1):
        if way.distance == distance:
            tells = bundle
        else:
            tells = nothing
        if way.distance == distance - 1:
            asked = way.children
        else:
            asked = ()
        received = yield Ask(asked, tell=tells)
        bundle = np.concatenate([bundle, *(received[child] for child in sorted(received))])
    return bundle


def _found(agent: Agent) -> Protocol[Way]:
    """The shortest way to the labels, asked from neighbour to neighbour; with a server all are one
    hop away.
    """
    has_labels = agent.data.y is not None
    labels_at = int(np.argmax((yield Sum(agent.one_hot(float(has_labels))))))
    if not agent.neighbours:
        return _way_by_server(agent, labels_at)
    dtype = agent.design.dtype
    if has_labels:
        distance = 0
    else:
        distance = -1
    parent = -1
    depth = 0
    while True:
        depth += 1
        received = yield Ask(agent.neighbours, tell=np.array([distance, parent], dtype))
        near = [index for index in sorted(received) if received[index][0] >= 0]
        if distance < 0 and near:
            parent = min(near, key=lambda index: (received[index][0], index))
            distance = int(received[parent][0]) + 1
        lost = yield Sum(np.array([float(distance < 0)]))
        if not lost[0]:
            break
    received = yield Ask(agent.neighbours, tell=np.array([distance, parent], dtype))
    children = tuple(index for index in sorted(received) if received[index][1] == agent.index)
    return Way(distance, parent, children, depth)


def _way_by_server(agent: Agent, labels_at: int) -> Way:
    """The way where a server passes messages on."""
    depth = int(agent.count > 1)
    if agent.index != labels_at:
        return Way(1, labels_at, (), depth)
    others = tuple(index for index in range(agent.count) if index != labels_at)
    return Way(0, -1, others, depth)


def _public_key(agent: Agent, key: Any) -> Protocol[bytes]:
    """The public key of the agent with the labels, a byte a number."""
    if key is not None:
        mine = key.public_key().public_bytes_raw()
    else:
        mine = bytes(KEY_BYTES)
    received = yield Sum(np.frombuffer(mine, np.uint8).astype(agent.design.dtype))
    public = bytes(np.clip(received, 0, 255).astype(np.uint8))
    if key is not None and public != mine:
        raise ProtocolError("blocks: somebody changed the public key under which columns are sent.")
    return public


def _private_key(agent: Agent) -> Any:
    """For this run alone. Agents of one owner, who have no secrets, draw the same when a
    conversation is replayed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    except ImportError as error:
        raise MissingExtra("method 'blocks'", "peers") from error

    if agent.secret:
        return X25519PrivateKey.generate()
    return X25519PrivateKey.from_private_bytes(agent.random(0).bytes(KEY_BYTES))


def _packed(index: int, block: FloatArray, keys: tuple[Any, bytes] | None) -> FloatArray:
    """A block for its way: who sent it, how many numbers follow, and these, encrypted if there are
    keys.
    """
    numbers = block.ravel()
    if keys is not None:
        own, public = keys
        sealed = _cipher(own, public).encrypt(NONCE, numbers.tobytes(), None)
        numbers = np.frombuffer(own.public_key().public_bytes_raw() + sealed, block.dtype)
    return np.concatenate(
        [np.array([index, float(keys is not None), numbers.size], block.dtype), numbers]
    )


def _unpacked(
    bundle: FloatArray, widths: npt.NDArray[np.intp], rows: int, key: Any
) -> dict[int, FloatArray]:
    """Everybody's block."""
    from cryptography.exceptions import InvalidTag

    found: dict[int, FloatArray] = {}
    while bundle.size:
        index, encrypted, size = (int(number) for number in bundle[:3])
        numbers = bundle[3 : 3 + size]
        bundle = bundle[3 + size :]
        if encrypted:
            data = numbers.tobytes()
            try:
                plain = _cipher(key, data[:KEY_BYTES]).decrypt(NONCE, data[KEY_BYTES:], None)
            except (InvalidTag, ValueError) as error:
                raise ProtocolError(
                    f"blocks: the columns of agent {index} were changed on their way."
                ) from error
            numbers = np.frombuffer(plain, numbers.dtype)
        if (
            not 0 <= index < len(widths)
            or numbers.size != rows * widths[index]
            or not np.isfinite(numbers).all()
        ):
            raise ProtocolError(f"blocks: the columns of agent {index} are not what was announced.")
        found[index] = numbers.reshape(rows, -1)
    if len(found) != np.count_nonzero(widths):
        raise ProtocolError("blocks: not everybody's columns arrived.")
    return found


def _cipher(own: Any, public: bytes) -> Any:
    """What the holders of these two keys encrypt with."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    secret = own.exchange(X25519PublicKey.from_public_bytes(public))
    return ChaCha20Poly1305(
        HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=b"coterie blocks").derive(secret)
    )
