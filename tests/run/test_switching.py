"""An "auto" run compares its rounds with what was expected, and changes to another method where
that is cheaper.
"""

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
from coterie.run.bill import Bill
from coterie.run.method_choice import Circumstances
from coterie.run.settings import Settings
from coterie.run.setup import set_up
from coterie.run.stopping import Record
from coterie.run.switching import Candidate, Switching
from tests.harness.cluster_cases import CROSSED, FLAT, steep
from tests.harness.cluster_cases import fit as fit_case


def fit(**how):
    return co.solve(FLAT, steep(), **{"agents": 4, "link": CROSSED, "progress": False, **how})


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


# -- a run that changes ----------------------------------------------------------------------------


def test_a_run_that_takes_longer_than_expected_changes_its_method(whole):
    slow, fast = fit(method="lbfgs-rows", max_rounds=200), fit(method="newton")
    assert whole.status == "optimal"
    assert co.verify(whole.certificate, whole.model, steep()).holds
    assert slow.status == "iteration_limit"
    assert whole.bill.seconds(*CROSSED) < slow.bill.seconds(*CROSSED)
    changed = whole.certificate.settings["changed"]
    assert changed["from"]["name"] == "lbfgs-rows"
    assert whole.certificate.settings["method"]["name"] == "newton"
    assert whole.rounds - changed["after"] <= 2 * fast.rounds
    assert f"After {changed['after']} rounds it was changed to newton" in whole.explanation
    assert whole.explanation in str(whole)


def test_the_bill_has_all_of_it(whole):
    until = fit(max_rounds=whole.certificate.settings["changed"]["after"] - 1)
    assert until.certificate.settings["method"]["name"] == "lbfgs-rows"
    assert "changed" not in until.certificate.settings
    after = whole.bill.rounds - until.bill.rounds
    assert whole.bill.bits > until.bill.bits + (after - 1) * 8 * 64 * 100 * 101 / 2


def test_a_method_that_is_named_is_never_changed():
    named = fit(method="lbfgs-rows", max_rounds=80)
    assert named.certificate.settings["method"]["name"] == "lbfgs-rows"
    assert "changed" not in named.certificate.settings


def test_threads_decide_alike(whole):
    same(fit(threads=2), whole)


@pytest.mark.parametrize("stop", ["before", "at", "after"])
def test_a_run_stopped_around_its_change_continues_bit_by_bit(tmp_path, whole, stop):
    changed = whole.certificate.settings["changed"]["after"]
    fit(max_rounds=changed + {"before": -3, "at": 0, "after": 3}[stop], checkpoint=tmp_path)
    newest, _ = read_archive(max(tmp_path.glob("round-*.npz")), "snapshot")
    assert newest["method"] == ("lbfgs-rows" if stop == "before" else "newton")
    resumed = fit(checkpoint=tmp_path)
    same(resumed, whole)
    same(fit(checkpoint=tmp_path), whole)
    with pytest.raises(co.errors.InvalidInput, match="another run"):
        fit(checkpoint=tmp_path, method="newton")


def test_a_run_that_dies_while_it_changes_continues_bit_by_bit(tmp_path, whole, monkeypatch):
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
def test_processes_of_their_own_decide_alike():
    # Other engines run this case, too: see test_clusters.
    with one_blas_thread():  # as each of the processes has
        one = fit_case("changed on the way", "local")
    other = fit_case("changed on the way", "peers")
    assert "changed" in one.certificate.settings
    same(one, other)


def test_the_call_that_repeats_it_asks_for_what_was_asked(whole):
    call = solve_call(whole)
    assert 'method="auto"' in call
    assert "link=[0.001, 3000000.0]" in call
    assert "hessian" not in call


def test_certificates_of_the_second_method_count_its_own_rounds(whole):
    """Near its end a certificate after each round, though there were many before."""
    looks = whole.history["round"]
    after = whole.certificate.settings["changed"]["after"]
    assert (np.diff([round for round in looks if round > after]) <= 3).all()


# -- the decision ----------------------------------------------------------------------------------


def records(*gaps, every=10):
    return [Record(every * k, 0.0, 1000 * k, gap, 0.0, gap) for k, gap in enumerate(gaps, 1)]


def decided(history, rounds_expected=40.0, other=1.0):
    first = Candidate("first", method("proximal-1"), rounds_expected, 1.0, 1.0)
    pair = Switching(first, Candidate("other", method("newton"), 8.0, other, other), (0.0, 1e9))
    return pair.change(history, Bill(star(3, server=True)), 1.0, 1e-6)


def test_a_run_on_its_way_is_left_alone():
    assert decided(records(1e-1, 1e-2, 1e-3)) is None
    assert decided(records(1e-2, 1e-4, 1e-7)) is None


def test_a_gap_that_no_longer_falls_asks_for_a_change():
    change = decided(records(1e-1, 2e-5, 2e-5, 2e-5))
    assert change is not None
    assert (change.name, change.after) == ("other", 40)
    assert "no end of rounds" in change.because


def test_a_slow_run_changes_if_the_other_method_costs_half_of_the_rest():
    slow = records(
        0.9, 0.8, 0.7
    )  # log(0.7/1e-6)/log(0.9/0.7) · 20 rounds are left: 1071, of 1/40 s
    assert "about 1071 more rounds, or 27 s" in decided(slow, other=13.0).because
    assert decided(slow, other=14.0) is None
    # After 30 rounds, where 30 were expected, there is no doubt left in its favour.
    assert decided(slow, rounds_expected=30.0, other=20.0) is not None


def test_nothing_is_changed_before_its_time():
    assert decided(records(0.9, 0.9, every=9)) is None
    assert decided(records(0.9, 0.9, every=10)) is not None
    assert decided(records(0.9, 0.9, every=10), rounds_expected=200.0) is None


def test_a_method_of_few_rounds_has_time_to_become_fast():
    """The proof of an interior point may come at the end only."""
    assert decided(records(0.9, 0.9, every=79), rounds_expected=16.0) is None
    assert decided(records(0.9, 0.9, every=80), rounds_expected=16.0) is not None


def test_clocks_do_not_matter(whole):
    late = [replace(record, seconds=1e9) for record in records(1e-1, 2e-5, 2e-5, 2e-5)]
    assert decided(late) == decided(records(1e-1, 2e-5, 2e-5, 2e-5))


# -- what may follow -------------------------------------------------------------------------------


PARTIES = {"allowed", "allowed_later", "classes", "secure_sums"}


def prepared(problem=FLAT, columns=100, **how):
    sizes = Sizes(400, columns, 400 * columns, 4, Link(*CROSSED))
    of_parties = {name: how.pop(name) for name in PARTIES & how.keys()}
    known = Circumstances(star(4, server=True), sizes, **of_parties)
    return set_up(problem, Settings.of(**how), known, lambda problem: problem)


def test_a_method_of_few_rounds_follows_unless_it_is_dear():
    assert prepared().auto.other.name == "newton"
    assert prepared(columns=1400).auto.other.name != "newton"


def test_what_a_policy_forbids_does_not_follow():
    assert prepared(allowed_later={"proximal-2"}).auto.other.name == "proximal-2"
    assert prepared(allowed_later=set()).auto is None
    assert prepared(allowed_later={"lbfgs-rows"}).auto.other is None
    assert prepared(secure_sums=True, allowed={"lbfgs-rows", "relay"}).auto.other is None


def test_a_parameter_or_an_acceleration_is_kept():
    setup = prepared(rho=2.0)
    assert (setup.method.name, setup.auto.other.name) == ("proximal-1", "proximal-2")
    assert setup.method.rho == setup.auto.other.rho == 2.0
    assert prepared(acceleration="anderson").auto.other.name in ("proximal-1", "proximal-2")


def test_where_nothing_else_applies_nothing_follows():
    assert (
        prepared(
            co.Problem("multinomial", "l2", 1e-3, intercept=False), classes=np.arange(3)
        ).auto.other
        is None
    )


# -- a run that is rescued -------------------------------------------------------------------------


def huber_case():
    """More columns than rows and no penalty: rows without curvature are all that some directions
    have.
    """
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20, 40))
    return X, X[:, :5] @ [2.0, -1.0, 1.0, 0.5, -0.5] + 0.3 * rng.standard_normal(20)


def rescue(**how):
    problem = co.Problem("huber", "none", intercept=True)
    return co.solve(problem, huber_case(), **{"agents": 3, "progress": False, **how})


@pytest.fixture(scope="module")
def rescued():
    return rescue()


def test_a_run_that_stalls_goes_on_carefully(rescued):
    assert rescued.status.success
    changed = rescued.certificate.settings["changed"]
    assert changed["from"]["name"] == "newton"
    assert f"After {changed['after']} rounds the run stood still" in rescued.explanation
    assert co.verify(rescued.certificate, rescued.model, huber_case()).holds
    named = rescue(method="newton")
    assert named.status == "stalled"
    assert named.rounds == changed["after"]
    # Everything from before is on the bill, and what came after.
    assert rescued.bill.bits > named.bill.bits
    assert rescued.bill.rounds == rescued.rounds > named.rounds


def test_threads_rescue_alike(rescued):
    same(rescue(threads=2), rescued)


@pytest.mark.parametrize("stop", ["before", "at", "after"])
def test_a_run_stopped_around_its_rescue_continues_bit_by_bit(tmp_path, rescued, stop):
    after = rescued.certificate.settings["changed"]["after"]
    rescue(max_rounds=after + {"before": -1, "at": 0, "after": 1}[stop], checkpoint=tmp_path)
    same(rescue(checkpoint=tmp_path), rescued)


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
        (False, {"tree"}, "tree"),
    ):
        known = Circumstances(graph, replace(sizes, apart=apart), allowed_later=allowed)
        setup = set_up(problem, Settings.of(split="features"), known, lambda one: one)
        assert setup.auto.rescue.name == expected


@pytest.mark.cluster
def test_processes_of_their_own_rescue_alike():
    # On one link, and with sums that do not depend on who adds up.
    how = {"link": CROSSED, "secure_sums": True}
    with one_blas_thread():  # as each of the processes has
        one = rescue(**how)
    other = rescue(engine="peers", **how)
    assert "changed" in one.certificate.settings
    same(one, other)
