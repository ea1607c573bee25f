"""`verify` compares everything that a fit writes: no field of run.json or inference.json can be forged alone."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import coterie as co
from coterie.cli import app
from coterie.errors import CorruptFile, CoterieError
from coterie.numerics.arrays import digest

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


def coterie(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """A folder for each kind of standard errors."""
    folder = tmp_path_factory.mktemp("fits")
    FRAME.to_csv(folder / "rows.csv", index=False)
    for kind, more in KINDS.items():
        asked = more or ("--inference", "model")
        columns = () if kind == "clustered" else ("--columns", "age,dose")
        ended = coterie(
            *("fit", folder / "rows.csv", "--target", "ill", "--loss", "logistic", *columns, *asked),
            *("-o", folder / kind),
        )
        assert ended.exit_code == 0, ended.output
    return folder


def verified(fits, folder, *more):
    files = folder / "certificate.json", folder / "model.npz", fits / "rows.csv"
    ended = coterie("verify", *files, "--target", "ill", *more)
    said = str(ended.exception) if isinstance(ended.exception, CoterieError) else ended.output
    return ended.exit_code, " ".join(said.split())


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
    yield "bill of fewer bits", {"history": {**history, "bits": [value * 1000 for value in history["bits"]]}}
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


@pytest.mark.parametrize("name", ["evaluation.json", "choice.json", "bill.json", "path"])
def test_a_file_that_is_not_checked_is_named(fits, tmp_path, name):
    copied(fits, "model", tmp_path)
    assert f"not checked: {name}" not in verified(fits, tmp_path, "--columns", "age,dose")[1]
    (tmp_path / name).mkdir() if name == "path" else (tmp_path / name).write_text("{}")
    code, said = verified(fits, tmp_path, "--columns", "age,dose")
    assert code == 0
    assert f"not checked: {name}" in said


def test_in_python_the_other_files_are_given(fits, tmp_path):
    result, table = co.Result.load(fits / "model"), co.Inference.load(fits / "model" / "inference.json")
    data = FRAME[["age", "dose"]], FRAME.ill
    found = co.verify(result.certificate, result.model, data, result=result, inference=table)
    assert found.holds
    turned = FRAME[["dose", "age"]], FRAME.ill
    assert co.verify(result.certificate, result.model, turned, result=result, inference=table).holds
    folder = copied(fits, "model", tmp_path)
    rewritten(folder / "run.json", reason="all is well")
    with pytest.raises(CorruptFile, match="contradicts itself"):
        co.Result.load(folder)
