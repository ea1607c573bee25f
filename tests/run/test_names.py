"""Whatever names, counts and orders are forged in a certificate and its model, and sealed again:
none holds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.errors import CorruptFile, CoterieError, InvalidInput
from coterie.problems.models import load_model
from coterie.run.certificate import Certificate

rng = np.random.default_rng(5)
X = rng.standard_normal((60, 4))
SCORES = X @ [1.0, -2.0, 0.5, 0.2] + 0.4 * rng.standard_normal(60)
FRAME = pd.DataFrame(X, columns=["age", "dose", "height", "score"])
SIGNS = np.where(SCORES > 0, "ill", "well")
COLOURS = np.array(["blue", "green", "red"])[np.digitize(SCORES, [-1.0, 1.0])]
TIMES = co.survival_labels(np.exp(-SCORES) + 0.01, rng.random(60) < 0.7)
USERS = np.repeat(["ann", "ben", "cleo", "dan"], 15)
RING = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], float)


def parties(y, frame=FRAME):
    """Two parties of 30 rows each, with names of their own."""
    named = zip(("north", "south"), (slice(0, 30), slice(30, 60)), strict=True)
    return [co.read((frame.iloc[rows], y[rows]), name=name) for name, rows in named]


def columns(y):
    """Two parties of two columns each."""
    north = co.read((FRAME[["age", "dose"]], y), name="north")
    return [north, co.read(FRAME[["height", "score"]], name="south")]


def users(y, frame=FRAME):
    parts = [(user, user == USERS) for user in ("ann", "ben", "cleo", "dan")]
    return [co.read((frame[rows], y[rows]), name=user) for user, rows in parts]


CASES = {
    "regression": (co.Problem("squared", "l2", 0.01, intercept=True), parties(SCORES), {}),
    "no intercept": (co.Problem("huber", "l2", 0.01, intercept=False), parties(SCORES), {}),
    "binary": (co.Problem("logistic", "l2", 0.01, intercept=True), parties(SIGNS), {}),
    "columns": (
        co.Problem("logistic", "l2", 0.01, intercept=True),
        columns(SIGNS),
        {"split": "features", "same_order": True},
    ),
    "softmax": (co.Problem("multinomial", "l2", 0.01, intercept=True), parties(COLOURS), {}),
    "low rank": (
        co.Problem("multinomial", "traceball", radius=3.0, intercept=True),
        parties(COLOURS),
        {},
    ),
    "cox": (co.Problem("cox", "l2", 0.01, intercept=False), parties(TIMES), {}),
    "prepared": (
        co.Problem("logistic", "l2", 0.01, intercept=True),
        parties(SIGNS),
        {"prepare": "standardise"},
    ),
    "personal": (
        co.Personal("linear", beta=2.0, mu=0.5),
        users(SIGNS),
        {"split": "users", "network": RING, "max_rounds": 30},
    ),
    "learned": (
        co.Personal("linear", beta=2.0),
        users(SIGNS),
        {"split": "users", "max_rounds": 10},
    ),
    "shared": (
        co.Shared("logistic", "l2", 0.01, mu=0.5, intercept=True),
        users(SIGNS),
        {"split": "users"},
    ),
}


@cache
def fitted(name):
    problem, data, how = CASES[name]
    return co.solve(problem, data, tol=1e-5, progress=False, **how)


def forged(folder, name, model=None, settings=None, **changes):
    """What a forger would hand over: whole files, whose digests and seals are right."""
    result = fitted(name)
    model = result.model if model is None else model
    said = {**result.certificate.settings, **(settings or {})}
    certificate = replace(result.certificate, settings=said, model_digest=model.digest(), **changes)
    return Certificate.load(certificate.save(folder / "c.json")), load_model(
        model.save(folder / "m.npz")
    )


def objections(name, certificate, model, data=None):
    try:
        return co.verify(certificate, model, CASES[name][1] if data is None else data).objections
    except CoterieError as error:
        return (str(error),)


def with_classes(name, classes):
    """The model and the settings with those classes, wherever they are said."""
    result = fitted(name)
    model = replace(result.model, classes_=np.array(classes))
    return model, {"classes": list(classes)}


@pytest.mark.parametrize("name", CASES)
def test_an_honest_file_holds_and_says_what_was_compared(name, tmp_path):
    certificate, model = forged(tmp_path, name)
    found = co.verify(certificate, model, CASES[name][1])
    assert found.holds, found.objections
    assert any("rows" in text for text in found.compared)
    assert any("4 columns" in text for text in found.compared)
    assert any("how the model was found" in text for text in found.unchecked)


@pytest.mark.parametrize(
    "name",
    ["binary", "columns", "softmax", "low rank", "prepared", "personal", "learned", "shared"],
)
def test_other_classes(name, tmp_path):
    here = fitted(name).model.classes_.tolist()
    for classes in ([*here[1:], here[0]], [f"{label}!" for label in here]):
        model, settings = with_classes(name, classes)
        assert "classes" in "".join(objections(name, *forged(tmp_path, name, model, settings)))
        # In the model alone, and in the certificate alone.
        assert objections(name, *forged(tmp_path, name, model))
        assert objections(name, *forged(tmp_path, name, settings=settings))
    if name in ("softmax", "low rank"):
        model, settings = with_classes(name, [*here[1:], here[0]])
        problem = model.problem.changed(loss=model.problem.loss.with_classes(model.classes_))
        settings["problem"] = problem.settings()
        assert objections(name, *forged(tmp_path, name, replace(model, problem=problem), settings))


def test_classes_of_a_regression(tmp_path):
    model, settings = with_classes("regression", ["no", "yes"])
    assert objections("regression", *forged(tmp_path, "regression", model, settings))


@pytest.mark.parametrize("name", CASES)
def test_columns_in_another_order(name, tmp_path):
    model = fitted(name).model
    swapped = [*model.columns]
    swapped[0], swapped[3] = swapped[3], swapped[0]
    renamed = ["pressure", *model.columns[1:]]
    for names in (swapped, renamed):
        assert objections(name, *forged(tmp_path, name, replace(model, columns=tuple(names))))


@pytest.mark.parametrize(
    "name", ["regression", "binary", "softmax", "low rank", "cox", "prepared", "personal", "shared"]
)
def test_an_honest_file_with_its_columns_in_another_order_still_holds(name):
    result, (_, data, _) = fitted(name), CASES[name]
    other = [table.take_columns(np.array([2, 0, 3, 1])) for table in data]
    assert co.verify(result.certificate, result.model, other).objections == ()


def test_columns_of_parties_in_another_order():
    result, (_, data, _) = fitted("columns"), CASES["columns"]
    other = [table.take_columns(np.array([1, 0])) for table in data]
    assert co.verify(result.certificate, result.model, other).objections == ()


def test_columns_that_were_dealt_in_another_order_still_hold():
    """A party keeps the order in which it got its columns, whatever their places in the model
    are.
    """
    table = co.Table(X, SCORES, columns=tuple(FRAME.columns))
    data = co.data.split(table, "features", [[0, 2], [3, 1]])
    result = co.solve(
        co.Problem("squared", "l2", 0.01, intercept=True), data, split="features", progress=False
    )
    assert result.model.columns == table.columns
    assert co.verify(result.certificate, result.model, data).objections == ()
    other = [data[0], data[1].take_columns(np.array([1, 0]))]
    other[1] = replace(other[1], columns=data[1].columns)
    assert co.verify(result.certificate, result.model, other).objections


def test_columns_beside_those_of_the_model_are_left_out():
    frame = FRAME.assign(noise=1.0)[["noise", "score", "height", "dose", "age"]]
    result = fitted("binary")
    assert co.verify(result.certificate, result.model, parties(SIGNS, frame)).holds
    without = objections(
        "binary", result.certificate, result.model, parties(SIGNS, FRAME.drop(columns="dose"))
    )
    assert without


@pytest.mark.parametrize("name", ["personal", "learned", "shared"])
def test_users_who_change_places(name, tmp_path):
    result = fitted(name)
    model = replace(result.model, users=(*result.model.users[1:], result.model.users[0]))
    participants = result.certificate.participants
    rotated = tuple(
        replace(one, name=user) for one, user in zip(participants, model.users, strict=True)
    )
    assert objections(name, *forged(tmp_path, name, model))
    assert objections(name, *forged(tmp_path, name, model, participants=rotated))
    assert objections(name, *forged(tmp_path, name, participants=rotated))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("field", ["rows", "columns", "name", "number"])
def test_other_participants(name, field, tmp_path):
    participants = [*fitted(name).certificate.participants]
    if field == "number":
        participants.append(replace(participants[0], name="east"))
    elif field == "name":
        participants[0], participants[1] = (
            replace(participants[0], name=participants[1].name),
            replace(participants[1], name=participants[0].name),
        )
    else:
        participants[0] = replace(
            participants[0], **{field: getattr(participants[0], field) * 1000}
        )
    assert objections(name, *forged(tmp_path, name, participants=tuple(participants)))


def test_a_ring_that_is_called_complete(tmp_path):
    result = fitted("personal")
    said = result.certificate.settings["network"]
    complete = co.networks.complete(4)
    title = said.replace("4 edges", "6 edges")
    for settings in (
        {"network": title},
        {"network": repr(complete), "network_digest": complete.digest},
        {"network": "<Network complete: 4 agents, 4 edges>"},
        {"network_digest": complete.digest},
    ):
        assert "graph" in "".join(
            objections("personal", *forged(tmp_path, "personal", settings=settings))
        )
    weights = sp.csr_array(np.ones((4, 4)) - np.eye(4))
    model = replace(result.model, weights=weights)
    settings = {"network": repr(complete), "network_digest": complete.digest}
    assert objections("personal", *forged(tmp_path, "personal", model, settings))
    assert objections("learned", *forged(tmp_path, "learned", settings=settings))


@pytest.mark.parametrize("name", ["personal", "learned"])
def test_what_a_personal_model_says_beside_its_coefficients(name, tmp_path):
    model = fitted(name).model
    for change in (
        {"confidence": model.confidence[::-1] * 0.5},
        {"losses": model.losses * 0.5},
        {"width": 7},
    ):
        assert objections(name, *forged(tmp_path, name, replace(model, **change)))


def test_parts_that_no_proof_looks_at(tmp_path):
    """An intercept beside a problem without one would move every prediction."""
    for name in ("no intercept", "cox"):
        model = replace(fitted(name).model, intercept_=5.0)
        assert "intercept" in "".join(objections(name, *forged(tmp_path, name, model)))
    low = fitted("low rank").model
    assert objections(
        "low rank", *forged(tmp_path, "low rank", replace(low, U=low.U * 0.5, s=low.s * 2.0))
    )
    assert objections("low rank", *forged(tmp_path, "low rank", replace(low, a=np.ones(4))))
    part = replace(fitted("binary").model, part="north of everything")
    assert objections("binary", *forged(tmp_path, "binary", part))


def test_numbers_of_the_preparation(tmp_path):
    result = fitted("prepared")
    other = co.solve(
        CASES["prepared"][0], parties(SIGNS, FRAME * 2.0), prepare="standardise", progress=False
    ).model.preparation
    assert objections(
        "prepared", *forged(tmp_path, "prepared", replace(result.model, preparation=other))
    )
    assert objections(
        "prepared", *forged(tmp_path, "prepared", replace(result.model, preparation=None))
    )
    assert objections("prepared", *forged(tmp_path, "prepared", settings={"prepare": None}))


@pytest.mark.parametrize("name", CASES)
def test_other_settings(name, tmp_path):
    settings = fitted(name).certificate.settings
    for change in (
        {"approved": "by the authority"},
        {"unit": "zeros"},
        {"limits": {**settings["limits"], "tol": 1e-12}},
        {"split": "features" if settings["split"] == "samples" else "samples"},
        {"seed": -1},
        {"method": {"name": "naive-dfw" if name != "low rank" else "newton"}},
    ):
        assert objections(name, *forged(tmp_path, name, settings=change)), change


def test_another_problem_in_the_model_alone(tmp_path):
    for name, loss in (
        ("binary", "squared_hinge"),
        ("regression", "absolute"),
        ("no intercept", "squared"),
    ):
        model = fitted(name).model
        problem = co.Problem(loss, "l2", 0.01, intercept=model.problem.intercept)
        assert objections(name, *forged(tmp_path, name, replace(model, problem=problem)))
    huber = fitted("no intercept").model
    stricter = replace(
        huber, problem=co.Problem("huber", "l2", 0.01, intercept=False, threshold=0.1)
    )
    settings = {"problem": stricter.problem.settings()}
    assert objections("no intercept", *forged(tmp_path, "no intercept", stricter))
    assert objections("no intercept", *forged(tmp_path, "no intercept", stricter, settings))


def test_a_certificate_of_a_study_is_not_verified_alone(tmp_path):
    certificate, model = forged(
        tmp_path, "binary", settings={"parts": {"north": "0", "south": "0"}}
    )
    with pytest.raises(InvalidInput, match="at every party"):
        co.verify(certificate, model, CASES["binary"][1])


@pytest.mark.parametrize("kind", [0, 1, 3, "2"])
def test_nobody_claims_another_format(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("coterie.run.certificate.document.KIND", kind)
    path = fitted("binary").certificate.save(tmp_path / "c.json")
    monkeypatch.undo()
    with pytest.raises(CorruptFile, match="reads format 2 only"):
        Certificate.load(path)


def test_names_that_the_data_does_not_have_are_said_to_be_unchecked():
    result = fitted("binary")
    bare = [(table.X, table.y) for table in CASES["binary"][1]]
    found = co.verify(result.certificate, result.model, bare)
    assert found.holds
    assert {
        "names of columns, because the data has none",
        "names of parties, because the data has none",
    } <= {*found.unchecked}
