"""A result gives way to a better one of the same question, and never to a failure; every ending
says why.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coterie as co
from coterie.api.replacing import FAILED, LAST, place_for, why_kept, why_path_kept
from coterie.commands.output import Saved, show_result, summary
from coterie.errors import NumericalError, PartyLost
from coterie.run.statuses import Status

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((40, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.1 * RANDOM.standard_normal(40)
RIDGE = co.Problem("squared", "l2", 0.1, intercept=True)
HOW = {"agents": 2, "method": "proximal-2"}


@pytest.fixture(scope="module")
def good():
    return co.solve(RIDGE, (X, Y), tol=1e-8, **HOW)


@pytest.fixture(scope="module")
def rough():
    return co.solve(RIDGE, (X, Y), tol=1e-8, max_rounds=2, **HOW)


def failed(result, status):
    error = (
        PartyLost("bea sent no message for 8 seconds.", "bea")
        if status is Status.PARTY_LOST
        else None
    )
    error = (
        NumericalError("ada: a message was not finite.")
        if status is Status.NUMERICAL_ERROR
        else error
    )
    return replace(result, status=status, error=error)


@pytest.mark.parametrize("status", sorted(FAILED))
def test_a_failure_never_replaces_a_result(status, good, rough, tmp_path):
    ended = failed(good, status)
    assert why_kept(tmp_path, ended) is None, "there is nothing to keep"
    for before in (good, rough):
        before.save(tmp_path)
        assert f"ended with {status} (" in why_kept(tmp_path, ended)
        other = co.solve(co.Problem("squared", "l2", 0.2, intercept=True), (X, Y), tol=1e-8, **HOW)
        assert why_kept(tmp_path, failed(other, status)) is not None
    failed(rough, status).save(tmp_path)
    assert why_kept(tmp_path, rough) is None
    assert why_kept(tmp_path, good) is None
    assert why_kept(tmp_path, ended) is None, "a better one of two failures"
    ended.save(tmp_path)
    assert "its gap is" in why_kept(tmp_path, failed(rough, status))


def test_the_smaller_gap_of_the_same_question_stays(good, rough, tmp_path):
    good.save(tmp_path)
    assert why_kept(tmp_path, good) is None, "the same again"
    assert f"its gap is {good.certificate.gap:.3g}" in why_kept(tmp_path, rough)
    unknown = replace(rough, certificate=replace(rough.certificate, gap=math.nan))
    assert why_kept(tmp_path, unknown) is not None
    rough.save(tmp_path)
    assert why_kept(tmp_path, good) is None


def test_an_answer_to_another_question_takes_the_place(good, tmp_path):
    good.save(tmp_path)
    rows = {"tol": 1e-8, "max_rounds": 2, **HOW}
    for problem, data in (
        (co.Problem("squared", "l2", 0.2, intercept=True), (X, Y)),
        (co.Problem("squared", "l2", 0.1, intercept=False), (X, Y)),
        (RIDGE, (X, Y + 1.0)),
        (RIDGE, (X[:39], Y[:39])),
        (RIDGE, co.read((X, Y), columns=["a", "b", "c"])),
    ):
        assert why_kept(tmp_path, co.solve(problem, data, **rows)) is None


def test_files_that_cannot_be_read_are_replaced(good, tmp_path):
    good.save(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    assert why_kept(tmp_path, failed(good, Status.INTERRUPTED)) is None


def test_the_place_of_what_does_not_replace(good, tmp_path):
    assert place_for(tmp_path, None) == tmp_path
    good.save(place_for(tmp_path, "it is worse"))
    assert (tmp_path / LAST / "model.npz").is_file()
    assert place_for(tmp_path, None) == tmp_path
    assert not (tmp_path / LAST).exists(), (
        "what did not replace the earlier result is of no use beside a new one"
    )


def test_a_path_with_a_failure_does_not_replace_one_without(tmp_path):
    path = co.path(RIDGE, (X, Y), [0.1, 0.01], tol=1e-8, **HOW)
    lost = replace(path, results=(path.results[0], failed(path.results[1], Status.PARTY_LOST)))
    assert why_path_kept(tmp_path, lost) is None
    path.save(tmp_path)
    assert "party_lost" in why_path_kept(tmp_path, lost)
    assert why_path_kept(tmp_path, path) is None
    assert why_path_kept(tmp_path, co.path(RIDGE, (X, Y), [0.1, 0.02], tol=1e-2, **HOW)) is None
    assert "its gap" in why_path_kept(
        tmp_path, co.path(RIDGE, (X, Y), [0.1, 0.01], max_rounds=2, **HOW)
    )
    assert "strength 0.01: bea sent no message" in str(lost)


def test_the_shell_keeps_the_better_result(shell, tmp_path):
    lines = ["a,b,c,y", *(",".join(map(repr, row)) for row in np.column_stack([X, Y]).tolist())]
    (tmp_path / "data.csv").write_text("\n".join(lines))

    def fit(*more):
        base = [
            "data.csv",
            "--target",
            "y",
            "--strength",
            "0.1",
            "--intercept",
            "--method",
            "proximal-2",
            "-o",
            "out",
        ]
        return shell("fit", *base, "--agents", "2", *more)[:2]

    assert fit("--tol", "1e-8")[0] == 0
    before = (tmp_path / "out" / "run.json").read_bytes()
    code, out = fit("--max-rounds", "2", "--json")
    told = json.loads(out)
    assert code == told["exit_code"] == Status.ITERATION_LIMIT.exit_code
    assert told["model"] == "out/last-run/model.npz"
    assert told["report"] == "out/last-run/report.html"
    assert "The earlier result in out stays: its gap is" in told["warnings"][-1]
    assert (tmp_path / "out" / "run.json").read_bytes() == before
    assert co.Result.load("out/last-run").status == "iteration_limit"
    assert "This run is in out/last-run." in " ".join(fit("--max-rounds", "2")[1].split())
    assert fit("--tol", "1e-10")[0] == 0
    assert not (tmp_path / "out" / "last-run").exists()
    assert (tmp_path / "out" / "run.json").read_bytes() != before


@pytest.mark.rotates
@pytest.mark.parametrize("status", list(Status))
def test_every_output_says_why_a_run_ended(status, good, tmp_path, capsys):
    result = failed(good, status)
    reason = status.reason if result.error is None else str(result.error)
    told = summary(result)
    assert told["reason"] == result.reason == reason
    assert told["error"] == (None if result.error is None else reason)
    assert told["lost_party"] == ("bea" if status is Status.PARTY_LOST else None)
    folder = result.save(tmp_path)
    written = json.loads((folder / "run.json").read_text())
    assert (written["reason"], written["lost_party"]) == (reason, told["lost_party"])
    loaded = co.Result.load(folder)
    assert (loaded.reason, loaded.lost_party) == (reason, told["lost_party"])
    page = co.report.write_report(result, tmp_path / "report.html")
    show_result(Saved(result, folder, page), as_json=False)
    printed = " ".join(capsys.readouterr().out.split())
    shown = [str(result), printed]
    if status is not Status.OPTIMAL:
        shown.append(page.read_text())
    for text in shown:
        assert reason.replace("'", "") in text.replace("'", "").replace("&#x27;", "").replace(
            "&#39;", ""
        )


def test_a_folder_that_cannot_be_read_is_left_alone(tmp_path, monkeypatch):
    """Other users' folders end no run: the result is kept, and writing it is tried again."""

    def forbidden(path, **more):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", forbidden)
    monkeypatch.setattr(Path, "is_symlink", forbidden)
    assert place_for(tmp_path / "result", None) == tmp_path / "result"
