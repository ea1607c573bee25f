"""The attack that secure sums are for: rows and labels of another party, rebuilt from what it said.

Six parties with six rows each. Whoever adds up, a server or a neighbour on a tree, sees a message.
In plain sums, two Hessians of newton give the rows and labels of its sender, and one second moment
those of binary columns. With secure sums nothing of it is left, even for four of the six who put
together all that they know.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import coterie as co
from coterie.networks import from_edges
from coterie.numerics.kernels import fixed_point
from coterie.transport import secure_sums
from coterie.transport.links import Tag
from coterie.transport.point_to_point import PointToPoint
from coterie.transport.sums import ExactSums
from tests.harness.threads import Threads

PARTIES = ROWS = COLUMNS = 6
VICTIM = 5
"""At the end of a branch, so that on a tree, too, what it sends is its own."""
TREE = from_edges([(0, 1), (0, 2), (1, 3), (2, 4), (4, 5)])
RANDOM = np.random.default_rng(4)
X = RANDOM.standard_normal((PARTIES * ROWS, COLUMNS)) + 0.5
Y = np.sign(X @ RANDOM.standard_normal(COLUMNS) + RANDOM.standard_normal(PARTIES * ROWS))
FLAGS = RANDOM.integers(0, 2, (PARTIES * ROWS, COLUMNS)).astype(float)
STUDIES = {
    "newton": (co.Problem("logistic", "l2", 0.05, intercept=True), (X, Y)),
    "gram": (co.Problem("squared", "l2", 0.05, intercept=False), (FLAGS, Y)),
}


def own(rows):
    return rows[VICTIM * ROWS : (VICTIM + 1) * ROWS]


@pytest.fixture
def wire(monkeypatch):
    """What the victim sends in rounds, and who has which seeds."""
    sent, seeds, lock = [], {}, threading.Lock()
    send, begin = PointToPoint.send, secure_sums.MaskedSums.__init__

    def recorded(self, process, message, tag):
        with lock:
            if self.process == VICTIM and tag.purpose == "rounds":
                sent.append((tag, message.copy()))
        send(self, process, message, tag)

    def begun(self, me, common):
        seeds[me] = dict(common)
        begin(self, me, common)

    monkeypatch.setattr(PointToPoint, "send", recorded)
    monkeypatch.setattr(secure_sums.MaskedSums, "__init__", begun)
    return SimpleNamespace(sent=sent, seeds=seeds)


def listen(wire, method, secure, network):
    """The victim's messages of one run, as numbers."""
    problem, data = STUDIES[method]
    wire.sent.clear()
    sizes = [ROWS] * PARTIES
    co.solve(
        problem,
        data,
        agents=sizes,
        method=method,
        network=network,
        engine=Threads(),
        secure_sums=secure,
        tol=1e-4,
        progress=False,
    )
    return list(wire.sent)


def unmasked(wire, tag, message, known):
    """The message without the masks that those parties know, as whole numbers."""
    integers = message.copy()
    for party in known:
        cipher = secure_sums.mask_cipher(wire.seeds[party][VICTIM], tag.step, b"")
        stream = np.frombuffer(cipher.update(bytes(integers.nbytes)), np.uint64)
        # The victim has the largest number: it subtracted.
        fixed_point.add(integers, stream)
    return integers


def numbers_in(integers):
    """The numbers of a message, without the 0 of every party and the check number."""
    return fixed_point.rounded(integers[:-6], float)


# -- the attack ------------------------------------------------------------------------------------


def rebuilt_by_newton(messages):
    """Rows and labels from two Hessians and a gradient; every party knows the columns' means and
    spread.
    """
    centre = X.mean(axis=0)
    unit = np.sqrt(((X - centre) ** 2).sum() / X.size)
    width = COLUMNS + 1
    triangle = width * (width + 1) // 2
    full = [message for message in messages if message.size == triangle + width + 1]
    hessians = []
    for message in full[:2]:
        H = np.zeros((width, width))
        H[np.triu_indices(width)] = message[:triangle]
        hessians.append(H + np.triu(H, 1).T)
    values, vectors = np.linalg.eigh(hessians[0])
    roots = np.sqrt(np.abs(values[-ROWS:]))
    basis = vectors[:, -ROWS:]
    _, turned = np.linalg.eigh((basis / roots).T @ hessians[1] @ (basis / roots))
    scaled = ((basis * roots) @ turned).T
    Z = scaled * (unit / scaled[:, -1:])
    gradients = np.linalg.lstsq(Z.T, full[0][triangle:-1], rcond=None)[0]
    return Z[:, :-1] + centre, -np.sign(gradients)


def rebuilt_by_gram(messages):
    """All tables of zeros and ones with such products, up to the order of their rows, with
    labels.
    """
    triangle = COLUMNS * (COLUMNS + 1) // 2
    message = next(message for message in messages if message.size == triangle + COLUMNS)
    if not np.array_equal(message, np.rint(message)) or np.abs(message).max() > ROWS:
        return set()
    G = np.zeros((COLUMNS, COLUMNS), int)
    G[np.triu_indices(COLUMNS)] = message[:triangle]
    both = [
        [*row, (int(c) + row[j]) // 2]
        for j, (row, c) in enumerate(zip(G.tolist(), message[triangle:], strict=True))
    ]
    found = set()

    def place(columns):
        j = len(columns)
        if j > COLUMNS:
            table = [tuple((column >> i) & 1 for column in columns) for i in range(ROWS)]
            found.add(tuple(sorted(table)))
            return
        sizes = range(2**ROWS) if j else [(1 << G[0, 0]) - 1]
        for column in sizes:
            fits = j == COLUMNS or column.bit_count() == G[j, j]
            if fits and all(
                (column & other).bit_count() == both[i][j] for i, other in enumerate(columns)
            ):
                place([*columns, column])

    place([])
    return found


def error_of(rows, labels):
    """How far the nearest rebuilt row is from each real one, at most; infinite if a label is
    wrong.
    """
    worst = 0.0
    for row, label in zip(own(X), own(Y), strict=True):
        distances = np.abs(rows - row).max(axis=1)
        nearest = int(np.argmin(np.nan_to_num(distances, nan=np.inf)))
        worst = max(worst, distances[nearest] if labels[nearest] == label else np.inf)
    return worst


@pytest.mark.parametrize("network", [None, TREE], ids=["server", "tree"])
def test_newton_tells_rows_and_labels_unless_sums_are_secure(wire, network):
    plain = [message for _, message in listen(wire, "newton", False, network)]
    assert error_of(*rebuilt_by_newton(plain)) < 1e-4
    masked = listen(wire, "newton", True, network)
    for known in (range(1), range(PARTIES - 2)):
        with np.errstate(all="ignore"):
            rebuilt = rebuilt_by_newton([numbers_in(unmasked(wire, *one, known)) for one in masked])
        assert not error_of(*rebuilt) < 0.5
    everybody = [numbers_in(unmasked(wire, *one, range(PARTIES - 1))) for one in masked]
    assert error_of(*rebuilt_by_newton(everybody)) < 1e-4, (
        "all others together see it: total less their own"
    )


@pytest.mark.parametrize("network", [None, TREE], ids=["server", "tree"])
def test_gram_tells_binary_rows_and_labels_unless_sums_are_secure(wire, network):
    truth = tuple(
        sorted((*map(int, row), int(y > 0)) for row, y in zip(own(FLAGS), own(Y), strict=True))
    )
    plain = [message for _, message in listen(wire, "gram", False, network)]
    assert rebuilt_by_gram(plain) == {truth}
    masked = listen(wire, "gram", True, network)
    for known in (range(1), range(PARTIES - 2)):
        assert not rebuilt_by_gram([numbers_in(unmasked(wire, *one, known)) for one in masked])


# -- noise -----------------------------------------------------------------------------------------


def most_uneven_bit(integers):
    """How many standard deviations the most uneven of the 192 places of bits is away from a
    half.
    """
    bits = np.unpackbits(integers.view(np.uint8).reshape(-1, 24), axis=1)
    return float(np.abs(bits.mean(axis=0) - 0.5).max() * 2 * np.sqrt(len(bits)))


def correlation(integers, numbers):
    """With the numbers that are hidden in them, as they rank, in standard deviations."""
    ranks = [np.argsort(np.argsort(one)) for one in (fixed_point.rounded(integers, float), numbers)]
    return float(abs(np.corrcoef(*ranks)[0, 1]) * np.sqrt(len(numbers)))


@pytest.mark.parametrize("network", [None, TREE], ids=["server", "tree"])
@pytest.mark.parametrize("method", list(STUDIES))
def test_a_message_is_noise(wire, method, network):
    masked, truth = [], []
    for _ in range(1 if method == "newton" else 8):
        for tag, message in listen(wire, method, True, network):
            masked.append(unmasked(wire, tag, message, range(PARTIES - 2)))
            truth.append(unmasked(wire, tag, message, range(PARTIES - 1)))
    noise, clear = np.concatenate(masked), np.concatenate(truth)
    numbers = fixed_point.rounded(clear, float)
    assert most_uneven_bit(noise) < 6
    assert correlation(noise, numbers) < 5
    assert most_uneven_bit(noise ^ clear) < 6
    # The same looks find what is in the clear.
    assert most_uneven_bit(clear) > 10
    assert correlation(clear, numbers) > 7


def test_the_looks_find_a_mask_that_is_used_twice():
    """The difference of two messages under one mask is that of what they say."""
    x = RANDOM.standard_normal((2, 500))
    parties = [secure_sums.MaskedSums(0, {1: bytes(16), 2: bytes(range(16))}) for _ in range(2)]
    one, other = (
        party.encoded(row, Tag("rounds", 1, "Sum")) for party, row in zip(parties, x, strict=True)
    )
    difference = one.copy()
    fixed_point.mask(difference, other[None], 1)
    sums = ExactSums(3)
    assert (numbers_in(difference) == sums.at_once([x[0], -x[1]])).all()
    assert most_uneven_bit(difference) > 10
    assert most_uneven_bit(one) < 6
