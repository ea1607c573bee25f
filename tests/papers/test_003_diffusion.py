"""Paper 003: Algorithms 1 to 3 are what the paper means, iterate by iterate, and reach the pooled
optimum.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie as co
from coterie.data import Table
from coterie.methods import METHODS
from coterie.methods.published.mixing_filter import (
    chebyshev_filter,
    mixing_filter,
    power_filter,
    response,
)
from coterie.networks import complete, path, ring, star
from coterie.numerics.kernels.pipeline import U, V
from coterie.numerics.losses import LOSSES
from coterie.run.bill import Bill
from coterie.run.certificate import introduce
from coterie.transport.in_process import InProcess
from tests.harness.labels import labels_for
from tests.harness.reference import pooled_optimum

bench = pytest.importorskip(
    "benchmarks.pvrd2", reason="this copy of the repository has no benchmarks"
)
Run, correlated, epochs_to, minimiser = (
    bench.Run,
    bench.correlated,
    bench.epochs_to,
    bench.minimiser,
)
largest_curvature = bench.largest_curvature

RNG = np.random.default_rng(0)
N, D, K = 60, 9, 4
X = RNG.standard_normal((N, D)) + 0.5 * RNG.standard_normal((N, 1))
NUMBERS = X @ RNG.standard_normal(D) + 0.3 * RNG.standard_normal(N)
SIGNS = np.where(NUMBERS > 0, 1.0, -1.0)
SIZES = [3, 1, 4, 1]
SMOOTH = ["huber", "logistic", "squared", "squared_hinge"]
AVERAGING = np.full((K, K), 1 / K)
STRENGTH = 0.1


def labels(loss):
    return labels_for(loss, NUMBERS, SIGNS)


def fit(
    loss="logistic",
    method="pvrd2",
    *,
    network="ring",
    data=None,
    agents=SIZES,
    tol=1e-8,
    intercept=False,
    **more,
):
    problem = co.Problem(loss, "l2", STRENGTH, intercept=intercept)
    data = (X, labels(loss)) if data is None else data
    settings = {"network": network, "agents": agents, "tol": tol, "max_rounds": 3000, **more}
    return co.solve(problem, data, split="features", method=method, **settings)


def in_sight(loss="logistic", network=None, agents=SIZES, **more):
    return Run(
        co.Problem(loss, "l2", STRENGTH, intercept=False),
        (X, labels(loss)),
        network or ring(K),
        agents,
        **more,
    )


# -- the naive twin: Algorithm 3 word by word, for the pooled data, with the mixings of a score in o


def twin(
    loss,
    samples,
    P,
    J=1,
    step=0.05,
    sizes=SIZES,
    *,
    remembers=True,
    zero_average=False,
    v_at_pop=False,
):
    """(w, u, v) after each iteration. P is what J mixings do. `samples` has one row per iteration.

    With one matrix for J mixings, the pipeline is a queue whose entries wait J − 1 iterations. The
    switches are wrong versions: the average started at 0, and v taken when a score leaves the
    pipeline.
    """
    loss, y = LOSSES[loss](), labels(loss)
    blocks = np.split(np.arange(D), np.cumsum(sizes)[:-1])
    w, u, v = np.zeros(D), np.zeros((N, len(sizes))), np.zeros((N, len(sizes)))

    def slope(z, n):
        return loss.gradient(np.asarray(z, float), np.full(np.shape(z), y[n]))

    average = (
        X.T @ loss.gradient(np.zeros(N), y) / N if remembers and not zero_average else np.zeros(D)
    )
    queue, trail = [], []
    for batch in samples:
        pushed = []
        for n in batch:
            # z⁽⁰⁾ = u_n + K h_{n,k}ᵀ w_k − v_n
            # (32)
            own = np.array([len(sizes) * X[n, block] @ w[block] for block in blocks])
            pushed.append((n, u[n] + own - v[n], own))
        queue.append(pushed)
        if len(queue) == J:
            popped = [(n, P @ z, own) for n, z, own in queue.pop(0)]
            move = average + STRENGTH * w
            for n, z, _ in popped:
                change = slope(z, n) - (slope(u[n], n) if remembers else 0)
                for k, block in enumerate(blocks):
                    move[block] += change[k] * X[n, block] / len(popped)
            w = w - step * move
            for n, z, own in popped if remembers else ():
                for k, block in enumerate(blocks):
                    average[block] += (slope(z, n) - slope(u[n], n))[k] * X[n, block] / N
                if v_at_pop:
                    own = np.array([len(sizes) * X[n, block] @ w[block] for block in blocks])
                u[n], v[n] = z, own
        trail.append((w.copy(), u.copy(), v.copy()))
    return trail


def drawn(agent, rounds, per_round, batch=1):
    return np.concatenate(
        [agent.common_random(t).integers(0, N, (per_round, batch)) for t in range(1, rounds + 1)]
    )


def chebyshev_matrix(A, J):
    """(1 + T_J(Â)) / (1 + T_J(x̂(1))) by the eigenvectors of A and numpy's Chebyshev series."""
    values, vectors = np.linalg.eigh(A)
    low, high = values[0], values[-2]

    def p(x):
        return 1 + np.polynomial.chebyshev.chebval(
            (2 * x - low - high) / (high - low), [0] * J + [1]
        )

    return vectors @ np.diag(p(values) / p(1.0)) @ vectors.T


def follows(run, trail, per_round, tolerance=1e-10):
    """The run's model and memory are the twin's after every round."""
    for t in range(len(trail) // per_round):
        w, u, v = trail[(t + 1) * per_round - 1]
        np.testing.assert_allclose(run.round(), w, atol=tolerance)
        if run.method.remembers:
            np.testing.assert_allclose(
                np.stack([s.memory[:, U] for s in run.states], 1), u, atol=tolerance
            )
            np.testing.assert_allclose(
                np.stack([s.memory[:, V] for s in run.states], 1), v, atol=tolerance
            )


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(
    ("method", "pipeline", "chebyshev"),
    [
        ("diffusion", 1, None),
        ("vrd2", 1, None),
        ("pvrd2", 3, False),
        ("pvrd2", 4, False),
        ("pvrd2", 3, True),
    ],
)
def test_eq_31_to_38_iterate_by_iterate(method, pipeline, chebyshev, batch, loss):
    """Rounds of seven iterations cut the pipeline anywhere; a batch of 5 from 60 samples often has
    one twice.
    """
    parameters = {} if chebyshev is None else {"pipeline": pipeline, "chebyshev": chebyshev}
    run = in_sight(
        loss, method=method, step=0.03, batch=batch, iterations_per_round=7, **parameters
    )
    A = ring(K).metropolis().toarray()
    P = chebyshev_matrix(A, pipeline) if chebyshev else np.linalg.matrix_power(A, pipeline)
    samples = drawn(run.agents[0], 12, 7, batch)
    follows(run, twin(loss, samples, P, pipeline, 0.03, remembers=method != "diffusion"), 7)


def test_algorithm_2_is_algorithm_3_with_one_slot():
    two = in_sight(method="vrd2", step=0.05)
    three = in_sight(method="pvrd2", pipeline=1, chebyshev=False, step=0.05)
    for _ in range(3):
        np.testing.assert_array_equal(two.round(), three.round())


@pytest.mark.parametrize("method", ["vrd2", "pvrd2"])
@pytest.mark.parametrize("loss", SMOOTH)
def test_a_matrix_that_averages_gives_centralised_saga(loss, method):
    """A = 11ᵀ/K: every agent has the exact score, and the iterates are those of SAGA on the pooled
    data.
    """
    step, per_round = 0.04, 1
    run = in_sight(
        loss,
        complete(K),
        method=method,
        mixing=AVERAGING,
        step=step,
        iterations_per_round=per_round,
    )
    gradient, y = LOSSES[loss]().gradient, labels(loss)
    w, table = np.zeros(D), gradient(np.zeros(N), y)
    for n in drawn(run.agents[0], 150, per_round)[:, 0]:
        new = gradient(X[n : n + 1] @ w, y[n : n + 1])[0]
        w = w - step * ((new - table[n]) * X[n] + X.T @ table / N + STRENGTH * w)
        table[n] = new
        np.testing.assert_allclose(run.round(), w, atol=1e-10)


def test_scores_and_their_sources_add_up_to_the_same():
    """Σ_k u = Σ_k v: what was pushed is what the memory subtracts. With v from the time of the pop
    it is not.
    """
    run = in_sight(pipeline=4, chebyshev=True, iterations_per_round=50)
    for _ in range(10):
        run.round()
        u, v = (sum(state.memory[:, part] for state in run.states) for part in (U, V))
        assert np.abs(u).max() > 0.1
        np.testing.assert_allclose(u, v, atol=1e-12)
    A = np.linalg.matrix_power(ring(K).metropolis().toarray(), 4)
    _, u, v = twin("logistic", drawn(run.agents[0], 10, 50), A, 4, v_at_pop=True)[-1]
    assert np.abs(u.sum(1) - v.sum(1)).max() > 1e-3


def test_the_average_starts_at_the_gradient():
    """Started at 0, nothing ever moves: w = 0 gives z = u = 0, so Q'(z) − Q'(u) = 0 for ever."""
    run = in_sight(method="vrd2")
    frozen = twin(
        "logistic", drawn(run.agents[0], 3, N), ring(K).metropolis().toarray(), zero_average=True
    )
    assert all(not w.any() for w, _, _ in frozen)
    mine = np.concatenate([state.average for state in run.states])
    np.testing.assert_allclose(mine, X.T @ (-SIGNS / 2) / N, atol=1e-15)
    assert np.linalg.norm(run.round()) > 0.1


def test_nothing_is_updated_until_the_pipeline_is_full():
    run = in_sight(pipeline=5, iterations_per_round=1)
    moved = [bool(run.round().any()) for _ in range(6)]
    assert moved == [False, False, False, False, True, True]


def test_the_naive_algorithm_is_biased_unless_the_matrix_averages():
    best = pooled_optimum(co.Problem("squared", "l2", STRENGTH, intercept=False), X, NUMBERS)[0]
    lazy = (np.eye(K) + ring(K).metropolis().toarray()) / 2

    def error(network, mixing):
        run = in_sight("squared", network, method="diffusion", mixing=mixing, step=1e-3)
        tail = np.mean([run.round() for _ in range(400)][200:], axis=0)
        return np.linalg.norm(tail - best) / np.linalg.norm(best)

    assert error(complete(K), AVERAGING) < 0.05
    assert error(ring(K), lazy) > 0.5


def test_dynamic_diffusion_iterate_by_iterate():
    """(18), (19) with z⁰ = 0 = w⁰, followed by a step along the full gradient."""
    run = in_sight("logistic", method="dynamic-diffusion", step=0.2)
    A, w, z, before = (
        ring(K).metropolis().toarray(),
        np.zeros(D),
        np.zeros((N, K)),
        np.zeros((N, K)),
    )
    blocks = np.split(np.arange(D), np.cumsum(SIZES)[:-1])
    for _ in range(30):
        scores = np.stack([K * X[:, block] @ w[block] for block in blocks], 1)
        z, before = (z + scores - before) @ A, scores
        pulls = [
            X[:, block].T @ (-SIGNS / (1 + np.exp(SIGNS * z[:, k]))) / N + STRENGTH * w[block]
            for k, block in enumerate(blocks)
        ]
        w = w - 0.2 * np.concatenate(pulls)
        np.testing.assert_allclose(run.round(), w, atol=1e-12)


# -- the filter ------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(1, 12), st.lists(st.floats(-0.95, 0.99), min_size=1, max_size=6))
def test_the_filter_is_never_negative_and_keeps_the_mean(J, eigenvalues):
    spectrum = np.array(eigenvalues)
    filters, tau = chebyshev_filter(spectrum, J)
    assert response(filters, tau, np.array([1.0]))[0] == pytest.approx(1.0, abs=1e-9)
    grid = np.linspace(spectrum.min(), spectrum.max(), 201)
    p = response(filters, tau, grid)
    assert p.min() >= 0
    width = spectrum.max() - spectrum.min()
    if width > 1e-3:
        peak = np.cosh(J * np.arccosh((2 - spectrum.min() - spectrum.max()) / width))
        assert p.max() <= 2 / (1 + peak) + 1e-6
        if J % 2 == 0:
            assert p.max() <= response(*power_filter(J), grid).max() + 1e-6, (
                "A^J is one of the non-negative ones"
            )


def test_auto_takes_the_shortest_pipeline_that_nearly_averages():
    spectrum = np.linalg.eigvalsh(ring(8).metropolis().toarray())[:-1]
    assert mixing_filter(spectrum, "auto", "auto")[0].shape[1] == 6
    assert mixing_filter(spectrum, "auto", False)[0].shape[1] == 14
    assert mixing_filter(np.zeros(7), "auto", "auto")[0].shape[1] == 1
    run = in_sight("squared", complete(K))
    assert run.states[0].filters.tolist() == [[1.0], [0.0], [0.0]]
    assert in_sight("squared", path(K)).states[0].filters.shape[1] > 4


def test_a_signed_filter_diverges_where_ours_converges():
    """T_5(x̂) / T_5(x̂(1)) (τ = 1) leaves half as much, 3.5 %, but with both signs, and that drives
    the memory.
    """
    data, problem = correlated(1500, factor=3.0), co.Problem("squared", "l2", 1e-2, intercept=False)
    best = minimiser(problem, *data)
    ours, signed = (Run(problem, data, ring(8), 8, pipeline=5) for _ in range(2))
    signed.states = [replace(state, tau=1.0) for state in signed.states]
    last, driven = ([next(run.errors(best)) for _ in range(10)][-1] for run in (ours, signed))
    assert last < 0.2
    assert driven > 1e6


def test_an_indefinite_matrix_wants_a_small_step_without_a_pipeline():
    data, problem = correlated(500), co.Problem("squared", "l2", 1e-2, intercept=False)
    best, half = minimiser(problem, *data), 0.5 / largest_curvature(problem, data[0])
    bold, safe = (
        Run(problem, data, ring(8), 8, method="vrd2", step=step) for step in (half, "auto")
    )
    assert [next(bold.errors(best)) for _ in range(20)][-1] > 1e3
    errors = [next(safe.errors(best)) for _ in range(40)]
    assert errors[-1] < errors[19] < 0.5


@pytest.mark.rotates
def test_longer_pipelines_need_fewer_epochs_and_chebyshev_a_third():
    data, problem = correlated(500), co.Problem("squared", "l2", 1e-2, intercept=False)
    best, step = minimiser(problem, *data), 0.5 / largest_curvature(problem, data[0])

    def epochs(pipeline, chebyshev):
        return epochs_to(
            Run(problem, data, ring(8), 8, pipeline=pipeline, chebyshev=chebyshev, step=step), best
        )

    plain = [epochs(J, False) for J in (3, 5, 8, 12)]
    assert plain == sorted(plain, reverse=True)
    assert plain[0] > 2 * plain[2]
    assert 3 * epochs(5, True) <= plain[1]


# -- the pooled optimum ----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("method", ["vrd2", "pvrd2", "dynamic-diffusion"])
@pytest.mark.parametrize("loss", SMOOTH)
def test_the_pooled_optimum(loss, method, layout):
    data = np.where(np.abs(X) > 0.5, X, 0.0)
    problem = co.Problem(loss, "l2", STRENGTH, intercept=False)
    result = fit(loss, method, data=(layout(data), labels(loss)), tol=1e-7)
    assert result.status == "optimal"
    w, _, best = pooled_optimum(problem, data, labels(loss))
    assert -1e-7 <= result.certificate.primal - best <= result.certificate.gap + 1e-7
    np.testing.assert_allclose(result.model.coef_, w, atol=5e-3)


@pytest.mark.parametrize("loss", SMOOTH)
def test_convergence_is_linear(loss):
    """The logarithm of the gap falls along a line down to rounding: as far in the second half as in
    the first.
    """
    gaps = fit(loss, tol=1e-13, check_every=1, network="complete", max_rounds=60).history.gap
    reached = np.log10(gaps[gaps > 1e-13] / gaps[0])
    half = len(reached) // 2
    assert reached[-1] < -7
    assert reached[-1] - reached[half] < 0.5 * reached[half]


@pytest.mark.parametrize("network", ["ring", "path", "star", "complete", "erdos-renyi"])
@pytest.mark.parametrize("mixing", ["metropolis", "laplacian-mixing"])
def test_any_network_and_mixing_gives_the_same_answer(network, mixing):
    best = pooled_optimum(co.Problem("logistic", "l2", STRENGTH, intercept=False), X, SIGNS)[2]
    result = fit(network=network, agents=6, mixing=mixing)
    assert result.status == "optimal"
    assert result.certificate.primal - best <= result.certificate.gap + 1e-8


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [[9], [1] * 9, [7, 0, 2], [0, 5, 4], [[8, 0, 4], [1, 2, 3, 5, 6, 7]]],
    ids=["one agent", "one column each", "nothing at one", "nothing at the labels", "interleaved"],
)
def test_any_split_gives_the_same_answer(sizes, intercept):
    shifted = X + 1.0
    problem = co.Problem("logistic", "l2", STRENGTH, intercept=intercept)
    w, b, best = pooled_optimum(problem, shifted, SIGNS)
    network = path(len(sizes)) if len(sizes) < 3 else "ring"
    result = fit(data=(shifted, SIGNS), agents=sizes, network=network, intercept=intercept)
    assert result.status == "optimal"
    assert -1e-8 <= result.certificate.primal - best <= result.certificate.gap + 1e-8
    np.testing.assert_allclose(result.model.coef_, w, atol=2e-3)
    assert result.model.intercept_ == pytest.approx(b, abs=2e-3)
    assert co.verify(result.certificate, result.model, (shifted, SIGNS)).holds


def test_labels_at_another_party():
    parts = np.split(X, [3, 4], axis=1)
    tables = [
        Table(part, NUMBERS if k == 1 else None, name=f"party {k}") for k, part in enumerate(parts)
    ]
    result = fit("huber", data=tables, agents=None, intercept=True)
    best = pooled_optimum(co.Problem("huber", "l2", STRENGTH, intercept=True), X, NUMBERS)[2]
    assert -1e-8 <= result.certificate.primal - best <= result.certificate.gap + 1e-8


@pytest.mark.parametrize("method", ["pvrd2", "dynamic-diffusion"])
def test_weights_count_as_copies(method):
    counts = RNG.integers(1, 4, N)
    weighted = fit("huber", method, data=(X, NUMBERS, counts.astype(float)), intercept=True)
    copied = fit(
        "huber",
        method,
        data=(np.repeat(X, counts, axis=0), np.repeat(NUMBERS, counts)),
        intercept=True,
    )
    assert weighted.status == copied.status == "optimal"
    np.testing.assert_allclose(weighted.model.coef_, copied.model.coef_, atol=1e-3)
    assert weighted.certificate.primal == pytest.approx(copied.certificate.primal, abs=1e-7)


@pytest.mark.parametrize("batch", [2, 4, 16])
def test_batches_reach_the_same_optimum_in_fewer_iterations(batch):
    single, several = fit("squared", tol=1e-7), fit("squared", tol=1e-7, batch=batch)
    assert single.status == several.status == "optimal"
    assert several.bill.per_word["Mix"].messages < single.bill.per_word["Mix"].messages
    assert several.certificate.primal == pytest.approx(single.certificate.primal, abs=1e-6)


# -- how it travels --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("pipeline", [1, 4])
def test_the_bill_is_the_closed_form(pipeline, batch):
    """One message of J·B numbers in both directions of every edge, each iteration; nothing else in
    the rounds.
    """
    rounds, per_round = 5, 11
    result = fit(
        pipeline=pipeline,
        batch=batch,
        iterations_per_round=per_round,
        max_rounds=rounds,
        tol=1e-15,
        agents=5,
    )
    edges = result.network.n_edges
    assert result.bill.scalars == 2 * edges * pipeline * batch * per_round * rounds
    assert result.bill.messages == 2 * edges * per_round * rounds
    assert result.bill.per_round == [2 * edges * pipeline * batch * per_round] * rounds


def test_the_labels_are_told_to_all_once_in_the_set_up():
    run = in_sight(iterations_per_round=1, step=0.1, pipeline=2, chebyshev=False)
    for state in run.states:
        np.testing.assert_array_equal(state.memory[:, 2], SIGNS)
    alone = InProcess(ring(K), Bill(ring(K)))
    alone.converse([introduce(agent) for agent in run.agents], "setup")
    # labels, weights and squared norms of the rows, up and down a tree
    mine = run.transport.bill.per_purpose["setup"].scalars - alone.bill.total.scalars
    assert mine == 2 * (K - 1) * 3 * N


def test_all_agents_draw_the_same_samples():
    run = in_sight(pipeline=5)
    seen = []
    for _ in range(3):
        run.round()
        for state in run.states:
            np.testing.assert_array_equal(state.sequence, run.states[0].sequence)
        seen.append(run.states[0].sequence)
    assert (seen[0] != seen[1]).any()
    assert (
        Run(run.agents[0].problem, (X, SIGNS), ring(K), SIZES, seed=1, pipeline=5).round() != run.w
    ).any()


def test_float32_is_kept_and_halves_the_bill():
    single, double = (
        fit(data=(X.astype(kind), SIGNS), tol=1e-5, pipeline=3) for kind in ("f4", "f8")
    )
    assert single.status == double.status == "optimal"
    assert single.model.coef_.dtype == np.float32
    assert single.bill.bits / single.bill.scalars == 32
    assert double.bill.bits / double.bill.scalars == 64
    np.testing.assert_allclose(single.model.coef_, double.model.coef_, atol=5e-3)
    run = Run(
        co.Problem("logistic", "l2", STRENGTH, intercept=False),
        (X.astype("f4"), SIGNS),
        ring(K),
        SIZES,
    )
    run.round()
    assert {array.dtype.str for s in run.states for array in (s.w, s.memory, s.pipe)} == {"<f4"}


@pytest.mark.parametrize("method", ["diffusion", "vrd2", "pvrd2", "dynamic-diffusion"])
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_run_stopped_at_any_round_continues_bit_by_bit(tmp_path, method, stop):
    """Rounds of 7 iterations leave a pipeline of 4 half full and turned."""
    more = {} if method == "dynamic-diffusion" else {"iterations_per_round": 7, "batch": 2}
    more |= {"pipeline": 4} if method == "pvrd2" else {}
    whole = fit(method=method, max_rounds=9, tol=1e-15, **more)
    fit(method=method, max_rounds=stop, tol=1e-15, checkpoint=tmp_path, **more)
    resumed = fit(method=method, max_rounds=9, tol=1e-15, checkpoint=tmp_path, **more)
    np.testing.assert_array_equal(resumed.model.coef_, whole.model.coef_)
    assert resumed.bill.scalars == whole.bill.scalars


def test_rounds_leave_the_states_before_them_alone():
    run = in_sight(pipeline=3)
    run.round()
    before = run.states
    copies = [
        {name: np.array(getattr(s, name)) for name in ("w", "average", "memory", "pipe")}
        for s in before
    ]
    run.round()
    for state, copy in zip(before, copies, strict=True):
        for name, array in copy.items():
            np.testing.assert_array_equal(getattr(state, name), array)


def test_a_given_matrix_is_in_the_settings_and_checked():
    A = (np.eye(K) + ring(K).metropolis().toarray()) / 2
    result = fit(mixing=A, tol=1e-5)
    assert result.status == "optimal"
    assert json.loads(json.dumps(result.certificate.settings))["method"]["mixing"] == A.tolist()
    assert co.verify(result.certificate, result.model, (X, SIGNS)).holds
    sparse = fit(mixing=sp.csr_array(A), tol=1e-5)
    np.testing.assert_array_equal(sparse.model.coef_, result.model.coef_)
    with pytest.raises(co.CoterieError, match="edge"):
        fit(mixing=AVERAGING)


@pytest.mark.parametrize("method", ["diffusion", "vrd2", "pvrd2", "dynamic-diffusion"])
def test_what_cannot_be_solved_is_refused_with_an_alternative(method):
    def refused(match, problem=("logistic", "l2", 0.1), network="ring", **parameters):
        with pytest.raises(co.CoterieError, match=match):
            co.solve(
                co.Problem(*problem, intercept=False),
                (X, SIGNS),
                split="features",
                network=network,
                agents=4,
                method=method,
                **parameters,
            )

    refused("graph-cp", ("hinge", "l2", 0.1))
    refused("graph-cp", ("logistic", "l1", 0.1))
    refused("graph-cp", ("logistic", "none"))
    refused("laplacian-mixing", mixing="laplacian")
    refused("mixing rule", mixing="metropolitan")
    refused("server", network=star(4, server=True))
    refused("step must be a positive number", step=-1.0)
    refused("step must be a positive number", step="small")
    if method != "dynamic-diffusion":
        refused("batch must be a whole number", batch=0)
        refused("iterations_per_round must be a whole number", iterations_per_round=1.5)
    if method == "pvrd2":
        refused("pipeline must be a whole number", pipeline=0)
        refused("chebyshev must be", chebyshev="maybe")
    assert (
        METHODS[method].score(co.Problem("logistic", "l2", 0.1, intercept=False), ring(4)) is None
    )


# -- MNIST -----------------------------------------------------------------------------------------

needs_mnist = pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"), reason="set COTERIE_DATA to the folder that holds mnist.npz"
)
DIGITS = co.Problem("logistic", "l2", 1e-2, intercept=False)


def digit_errors(rows, epochs, **settings):
    data = bench.zeros_and_ones(rows)
    run = Run(DIGITS, data, ring(8), bench.STRIPS, **settings)
    errors = run.errors(minimiser(DIGITS, *data))
    return [next(errors) for _ in range(epochs)]


@pytest.mark.rotates
@needs_mnist
def test_digits_longer_pipelines_are_faster_and_full_gradients_slow():
    short, long = (
        digit_errors(600, 15, pipeline=J, chebyshev=False, step=0.007)[-1] for J in (2, 8)
    )
    filtered = digit_errors(600, 15, pipeline=5, step=0.007)[-1]
    full = digit_errors(600, 15, method="dynamic-diffusion")[-1]
    assert filtered < long < short < full
    assert full > 0.3


@needs_mnist
def test_the_picture(tmp_path):
    file = bench.picture(tmp_path / "w.png", epochs=6, rows=300)
    assert file.read_bytes().startswith(b"\x89PNG")


@needs_mnist
def test_iterations_per_second_on_a_busy_machine():
    assert bench.iterations_per_second(8, rows=3000, repeat=5) >= 10_000


@needs_mnist
@pytest.mark.slow
def test_iterations_per_second():
    assert bench.iterations_per_second(8, repeat=5) >= 20_000


@needs_mnist
@pytest.mark.slow
def test_digits_reach_1e_8_in_40_epochs_and_chebyshev_in_a_third():
    def reached(errors):
        return next(epoch for epoch, error in enumerate(errors, 1) if error <= 1e-8)

    assert reached(digit_errors(None, 40, pipeline=8)) <= 20
    filtered = reached(digit_errors(None, 40, pipeline=5))
    step = 0.5 / largest_curvature(DIGITS, bench.zeros_and_ones()[0])
    assert min(digit_errors(None, 3 * filtered - 1, pipeline=5, chebyshev=False, step=step)) > 1e-8
    assert digit_errors(None, 40, method="dynamic-diffusion")[-1] > 0.1


@pytest.mark.parametrize("method", ["pvrd2", "dynamic-diffusion"])
def test_raw_units_cost_few_epochs(method):
    """Columns from 1e-3 to 1e3: brought to one unit, unless a step is given, which is the paper's
    form.
    """
    rng = np.random.default_rng(0)
    plain = rng.standard_normal((300, 10))
    y = np.sign(plain @ rng.standard_normal(10) + 0.5 * rng.logistic(size=300))
    units = rng.permutation(np.logspace(-3, 3, 10))
    how = {
        "split": "features",
        "agents": 5,
        "network": "ring",
        "method": method,
        "tol": 1e-5,
        "progress": False,
    }
    problem, most = (
        co.Problem("logistic", "l2", 1e-2, intercept=True),
        60 if method == "pvrd2" else 1500,
    )
    even, raw = (
        co.solve(problem, (plain * unit, y), **how, max_rounds=most) for unit in (1.0, units)
    )
    assert even.status == raw.status == "optimal"
    pooled = co.solve(problem, (plain * units, y), tol=1e-9, progress=False)
    assert raw.certificate.primal - pooled.certificate.primal <= raw.certificate.gap
    as_published = co.solve(problem, (plain * units, y), **how, max_rounds=3, step=1e-7)
    assert as_published.certificate.relative_gap > 0.1
