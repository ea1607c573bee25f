"""Dada on Moons: how many steps to an error, how long a step takes, how much memory users take, and
who is right.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from benchmarks.personal import best_graph, graph_learning
from sklearn.metrics import roc_auc_score

import coterie as co
from benchmarks import personal
from coterie.data import split as split_table
from papers import datasets

K = 100
PUBLIC_CODE = 630e-6
"""Seconds of CPU that the authors' program took for one model step on Moons."""
PROBLEM = co.Personal(count=200, beta=10.0, mu=1.0)


@pytest.fixture(scope="module")
def moons():
    data = datasets.moons("paper", "zeros")
    return split_table(data.train, "users", data.extras["user_train"]), data.extras["graph"]


@pytest.mark.rotates
def test_pairwise_steps_need_a_fifth_of_the_published_ones(moons):
    """To an error of 1e-3 of f(0), with the true graph."""
    tables, graph = moons
    how = {"split": "users", "network": graph, "tol": 1e-9}
    best = co.solve(
        PROBLEM, tables, local_steps=10, max_rounds=200, check_every=200, **how
    ).certificate
    unit = best.primal_at_zero
    pairwise = co.solve(PROBLEM, tables, max_rounds=300, check_every=20, **how).history
    reached = int(pairwise.round[np.flatnonzero(pairwise.primal - best.primal <= 1e-3 * unit)[0]])
    assert reached <= 300
    assert best.gap <= 1e-3 * unit, "the reference is good enough to judge by"
    rounds = 5 * reached
    published = co.solve(
        PROBLEM, tables, step="frank-wolfe", max_rounds=rounds, check_every=rounds, **how
    )
    assert published.certificate.primal - best.primal > 1e-3 * unit


@pytest.mark.rotates
def test_exact_graph_steps_reach_1e_6_in_6000(moons):
    """With the local models, λ = 1, κ = 10, δ = 0.1, from the empty graph."""
    tables, _ = moons
    local = co.solve(
        PROBLEM, tables, split="users", method="local", tol=1e-3, local_steps=10, max_rounds=60
    ).model
    how = {"graph_step": "exact", "sample": 10, "likeness": "models"}
    problem = PROBLEM.but(lam=1.0)
    values, price, *_ = graph_learning(tables, problem, local.coef_.toarray(), 60, **how)
    optimum, _ = best_graph(price, problem.lam, problem.delta)
    assert values[-1] >= optimum - 1e-9 * abs(optimum)
    reached = np.flatnonzero(values - optimum <= 1e-6 * (values[0] - optimum))
    assert reached.size
    assert K * int(reached[0]) < 6000


@pytest.mark.slow
@pytest.mark.parametrize("step", ["pairwise", "frank-wolfe"])
def test_a_model_step_is_20_times_as_fast_as_the_public_code(moons, step):
    """CPU time of a wake-up with its messages and its bill; the best of three, as other work
    disturbs.
    """
    tables, graph = moons
    how = {"split": "users", "network": graph, "step": step, "check_every": 10**6, "tol": 1e-9}
    co.solve(PROBLEM, tables, max_rounds=5, **how)
    found = []
    for _ in range(3):
        spent = []
        for rounds in (50, 250):
            began = time.process_time()
            co.solve(PROBLEM, tables, max_rounds=rounds, **how)
            spent.append(time.process_time() - began)
        found.append((spent[1] - spent[0]) / (200 * K))
    assert min(found) <= PUBLIC_CODE / 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_is_linear_in_users():
    """Simulated on one machine, κ = 10, sparse models: a tenth of a megabyte for each user more."""
    megabytes = {}
    for users in (1000, 4000):
        command = [sys.executable, personal.__file__, "scale", "--users", str(users)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        megabytes[users] = float(printed[6])
    assert megabytes[4000] - megabytes[1000] <= 0.1 * 3000


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_accuracy_over_five_seeds():
    """Zeros as other columns, parameters by cross-validation: the true graph is first, then the
    learned one.
    """
    methods = ("dada fixed", "dada learned", "perso-linear", "local", "global")
    found = {method: [] for method in methods}
    for seed in range(5):
        data = datasets.moons("paper", "zeros", seed=seed)
        for method in methods:
            result, _ = personal.fit(data, method, data.extras["graph"], 200, seed)
            found[method].append(personal.accuracy(result, data))
    mean = {method: np.mean(scores) for method, scores in found.items()}
    assert mean["dada fixed"] >= 0.93
    assert max(mean, key=mean.get) == "dada fixed"
    assert mean["dada learned"] >= 0.90
    assert mean["dada learned"] > mean["local"]


# -- random columns --------------------------------------------------------------------------------


def same_cluster(data):
    cluster = data.extras["clusters"]
    return (cluster[:, None] == cluster)[np.triu_indices(len(cluster), 1)]


def distances(model):
    """½‖α_k − α_l‖² for all pairs of users: what (3) knows of their similarity."""
    alpha = model.coef_.toarray()
    squares = ((alpha[:, None] - alpha) ** 2).sum(axis=2)
    return squares[np.triu_indices(len(alpha), 1)]


def moons_fit(data, rounds, **how):
    tables = split_table(data.train, "users", data.extras["user_train"])
    problem = PROBLEM.but(**how.pop("prices", {}))
    how = {"split": "users", "tol": 1e-6, "max_rounds": rounds, "check_every": rounds, **how}
    return co.solve(problem, tables, progress=False, **how)


def test_with_random_columns_models_of_single_users_say_nothing_of_similarity():
    """Why Dada-Learned as published is below Global there: its first graph comes from the models of
    Local. The area under the curve is the chance that a pair of one cluster is nearer than another
    pair: 0.5 is no information.
    """
    areas = {}
    for extra in ("zeros", "random"):
        data = datasets.moons("paper", extra)
        local = moons_fit(data, 60, method="local", step="frank-wolfe").model
        areas[extra] = roc_auc_score(same_cluster(data), -distances(local))
        of_moons = np.array(local.problem.base.columns) < 2
        weight = np.abs(local.coef_.toarray())
        share = weight[:, of_moons].sum() / weight.sum()
        assert share > 0.95 if extra == "zeros" else share < 0.25
        truth = moons_fit(data, 60, network=data.extras["graph"], step="frank-wolfe").model
        assert roc_auc_score(same_cluster(data), -distances(truth)) > 0.99
    assert areas["zeros"] > 0.7
    assert areas["random"] < 0.56


@pytest.mark.rotates
def test_with_random_columns_a_start_at_the_common_model_and_trials_help():
    """Published, tuned on test rows: below Global. Ours from the common model: above it."""
    data = datasets.moons("paper", "random")

    def accuracy(result):
        scores = result.model.score_per_user(data.test.X, data.test.y, data.extras["user_test"])
        return float(np.mean(list(scores.values())))

    published = {"graph_step": "gradient", "likeness": "models", "schedule": "paper", "alone": 60}
    published |= {"network": "learned", "alternations": 3, "revisit": False, "step": "frank-wolfe"}
    ours = {"network": "learned", "alternations": 3, "local_steps": 3, "begin": "global"}
    common = accuracy(moons_fit(data, 40, method="global"))
    best = max(
        accuracy(moons_fit(data, 150, prices={"mu": mu, "lam": 1.0}, **published))
        for mu in (0.1, 1.0)
    )
    found = accuracy(moons_fit(data, 120, prices={"mu": 10.0, "lam": 1.0}, **ours))
    assert best < common - 0.02
    assert found > common + 0.02
