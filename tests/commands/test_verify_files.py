"""`verify` compares everything that a fit writes: no field of run.json or inference.json can be
forged alone.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import coterie as co
from coterie.errors import CorruptFile
from coterie.numerics.arrays import digest
from tests.harness.shell import shell

RNG = np.random.default_rng(2)
ROWS = 240
FRAME = pd.DataFrame(RNG.normal([50, 3], [10, 1], (ROWS, 2)), columns=["age", "dose"])
FRAME["ill"] = np.where((FRAME.age - 50) / 10 + RNG.logistic(size=ROWS) > 0, "yes", "no")
FRAME["clinic"] = RNG.integers(0, 12, ROWS)
KINDS = {
    "model": (),
    "robust": ("--inference", "robust", "--correction", "HC1"),
    "clustered": ("--inference", "clustered", "--cluster", "clinic"),
    "standardised": ("--inference", "model", "--prepare", "standardise", "--per-sd"),
}


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """A folder for each kind of standard errors."""
    folder = tmp_path_factory.mktemp("fits")
    FRAME.to_csv(folder / "rows.csv", index=False)
    for kind, more in KINDS.items():
        asked = more or ("--inference", "model")
        columns = () if kind == "clustered" else ("--columns", "age,dose")
        ended = shell(
            *(
                "fit",
                folder / "rows.csv",
                "--target",
                "ill",
                "--loss",
                "logistic",
                *columns,
                *asked,
            ),
            *("-o", folder / kind),
        )
        assert ended.exit_code == 0, ended.output
    return folder


def verified(fits, folder, *more):
    files = folder / "certificate.json", folder / "model.npz", fits / "rows.csv"
    ended = shell("verify", *files, "--target", "ill", *more)
    return ended.exit_code, ended.text


def copied(fits, kind, to):
    for name in ("certificate.json", "model.npz", "run.json", "inference.json"):
        (to / name).write_bytes((fits / kind / name).read_bytes())
    return to


def rewritten(file, **changes):
    content = json.loads(file.read_text())
    content |= changes
    if "seal" in content:
        content.pop("seal")
        content["seal"] = digest(json.dumps(content, sort_keys=True))
    file.write_text(json.dumps(content))


@pytest.mark.parametrize("kind", KINDS)
def test_honest_files_hold_and_say_what_was_compared(fits, kind):
    more = ("--cluster", "clinic") if kind == "clustered" else ()
    code, said = verified(fits, fits / kind, *more)
    assert code == 0, said
    assert "standard errors of 3 coefficients" in said
    assert "run.json: the status, the method, the network" in said


def test_clusters_are_asked_for(fits):
    code, said = verified(fits, fits / "clustered")
    assert code not in (0, 4)
    assert "--cluster COLUMN" in said
    code, said = verified(fits, fits / "clustered", "--cluster", "dose")
    assert code != 0


def forged(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 1.01 + 0.5
    if isinstance(value, str):
        return f"{value} or so"
    return [forged(one) for one in value] if value else ["something"]


UNREAD = {"coterie_inference", "bill", "sums", "per_sd"}
"""A number of the format, what is not saved or not shown, and whether a true column is shown."""


@pytest.mark.parametrize("kind", ["model", "clustered", "standardised"])
def test_every_field_of_standard_errors_is_compared(fits, tmp_path, kind):
    more = ("--cluster", "clinic") if kind == "clustered" else ()
    content = json.loads((fits / kind / "inference.json").read_text())
    for name, value in content.items():
        if name in UNREAD or value is None:
            continue
        folder = copied(fits, kind, tmp_path)
        rewritten(folder / "inference.json", **{name: forged(value)})
        code, said = verified(fits, folder, *more)
        assert code != 0, name
        if name not in ("kind", "level"):
            assert "inference.json" in said, name


def test_a_small_change_of_a_standard_error_is_named(fits, tmp_path):
    folder = copied(fits, "model", tmp_path)
    errors = json.loads((folder / "inference.json").read_text())["standard_errors"]
    rewritten(folder / "inference.json", standard_errors=[errors[0] * 0.999, *errors[1:]])
    code, said = verified(fits, folder)
    assert code == 4
    assert "inference.json has other standard_errors than the data gives" in said


def changes_of(content):
    network = content["network"]
    more = {**network, "agents": network["agents"] + 1}
    history = {name: list(values) for name, values in content["history"].items()}
    yield "status", {"status": "stalled", "reason": None}
    yield "status", {"status": "optimal", "reason": None}
    yield "reason", {"reason": "all is well"}
    yield "error", {"error": "a party cheated"}
    yield "lost", {"lost_party": "north", "error": "north was lost"}
    yield "method", {"explanation": "Method cocoa, as asked for."}
    yield "network", {"network": more}
    yield "model", {"model": "0" * 64}
    yield (
        "bill of fewer bits",
        {"history": {**history, "bits": [value * 1000 for value in history["bits"]]}},
    )
    yield "history", {"history": {**history, "round": [value + 99 for value in history["round"]]}}


def test_every_field_of_the_run_is_compared(fits, tmp_path):
    content = json.loads((fits / "model" / "run.json").read_text())
    for what, changes in changes_of(content):
        if "reason" in changes and changes["reason"] is None:
            changes = {**changes, "reason": co.Status(changes["status"]).reason}
        folder = copied(fits, "model", tmp_path)
        rewritten(folder / "run.json", **changes)
        code, said = verified(fits, folder)
        assert code != 0, what
        assert "run.json" in said or "different runs" in said, (what, said)


@pytest.mark.parametrize("name", ["choice.json", "bill.json"])
def test_a_file_that_is_not_checked_is_named(fits, tmp_path, name):
    copied(fits, "model", tmp_path)
    assert name not in verified(fits, tmp_path, "--columns", "age,dose")[1]
    (tmp_path / name).write_text("{}")
    code, said = verified(fits, tmp_path, "--columns", "age,dose")
    assert code == 0
    assert f"{name}, which `coterie fit` does not write" in said


# -- scores ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scored(fits):
    """A fit without a share of its rows, one with other rows, and one with a path."""
    FRAME[::3].to_csv(fits / "other.csv", index=False)
    for name, more in {
        "share": ("--test", "0.3", "--seed", "4"),
        "files": ("--test", fits / "other.csv"),
        "path": ("--cv", "3", "--strengths", "1,0.1,0.01", "--tol", "1e-4"),
    }.items():
        given = fits / "rows.csv", "--target", "ill", "--loss", "logistic", "--columns", "age,dose"
        ended = shell("fit", *given, *more, "-o", fits / name)
        assert ended.exit_code == 0, ended.output
    return fits


def copied_whole(fits, kind, to):
    shutil.copytree(fits / kind, to / kind)
    return to / kind


@pytest.mark.parametrize("kind", ["share", "files"])
def test_scores_are_computed_again_from_the_held_out_rows(scored, tmp_path, kind):
    rows = 72 if kind == "share" else 80
    code, said = verified(scored, scored / kind, "--columns", "age,dose")
    assert code == 0, said
    assert f"evaluation.json, from {rows} held-out rows" in said
    folder = copied_whole(scored, kind, tmp_path)
    honest = json.loads((folder / "evaluation.json").read_text())
    for name, value in honest.items():
        if name in ("coterie_evaluation", "held_out") or value in ({}, [], None):
            continue
        changed = (
            {key: forged(one) for key, one in value.items()}
            if isinstance(value, dict)
            else forged(value)
        )
        if name == "calibration":
            changed = [{**one, "observed": 0.123} for one in value]
        (folder / "evaluation.json").write_text(json.dumps({**honest, name: changed}))
        code, said = verified(scored, folder, "--columns", "age,dose")
        assert code == 4, (name, said)
        assert f"evaluation.json has other {name}" in said


def test_a_single_score_is_compared(scored, tmp_path):
    folder = copied_whole(scored, "share", tmp_path)
    honest = json.loads((folder / "evaluation.json").read_text())
    for name, value in honest["scores"].items():
        scores = {**honest["scores"], name: value * 1.0001}
        (folder / "evaluation.json").write_text(json.dumps({**honest, "scores": scores}))
        assert verified(scored, folder, "--columns", "age,dose")[0] == 4, name


def test_scores_of_rows_that_nobody_knows_are_named(scored, tmp_path):
    folder = copied_whole(scored, "files", tmp_path)
    honest = json.loads((folder / "evaluation.json").read_text())
    gone = {**honest, "held_out": {"files": [str(tmp_path / "gone.csv")]}}
    unknown = {name: value for name, value in honest.items() if name != "held_out"}
    for content, why in (
        (gone, "its held-out rows are missing"),
        (unknown, "it does not name the held-out rows"),
    ):
        (folder / "evaluation.json").write_text(json.dumps(content))
        code, said = verified(scored, folder, "--columns", "age,dose")
        assert code == 0, said
        assert f"the scores of evaluation.json, because {why}" in said
        assert "evaluation.json: the model that it is about" in said
        (folder / "evaluation.json").write_text(json.dumps({**content, "model": "0" * 64}))
        code, said = verified(scored, folder, "--columns", "age,dose")
        assert code == 4
        assert "evaluation.json is about another model" in said
    (folder / "evaluation.json").write_text(
        json.dumps({**honest, "held_out": {"files": [str(scored / "rows.csv")]}})
    )
    assert verified(scored, folder, "--columns", "age,dose")[0] == 4


# -- a path ----------------------------------------------------------------------------------------


def resealed_path(folder, **changes):
    content = json.loads((folder / "path.json").read_text()) | changes
    content.pop("seal")
    (folder / "path.json").write_text(json.dumps({**content, "seal": digest(json.dumps(content))}))


def half_the_gap(folder):
    certificate = co.Certificate.load(folder / "strength-000" / "certificate.json")
    gap = certificate.gap / 2
    numbers = {"gap": gap, "dual": certificate.primal - gap, "relative_gap": gap / certificate.unit}
    replace(certificate, **numbers).save(folder / "strength-000" / "certificate.json")


def other_model(folder):
    """A model that is not the best one, with a digest in every file that has one."""
    place = folder / "strength-000"
    certificate, model = (
        co.Certificate.load(place / "certificate.json"),
        co.models.load_model(place / "model.npz"),
    )
    changed = replace(model, coef_=model.coef_ * 1.5)
    changed.save(place / "model.npz")
    replace(certificate, model_digest=changed.digest()).save(place / "certificate.json")
    rewritten(place / "run.json", model=changed.digest())
    models = json.loads((folder / "path.json").read_text())["models"]
    resealed_path(folder, models=[changed.digest(), *models[1:]])


def strengths_of(folder):
    return json.loads((folder / "path.json").read_text())["strengths"]


FORGED_PATHS = {
    "gap": (half_the_gap, "gap is"),
    "model": (other_model, "primal is"),
    "strengths": (
        lambda folder: resealed_path(folder, strengths=strengths_of(folder)[::-1]),
        "its certificate is about",
    ),
    "scores": (
        lambda folder: resealed_path(folder, scores=[[3.0, 2.0, 1.0]] * 3),
        "chooses another strength",
    ),
    "fewer scores": (
        lambda folder: resealed_path(folder, scores=[[1.0]] * 3),
        "another number of strengths",
    ),
    "no scores": (lambda folder: resealed_path(folder, scores=None), "has no scores"),
    "run": (
        lambda folder: rewritten(
            folder / "strength-000" / "run.json", explanation="Method cocoa, as asked for."
        ),
        "run.json explains another method",
    ),
    "seal": (lambda folder: (folder / "path.json").write_text("{}"), "path/ was changed"),
}


def test_a_path_is_verified_with_all_its_certificates(scored):
    code, said = verified(scored, scored / "path", "--columns", "age,dose")
    assert code == 0, said
    assert "path/: 3 certificates with their runs, their strengths, and which one is chosen" in said
    assert "the scores of path.json and their cost" in said


@pytest.mark.parametrize("what", FORGED_PATHS)
def test_a_forged_path_is_refused(scored, tmp_path, what):
    forge, objection = FORGED_PATHS[what]
    folder = copied_whole(scored, "path", tmp_path)
    forge(folder / "path")
    code, said = verified(scored, folder, "--columns", "age,dose")
    assert code == 4, said
    assert objection in said


def test_in_python_the_other_files_are_given(fits, tmp_path):
    result, table = (
        co.Result.load(fits / "model"),
        co.Inference.load(fits / "model" / "inference.json"),
    )
    data = FRAME[["age", "dose"]], FRAME.ill
    found = co.verify(result.certificate, result.model, data, result=result, inference=table)
    assert found.holds
    turned = FRAME[["dose", "age"]], FRAME.ill
    assert co.verify(result.certificate, result.model, turned, result=result, inference=table).holds
    folder = copied(fits, "model", tmp_path)
    rewritten(folder / "run.json", reason="all is well")
    with pytest.raises(CorruptFile, match="contradicts itself"):
        co.Result.load(folder)
    folder = copied(fits, "model", tmp_path)
    rewritten(folder / "run.json", lost_party="north")
    with pytest.raises(CorruptFile, match="no error names the lost party"):
        co.Result.load(folder)
