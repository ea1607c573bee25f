"""An "auto" run that stalls continues once, in careful steps, with the most exact method that fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.data.archives import read_archive
from coterie.methods import method
from coterie.methods.auto.costs import Link, Sizes
from coterie.networks import star
from coterie.numerics.threads import one_blas_thread
from coterie.report.call import solve_call
from coterie.run import rounds
from coterie.run.method_choice import Circumstances
from coterie.run.rescue import Rescuable
from coterie.run.settings import Settings
from coterie.run.setup import set_up
from coterie.run.stopping import Record
from tests.harness.cluster_cases import LINK, STALLS, wide
from tests.harness.cluster_cases import fit as fit_case


def fit(**how):
    return co.solve(STALLS, wide(), **{"agents": 3, "link": LINK, "progress": False, **how})


@pytest.fixture(scope="module")
def whole():
    return fit()


def same(one, other):
    np.testing.assert_array_equal(one.model.coef_, other.model.coef_)
    for own, its in zip(one.certificate.witness, other.certificate.witness, strict=True):
        np.testing.assert_array_equal(own, its)
    assert one.bill == other.bill
    assert one.explanation == other.explanation
    assert one.certificate.settings["changed"] == other.certificate.settings["changed"]
    assert one.history.gap.tolist() == other.history.gap.tolist()


# -- a run that is rescued -------------------------------------------------------------------------


def test_a_run_that_stalls_goes_on_carefully(whole):
    assert whole.status.success
    changed = whole.certificate.settings["changed"]
    assert changed["from"]["name"] == "newton"
    assert f"After {changed['after']} rounds the run stood still" in whole.explanation
    assert whole.explanation in str(whole)
    assert co.verify(whole.certificate, whole.model, wide()).holds
    # Everything from before is on the bill, and what came after.
    named = fit(method="newton")
    assert named.rounds == changed["after"]
    assert whole.bill.bits > named.bill.bits
    assert whole.bill.rounds == whole.rounds > named.rounds


def test_a_method_that_is_named_is_not_rescued():
    named = fit(method="newton")
    assert named.status == "stalled"
    assert "changed" not in named.certificate.settings


def test_threads_decide_alike(whole):
    same(fit(threads=2), whole)


@pytest.mark.parametrize("stop", ["before", "at", "after"])
def test_a_run_stopped_around_its_rescue_continues_bit_by_bit(tmp_path, whole, stop):
    changed = whole.certificate.settings["changed"]["after"]
    fit(max_rounds=changed + {"before": -1, "at": 0, "after": 1}[stop], checkpoint=tmp_path)
    newest, _ = read_archive(max(tmp_path.glob("round-*.npz")), "snapshot")
    assert (newest["rescue"] is None) == (stop == "before")
    same(fit(checkpoint=tmp_path), whole)
    with pytest.raises(co.errors.InvalidInput, match="another run"):
        fit(checkpoint=tmp_path, method="newton")


def test_a_run_that_dies_while_it_is_rescued_continues_bit_by_bit(tmp_path, whole, monkeypatch):
    class Killed(BaseException):
        pass

    def dies(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "with_dual", dies)
        with pytest.raises(Killed):
            fit(checkpoint=tmp_path)
    same(fit(checkpoint=tmp_path), whole)


@pytest.mark.cluster
def test_processes_of_their_own_rescue_alike():
    # Other engines run this case, too: see test_clusters.
    with one_blas_thread():  # as each of the processes has
        one = fit_case("rescued on the way", "local")
    other = fit_case("rescued on the way", "peers")
    assert "changed" in one.certificate.settings
    same(one, other)


def test_the_call_that_repeats_it_asks_for_what_was_asked(whole):
    call = solve_call(whole)
    assert 'method="auto"' in call
    assert f"link={list(LINK)}" in call
    assert "hessian" not in call


# -- the decision ----------------------------------------------------------------------------------


def hopeless(*gaps, every, after="newton"):
    run = Rescuable("proximal-1", method("proximal-1"), after, method(after))
    history = [Record(every * k, 1e9 * k, 1000 * k, gap, 0.0, gap) for k, gap in enumerate(gaps, 1)]
    return run.is_hopeless(history, 1.0, 1e-6)


def test_a_run_on_its_way_is_left_alone():
    assert not hopeless(1e-1, 1e-2, 1e-3, every=1000)
    assert not hopeless(1e-2, 1e-4, 1e-7, every=1000)


def test_a_gap_that_hardly_falls_is_hopeless():
    assert hopeless(0.9, 0.9, every=500)
    # log(0.88/1e-6)/log(0.9/0.88) rounds, 500 times as many, are left: about 304,600.
    assert hopeless(0.9, 0.88, every=500)
    # log(0.4/1e-6)/log(0.9/0.4) rounds, 500 times as many, are left: about 7,950.
    assert not hopeless(0.9, 0.4, every=500)


def test_careful_agents_alone_are_tried_later_than_another_method():
    assert not hopeless(0.9, 0.9, every=149)
    assert hopeless(0.9, 0.9, every=150)
    assert not hopeless(0.9, 0.9, every=499, after="proximal-1")
    assert hopeless(0.9, 0.9, every=500, after="proximal-1")


# -- what may follow -------------------------------------------------------------------------------


def prepared(problem=STALLS, allowed_later=None, **how):
    known = Circumstances(
        star(3, server=True), Sizes(20, 40, 800, 3, Link(*LINK)), allowed_later=allowed_later
    )
    return set_up(problem, Settings.of(**how), known, lambda problem: problem)


def test_the_most_exact_method_that_policies_allow_follows():
    logistic = co.Problem("logistic", "l2", 1e-3, intercept=False)
    assert prepared(logistic).auto.rescue.name == "newton"
    assert prepared(logistic, allowed_later=set()).auto is None
    later = prepared(logistic, allowed_later={"interior-point", "proximal-1"}, rho=2.0)
    assert later.auto.rescue == later.method == method("proximal-1", rho=2.0)
    assert prepared(logistic, method="newton").auto is None


def test_coefficients_get_double_precision_only_where_single_is_not_enough():
    rng = np.random.default_rng(0)
    means = np.array([0.0, 1e6, 3e5])
    X = (rng.standard_normal((60, 3)) + means).astype(np.float32)
    y = X[:, 0] + rng.standard_normal(60)
    problem = co.Problem("huber", "l2", 1e-4, threshold=1.0, intercept=False)
    near = co.solve(problem, (X[:, :1], y), agents=2, progress=False)
    far = co.solve(problem, (X, y), agents=2, progress=False)
    assert near.model.coef_.dtype == np.float32
    assert far.status == "optimal"
    assert far.model.coef_.dtype == np.float64
    assert co.verify(far.certificate, far.model, (X, y)).holds


def test_columns_that_may_not_move_stay_where_they_are():
    sizes = Sizes(40, 80, 3200, 3)
    problem, graph = co.Problem("squared", "box", lower=-1.0, upper=1.0, intercept=False), star(3)
    for apart, allowed, expected in (
        (False, None, "blocks"),
        (True, None, "tree"),
        (False, {"tree"}, None),
    ):
        known = Circumstances(graph, replace(sizes, apart=apart), allowed_later=allowed)
        setup = set_up(problem, Settings.of(split="features"), known, lambda one: one)
        rescue = None if setup.auto is None else setup.auto.rescue.name
        assert rescue == expected
