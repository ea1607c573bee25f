"""Files of a study that were changed at random, or hold values of unexpected types, are refused by
name: no reader ends in a traceback.
"""

from __future__ import annotations

import json
import random

import pytest

from coterie.errors import CorruptFile, CoterieError, InvalidInput
from coterie.study.consent import FILE, require
from coterie.study.study import load_party, load_study
from tests.harness.parties import write_study

MUTANTS = 1200
"""Of all studies together: some seconds."""
PENALISED = {"loss": "squared", "penalty": "none"}
STUDIES = {
    "rows": {"split": "samples", "network": [["ada", "bea"], ["bea", "cyd"]]},
    "columns": {"method": "graph-cp", "network": "path", "options.variant": "paper"},
    "ids": {"id": "patient", "psi": True, "duplicates": "first", "dials": [["cyd", "ada"]]},
    "path": {
        "split": "samples",
        "problem": {"loss": "logistic", "penalty": "l2"},
        "path.strengths": [1.0, 0.1],
        "path.rule": "1se",
    },
    "inference": {
        "split": "samples",
        "problem": PENALISED,
        "inference": "robust",
        "weights": "sampling",
        "correction": "HC1",
        "prepare.numbers": "impute, standardise",
    },
    "users": {"split": "users", "problem": {"mu": 0.5}, "clock": "real"},
}
OWN = """
columns = ["a", "b"]
labels = {time = "t"}
policy.minimum-rows = 0
policy.budget = 0.5
policy.methods = ["cocoa", "gram"]
policy.prepare = ["impute"]
"""
VALUES = [
    "0",
    "-1",
    "1",
    "2",
    "1e308",
    "nan",
    "-inf",
    "9223372036854775807",
    "99999999999999999999",
    "true",
    '""',
    '"x"',
    "[]",
    "{}",
    "[[]]",
    "[1]",
    '["a"]',
    '[["a","b"]]',
    "{a=1}",
    "1979-05-27",
    "07:32:00",
    '"l1"',
    '"users"',
    '"features"',
    '"auto"',
    "0.5",
    "[nan]",
    '["one-hot(-1)"]',
    '"group"',
    '"box"',
    '"ring"',
    '"cox"',
]
KEYS = [
    "split",
    "loss",
    "penalty",
    "strength",
    "radius",
    "classes",
    "groups",
    "lower",
    "upper",
    "network",
    "tol",
    "seed",
    "max-rounds",
    "max-bits",
    "method",
    "options",
    "path",
    "prepare",
    "inference",
    "weights",
    "deadline",
    "clock",
    "pace",
    "id",
    "psi",
    "mu",
    "count",
    "party",
    "name",
    "address",
    "key",
    "policy",
    "budget",
    "test",
    "target",
    "patience",
    "listen",
    "output",
    "study",
    "data",
    "dials",
    "strengths",
    "cv",
    "rule",
    "predictors",
    "norm",
    "colour",
]


def mutated(text, dice):
    """The text with one to three lines changed, moved, added or removed, or with one other
    character.
    """
    lines = text.split("\n")
    for _ in range(dice.randint(1, 3)):
        place, other = dice.randrange(len(lines)), dice.randrange(len(lines))
        key, _, value = lines[place].partition("=")
        match dice.randrange(8):
            case 0 | 1:
                lines[place] = f"{key.strip() or 'x'} = {dice.choice(VALUES)}"
            case 2:
                lines[place] = f"{dice.choice(KEYS)} = {value or dice.choice(VALUES)}"
            case 3:
                lines.insert(place, f"{dice.choice(KEYS)} = {dice.choice(VALUES)}")
            case 4:
                lines.insert(place, dice.choice(["[{}]", "[[{}]]"]).format(dice.choice(KEYS)))
            case 5:
                lines[place] = ""
            case 6:
                lines[place], lines[other] = lines[other], lines[place]
            case 7:
                at = dice.randrange(len(lines[place]) + 1)
                character = dice.choice(['"', "[", "]", "=", ".", "é", "\x00", "-", "\\"])
                lines[place] = lines[place][:at] + character + lines[place][at + 1 :]
    return "\n".join(lines)


def read_all(folder):
    """All that a command reads of the files before it needs the data."""
    own, study = load_party(folder / "ada" / "party.toml")
    own.roles()
    own.policy.objection(study, 60)
    return study.run_id, study.settings(), study.neighbours(study.index(own.party))


@pytest.mark.parametrize("name", STUDIES)
def test_changed_files_are_refused_by_name(tmp_path, name):
    dice = random.Random(name)
    write_study(tmp_path, policy=OWN, **STUDIES[name])
    files = [tmp_path / "study.toml", tmp_path / "ada" / "party.toml"]
    read_all(tmp_path)
    refused = 0
    for _ in range(MUTANTS // len(STUDIES)):
        file = dice.choice(files)
        text = file.read_text()
        changed = mutated(text, dice)
        file.write_text(changed)
        try:
            read_all(tmp_path)
        except CoterieError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{file.name}:\n{changed}") from error
        finally:
            file.write_text(text)
    assert refused > MUTANTS // len(STUDIES) // 4


@pytest.mark.parametrize(
    ("study", "old", "new", "message"),
    [
        ("rows", 'penalty = "l2"', "penalty = []", "penalt"),
        ("rows", 'penalty = "l2"', "penalty = {a = 1}", "penalty"),
        ("users", "mu = 0.5", "mu = 0.5\ncolour = 1", "does not take colour"),
        ("users", "mu = 0.5", "mu = 0.5\nnorms = 1", "Did you mean 'norm'"),
        ("rows", 'split = "samples"', f"a = {'[' * 5000}", "study.toml: "),
    ],
)
def test_values_of_other_types_are_refused(tmp_path, study, old, new, message):
    write_study(tmp_path, **STUDIES[study])
    file = tmp_path / "study.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(InvalidInput, match=message):
        load_study(file)


@pytest.mark.parametrize(
    "text",
    ["[]", "null", "1", '"x"', "{", '{"RUN": 1}', '{"RUN": {"fit": 1}}', "[" * 100_000, "\x00"],
)
def test_a_changed_consent_is_refused_by_name(tmp_path, text):
    write_study(tmp_path)
    own, study = load_party(tmp_path / "ada" / "party.toml")
    (own.keys / FILE).write_text(text.replace("RUN", study.run_id))
    with pytest.raises(CorruptFile, match=r"consent\.json was changed: delete it"):
        require(own, study, "fit", "the page", True)


def test_an_answer_to_another_page_is_none(tmp_path):
    write_study(tmp_path)
    own, study = load_party(tmp_path / "ada" / "party.toml")
    for answer in ({}, {"page": 1}, {"page": ["a"]}, {"other": None}):
        (own.keys / FILE).write_text(json.dumps({study.run_id: {"fit": answer}}))
        with pytest.raises(InvalidInput, match="has not approved"):
            require(own, study, "fit", "the page", None)
