"""Laws of `blocks`: the same model for the columns sent once, hop by hop, and nothing said of
single rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy.spatial.distance import pdist

import coterie as co
from coterie.errors import InvalidProblem, ProtocolError
from coterie.methods import METHODS
from coterie.methods.auto.costs import Sizes
from coterie.methods.columns import blocks
from coterie.networks import network, path, ring, star
from coterie.numerics.losses import LOSSES, loss
from coterie.run import finish, setup
from coterie.run.bill import Bill
from coterie.run.rounds import introduced, run
from coterie.run.settings import Limits
from coterie.run.setup import make_agents
from coterie.stats import fitting
from coterie.transport.in_process import InProcess

RNG = np.random.default_rng(0)
N, D, M = 300, 10, 5
X = RNG.standard_normal((N, D)) @ (
    np.eye(D) + 0.3 * RNG.standard_normal((D, D))
) + RNG.standard_normal(D)
NUMBERS = X @ RNG.standard_normal(D) / 2 + RNG.standard_normal(N)
SIGNS = np.where(NUMBERS - NUMBERS.mean() > 0, 1.0, -1.0)
APART = {"split": "features", "agents": M, "method": "blocks"}
NETWORKS = ["ring", "star", "path", "lattice", "complete", "erdos-renyi"]


@pytest.fixture(autouse=True)
def secrets_at_every_agent(monkeypatch):
    """As between organisations: agents of one owner have no secrets, and would not rotate."""
    made = setup.make_agent

    def with_secret(index, *more):
        return replace(made(index, *more), secret=bytes([100 + index]) * 32)

    # Each module has a name of its own for it, and would keep the patched one if it were imported
    # while a test runs.
    for module in (setup, finish, fitting):
        monkeypatch.setattr(module, "make_agent", with_secret)


def agents_on(graph, problem, labels_at=0):
    tables = co.data.split(co.Table(X, SIGNS), "features", graph.agents, labels_at=labels_at)
    transport = InProcess(graph, Bill(graph))
    return introduced(
        make_agents(tables, problem, "features", graph, 0), transport, "setup"
    ), transport


@pytest.mark.parametrize(
    "penalty",
    ["l2", "l1", *(pytest.param(one, marks=pytest.mark.slow) for one in ("none", "elasticnet"))],
)
@pytest.mark.parametrize("name", [name for name in sorted(LOSSES) if not loss(name).steep])
def test_every_loss_gives_the_pooled_model(name, penalty):
    if LOSSES[name].kind == "classification" and penalty == "none":
        pytest.skip("labels that can be told apart have no best model")
    strength = {} if penalty == "none" else {"strength": 0.02}
    problem = co.Problem(name, penalty, intercept=True, **strength)
    y = SIGNS if LOSSES[name].kind == "classification" else NUMBERS
    weights = RNG.uniform(0.5, 2.0, N) if penalty == "l2" else None
    data = co.Table(X, y, weights)
    result = co.solve(
        problem, data, **APART, network="ring", tol=1e-6 if problem.loss.smooth else 1e-5
    )
    assert result.status.success
    pooled = co.solve(problem, data, agents=1, tol=1e-7)
    assert pooled.certificate.dual <= result.certificate.primal + 1e-9
    assert result.certificate.primal <= pooled.certificate.primal + result.certificate.gap + 1e-9
    assert co.verify(result.certificate, result.model, data).objections == ()


def test_a_dual_may_claim_a_little_less_and_never_more():
    """Rotated messages round more than a proof without them, so honest duals are lower; forged ones
    are refused.
    """
    data = co.Table(X, NUMBERS)
    result = co.solve(
        co.Problem("squared", "l2", 0.02, intercept=True), data, **APART, network="ring"
    )
    honest = result.certificate
    assert honest.dual <= co.verify(honest, result.model, data).dual
    for share, holds in ((-1e-6, False), (-1e-12, True), (1e-12, False), (1e-6, False)):
        forged = replace(honest, dual=honest.dual + share * honest.unit)
        objections = co.verify(forged, result.model, data).objections
        assert (objections == ()) is holds
        assert holds or objections[0].startswith("dual")


GROUPS = (0, 0, 1, 1, 2, 3, 4, 4, 5, 5)


@pytest.mark.parametrize("name", ["squared", "logistic", "hinge"])
@pytest.mark.parametrize("penalty", [{"penalty": "l2"}, {"penalty": "group", "groups": GROUPS}])
def test_what_a_rotation_leaves_alone_needs_no_rounds(name, penalty):
    """The coefficients come back in one message of a number per column: within rounding of the
    pooled optimum.
    """
    y = SIGNS if name != "squared" else NUMBERS
    problem = co.Problem(name, strength=0.03, intercept=True, **penalty)
    data = co.Table(X, y, RNG.uniform(0.5, 2.0, N))
    result = co.solve(problem, data, **APART, network="ring", tol=1e-9)
    assert (result.status, result.rounds) == ("optimal", 1)
    assert result.bill.scalars == (M - 1) * (D - D // M)
    pooled = co.solve(problem, data, agents=1, tol=1e-9)
    np.testing.assert_allclose(result.model.coef_, pooled.model.coef_, atol=1e-3)
    if "groups" in penalty:
        tree = co.solve(problem, data, **{**APART, "method": "tree"}, network="ring", tol=1e-4)
        assert result.certificate.primal <= tree.certificate.primal
        assert co.verify(result.certificate, result.model, data).objections == ()


def test_groups_are_rotated_among_themselves():
    problem = co.Problem("squared", "group", 0.1, groups=GROUPS, intercept=False)
    tables = co.data.split(co.Table(X, NUMBERS), "features", [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9]])
    one = make_agents(tables, problem, "features", path(3), 0)[1]
    R = blocks.rotation_of(one)
    np.testing.assert_allclose(R.T @ R, np.eye(4), atol=1e-12)
    assert np.abs(R[:2, :2] - np.eye(2)).max() > 0.01
    assert np.abs(R[:2, 2:]).max() == np.abs(R[2, 3]) == 0


def test_one_owner_needs_no_rounds_beside_l1(monkeypatch):
    monkeypatch.undo()
    for name in ("logistic", "hinge"):
        problem = co.Problem(name, "l1", 0.02, intercept=True)
        result = co.solve(problem, (X, SIGNS), **APART, network="ring", tol=1e-8)
        assert (result.status, result.rounds) == ("optimal", 1)


def test_too_many_columns_for_one_agent_take_rounds(monkeypatch):
    monkeypatch.setattr(blocks.pooled, "WIDEST", 5)
    result = co.solve(
        co.Problem("logistic", "l2", 0.03, intercept=False),
        (X, SIGNS),
        **APART,
        network="ring",
        tol=1e-6,
    )
    assert result.status == "optimal"
    assert result.rounds > 1
    with pytest.raises(InvalidProblem, match="Use tree"):
        co.solve(
            co.Problem("squared", "group", 0.1, groups=GROUPS, intercept=False),
            (X, NUMBERS),
            **APART,
        )
    with pytest.raises(InvalidProblem, match="elasticnet and group"):
        co.solve(co.Problem("squared", "nonnegative", intercept=False), (X, NUMBERS), **APART)


@pytest.mark.parametrize("labels_at", [0, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_columns_arrive_and_are_billed_hop_by_hop(name, labels_at):
    """n numbers for each column and hop, and a header; encrypted ones have 48 bytes more."""
    graph = network(name, M, seed=1)
    agents, transport = agents_on(
        graph, co.Problem("logistic", "l2", 0.1, intercept=False), labels_at
    )
    rotations = [blocks.rotation_of(agent) for agent in agents]
    before = transport.bill.total.scalars
    found = transport.take(blocks._gathered, list(zip(agents, rotations, strict=True)), "setup")
    columns = found[labels_at][1]
    others = [agent for agent in agents if agent.index != labels_at]
    np.testing.assert_allclose(
        columns, np.hstack([a.data.X @ rotations[a.index] for a in others]), rtol=1e-12
    )
    ways = transport.take(blocks._found, [(agent,) for agent in agents], "setup")
    sent = (
        sum(
            way.distance * (N * agent.data.d + 3 + 6 * (way.distance > 1))
            for way, agent in zip(ways, agents, strict=True)
        )
        - 3 * ways[labels_at].distance
    )
    told = transport.bill.per_word["Ask"].scalars
    edges, depth = int(np.sum(graph.neighbour_counts)), ways[0].depth
    assert told == sent + 2 * (depth + 1) * 2 * edges
    assert transport.bill.total.scalars > before


def test_who_passes_columns_on_cannot_read_or_change_them():
    key = X25519PrivateKey.generate()
    block = RNG.standard_normal((7, 2))
    sender = X25519PrivateKey.generate()
    packed = blocks._packed(1, block, (sender, key.public_key().public_bytes_raw()))
    np.testing.assert_array_equal(blocks._unpacked(packed, np.array([0, 2]), 7, key)[1], block)
    assert not np.isin(block.view(np.uint64), packed.view(np.uint64)).any()
    changed = packed.copy()
    changed.view(np.uint8)[-1] ^= 1
    with pytest.raises(ProtocolError, match="were changed on their way"):
        blocks._unpacked(changed, np.array([0, 2]), 7, key)
    for bad in (
        packed[:-1],
        np.array([5.0, 0.0, 1.0, 1.0]),
        np.array([1.0, 0.0, 3.0, 1.0, 2.0, 3.0]),
    ):
        with pytest.raises(ProtocolError):
            blocks._unpacked(bad, np.array([0, 2]), 7, key)
    with pytest.raises(ProtocolError, match="did not arrive"):
        blocks._unpacked(np.empty(0), np.array([0, 2]), 7, key)


def test_the_rotation_is_secret_and_keeps_distances_only():
    agents, _ = agents_on(path(3), co.Problem("logistic", "l2", 0.1, intercept=False))
    one, other = agents[1], agents[2]
    R = blocks.rotation_of(one)
    np.testing.assert_allclose(R.T @ R, np.eye(len(R)), atol=1e-12)
    np.testing.assert_allclose(pdist(one.data.X @ R), pdist(one.data.X), rtol=1e-9)
    assert np.abs(R - np.eye(len(R))).max() > 0.1
    np.testing.assert_array_equal(R, blocks.rotation_of(one))
    np.testing.assert_array_equal(blocks.rotation_of(replace(one, secret=b"")), np.eye(len(R)))
    hidden = [blocks.rotation_of(replace(one, secret=secret)) for secret in (b"a" * 32, b"b" * 32)]
    assert np.abs(hidden[0] - hidden[1]).max() > 0.1
    assert len(blocks.rotation_of(other)) == other.data.d


def test_no_message_is_about_single_rows():
    """After the columns are sent, no word is as long as the rows, not those of the certificates
    either.
    """
    said = []

    class Listening(InProcess):
        def converse(self, protocols, purpose):
            def listened(protocol):
                reply = None
                while True:
                    try:
                        collective = protocol.send(reply)
                    except StopIteration as end:
                        return end.value
                    said.append(
                        (
                            type(collective).__name__,
                            (collective.tell if hasattr(collective, "tell") else collective.x).size,
                        )
                    )
                    reply = yield collective

            return super().converse([listened(protocol) for protocol in protocols], purpose)

    problem, graph = co.Problem("hinge", "l1", 0.05, intercept=True), ring(M)
    tables = co.data.split(co.Table(X, SIGNS), "features", M)
    transport = Listening(graph, Bill(graph))
    run(
        make_agents(tables, problem, "features", graph, 0),
        METHODS["blocks"](),
        transport,
        Limits(1e-3, 60),
    )
    assert {collective for collective, size in said if size >= N} == {"Ask"}
    assert max(size for collective, size in said if collective == "Sum") < N


def test_many_rows_cost_little_more_than_to_move_the_columns():
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((20_000, 12))
    signs = np.where(wide @ rng.standard_normal(12) + rng.logistic(size=20_000) > 0, 1.0, -1.0)
    for name, penalty, share in (
        ("logistic", "l2", 1.5),
        ("logistic", "l1", 1.5),
        ("hinge", "l2", 3.0),
    ):
        result = co.solve(
            co.Problem(name, penalty, 1e-3, intercept=True),
            (wide, signs),
            **{**APART, "agents": 4},
            network="star",
        )
        assert result.status == "optimal"
        assert result.bill.total.scalars <= share * wide.size


def test_a_resumed_run_and_a_server_and_empty_parties(tmp_path):
    problem, how = (
        co.Problem("logistic", "l1", 0.01, intercept=False),
        {**APART, "network": "ring", "tol": 1e-9, "check_every": 4},
    )
    whole = co.solve(problem, (X, SIGNS), **how, max_rounds=12)
    co.solve(problem, (X, SIGNS), **how, max_rounds=8, checkpoint=tmp_path)
    resumed = co.solve(problem, (X, SIGNS), **how, max_rounds=12, checkpoint=tmp_path)
    assert resumed.model.digest() == whole.model.digest()
    assert resumed.bill == whole.bill
    tables = co.data.split(
        co.Table(X, SIGNS), "features", [[], [0, 1, 2], [], list(range(3, D))], labels_at=1
    )
    served = co.solve(
        problem, tables, split="features", method="blocks", network=star(4, server=True), tol=1e-7
    )
    alone = co.solve(problem, (X, SIGNS), **{**APART, "agents": 1}, tol=1e-7)
    assert served.status == alone.status == "optimal"
    np.testing.assert_allclose(served.model.coef_, alone.model.coef_, atol=1e-3)
    warm = co.solve(problem, (X, SIGNS), **how, max_rounds=50, warm_start=whole)
    assert warm.certificate.gap <= whole.certificate.gap


def test_auto_says_what_moving_the_columns_would_cost():
    """Many rows of few columns move in one process; many columns stay where they are; groups are
    for others.
    """
    problem = co.Problem("logistic", "l2", 0.01, intercept=False)
    few = co.solve(problem, (X, SIGNS), split="features", agents=M, network="star", tol=1e-3)
    assert "Method blocks " in few.explanation
    assert "to move the columns once is expected to send about" in few.explanation
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((60, 900))
    wires = {"network": "path", "link": (1e-6, 1e6)}
    many = co.solve(
        problem, (wide, np.sign(wide[:, 0])), split="features", agents=3, tol=1e-3, **wires
    )
    assert "Method lbfgs " in many.explanation
    assert "for moving the columns (blocks)" in many.explanation
    plan = co.plan(problem, (X, SIGNS), split="features", agents=M, network="star", tol=1e-3)
    assert list(plan.numbers_per_row) == ["blocks", "lbfgs", "tree"]
    assert (
        plan.numbers_per_row["blocks"]
        < plan.numbers_per_row["lbfgs"]
        < plan.numbers_per_row["tree"]
    )


def test_auto_moves_columns_with_bounds_within_one_process_only(monkeypatch):
    monkeypatch.undo()  # no secrets: agents of one owner
    bounds = co.Problem("logistic", "nonnegative", intercept=False)
    rows = X.copy()  # tables of other tests are kept, with their secrets
    result = co.solve(bounds, (rows, SIGNS), split="features", agents=M, network="star")
    assert "Method blocks " in result.explanation
    assert "for tree, which leaves them where they are" in result.explanation
    assert result.status.success
    sizes = Sizes(len(X), X.shape[1], X.size, M)
    score = METHODS["blocks"].score
    assert score(bounds, star(M), sizes) is not None
    assert score(bounds, star(M), replace(sizes, apart=True)) is None
    # With more columns than rows, the quadratic models of a steep loss take long.
    counts = co.Problem("poisson", "nonnegative")
    assert score(counts, star(M), sizes) is not None
    assert score(counts, star(M), replace(sizes, rows=sizes.columns - 1)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("name", "penalty", "share"), [("logistic", "l2", 1.5), ("logistic", "l1", 1.5),
                                                        ("hinge", "l2", 3.0), ("hinge", "l1", 3.0),
                                                        ("absolute", "l2", 3.0)])  # fmt: skip
def test_a_hundred_thousand_rows(name, penalty, share):
    rng = np.random.default_rng(1)
    wide = rng.standard_normal((100_000, 20))
    numbers = wide @ rng.standard_normal(20) + rng.logistic(size=len(wide))
    y = numbers if name == "absolute" else np.sign(numbers)
    problem = co.Problem(name, penalty, 1e-3, intercept=True)
    result = co.solve(problem, (wide, y), split="features", agents=4, tol=1e-6)
    assert result.status == "optimal"
    assert "Method blocks " in result.explanation
    assert result.bill.total.scalars <= share * wide.size
