"""No name with few rows of a party leaves it: neither a category nor a class, neither as text nor
as a hash.
"""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import CoterieError, Refused
from coterie.run.collectives import Sum
from coterie.stats import categories, describing, preparation, two_way
from coterie.study.crosstab import crosstab_together
from coterie.study.description import describe_together
from coterie.study.party import fit_together
from tests.harness.parties import ANYTHING, NAMES, together, write_study
from tests.harness.wire import Wire, bytes_of

RARE = "remark about one patient"
PROBLEM = {"loss": "logistic", "penalty": "l2", "strength": 0.01, "intercept": True}
COMMON = ("none", "see letter", "follow-up")


def remarks(tmp_path, rare=RARE, least=5):
    """A study of three parties with a column of text; bea has one row with a rare remark."""
    settings = {"split": "samples", "tol": 1e-6, "method": "newton"}
    write_study(tmp_path, problem=PROBLEM, policy=ANYTHING, **settings)
    file = tmp_path / "study.toml"
    recipes = f'[prepare]\nnumbers = "standardise"\ntext = "one-hot({least})"\n'
    file.write_text(file.read_text().replace("[problem]", f"{recipes}[problem]"))
    random = np.random.default_rng(4)
    for name in NAMES:
        text = random.choice(COMMON, 60).tolist()
        if name == "bea":
            text[7] = rare
        lines = [f"{one},{random.normal():.3f},{row % 2}" for row, one in enumerate(text)]
        (tmp_path / name / "data.csv").write_text("\n".join(["remark,age,y", *lines, ""]))


def work_of(operation):
    def crosstab(own, study):
        return crosstab_together(own, study, "remark", "y", consent=True)

    def fit(own, study):
        return fit_together(own, study, consent=True)

    def describe(own, study):
        return describe_together(own, study, consent=True)

    return {"fit": fit, "describe": describe, "crosstab": crosstab}[operation]


def lying(protocol, party):
    """The party's messages with rows for every category that it does not have."""

    def changed(name, cells, least, text, site):
        running = protocol(name, cells, least, text, site)
        if site.index != NAMES.index(party):
            return (yield from running)
        reply = None
        while True:
            try:
                collective = running.send(reply)
            except StopIteration as end:
                return end.value
            message = np.array(collective.x)
            unknown = message == 0
            message[unknown] += least - 1
            # The sizes that it announces stay right: only counts of rows are wrong.
            counted = message.size > len(NAMES) and message.max() < 1e6
            reply = yield Sum(message if counted else collective.x, released=True)

    return changed


@pytest.mark.parametrize("operation", ["fit", "describe", "crosstab"])
@pytest.mark.parametrize("lies", [False, True], ids=["honest", "liar"])
def test_a_category_of_one_patient_has_no_name(tmp_path, monkeypatch, operation, lies):
    remarks(tmp_path)
    if lies:
        changed = lying(categories.category_counts, "cyd")
        for module in (describing, preparation, two_way):
            monkeypatch.setattr(module, "category_counts", changed)
    wire = Wire()
    with wire.recorded():
        found = together(tmp_path, work=work_of(operation))
    assert lies or not any(isinstance(one, CoterieError) for one in found), found
    assert wire.messages
    for message in wire.messages:
        assert RARE.encode()[:12] not in bytes_of(message.numbers)
    text = " ".join(map(str, found))
    assert RARE not in text
    for name in ("ada", "cyd"):
        written = b"".join(
            one.read_bytes() for one in (tmp_path / name).rglob("result/**/*") if one.is_file()
        )
        assert RARE.encode() not in written


@pytest.mark.parametrize("operation", ["fit", "describe", "crosstab"])
def test_no_message_depends_on_a_rare_name(tmp_path, operation):
    """With another name of the rare category, all sums are the same bits: no dictionary of names
    helps.
    """
    sent = []
    for place, rare in enumerate((RARE, "HIV")):
        folder = tmp_path / str(place)
        folder.mkdir()
        remarks(folder, rare)
        wire = Wire()
        with wire.recorded():
            together(folder, work=work_of(operation))
        sent.append([one.numbers for one in wire.messages if one.party == "bea"])
    first, second = sent
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def classes_of(tmp_path, rows, **problem):
    """A study of several classes; bea alone has one more, with so many rows."""
    settings = {"split": "samples", "tol": 1e-4}
    several = {"loss": "multinomial", "penalty": "l2", "strength": 0.1, "intercept": True}
    write_study(tmp_path, problem=several | problem, policy=ANYTHING, **settings)
    for name in NAMES:
        random = np.random.default_rng(len(name) + ord(name[0]))
        labels = random.choice(["flu", "cold", "none"], 60).tolist()
        if name == "bea":
            labels[:rows] = ["HIV"] * rows
        lines = [f"{random.normal():.3f},{random.normal():.3f},{one}" for one in labels]
        (tmp_path / name / "data.csv").write_text("\n".join(["age,bmi,y", *lines, ""]))


def test_a_class_of_one_patient_has_no_name(tmp_path):
    classes_of(tmp_path, rows=1)
    ada, bea, cyd = together(tmp_path, work=work_of("fit"))
    assert isinstance(bea, Refused)
    assert "class 'HIV' has fewer of your rows than minimum-count = 5" in str(bea)
    for one in (ada, cyd):
        assert "HIV" not in str(one)
        assert "bea has a class with fewer rows than its minimum-count" in str(one)


@pytest.mark.parametrize(
    ("rows", "listed"), [(5, None), (1, ["cold", "flu", "HIV", "none"])], ids=["enough", "listed"]
)
def test_classes_with_enough_rows_or_of_the_study_are_fitted(tmp_path, rows, listed):
    classes_of(tmp_path, rows, **({} if listed is None else {"classes": listed}))
    for found in together(tmp_path, work=work_of("fit")):
        assert "HIV" in found.model.classes_
