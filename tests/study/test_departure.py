"""Going on without a party that is gone for good: predictions and a new fit, each one command, with
what it costs.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import coterie as co
from coterie.errors import InvalidInput, UnknownName
from coterie.study.departure import cost_of_refit, predict_without
from coterie.study.party import fit_together
from coterie.study.study import load_party
from tests.harness.parties import NAMES, data, together, write_data, write_study
from tests.harness.shell import shell

RIDGE = {"loss": "squared", "penalty": "l2", "strength": 0.01, "intercept": True}
LEFT = NAMES[:2]


def test_predictions_and_a_new_fit_without_a_party(tmp_path):
    write_study(tmp_path, problem=RIDGE, network="ring", tol=1e-8)
    tables = data("features")
    write_data(tmp_path, tables)
    whole = together(tmp_path)
    new = np.random.default_rng(9).standard_normal((5, 9))
    blocks = [new[:, 0:3], new[:, 3:6]]
    for name, table, block in zip(LEFT, tables, blocks, strict=False):
        lines = [",".join(table.columns), *(",".join(map(repr, row)) for row in block.tolist())]
        (tmp_path / name / "new.csv").write_text("\n".join(lines) + "\n")

    def predicted(before, _):
        file = tmp_path / before.party / "party.toml"
        own, study = load_party(file, [NAMES[2]])
        return predict_without(
            own, study, before, tmp_path / own.party / "new.csv", [NAMES[2]], consent=True
        )

    def refitted(before, _):
        own, study = load_party(tmp_path / before.party / "party.toml", [NAMES[2]])
        assert own.output != before.output
        result = fit_together(own, study, consent=True)
        return result, cost_of_refit(before.output, result, [NAMES[2]])

    # What is left of the model: the columns that are gone are where they were on average.
    (first, cost), (second, none) = together(tmp_path, names=LEFT, work=predicted)
    assert second.scores is None is none
    means = tables[2].X.mean(axis=0)
    coef = np.concatenate([result.model.coef_ for result in whole])
    intercept = sum(result.model.intercept_ for result in whole)
    there = np.column_stack([*blocks, np.tile(means, (5, 1))])
    np.testing.assert_allclose(first.scores, there @ coef + intercept, atol=1e-9)
    X = np.column_stack([tables[0].X, tables[1].X, np.tile(means, (60, 1))])
    penalty = 0.005 * float(coef[:6] @ coef[:6])
    objective = 0.5 * float(np.mean((X @ coef + intercept - tables[0].y) ** 2)) + penalty
    assert f"the objective is {objective:.6g}, " in cost
    assert f"more than the {whole[0].certificate.primal:.6g} with all columns." in cost

    # A new fit is the fit of those who are left, and better.
    (result, cost), (_, same) = together(tmp_path, names=LEFT, work=refitted)
    pooled = co.solve(
        co.Problem(**RIDGE), (np.hstack([t.X for t in tables[:2]]), tables[0].y), tol=1e-9
    )
    assert (
        abs(result.certificate.primal - pooled.certificate.primal) <= result.certificate.gap + 1e-9
    )
    assert result.certificate.primal < objective
    assert same == cost
    assert f"Without {NAMES[2]} the objective is {result.certificate.primal:.6g}, " in cost
    (first, cost), _ = together(tmp_path, names=LEFT, work=predicted)
    np.testing.assert_allclose(
        first.scores, np.hstack(blocks) @ pooled.model.coef_ + pooled.model.intercept_, atol=1e-3
    )
    assert f"{result.certificate.primal:.6g}" in cost


def test_who_is_left_out_and_who_is_left(tmp_path):
    write_study(tmp_path, network="path")
    file = tmp_path / NAMES[0] / "party.toml"
    own, study = load_party(file, [NAMES[2]])
    assert study.names == list(LEFT)
    assert own.output.name == f"result-without-{NAMES[2]}"
    assert study.run_id != load_party(file)[1].run_id
    with pytest.raises(UnknownName):
        load_party(file, ["nobody"])
    with pytest.raises(InvalidInput, match="which is to be left out"):
        load_party(file, [NAMES[0]])
    with pytest.raises(InvalidInput, match="no two parties left"):
        load_party(file, list(NAMES[1:]))
    text = (tmp_path / "study.toml").read_text()
    pairs = json.dumps([[NAMES[0], NAMES[1]], [NAMES[1], NAMES[2]]])
    lines = [line for line in text.splitlines() if not line.startswith("network")]
    (tmp_path / "study.toml").write_text("\n".join([lines[0], f"network = {pairs}", *lines[1:]]))
    assert load_party(file, [NAMES[2]])[1].network == [(NAMES[0], NAMES[1])]
    with pytest.raises(InvalidInput, match=f"without {NAMES[1]}"):
        load_party(file, [NAMES[1]])
    refused = shell("predict", "model.npz", "new.csv", "--without", NAMES[1])
    assert "--without is for a study" in refused.text
