"""The files of a study belong to one run: parts of others are refused, and a failed run replaces
nothing.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.api.replacing import LAST
from coterie.commands.output import summary
from coterie.data.archives import read_archive, write_archive
from coterie.errors import InvalidInput, PartyLost, ProtocolError
from coterie.problems.linear.model import LinearModel
from coterie.study.departure import predict_without
from coterie.study.party import fit_together
from coterie.study.scores import evaluate_together, predict_together
from coterie.study.study import load_party
from tests.harness.parties import NAMES, data, together, write_data, write_study

RIDGE = {"loss": "squared", "penalty": "l2", "strength": 0.01, "intercept": True}
PAIR = NAMES[:2]
LONG = {"network": "path", "method": "graph-cp", "check-every": 5}


def change(folder, old, new):
    file = folder / "study.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def forget(folder, names):
    for name in names:
        shutil.rmtree(folder / name / "checkpoint", ignore_errors=True)


def status_in(folder):
    return co.Result.load(folder).status


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """A study that was fitted, changed and fitted again; the result of the first run of the last
    party is kept.
    """
    folder = write_study(tmp_path_factory.mktemp("runs"), problem=RIDGE, network="ring", tol=1e-6)
    write_data(folder, data("features"))
    first = together(folder)
    shutil.copytree(folder / "cyd" / "result", folder / "cyd" / "earlier")
    change(folder, "strength = 0.01", "strength = 1.0")
    second = together(folder)
    shutil.copytree(folder / "cyd" / "result", folder / "cyd" / "later")
    return folder, first, second


def put(folder, which):
    shutil.rmtree(folder / "cyd" / "result")
    shutil.copytree(folder / "cyd" / which, folder / "cyd" / "result")


def predicted(own, study):
    return predict_together(own, study, own.data, consent=True)


def evaluated(own, study):
    return evaluate_together(own, study, own.data, consent=True)


def test_every_part_has_the_digest_of_its_run(two_runs):
    folder, first, second = two_runs
    runs = [{result.model.run for result in results} for results in (first, second)]
    assert all(len(run) == 1 for run in runs)
    assert runs[0] != runs[1]
    assert LinearModel.load(folder / "ada" / "result" / "model.npz").run in runs[1]
    assert second[0].certificate.run in runs[1]


@pytest.mark.parametrize("work", [predicted, evaluated])
def test_parts_of_another_run_are_refused_by_name(two_runs, work):
    folder, _, second = two_runs
    put(folder, "earlier")
    for error in together(folder, work=work):
        assert isinstance(error, InvalidInput)
        assert (
            "the part of the model at cyd (result/model.npz there) is of another run than that of "
            "ada"
        ) in str(error)
    put(folder, "later")
    shutil.copy(folder / "cyd" / "earlier" / "model.npz", folder / "cyd" / "result" / "model.npz")
    assert "at cyd" in str(together(folder, work=work)[0]), "the part alone"
    put(folder, "later")
    found = together(folder, work=work)[0]
    assert not isinstance(found, Exception)
    if work is predicted:
        scores = sum(
            table.X @ one.model.coef_ + one.model.intercept_
            for table, one in zip(data(), second, strict=True)
        )
        np.testing.assert_allclose(found.scores, scores, atol=1e-9)


def test_going_on_without_a_party_refuses_them_too(two_runs):
    folder, _, _ = two_runs

    def left(before, _):
        own, study = load_party(folder / before.party / "party.toml", ["bea"])
        return predict_without(own, study, before, before.data, ["bea"], consent=True)

    put(folder, "earlier")
    for error in together(folder, names=("ada", "cyd"), work=left):
        assert isinstance(error, InvalidInput)
        assert "the part of the model at cyd" in str(error)
    put(folder, "later")
    assert together(folder, names=("ada", "cyd"), work=left)[0][0].scores is not None


def test_a_part_of_no_whole_run_is_refused(two_runs):
    folder, _, _ = two_runs
    path = folder / "cyd" / "result" / "model.npz"
    replace(LinearModel.load(path), run=None).save(path)
    error = together(folder, work=predicted)[0]
    assert "at cyd (result/model.npz there) is of a run that did not end at all parties" in str(
        error
    )
    put(folder, "later")


# -- results ---------------------------------------------------------------------------------------


def leaving(own, study, **more):
    """A fit in which the second party leaves after some certificates."""

    def watch(t, record):
        if own.party == "bea" and t > 10:
            raise InvalidInput("a disk is full.")

    return fit_together(own, study, watch=watch, consent=True, **more)


def test_a_failed_run_replaces_nothing_and_says_why(tmp_path):
    write_study(tmp_path, names=PAIR, problem=RIDGE, tol=1e-6, **LONG)
    tables = data("features", names=PAIR)
    alone, _ = together(tmp_path, tables, PAIR, leaving)
    assert alone.status == "party_lost"
    assert alone.folder == tmp_path / "ada" / "result", (
        "nothing was there: the best model so far is kept"
    )
    assert alone.model.run is None
    forget(tmp_path, PAIR)
    assert [one.status for one in together(tmp_path, tables, PAIR)] == ["optimal"] * 2
    before = {name: (tmp_path / name / "result" / "run.json").read_bytes() for name in PAIR}
    forget(tmp_path, PAIR)
    lost, left = together(tmp_path, tables, PAIR, leaving)
    assert isinstance(left, InvalidInput)
    assert (lost.status, lost.lost_party) == ("party_lost", "bea")
    assert lost.folder == tmp_path / "ada" / "result" / LAST
    assert 'bea left the run: "a disk is full."' in lost.reason
    assert "stays: this run ended with party_lost (bea left the run" in lost.warnings[-1]
    assert summary(lost)["lost_party"] == "bea"
    assert status_in(lost.folder) == "party_lost"
    for name in PAIR:
        assert (tmp_path / name / "result" / "run.json").read_bytes() == before[name]


def test_a_run_without_a_model_leaves_a_note(tmp_path):
    write_study(tmp_path, names=PAIR, problem=RIDGE, tol=1e-6, **LONG)
    tables = data("features", names=PAIR)
    together(tmp_path, tables, PAIR)
    before = (tmp_path / "ada" / "result" / "run.json").read_bytes()
    forget(tmp_path, PAIR)

    def lying(own, study, **more):
        def watch(t, record):
            if own.party == "bea" and record is not None:
                raise ProtocolError("bea received other sums than ada.")

        return fit_together(own, study, watch=watch, consent=True, **more)

    received, _ = together(tmp_path, tables, PAIR, lying)
    assert isinstance(received, PartyLost)
    assert received.status == "protocol_error"
    for name in PAIR:
        note = json.loads((tmp_path / name / "result" / "last-failure.json").read_text())
        assert note["status"] == "protocol_error"
        assert "bea received other sums" in note["reason"]
        assert note["exit_code"] == received.status.exit_code
    assert (tmp_path / "ada" / "result" / "run.json").read_bytes() == before
    assert not list((tmp_path / "ada" / "checkpoint").glob("*/round-*")), (
        "what came of such sums is forgotten"
    )
    assert [one.status for one in together(tmp_path, tables, PAIR)] == ["optimal"] * 2
    assert not (tmp_path / "ada" / "result" / "last-failure.json").exists()


def test_a_worse_result_replaces_no_better_one_whatever_the_other_party_has(tmp_path):
    write_study(tmp_path, names=PAIR, problem=RIDGE, tol=1e-6, **LONG)
    tables = data("features", names=PAIR)
    better = together(tmp_path, tables, PAIR)
    change(tmp_path, "tol = 1e-06", "tol = 0.5")
    forget(tmp_path, PAIR)
    worse = together(tmp_path, tables, PAIR)
    assert worse[0].certificate.gap > better[0].certificate.gap
    for name, result in zip(PAIR, worse, strict=True):
        assert result.folder == tmp_path / name / "result" / LAST
        assert "stays: its gap is" in result.warnings[-1]
        assert LinearModel.load(tmp_path / name / "result" / "model.npz").run == better[0].model.run
    shutil.rmtree(tmp_path / "bea" / "result")
    kept, alone = together(tmp_path, tables, PAIR)
    assert kept.folder == tmp_path / "ada" / "result" / LAST
    assert alone.folder == tmp_path / "bea" / "result"
    assert LinearModel.load(tmp_path / "ada" / "result" / "model.npz").run == better[0].model.run
    assert kept.model.run == alone.model.run == worse[0].model.run
    shutil.rmtree(tmp_path / "ada" / "result")
    again = together(tmp_path, tables, PAIR)
    assert {result.model.run for result in again} == {worse[0].model.run}
    for name, result in zip(PAIR, again, strict=True):
        assert result.folder == tmp_path / name / "result"
        assert LinearModel.load(tmp_path / name / "result" / "model.npz").run == worse[0].model.run


def test_a_snapshot_of_another_run_is_refused_by_name(tmp_path):
    write_study(tmp_path, problem=RIDGE, tol=1e-6, **LONG, **{"max-rounds": 10})
    tables = data("features")
    assert [one.status for one in together(tmp_path, tables)] == ["iteration_limit"] * 3
    for file in (tmp_path / "bea" / "checkpoint").glob("*/round-*.npz"):
        header, arrays = read_archive(file, "checkpoint")
        arrays["memory/heard"] = arrays["memory/heard"] ^ 1
        write_archive(file, {key: value for key, value in header.items() if key != "seal"}, arrays)
    change(tmp_path, "max-rounds = 10\n", "max-rounds = 10000\n")
    said = []
    assert [one.status for one in together(tmp_path, tables, say=said.append)] == ["optimal"] * 3
    assert said.count("the checkpoint of bea is of another run: all parties begin again") == 3


def test_a_run_that_goes_on_is_the_same_run(tmp_path):
    write_study(tmp_path / "whole", names=PAIR, problem=RIDGE, tol=1e-6, **LONG)
    tables = data("features", names=PAIR)
    together(tmp_path / "whole", tables, PAIR)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    forget(tmp_path / "cut", PAIR)
    shutil.rmtree(tmp_path / "cut" / "ada" / "result")
    together(tmp_path / "cut", tables, PAIR, leaving)
    for name in PAIR:
        assert list((tmp_path / "cut" / name / "checkpoint").glob("*/round-*"))
    found = together(tmp_path / "cut", tables, PAIR)
    runs = [
        LinearModel.load(tmp_path / "whole" / name / "result" / "model.npz").run for name in PAIR
    ]
    assert [result.model.run for result in found] == runs
