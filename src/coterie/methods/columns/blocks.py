"""Each party sends its columns once, under a secret rotation, to the label party: for many rows and
few columns.

    X_j R_j        n · d_j numbers, hop by hop to the label agent; R_j is a random rotation that
                   only agent j knows
    R_jᵀ w_j       the coefficients, back in one `Sum`, where a rotation does not change the
                   penalty: none, l2, groups (each group is rotated by itself). The label agent
                   has solved the whole problem: `pooled.py`
    rounds         for l1 and elasticnet the rounds of `lbfgs`, with messages of a number per
                   column: `score_sums.py`

Agents of one owner do not rotate, so they need no rounds for l1 either.
No message and no certificate contains the gradient of the loss at single rows, so parties without
labels do not learn it. The other parties have to trust the label agent: it proves the gap with the
columns that it received.

The columns travel on a tree of shortest paths. A block that passes through other agents is
encrypted for the label agent (X25519, HKDF, ChaCha20-Poly1305). All of this is sent with
`Ask(tell=)`, so the bill counts every hop.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem, MissingExtra, ProtocolError
from coterie.methods.auto.costs import Sizes
from coterie.methods.columns import pooled
from coterie.methods.columns.column_costs import cheaper, moves, numbers_sent, per_row, seconds
from coterie.methods.columns.score_sums import ColumnSums, RowSums
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
        "Pairs to remember with l1: messages of 2 k² numbers would dominate the traffic.",
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State(ColumnsState):
    """The State of `lbfgs`, and the columns that agents sent before the first round."""

    rotation: FloatArray = field(default_factory=nothing)
    place: int = 0
    columns: FloatArray = field(default_factory=nothing)
    """The rotated columns of all agents, at the label agent; elsewhere an empty array as wide."""
    at_once: bool = False
    """Whether the label agent solves the whole problem, without rounds."""
    groups: FloatArray = field(default_factory=nothing)
    """The group of each of these columns, at the label agent; empty without groups."""


class Way(NamedTuple):
    """One agent's place on the way to the label agent."""

    distance: int
    parent: int
    children: tuple[int, ...]
    depth: int
    """The largest distance."""


@dataclass(frozen=True)
class Blocks(Lbfgs):
    """L-BFGS with a number per column and round, after the parties sent their columns once under
    secret rotations.
    """

    name: ClassVar[str] = "blocks"
    state: ClassVar[type] = State
    summary: ClassVar[str] = (
        "columns sent once, rotated, to the party with the labels: for many rows, every loss"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "your columns, once, each row multiplied by a secret rotation, to the label party "
            "alone (encrypted where they pass through others); with an l1 penalty then in every "
            "round one rotated number per column, and inner products of your steps as part of a sum"
        ),
        learned=(
            "the label party: all distances and angles between rows in your columns; columns that "
            "are independent and not normal, or binary, can be unmixed (ICA), and a single column "
            "is there up to its sign. Columns of a group are rotated among themselves only. Other "
            "parties: their own coefficients and gradients, a number per column and, with l1, "
            "round, and no labels while there are more rows than these numbers"
        ),
        secure="the same for the label party: columns go to it alone, and are no sums",
        most=lambda case: _most(case),
        before=lambda case: None,
        unbounded=(
            "`blocks` sends numbers for each column of all parties, and these columns are counted "
            "when the parties meet"
        ),
        setup="each party's number of hops to the label party; a public key of the label party",
    )
    discloses_labels: ClassVar[bool] = False
    moves_columns: ClassVar[bool] = True
    first_look: ClassVar[int] = 1

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        if sizes is None or not moves(sizes) or not _can_encrypt():
            return None
        if _is_for_many(problem):
            other = "lbfgs"
        elif cls._solves_alone(problem, sizes):
            other = "tree"
        else:
            return None
        sent = numbers_sent(problem, network, sizes)
        each = per_row(sent, sizes.rows)
        taken = seconds(problem, network, sizes)
        reason = (
            f"to move the columns once is expected to send about {each['blocks']} numbers per "
            f"row, against {each[other]} for {other}, which leaves them where they are, and to "
            f"take about {taken['blocks']:.2g} s, against {taken[other]:.2g} s, {sizes.link}"
        )
        return SCORE + cheaper(taken, "blocks", other), reason

    @classmethod
    def _solves_alone(cls, problem: Problem, sizes: Sizes) -> bool:
        """Return whether the label agent solves a problem with groups or bounds fast."""
        if _has_groups(problem):
            return pooled.fits(sizes.columns)
        # With more columns than rows, the quadratic models of a steep loss are flat between bounds:
        # a round takes seconds.
        is_flat = problem.loss.steep and sizes.columns > sizes.rows
        return _has_equal_bounds(problem) and not is_flat and cls.rescues(problem, sizes)

    @classmethod
    def rescues(cls, problem: Problem, sizes: Sizes) -> bool:
        """Return whether the label agent would solve the whole problem."""
        if not pooled.fits(sizes.columns) or not _can_encrypt():
            return False
        may_rotate = _is_for(problem) and not _changes_by_rotation(problem)
        return may_rotate or not sizes.apart

    def check(self, problem: Problem, network: Network) -> None:
        if not _is_for(problem) and not _has_equal_bounds(problem):
            raise InvalidProblem(
                "blocks is for the penalties none, l2, l1, elasticnet and group, with one strength "
                f"for all columns, and this problem has {problem.penalty.name!r}. "
                f"Use {self.instead}."
            )

    def _pairs(self, agent: Agent) -> int:
        if has_threshold(agent):
            return min(super()._pairs(agent), TUNING.pairs)
        return super()._pairs(agent)

    def start(self, agent: Agent) -> Protocol[State]:
        rotation = rotation_of(agent)
        sent = yield from _gathered(agent, rotation)
        w = agent.first_model().astype(float)
        return (yield from self._with(agent, w, None, rotation, sent))

    def warm(self, agent: Agent, state: ColumnsState, point: Point) -> Protocol[State]:
        assert isinstance(state, State)
        sent = Sent(state.place, state.columns, state.at_once, state.groups)
        w = point.w.astype(float)
        return (yield from self._with(agent, w, point.v, state.rotation, sent))

    def _with(
        self, agent: Agent, w: FloatArray, dual: FloatArray | None, rotation: FloatArray, sent: Sent
    ) -> Protocol[State]:
        """Return the first State, from a model and its dual variables."""
        if sent.at_once:
            v = NOTHING
            if dual is not None and agent.data.y is not None:
                v = dual
            plain = ColumnsState(w, NOTHING, Memory.empty(0, 0), NOTHING, v=v, cost=0.0)
        else:
            sums = ColumnSums(rotation, sent.place, sent.columns)
            plain = yield from self._started(agent, w, dual, sums)
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
            received = yield Sum(np.zeros(width), of=agent.known.labels_at)
            end = state.place + len(state.rotation)
            rotated = received[state.place : end]
            return replace(state, w=state.rotation @ rotated)
        w, v = _solved_once(agent, state)
        own = agent.data.d
        of_others = slice(own, own + width)
        yield Sum(w[of_others], of=agent.known.labels_at)
        return replace(state, w=np.delete(w, of_others), v=v)

    def score_sums(self, agent: Agent, state: ColumnsState) -> RowSums | ColumnSums:
        assert isinstance(state, State)
        return ColumnSums(state.rotation, state.place, state.columns)

    def point(self, agent: Agent, state: ColumnsState) -> Point:
        # Proofs of this run use the same sums: no message has gradients at single rows.
        agent.scratch["score sums"] = self.score_sums(agent, state)
        if state.v.size:
            return super().point(agent, state)
        return Point(state.w.astype(agent.design.dtype))


def _most(case: Case) -> Counts | None:
    """Return the largest counts of a round: those of `lbfgs`, with a number per column of all
    parties in place of a row.
    """
    if case.all_columns is None:
        return None
    has_threshold = _changes_by_rotation(case.problem)
    collectives, numbers = most_of_products(Lbfgs.memory, 2, has_threshold)
    return collectives + 2, numbers + 2 * case.all_columns + 7


def _solved_once(agent: Agent, state: State) -> tuple[FloatArray, FloatArray]:
    """Return the solution of the label agent, computed once: every round has the same."""
    known = agent.scratch.get("pooled")
    if known is not None and known[0] is state.columns and known[1] is agent.problem:
        solution: tuple[FloatArray, FloatArray] = known[2]
        return solution
    solution = pooled.solved(agent, state.columns, state.groups)
    if not agent.should_stop():
        agent.scratch["pooled"] = state.columns, agent.problem, solution
    return solution


def rotation_of(agent: Agent) -> FloatArray:
    """Return a random rotation of the agent's columns, uniform among those that keep groups apart.

    Agents of one owner, and the label agent, need no rotation.
    """
    rotation = np.eye(agent.data.d)
    if not _rotates(agent):
        return rotation
    random = agent.private_random(0)
    groups = _groups_of(agent)
    if groups.size:
        parts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    else:
        parts = [np.arange(agent.data.d)]
    for part in parts:
        Q, R = np.linalg.qr(random.standard_normal((len(part), len(part))))
        signs = np.where(np.diag(R) < 0, -1.0, 1.0)
        rotation[np.ix_(part, part)] = Q * signs
    return rotation


def _rotates(agent: Agent) -> bool:
    """Return whether the agent rotates its columns."""
    return agent.data.y is None and bool(agent.secret)


def _groups_of(agent: Agent) -> FloatArray:
    """Return the group of each of the agent's columns, counted from 0 at every agent; without
    groups an empty array.
    """
    pieces = agent.problem.penalty.pieces
    if pieces is None or pieces.groups is None:
        return NOTHING
    return pieces.groups.astype(float)


def _has_groups(problem: Problem) -> bool:
    return problem.penalty.pieces is not None and problem.penalty.pieces.groups is not None


def _is_for(problem: Problem) -> bool:
    """Return whether the penalty is none, l2, l1 or both, the same for all columns, or groups."""
    pieces = problem.penalty.pieces
    if pieces is None or pieces.per_column:
        return False
    return not set(pieces.kinds) - {"l1", "groups"}


def _is_for_many(problem: Problem) -> bool:
    """Return whether the penalty suits any number of columns."""
    return _is_for(problem) and not _has_groups(problem)


def _changes_by_rotation(problem: Problem) -> bool:
    """Return whether a rotation of the columns changes the penalty: l1 and bounds."""
    pieces = problem.penalty.pieces
    return pieces is not None and bool({"l1", "bounds"} & set(pieces.kinds))


def _has_equal_bounds(problem: Problem) -> bool:
    """Return whether the penalty is one lower and one upper bound for all coefficients."""
    pieces = problem.penalty.pieces
    if pieces is None or pieces.kinds != ["bounds"] or pieces.per_column:
        return False
    return np.ndim(pieces.lower) == np.ndim(pieces.upper) == 0


def _can_encrypt() -> bool:
    return find_spec("cryptography") is not None


# -- the way of the columns ------------------------------------------------------------------------


class Sent(NamedTuple):
    """Facts that an agent knows after the columns were sent: see `State`."""

    place: int
    columns: FloatArray
    at_once: bool
    groups: FloatArray


class Announced(NamedTuple):
    """Facts about the columns that all agents know before the columns are sent."""

    widths: npt.NDArray[np.intp]
    """The number of columns of each agent without labels; 0 for the label agent."""
    columns: int
    """The number of columns of all agents."""
    rotated: bool
    """Whether the columns of some agent are rotated."""
    dtype: np.dtype[Any]
    """The type of the numbers that are sent."""

    def place(self, agent: Agent) -> int:
        """Return where the columns of that agent begin among those of all agents without labels."""
        return int(self.widths[: agent.index].sum())


def _gathered(agent: Agent, rotation: FloatArray) -> Protocol[Sent]:
    """Send the columns of all agents to the label agent."""
    announced = yield from _announced(agent, rotation)
    at_once = _at_once(agent.problem, announced)
    groups = NOTHING
    if _has_groups(agent.problem):
        groups = yield from _all_groups(agent, announced)
    way = yield from _found(agent)
    key = _private_key(agent)
    has_labels = agent.data.y is not None
    own_key = key if has_labels else None
    public = yield from _public_key(agent, own_key)
    bundle: FloatArray = np.empty(0, announced.dtype)
    if not has_labels and len(rotation):
        bundle = _own_bundle(agent, rotation, announced.dtype, way, (key, public))
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


def _own_bundle(
    agent: Agent, rotation: FloatArray, dtype: np.dtype[Any], way: Way, keys: tuple[Any, bytes]
) -> FloatArray:
    """Return the agent's own rotated columns, encrypted if they pass through other agents."""
    rotated = [agent.design.forward(column.astype(dtype)) for column in rotation.T]
    block = np.column_stack(rotated)
    if way.distance > 1:
        return _packed(agent.index, block, keys)
    return _packed(agent.index, block, None)


def _announced(agent: Agent, rotation: FloatArray) -> Protocol[Announced]:
    """Tell all agents the number of columns of each, and whether some are rotated."""
    if agent.data.y is not None:
        own_width = 0
    else:
        own_width = len(rotation)
    own = [float(agent.data.d), float(_rotates(agent))]
    received = yield Sum(np.append(agent.one_hot(own_width), own))
    widths = received[:-2].astype(int)
    columns = int(received[-2])
    rotated = bool(received[-1])
    dtype = agent.design.dtype
    # A proof accounts for rounding to double precision; columns as they are stored are not rounded
    # at all.
    if rotated or agent.problem.intercept:
        dtype = np.dtype(float)
    return Announced(widths, columns, rotated, dtype)


def _at_once(problem: Problem, announced: Announced) -> bool:
    """Return whether the label agent solves the whole problem in one round; refuse a problem that
    needs this where it cannot.
    """
    is_changed = announced.rotated and _changes_by_rotation(problem)
    at_once = pooled.fits(announced.columns) and not is_changed
    if _has_equal_bounds(problem) and not at_once:
        raise InvalidProblem(
            "between organisations, and for many columns, blocks is for the penalties none, l2, "
            f"l1, elasticnet and group; this problem has {problem.penalty.name!r}. Use tree."
        )
    if _has_groups(problem) and not at_once:
        raise InvalidProblem(
            f"blocks solves problems with groups of at most {pooled.WIDEST} columns; this one has "
            f"{announced.columns}. Use tree."
        )
    return at_once


def _all_groups(agent: Agent, announced: Announced) -> Protocol[FloatArray]:
    """Return the group of every column that is sent; no two agents have a group in common."""
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
    """Add the bundles of all agents whose way leads through this one, and send them on. The
    farthest agents send first.
    """
    nothing = np.empty(0, bundle.dtype)
    for distance in range(way.depth, 0, -1):
        own = nothing
        if way.distance == distance:
            own = bundle
        asked: tuple[int, ...] = ()
        if way.distance == distance - 1:
            asked = way.children
        received = yield Ask(asked, tell=own)
        of_children = [received[child] for child in sorted(received)]
        bundle = np.concatenate([bundle, *of_children])
    return bundle


def _found(agent: Agent) -> Protocol[Way]:
    """Find the shortest way to the label agent, from neighbour to neighbour. With a server, all
    agents are one hop away.
    """
    has_labels = agent.data.y is not None
    holders = yield Sum(agent.one_hot(float(has_labels)))
    labels_at = int(np.argmax(holders))
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
        own = np.array([distance, parent], dtype)
        received = yield Ask(agent.neighbours, tell=own)
        near = [index for index in sorted(received) if received[index][0] >= 0]
        if distance < 0 and near:
            parent = min(near, key=lambda index: (received[index][0], index))
            distance = int(received[parent][0]) + 1
        without_way = yield Sum(np.array([float(distance < 0)]))
        if not without_way[0]:
            break
    own = np.array([distance, parent], dtype)
    received = yield Ask(agent.neighbours, tell=own)
    children = tuple(index for index in sorted(received) if received[index][1] == agent.index)
    return Way(distance, parent, children, depth)


def _way_by_server(agent: Agent, labels_at: int) -> Way:
    """Return the way where a server passes messages on."""
    depth = int(agent.count > 1)
    if agent.index != labels_at:
        return Way(1, labels_at, (), depth)
    others = tuple(index for index in range(agent.count) if index != labels_at)
    return Way(0, -1, others, depth)


def _public_key(agent: Agent, key: Any) -> Protocol[bytes]:
    """Return the public key of the label agent; every number of the message is a byte."""
    if key is not None:
        own = key.public_key().public_bytes_raw()
    else:
        own = bytes(KEY_BYTES)
    numbers = np.frombuffer(own, np.uint8).astype(agent.design.dtype)
    received = yield Sum(numbers)
    received_bytes = np.clip(received, 0, 255).astype(np.uint8)
    public = bytes(received_bytes)
    if key is not None and public != own:
        raise ProtocolError(
            "blocks: another agent changed the public key under which columns are sent."
        )
    return public


def _private_key(agent: Agent) -> Any:
    """Return a private key for this run alone. Agents of one owner have no secrets, and draw the
    same key when a protocol is replayed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    except ImportError as error:
        raise MissingExtra("method 'blocks'", "peers") from error

    if agent.secret:
        return X25519PrivateKey.generate()
    return X25519PrivateKey.from_private_bytes(agent.random(0).bytes(KEY_BYTES))


def _packed(index: int, block: FloatArray, keys: tuple[Any, bytes] | None) -> FloatArray:
    """Return a block as a message: the sender, whether it is encrypted, the count of its numbers,
    and the numbers, encrypted if there are keys.
    """
    numbers = block.ravel()
    if keys is not None:
        own, public = keys
        encrypted = _cipher(own, public).encrypt(NONCE, numbers.tobytes(), None)
        own_public = own.public_key().public_bytes_raw()
        numbers = np.frombuffer(own_public + encrypted, block.dtype)
    head = np.array([index, float(keys is not None), numbers.size], block.dtype)
    return np.concatenate([head, numbers])


def _unpacked(
    bundle: FloatArray, widths: npt.NDArray[np.intp], rows: int, key: Any
) -> dict[int, FloatArray]:
    """Return the block of each agent."""
    found: dict[int, FloatArray] = {}
    while bundle.size:
        index, encrypted, size = (int(number) for number in bundle[:3])
        numbers = bundle[3 : 3 + size]
        bundle = bundle[3 + size :]
        if encrypted:
            numbers = _decrypted(numbers, index, key)
        is_known = 0 <= index < len(widths)
        if not is_known or numbers.size != rows * widths[index] or not np.isfinite(numbers).all():
            raise ProtocolError(f"blocks: the columns of agent {index} are not as announced.")
        found[index] = numbers.reshape(rows, -1)
    if len(found) != np.count_nonzero(widths):
        raise ProtocolError("blocks: the columns of some agents did not arrive.")
    return found


def _decrypted(numbers: FloatArray, index: int, key: Any) -> FloatArray:
    """Decrypt the block of that agent, which begins with its public key."""
    from cryptography.exceptions import InvalidTag

    data = numbers.tobytes()
    public = data[:KEY_BYTES]
    try:
        plain = _cipher(key, public).decrypt(NONCE, data[KEY_BYTES:], None)
    except (InvalidTag, ValueError) as error:
        raise ProtocolError(
            f"blocks: the columns of agent {index} were changed on their way."
        ) from error
    return np.frombuffer(plain, numbers.dtype)


def _cipher(own: Any, public: bytes) -> Any:
    """Return the cipher that the holders of these two keys share."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    secret = own.exchange(X25519PublicKey.from_public_bytes(public))
    derivation = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=b"coterie blocks")
    return ChaCha20Poly1305(derivation.derive(secret))
