"""A seventh kind of problem, from a file outside of the package: the one that docs/add-a-kind.md
adds.

It is fitted, verified, evaluated and followed along a path in one process, on Ray and between
organisations.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import coterie as co
from coterie import catalogue
from coterie.engines.ray import Ray
from coterie.methods import METHODS
from coterie.study.proof import verify_together
from coterie.study.scores import evaluate_together
from tests.harness.clusters import needs
from tests.harness.parties import ANYTHING, NAMES, together, write_study
from tests.pages import DOCS, blocks

PROBLEM = {"loss": "pairwise", "penalty": "l2", "strength": 0.01}
LABELS = {"relevance": "grade", "query": "q"}
STRENGTHS = (0.1, 0.01)


@pytest.fixture(scope="module", autouse=True)
def ranking(tmp_path_factory):
    """The module of the page, registered."""
    text = next(
        block.text
        for block in blocks(DOCS / "add-a-kind.md")
        if block.note.endswith("ranking/kind.py")
    )
    file = tmp_path_factory.mktemp("package") / "coterie_ranking.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("coterie_ranking", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    co.register(module.RankingKind)
    yield module
    catalogue.unregister(module.RankingKind)
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def tables():
    random, found = np.random.default_rng(0), []
    for name in NAMES:
        X = random.standard_normal((40, 4))
        grade = np.digitize(
            X @ [1.0, -0.5, 0.0, 0.0] + 0.7 * random.standard_normal(40), [-0.7, 0.7]
        )
        y = np.column_stack([grade, np.repeat(np.arange(8), 5)]).astype(float)
        found.append(co.Table(X, y, name=name, columns=tuple(f"x{j}" for j in range(4))))
    return found


@pytest.fixture(scope="module")
def local(tables):
    return co.solve(co.Problem(**PROBLEM), tables, tol=1e-8, secure_sums=True, progress=False)


def test_it_is_known_by_its_names(ranking):
    assert isinstance(co.Problem(**PROBLEM).kind, ranking.RankingKind)
    assert "ranking-newton" in METHODS
    with pytest.raises(co.errors.InvalidProblem, match="does not change an order"):
        co.Problem(**PROBLEM, intercept=True)


def test_it_runs_in_one_process(ranking, tables, local, tmp_path):
    assert local.status == "optimal"
    assert isinstance(local.model, ranking.RankingModel)
    assert co.verify(local.certificate, local.model, tables).holds
    other = replace(local.model, coef_=local.model.coef_ * 1.01)
    assert not co.verify(local.certificate, other, tables).holds
    assert co.evaluate(local, tables).scores["pairs_in_order"] > 0.8
    path = co.path(co.Problem(**PROBLEM), tables, STRENGTHS, cv=2, progress=False)
    assert [result.status for result in path.results] == ["optimal", "optimal"]
    loaded = co.Result.load(local.save(tmp_path / "run"))
    assert loaded.model.digest() == local.model.digest()


@pytest.mark.cluster
@pytest.mark.xdist_group("clusters")
@needs("ray")
@pytest.mark.timeout(300)
def test_it_runs_on_ray(ranking, tables, local):
    from ray import cloudpickle

    # Workers get the module by value, as they get what a notebook defines.
    cloudpickle.register_pickle_by_value(ranking)
    engine, sources = (
        Ray(deadline=60.0),
        [partial(table.take_rows, np.arange(table.n)) for table in tables],
    )
    found = co.solve(
        co.Problem(**PROBLEM), sources, engine=engine, tol=1e-8, secure_sums=True, progress=False
    )
    assert found.bill == local.bill
    np.testing.assert_array_equal(found.model.coef_, local.model.coef_)
    assert co.verify(found.certificate, found.model, tables).holds
    assert co.evaluate(found, sources, engine=engine).scores == co.evaluate(local, tables).scores
    path = co.path(co.Problem(**PROBLEM), sources, STRENGTHS, engine=engine, progress=False)
    here = co.path(co.Problem(**PROBLEM), tables, STRENGTHS, progress=False)
    for there, other in zip(path.results, here.results, strict=True):
        np.testing.assert_allclose(there.model.coef_, other.model.coef_, rtol=0, atol=1e-10)


def write_files(folder, tables):
    """Each party's file, and in party.toml the columns of its labels."""
    for table in tables:
        rows = np.column_stack([table.X, table.y]).tolist()
        lines = [
            ",".join([*table.columns, *LABELS.values()]),
            *(",".join(map(repr, row)) for row in rows),
        ]
        (folder / table.name / "data.csv").write_text("\n".join(lines))
        file = folder / table.name / "party.toml"
        named = ", ".join(f'{role} = "{column}"' for role, column in LABELS.items())
        file.write_text(
            'test = "data.csv"\n'
            + file.read_text().replace('target = "y"', f"labels = {{ {named} }}")
        )


def test_it_runs_between_organisations(tmp_path, tables, local):
    write_study(
        tmp_path,
        problem=PROBLEM,
        split="samples",
        tol=1e-8,
        policy=ANYTHING + "\npolicy.minimum-count = 1",
    )
    write_files(tmp_path, tables)
    for result in together(tmp_path):
        assert result.status == local.status
        assert result.bill == local.bill
        np.testing.assert_allclose(result.model.coef_, local.model.coef_, rtol=0, atol=1e-10)
    for verified in together(tmp_path, work=verify_together):
        assert verified.holds, verified
    for evaluated in together(tmp_path, work=evaluate_together):
        assert evaluated.scores == co.evaluate(local, tables).scores


def test_a_study_takes_a_path(tmp_path, tables):
    problem = {"loss": "pairwise", "penalty": "l2"}
    write_study(
        tmp_path, problem=problem, split="samples", tol=1e-6, **{"path.count": 2, "path.cv": 2}
    )
    for result in together(tmp_path, tables):
        assert result.status == "optimal"
        assert result.model.problem.penalty.strength > 0
