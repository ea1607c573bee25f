"""`PersonalizedClassifier` and what is refused, with the fix named."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import coterie as co
from coterie.api.solve import given_to, ready_for
from coterie.estimators import PersonalizedClassifier, PersonalizedRegressor
from coterie.estimators.personalized import cross_validated
from coterie.problems.models import load_model
from coterie.problems.personal.predictors import Given, Stumps
from coterie.run.settings import Settings
from coterie.stats.choosing import Candidate, deal_by_class, marks_of_rows
from coterie.stats.folds import only, without
from coterie.stats.trying import Choose, Dealing, Users
from papers.personal_figures import accuracy_by_rows, accuracy_by_traffic, draw_users, weight_matrix

USERS = 6


def rows(seed=0, per_user=12):
    """Even users like the first column, odd ones the second."""
    rng = np.random.default_rng(seed)
    users = np.repeat([f"u{k}" for k in range(USERS)], per_user)
    X = rng.uniform(-1, 1, (len(users), 3))
    camp = np.repeat(np.arange(USERS) % 2, per_user)
    y = np.where(X[np.arange(len(X)), camp] > 0, "likes", "dislikes")
    return X, y, users


def fitted(**parameters):
    X, y, users = rows()
    return PersonalizedClassifier(
        **{"method": "dada", "count": 12, "alternations": 1, "max_rounds": 150, **parameters}
    ).fit(X, y, users)


@parametrize_with_checks([PersonalizedClassifier(method="dada", max_rounds=2000)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_fit_predict_score_and_what_is_left_behind():
    model = fitted()
    X, y, users = rows(1, 40)
    assert model.score(X, y, users) > 0.85
    per_user = model.score_per_user(X, y, users)
    assert sorted(per_user) == sorted(set(users))
    assert model.score(X, y, users) == pytest.approx(np.mean(list(per_user.values())))
    assert set(model.predict(X, users)) <= {"likes", "dislikes"}
    graph = model.graph_
    assert isinstance(graph, nx.Graph)
    assert sorted(graph.nodes) == sorted(set(users))
    assert graph.nodes["u0"]["confidence"] == 1.0
    assert np.isfinite(graph.nodes["u0"]["loss"])
    inside = sum(w for a, b, w in graph.edges(data="weight") if (int(a[1]) - int(b[1])) % 2 == 0)
    assert inside > 0.6 * graph.size(weight="weight")
    assert model.history_[-1].gap == pytest.approx(model.dual_gap_)
    assert model.bill_.total.bits > 0


def test_better_together_than_alone():
    X, y, users = rows(2, 5)
    test = rows(3, 100)
    camps = (np.arange(USERS)[:, None] - np.arange(USERS)) % 2 == 0
    graph = np.where(camps & ~np.eye(USERS, dtype=bool), 1.0, 0.0)
    scores = {
        method: PersonalizedClassifier(count=12, network=graph, method=method)
        .fit(X, y, users)
        .score(*test)
        for method in ("dada", "local", "global")
    }
    assert scores["dada"] > max(scores["local"], scores["global"])


@pytest.mark.parametrize("predictors", ["trees", "functions", "linear"])
def test_base_predictors(predictors, tmp_path):
    X, y, users = rows()
    trees = [
        DecisionTreeClassifier(max_depth=2, random_state=s).fit(X[s::3], y[s::3]) for s in range(3)
    ]
    functions = [lambda X, j=j: X[:, j] for j in range(3)]
    chosen = {"trees": trees, "functions": functions, "linear": "linear"}[predictors]
    problem = co.Personal(chosen, beta=10.0, mu=0.3)
    result = co.solve(
        problem, (X, y, users), split="users", network="complete", local_steps=5, tol=1e-3
    )
    assert result.status == "optimal"
    assert np.mean(result.model.predict(X, users) == y) > 0.85
    assert co.verify(result.certificate, result.model, (X, y, users)).holds
    if predictors == "linear":
        again = load_model(result.model.save(tmp_path / "model.npz"))
        np.testing.assert_array_equal(again.predict(X, users), result.model.predict(X, users))
    else:
        with pytest.raises(co.CoterieError, match="without pickle"):
            result.model.save(tmp_path / "model.npz")


def test_model_files(tmp_path):
    model = fitted().model_
    path = model.save(tmp_path / "model.npz")
    again = load_model(path)
    X, _, users = rows(4)
    np.testing.assert_array_equal(
        again.decision_function(X, users), model.decision_function(X, users)
    )
    assert again.digest() == model.digest()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(co.CoterieError, match=r"changed|not a readable"):
        load_model(path)


def test_a_changed_model_or_certificate_does_not_hold():
    X, y, users = rows()
    result = co.solve(
        co.Personal(count=12), (X, y, users), split="users", network="ring", max_rounds=50
    )
    assert co.verify(result.certificate, result.model, (X, y, users)).holds
    assert not co.verify(result.certificate, result.model, (X[::-1], y, users)).holds


def test_cross_validation_keeps_to_training_rows_and_finds_what_matters():
    X, y, users = rows(5, 9)
    model = PersonalizedClassifier(
        method="dada",
        count=12,
        beta=[0.01, 10.0],
        mu=[1.0],
        lam=[0.1, 10.0],
        cv=3,
        alternations=1,
        max_rounds=120,
    ).fit(X, y, users)
    assert [sorted(trial) for trial in model.trials_] == [["lam", "mu", "score"]] * 2 + [
        ["beta", "score"]
    ] * 2
    assert all(0 <= trial["score"] <= 1 for trial in model.trials_)
    chosen = max(model.trials_[2:], key=lambda trial: trial["score"])["beta"]
    assert model.beta_ == chosen
    with pytest.raises(co.CoterieError, match="cv must be a whole number from 2"):
        cross_validated(co.Personal(), [], {}, 1, Settings())


def test_drawings():
    model = fitted().model_
    camps = [int(user[1]) % 2 for user in model.users]
    ax = draw_users(model)
    discs = ax.collections[1]
    assert len(discs.get_offsets()) == USERS
    lines = ax.collections[0]
    assert len(lines.get_segments()) == model.weights.nnz // 2
    darkness = lines.get_colors()[:, 3]
    assert (np.diff(darkness) >= 0).all(), "heavier edges are drawn later and darker"
    order = np.argsort(camps, kind="stable")
    matrix = weight_matrix(model, camps)
    np.testing.assert_array_equal(
        matrix.images[0].get_array(), model.weights.toarray()[np.ix_(order, order)]
    )
    inside = sum(
        w
        for k, row in enumerate(model.weights.toarray())
        for m, w in enumerate(row)
        if camps[k] == camps[m]
    )
    assert f"{inside / model.weights.sum():.0%}" in matrix.get_title()
    assert weight_matrix(model).images, "communities are found where no clusters are given"
    X, y, users = rows(8)
    line = accuracy_by_rows({"dada": model}, X, y, users, bins=2).lines[0]
    assert np.mean(line.get_ydata()) == pytest.approx(
        np.mean(list(model.score_per_user(X, y, users).values()))
    )
    left, right = accuracy_by_traffic({"dada": [(10, 0, 0.5), (20, 1000, 0.75)]}).axes
    assert left.lines[0].get_xdata().tolist() == [10, 20]
    assert right.lines[0].get_xdata().tolist() == [1000], (
        "nothing sent has no place on a logarithmic axis"
    )


# -- bad input -------------------------------------------------------------------------------------


def test_a_user_with_one_class_only_learns():
    X, y, users = rows()
    y = np.where(users == "u0", "likes", y)
    model = PersonalizedClassifier(method="dada", count=12, alternations=1, max_rounds=150).fit(
        X, y, users
    )
    assert np.mean(model.predict(X[users == "u0"], "u0") == "likes") == 1.0


def test_a_user_without_rows_takes_after_its_neighbours():
    X, y, users = rows()
    tables = [co.Table(X[users == u], y[users == u], name=u) for u in np.unique(users)]
    tables.append(co.Table(np.empty((0, 3)), np.empty(0, y.dtype), name="newcomer"))
    graph = np.zeros((USERS + 1, USERS + 1))
    graph[USERS, [0, 2, 4]] = graph[[0, 2, 4], USERS] = 1.0
    result = co.solve(
        co.Personal(count=12), tables, split="users", network=graph, tol=1e-4, max_rounds=2000
    )
    new = result.model.coefficients_of("newcomer")
    near = np.mean([result.model.coefficients_of(f"u{k}") for k in (0, 2, 4)], axis=0)
    np.testing.assert_allclose(new, near, atol=0.05)
    learned = co.solve(
        co.Personal(count=12), tables, split="users", alternations=1, sample=3, max_rounds=100
    )
    assert np.isfinite(learned.model.coefficients_of("newcomer")).all()


def test_unknown_users():
    model = fitted(unknown="error")
    X, *_ = rows(6)
    with pytest.raises(co.CoterieError, match="unknown='neighbours'"):
        model.predict(X, "stranger")
    model.set_params(unknown="neighbours")
    average = model.model_.confidence @ model.model_.coef_ / model.model_.confidence.sum()
    scores = model.model_.problem.base.values(X) @ average
    np.testing.assert_allclose(model.decision_function(X, "stranger"), scores)
    friends = model.model_.decision_function(
        X, "stranger", unknown="neighbours", neighbours={"stranger": ["u1"]}
    )
    np.testing.assert_allclose(friends, model.model_.decision_function(X, "u1"))
    with pytest.raises(co.CoterieError, match="unknown users"):
        model.set_params(unknown="whatever").predict(X, "stranger")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"data": "twice"}, "'u1' has 2 entries"),
        ({"data": "weights"}, "no sample weights"),
        ({"data": "short"}, "one label per row"),
        ({"data": "nobody"}, "no party has any rows"),
        ({"problem": co.Problem("logistic", "l2", 0.1, intercept=False)}, "split by users"),
        ({"network": np.ones((3, 3)) - np.eye(3)}, "3 agents but the data has 6"),
        ({"method": "proximal-2"}, "split by samples"),
        ({"step": "sideways"}, "step of dada"),
        ({"sample": 0}, "sample must be"),
        ({"split": "samples"}, r"split by samples. Use split='users' with \(X, y, users\)"),
    ],
)
def test_refusals(change, match):
    X, y, users = rows()
    tables = [co.Table(X[users == u], y[users == u], name=u) for u in np.unique(users)]
    data = {
        "twice": [*tables, tables[1]],
        "weights": [co.Table(t.X, t.y, np.ones(t.n), name=t.name) for t in tables],
        "short": (X, y, users[:-1]),
        "nobody": [co.Table(np.empty((0, 3)), np.empty(0), name="a")],
    }.get(change.get("data"), (X, y, users))
    options = {name: value for name, value in change.items() if name not in ("data", "problem")}
    with pytest.raises(co.CoterieError, match=match):
        co.solve(
            change.get("problem", co.Personal(count=12)),
            data,
            **{"split": "users", "max_rounds": 5, **options},
        )


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"beta": 0}, "beta must be"),
        ({"mu": -1}, "mu must be"),
        ({"predictors": "trees"}, "base predictors"),
        ({"predictors": []}, "no base predictors"),
        ({"predictors": [DecisionTreeClassifier()]}, "Fit it"),
        ({"norm": "l3"}, "norm"),
    ],
)
def test_impossible_problems(parameters, match):
    with pytest.raises(co.CoterieError, match=match):
        co.Personal(**parameters)


@pytest.mark.parametrize(
    ("parameters", "labels", "match"),
    [
        (
            {"beta": [1.0, 10.0]},
            None,
            r"beta=\[1.0, 10.0\] are several values to choose from: set cv=3",
        ),
        ({"lam": [], "cv": 3}, None, r"lam=\[\] must be a number, or with cv a list"),
        ({"cv": 3}, "one", "class 'likes' has 1 row, at party 'u0'"),
    ],
)
def test_impossible_choices(parameters, labels, match):
    X, y, users = rows()
    if labels == "one":
        y = np.where(np.arange(len(y)) == 7, "likes", "dislikes")
    with pytest.raises(co.CoterieError, match=match):
        PersonalizedClassifier(method="dada", count=12, max_rounds=5, **parameters).fit(X, y, users)


@pytest.mark.parametrize("columns", [2, 4])
def test_rows_of_another_width_are_refused(columns, tmp_path):
    """Also by a model from a file, and where all stumps are on columns that the rows have."""
    X, y, users = rows()
    model = co.solve(
        co.Personal(count=2), (X, y, users), split="users", network="ring", max_rounds=5
    ).model
    for one in (model, load_model(model.save(tmp_path / "model.npz"))):
        with pytest.raises(
            co.CoterieError, match=f"the model has 3 columns, but the data has {columns}"
        ):
            one.predict(np.ones((4, columns)), "u1")


def test_impossible_predictors():
    with pytest.raises(co.CoterieError, match="one of each"):
        Stumps((0, 1), (0.5,))
    with pytest.raises(co.CoterieError, match="one finite number per row"):
        Given((lambda X: np.full(len(X), np.nan),)).values(np.ones((2, 2)))


def test_the_columns_of_a_frame_are_found_by_their_names():
    rng = np.random.default_rng(0)
    X, users = rng.standard_normal((60, 3)), np.arange(60) % 3
    frame = pd.DataFrame(X, columns=list("abc"))
    labels = np.where(X @ [1, 2, 3] > 0, 1, -1)
    model = co.solve(co.Personal(), (frame, labels, users), split="users", max_rounds=30).model
    np.testing.assert_array_equal(
        model.predict(frame, users), model.predict(frame[["c", "a", "b"]], users)
    )


# -- the choice ------------------------------------------------------------------------------------


def levels(seed=0, users=4, per_user=16):
    """One linear rule, and a level of its own for every user."""
    rng = np.random.default_rng(seed)
    own = np.repeat(np.arange(users), per_user)
    X = rng.standard_normal((len(own), 3))
    scores = X @ [1.0, -1.0, 0.5] + np.linspace(-3, 3, users)[own]
    return X, np.where(scores > 0, "likes", "dislikes"), own, scores


def test_the_default_chooses_by_rows_kept_back_and_says_so():
    X, y, users, _ = levels()
    model = PersonalizedClassifier(count=6).fit(X, y, users)
    assert model.choice_ in ("levels", "shared")
    tried = {trial["choice"] for trial in model.trials_}
    assert {
        "pooled",
        "levels",
        "shared",
        "alone",
        "global",
        "local",
        "dada",
        "dada-linear",
    } == tried
    best = {name: max(t["score"] for t in model.trials_ if t["choice"] == name) for name in tried}
    assert best[model.choice_] > best["pooled"]
    assert f"{model.choice_} was chosen by cross-validation" in model.result_.explanation
    assert model.result_.status == "optimal"
    assert all(trial["bits"] > 0 for trial in model.trials_ if trial["choice"] == "levels")
    test = levels(1)
    assert model.score(*test[:3]) > 0.9
    probabilities = model.predict_proba(test[0], test[2])
    assert (model.classes_[probabilities.argmax(axis=1)] == model.predict(test[0], test[2])).all()
    assert co.verify(model.certificate_, model.model_, (X, y, users)).holds
    with pytest.raises(AttributeError, match="method='dada'"):
        model.graph_  # noqa: B018


def test_camps_are_found_by_those_who_learn_from_similar_users():
    X, y, users = rows(0, 30)
    model = PersonalizedClassifier(count=12).fit(X, y, users)
    pooled = max(trial["score"] for trial in model.trials_ if trial["choice"] == "pooled")
    assert model.score(*rows(9, 40)) > pooled + 0.1


def test_folds_are_dealt_class_by_class():
    _, y, users, _ = levels()
    tables = [
        co.Table(np.zeros((int((users == k).sum()), 1)), y[users == k], name=str(k))
        for k in range(4)
    ]
    for index, table in enumerate(tables):
        fold = deal_by_class(table, index, 4, 0, True)
        for label in np.unique(table.y):
            counts = np.bincount(fold[table.y == label], minlength=4)
            assert counts.max() - counts.min() <= 1
        counts = np.bincount(fold, minlength=4)
        assert counts.max() - counts.min() <= 1


def test_sparse_rows_get_linear_models():
    X, y, users, _ = levels()
    model = PersonalizedClassifier().fit(sp.csr_matrix(X), y, users)
    dense = PersonalizedClassifier(method="shared").fit(X, y, users)
    assert model.choice_ == dense.choice_
    np.testing.assert_allclose(model.model_.deviations, dense.model_.deviations, atol=1e-6)
    assert (model.predict(sp.csr_matrix(X), users) == dense.predict(X, users)).all()


def test_searches_of_scikit_learn_route_users():
    X, y, users, _ = levels()
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            PersonalizedClassifier(method="shared"), {"penalty": ["l2", "l1"]}, cv=folds
        )
        search.fit(X, y, users=users)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert search.best_score_ > 0.8
        assert search.best_estimator_.predict(X, users=users).shape == y.shape
        steps = make_pipeline(StandardScaler(), PersonalizedClassifier(method="shared")).fit(
            X, y, users=users
        )
        assert steps.score(X, y, users=users) == steps[-1].score(
            steps[0].transform(X), y, users=users
        )
    model = search.best_estimator_
    some = users == users[0]
    assert (
        model.score(X, y, users, some)
        == model.score_per_user(X[some], y[some], users[some])[str(users[0])]
    )
    with pytest.warns(UserWarning, match="enable_metadata_routing=True"):
        assert np.isfinite(model.score(X, y))


def test_new_users_have_the_common_model_or_that_of_neighbours():
    X, y, users, _ = levels()
    model = PersonalizedClassifier(method="shared").fit(X, y, users)
    fitted = model.model_
    common = X @ fitted.coef_ + fitted.intercept_
    np.testing.assert_allclose(model.decision_function(X, "somebody"), common)
    near = fitted.decision_function(
        X, "somebody", unknown="neighbours", neighbours={"somebody": ["3"]}
    )
    np.testing.assert_allclose(near, fitted.decision_function(X, "3"))
    with pytest.raises(co.CoterieError, match="unknown='common'"):
        model.set_params(unknown="error").predict(X, "somebody")


def test_numbers_have_a_regressor():
    X, _, users, scores = levels()
    noise = 0.1 * np.random.default_rng(5).standard_normal(len(scores))
    model = PersonalizedRegressor().fit(X, scores + noise, users)
    assert model.choice_ in ("levels", "shared")
    assert model.score(X, scores, users) > 0.99
    assert max(model.score_per_user(X, scores, users).values()) <= 0.0
    assert model.certificate_.relative_gap <= 1e-6
    robust = PersonalizedRegressor("huber", penalty="l1").fit(
        sp.csr_matrix(X), scores + noise, users
    )
    assert robust.score(X, scores, users) > 0.98


def test_too_few_rows_for_folds_give_a_common_model():
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array(["a", "b", "b"])
    model = PersonalizedClassifier().fit(X, y, ["u", "u", "v"])
    assert (model.choice_, model.trials_) == ("shared", [])
    with pytest.raises(co.CoterieError, match="needs two classes"):
        PersonalizedClassifier().fit(X, ["a"] * 3, ["u", "u", "v"])


def test_marks_of_a_candidate_are_those_of_its_fit_user_by_user():
    X, y, users, scores = levels()
    labels = np.where(y == "likes", 1.0, -1.0)
    settings = Settings.of(split="users", seed=0, progress=False)
    for numbers, classes, loss in (
        (labels, np.unique(labels), "logistic"),
        (scores, None, "squared"),
    ):
        tables = [co.Table(X[users == k], numbers[users == k], name=str(k)) for k in range(4)]
        operation = Choose(co.Shared(loss, "l2", 0.01, mu=0.1), settings)
        with given_to(co.engines.engine("local"), tables, None) as given:
            ready = ready_for(operation, given)
        dealing = Dealing(3, 0, classes is not None)
        here = Users(ready, lambda *_, ready=ready: ready, settings, dealing, among=False)
        folds = [
            deal_by_class(table, k, 3, 0, classes is not None) for k, table in enumerate(tables)
        ]
        kept = [without(table, fold, 1) for table, fold in zip(tables, folds, strict=True)]
        held = [only(table, fold, 1) for table, fold in zip(tables, folds, strict=True)]
        for mu, nu in ((np.inf, np.inf), (np.inf, 0.1), (0.05, 0.1), (0.05, np.inf)):
            problem = co.Shared(loss, "l2", 0.01, mu=mu, nu=nu)
            how = {"method": "shared", "tol": 1e-9}
            found = here.marks(Candidate("shared", problem, how), 1)
            result = co.solve(problem, kept, split="users", progress=False, **how)
            for place, one in enumerate(held):
                right, losses = marks_of_rows(result.model, one, one.name, classes is not None)
                np.testing.assert_allclose(found.right[place], right.sum(), rtol=1e-3)
                np.testing.assert_allclose(found.losses[place], losses.sum(), rtol=1e-3)
                assert found.rows[place] == one.n
            assert found.bits > 0


def test_dada_begins_near_the_common_model_and_has_an_intercept():
    X, y, users = rows()
    usual = PersonalizedClassifier(method="dada", random_state=0).fit(X, y, users)
    paper = PersonalizedClassifier(
        method="dada", begin="zeros", constant=False, random_state=0
    ).fit(X, y, users)
    alone = PersonalizedClassifier(method="local", random_state=0).fit(X, y, users)
    linear = PersonalizedClassifier(method="perso-linear", beta=5.0, tol=0.1, random_state=0).fit(
        X, y, users
    )
    assert usual.certificate_.settings["method"]["begin"] == "global"
    assert "begin" not in paper.certificate_.settings["method"]
    assert usual.bill_.per_word["Sum"].bits > paper.bill_.per_word["Sum"].bits
    stumps = 10 * X.shape[1]
    assert [model.model_.coef_.shape[1] for model in (usual, paper, linear)] == [
        stumps + 1,
        stumps,
        X.shape[1],
    ]
    assert alone.bill_.bits == 0
    assert usual.result_.status == paper.result_.status == "optimal"


# -- users with few rows ---------------------------------------------------------------------------


def few_rows(sizes, seed=0):
    """Users with so many rows each; the last one has both classes, if it has two rows."""
    rng = np.random.default_rng(seed)
    users = np.repeat([f"u{k}" for k in range(len(sizes))], sizes)
    X = rng.normal(size=(len(users), 2))
    y = (X[:, 0] > 0).astype(int)
    y[-1] = 1 - y[-2]
    return X, y, users


@pytest.mark.parametrize("sizes", [(1, 1, 12, 12), (2, 2, 2)])
def test_users_with_one_or_two_rows_are_users(sizes):
    """The default search holds out rows, and thereby all rows of some users."""
    X, y, users = few_rows(sizes)
    model = PersonalizedClassifier(count=6, alternations=1, max_rounds=50).fit(X, y, users)
    assert set(model.predict(X, users)) <= {0, 1}
    assert np.isfinite(model.predict_proba(X, users)).all()
    assert 0 <= model.score(X, y, users) <= 1
    assert set(model.score_per_user(X, y, users)) == set(users)
    with pytest.warns(UserWarning, match="users= is missing"):
        model.predict(X)


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (1, 1, 1), (1, 1, 1, 1), (1, 2)])
def test_folds_without_rows_decide_nothing(sizes):
    X, _, users = few_rows((*sizes, 2))
    X, users = X[:-2], users[:-2]
    for seed in range(3):
        model = PersonalizedRegressor(random_state=seed).fit(X, X[:, 0], users)
        assert np.isfinite(model.predict(X, users)).all()


@pytest.mark.parametrize(
    "method", ["dada", "dada-linear", "global", "local", "perso-linear", "shared"]
)
@pytest.mark.parametrize("network", [None, "ring"])
def test_users_without_rows_or_with_one_class_have_models(method, network):
    rng = np.random.default_rng(2)
    tables = []
    for k, n in enumerate((0, 1, 2, 9, 9)):
        X = rng.normal(size=(n, 2))
        y = np.full(n, "yes") if k == 3 else np.where(X[:, 0] > 0, "yes", "no")
        tables.append(co.Table(X, y, name=f"u{k}"))
    problem = co.Shared("logistic", "l2", 0.01) if method == "shared" else co.Personal(count=4)
    if method == "shared":
        network = None
    result = co.solve(problem, tables, split="users", method=method, network=network, max_rounds=10)
    assert result.error is None
    for table in tables:
        assert len(result.model.predict(table.X, table.name)) == table.n
    new = rng.normal(size=(3, 2))
    assert set(result.model.predict(new, "u0")) <= {"yes", "no"}
    assert co.verify(result.certificate, result.model, tables).holds


def test_a_common_model_has_no_graph():
    X, y, users = few_rows((6, 6))
    for network in ("learned", "complete", np.array([[0.0, 1.0], [1.0, 0.0]])):
        with pytest.raises(
            co.CoterieError, match=r"no graph of similar users[\s\S]* Leave network out"
        ):
            co.solve(co.Shared("logistic"), (X, y, users), split="users", network=network)
    with pytest.raises(co.CoterieError, match="no graph of similar users"):
        PersonalizedClassifier(method="shared", network="complete").fit(X, y, users)
    assert PersonalizedClassifier(method="shared", cv=2).fit(X, y, users).choice_
