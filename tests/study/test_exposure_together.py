"""Exposures between organisations: party.toml names the column, and the model is that of one
process, bit by bit.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import coterie as co
from coterie.errors import InvalidData
from coterie.study.proof import verify_together
from coterie.study.scores import predict_together
from tests.harness.parties import NAMES, free_ports, same_secrets, together, write_study
from tests.harness.shell import shell, shell_line
from tests.pages import DOCS, blocks, commands, put_in_place

RNG = np.random.default_rng(2)
X = RNG.standard_normal((60, 6))
YEARS = RNG.uniform(0.2, 2.0, 60)
COUNTS = RNG.poisson(YEARS * np.exp(X[:, 0] / 2))
PROBLEM = {"loss": "poisson", "penalty": "l2", "strength": 0.01, "intercept": True}


def write_files(folder, split, without=()):
    """A file for each party, and the name of the exposure where the labels are."""
    for k, name in enumerate(NAMES):
        rows = np.array_split(np.arange(60), 3)[k] if split == "samples" else np.arange(60)
        columns = range(6) if split == "samples" else range(2 * k, 2 * k + 2)
        cells = {f"x{j}": X[rows, j] for j in columns}
        if split == "samples" or k == 0:
            cells |= {"y": COUNTS[rows], "years": YEARS[rows]}
            party = folder / name / "party.toml"
            named = "" if name in without else 'exposure = "years"\n'
            party.write_text(
                named + f"columns = {[f'x{j}' for j in columns]}\n" + party.read_text()
            )
        lines = [
            ",".join(cells),
            *(",".join(map(repr, map(float, row))) for row in zip(*cells.values(), strict=True)),
        ]
        (folder / name / "data.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("split", ["samples", "features"])
def test_exposures_at_three_organisations(tmp_path, split):
    write_study(
        tmp_path,
        problem=PROBLEM,
        split=split,
        tol=1e-6,
        **({} if split == "samples" else {"method": "lbfgs"}),
    )
    write_files(tmp_path, split)
    results = together(tmp_path)
    assert [result.status for result in results] == ["optimal"] * 3
    labels = {name: split == "samples" or name == NAMES[0] for name in NAMES}
    tables = [
        co.read(
            tmp_path / name / "data.csv",
            name=name,
            **({"target": "y", "exposure": "years"} if labels[name] else {}),
        )
        for name in NAMES
    ]
    settings = {
        "split": split,
        "tol": 1e-6,
        "secure_sums": split == "samples",
        "engine": same_secrets(tmp_path),
    }
    settings["same_order"] = split == "features"
    local = co.solve(
        co.Problem(**PROBLEM),
        tables,
        **settings,
        **({} if split == "samples" else {"method": "lbfgs"}),
    )
    parts = [result.model.coef_ for result in results]
    np.testing.assert_array_equal(
        parts[0] if split == "samples" else np.concatenate(parts), local.model.coef_
    )
    assert all(result.certificate.settings["problem"]["offset"] for result in results)
    for found in together(tmp_path, work=verify_together):
        assert found.holds, found
        assert "an intercept and an offset" in found.about
    ada = tmp_path / "ada"
    if split == "samples":
        written = shell("predict", str(ada / "party.toml"), str(ada / "data.csv"))
        assert written.exit_code == 0, written.output
        predicted = [float(line) for line in written.output.split()]
        np.testing.assert_allclose(
            predicted, local.model.predict(tables[0].X, offset=tables[0].offset), rtol=1e-9
        )
        return
    expected = local.model.predict(X, offset=np.log(YEARS))
    answers = [one.answers for one in together(tmp_path, work=in_its_folder(tmp_path))]
    np.testing.assert_allclose(answers[0], expected, rtol=1e-9)
    assert answers[1:] == [None, None]


def in_its_folder(folder):
    return lambda own, study: predict_together(
        own, study, folder / own.party / "data.csv", consent=True
    )


def test_a_party_without_an_exposure_is_named_by_all(tmp_path):
    write_study(tmp_path, problem=PROBLEM, split="samples")
    write_files(tmp_path, "samples", without=("bea",))
    for error in together(tmp_path):
        assert isinstance(error, InvalidData)
        assert "party 'bea': has no offset, but party 'ada' has" in str(error)


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run(tmp_path, monkeypatch):
    """With ports that are free, and a party.toml for the other two."""
    page = DOCS / "tutorials" / "counts-with-exposure.md"
    namespace: dict[str, object] = {}
    monkeypatch.chdir(tmp_path)
    exec(next(block.text for block in blocks(page) if block.language == "python"), namespace)
    for block in blocks(page):
        put_in_place(block, tmp_path)
    study = tmp_path / "study"
    text = (study / "study.toml").read_text()
    for port, free in zip(("7410", "7411", "7412"), free_ports(3), strict=True):
        text = text.replace(port, str(free))
    (study / "study.toml").write_text(text)
    for name in ("south", "west"):
        (study / name).mkdir()
        (study / name / "party.toml").write_text(
            (study / "north/party.toml").read_text().replace("north", name)
        )
    asked = next(
        block
        for block in blocks(page)
        if "coterie agent study" in block.text and block.language == "console"
    )
    for command, _ in commands(asked):
        ended = shell_line(command)
        assert ended.exit_code == 0, ended.output
    model = co.models.load_model(study / "north" / "result" / "model.npz")
    insurers = [
        co.read(f"{name}.csv", target="claims", exposure="years")
        for name in ("north", "south", "west")
    ]
    local = co.solve(co.Problem("poisson", intercept=True), insurers, secure_sums=True)
    np.testing.assert_array_equal(model.coef_, local.model.coef_)
    predicted = shell("predict", "study/north/party.toml", "new.csv")
    new = pd.read_csv("new.csv")
    expected = local.model.predict(new, offset=np.log(new["years"]))
    np.testing.assert_allclose([float(line) for line in predicted.output.split()], expected)
