"""`coterie verify` says what it compared with the data, and refuses files whose names were
forged.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from coterie.problems.models import load_model
from coterie.run.certificate import Certificate
from tests.harness.shell import shell

COLUMNS = ["age", "dose", "height"]


def said(ended):
    return " ".join(ended.output.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files, and what was fitted to them."""
    folder = tmp_path_factory.mktemp("fit")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    frame = pd.DataFrame(X, columns=COLUMNS).assign(
        ill=np.where(X @ [1, -2, 0.5] > 0.2, "yes", "no")
    )
    frame[:30].to_csv(folder / "north.csv", index=False)
    frame[30:].to_csv(folder / "south.csv", index=False)
    ended = shell(
        *(
            "fit",
            folder / "north.csv",
            folder / "south.csv",
            "--target",
            "ill",
            "--loss",
            "logistic",
        ),
        *("--penalty", "l2", "--strength", "0.01", "--intercept", "-o", folder / "answer"),
    )
    assert ended.exit_code == 0, ended.output
    return folder


def verified(folder, answer="answer", files=("north.csv", "south.csv"), *more):
    names = [
        folder / answer / "certificate.json",
        folder / answer / "model.npz",
        *(folder / file for file in files),
    ]
    return shell("verify", *names, "--target", "ill", *more)


def forge(folder, to, model=None, **changes):
    certificate = Certificate.load(folder / "answer" / "certificate.json")
    held = load_model(folder / "answer" / "model.npz")
    held = held if model is None else replace(held, **model)
    (folder / to).mkdir(exist_ok=True)
    held.save(folder / to / "model.npz")
    replace(certificate, model_digest=held.digest(), **changes).save(
        folder / to / "certificate.json"
    )
    return verified(folder, to)


def test_what_was_compared_is_printed(folder):
    ended = verified(folder)
    assert ended.exit_code == 0
    assert "Compared: the data of 2 parties, 60 rows" in said(ended)
    assert "the classes no, yes, in this order" in said(ended)
    assert "the names of 3 columns" in said(ended)
    assert "Unchecked: how the model was found" in said(ended)
    told = json.loads(verified(folder, "answer", ("north.csv", "south.csv"), "--json").output)
    assert told["holds"]
    assert told["compared"]
    assert told["unchecked"]


def test_columns_of_a_file_may_be_in_another_order(folder):
    for name in ("north", "south"):
        (folder / "moved").mkdir(exist_ok=True)
        frame = pd.read_csv(folder / f"{name}.csv")
        frame.assign(note=1.0)[["height", "ill", "note", "age", "dose"]].to_csv(
            folder / "moved" / f"{name}.csv", index=False
        )
    ended = verified(folder, "answer", ("moved/north.csv", "moved/south.csv"))
    assert ended.exit_code == 0, ended.output


def test_columns_of_one_file_may_be_in_another_order_after_a_preparation(folder):
    files = [folder / "north.csv", folder / "south.csv"]
    given = "--target", "ill", "--prepare", "standardise"
    ended = shell("fit", *files, *given, "--loss", "logistic", "-o", folder / "prepared")
    assert ended.exit_code == 0, ended.output
    (folder / "one").mkdir()
    frame = pd.read_csv(files[1])
    frame[["height", "ill", "age", "dose"]].to_csv(folder / "one" / "south.csv", index=False)
    ended = verified(folder, "prepared", ("north.csv", "one/south.csv"))
    assert ended.exit_code == 0, ended.output


def test_forged_names_are_refused(folder):
    certificate = Certificate.load(folder / "answer" / "certificate.json")
    settings, participants = certificate.settings, certificate.participants
    swapped = {**settings, "classes": ["yes", "no"]}
    ended = forge(folder, "classes", {"classes_": np.array(["yes", "no"])}, settings=swapped)
    assert ended.exit_code == 4
    assert "the model has the classes yes, no, but the data has no, yes" in said(ended)
    assert forge(folder, "columns", {"columns": ("dose", "age", "height")}).exit_code == 4
    ended = forge(
        folder, "rows", participants=(replace(participants[0], rows=30_000), participants[1])
    )
    assert ended.exit_code == 4
    assert "north has 30 rows, but the certificate states 30000" in said(ended)
    names = replace(participants[0], name="south"), replace(participants[1], name="north")
    assert forge(folder, "names", participants=names).exit_code == 4
    assert forge(folder, "settings", settings={**settings, "approved": "yes"}).exit_code == 4
