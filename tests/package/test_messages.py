"""Messages lead to the fix: names of other libraries, lines of files, encodings, shares,
categories, exit codes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import coterie as co
from coterie.commands.exit_codes import EXIT_CODES
from coterie.errors import BOTH, ELSEWHERE, UnknownName
from coterie.numerics.losses import LOSSES
from coterie.numerics.penalties import PENALTIES


@pytest.fixture
def told(shell):
    """The exit code, and all that is said, in one line."""

    def command(*arguments):
        code, out, err = shell(*arguments)
        return code, " ".join((out + err).split())

    return command


# -- names of other libraries ----------------------------------------------------------------------

MEANT = {
    "coxph": "cox", "cph": "cox",
    "softmax": "multinomial", "binomial": "logistic", "gaussian": "squared", "ols": "squared",
    "lad": "absolute", "logit": "logistic", "svm": "hinge", "median": "absolute", "mse": "squared", "mae": "absolute",
    "log_loss": "logistic", "cross-entropy": "logistic", "normal": "squared", "linear": "squared", "lasso": "squared",
    "quantreg": "quantile", "PHReg": "cox", "Least Squares": "squared", "l1": "absolute",
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_losses_of_other_libraries_are_known(name):
    with pytest.raises(UnknownName, match=f"Did you mean '{MEANT[name]}'"):
        co.Problem(name, intercept=False)


@pytest.mark.parametrize(
    ("name", "meant"), [("ridge", "l2"), ("lasso", "l1"), ("enet", "elasticnet"), ("nnls", "non")]
)
def test_penalties_of_other_libraries_are_known(name, meant):
    with pytest.raises(UnknownName, match=f"Did you mean '{meant}"):
        co.Problem("squared", name, intercept=False)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("negbin", "'poisson' models the same mean"),
        ("lasso", "'squared' with penalty='l1'"),
        ("glm", "Name the family"),
    ],
)
def test_losses_that_are_not_here_have_a_sentence(name, sentence):
    with pytest.raises(UnknownName, match=sentence):
        co.Problem(name)


@pytest.mark.parametrize(
    ("name", "sentence"), [("tv", "differences of coefficients"), ("SCAD", "is not convex")]
)
def test_penalties_that_are_not_here_have_a_sentence(name, sentence):
    with pytest.raises(UnknownName, match=sentence):
        co.Problem("squared", name)


def test_no_synonym_is_a_name_of_something_else():
    known = {*LOSSES, *PENALTIES, "cox", "multinomial"}
    others = [name for names in ELSEWHERE.values() for name in names]
    assert not known & {*others}
    assert len(others) == len({*others})
    assert {*BOTH.values()} <= {*LOSSES}


# -- files -----------------------------------------------------------------------------------------


def read_error(text, **roles):
    Path("data.csv").write_bytes(text)
    with pytest.raises(co.CoterieError) as error:
        co.solve(
            co.Problem(roles.pop("loss", "squared"), intercept=True), co.read("data.csv", **roles)
        )
    return str(error.value)


def test_errors_name_file_line_column_and_value(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = read_error(b"age,y\n1,0\n\n2,1\n,0\n3,1\n", target="y")
    assert "column 'age' has 1 missing value (first at line 5 of data.csv: an empty cell)" in found
    found = read_error(b"age,y\n1,0\n2,1\ninf,0\n", target="y")
    assert (
        "column 'age' has 1 value that is not finite (first at line 4 of data.csv: 'inf')" in found
    )
    found = read_error(b"age;y\n1;0\nold;1\n3;1\n", target="y")
    assert "not numbers (first at line 3 of data.csv: 'old')" in found
    found = read_error(b"age,n\n1,0\n2,1\n4,-3\n", target="n", loss="poisson")
    assert "line 4 of data.csv, column 'n', has the label -3" in found
    found = read_error(b"age,w,y\n1,1,0\n2,0,1\n", target="y", weight="w")
    assert "(first at line 3 of data.csv, column 'w': 0.0)" in found
    Path("data.csv").write_text("age,days,died\n1,2,1\n2,-1,1\n")
    table = co.read("data.csv", time="days", event="died")
    with pytest.raises(
        co.CoterieError, match=r"line 3 of data\.csv, column 'days', has the time -1"
    ):
        co.solve(co.Problem("cox", intercept=False), table)
    Path("data.csv").write_text("age,from,until,died\n1,0,2,1\n2,5,4,1\n")
    table = co.read("data.csv", entry="from", time="until", event="died")
    with pytest.raises(
        co.CoterieError, match=r"line 3 of data\.csv, column 'from', enters at 5 and leaves at 4"
    ):
        co.solve(co.Problem("cox", intercept=False), table)
    Path("data.csv").write_text("age,n,days\n1,0,1\n2,1,1e200\n")
    with pytest.raises(
        co.CoterieError, match=r"line 3 of data\.csv, column 'days', has the offset 460.517"
    ):
        co.solve(
            co.Problem("poisson", intercept=False), co.read("data.csv", target="n", exposure="days")
        )
    frame = pd.DataFrame({"age": [1.0, np.nan], "y": [0.0, 1.0]})
    with pytest.raises(co.CoterieError, match="first at row 1"):
        co.read(frame, target="y")


def test_lines_are_those_of_the_file_after_rows_were_held_out(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("age,n\n" + "".join(f"{k},{-1 if k == 7 else k}\n" for k in range(10)))
    parts = co.data.hold_out([co.read(file, target="n")], 0.3, by="samples", seed=3)
    for part in parts:
        if -1 in part[0].y:
            with pytest.raises(
                co.CoterieError, match=r"line 9 of .*data\.csv, column 'n', has the label -1"
            ):
                co.solve(co.Problem("poisson", intercept=True), part[0])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
@pytest.mark.parametrize("text", ["alter,größe,y\n1,2,0\n", "age,city,y\n1,Köln,0\n"])
def test_files_in_other_encodings_are_named(encoding, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for roles in ({"target": "y"}, {"target": "y", "prepare": co.Preparation.of("one-hot")}):
        found = read_error(text.encode(encoding), **roles)
        assert "'data.csv' is not encoded in UTF-8 (line " in found
        assert "iconv -f " in found
    with pytest.raises(co.CoterieError, match="is not encoded in UTF-8"):
        co.data.read_cells("data.csv", ["y"])


def test_utf_8_with_a_mark_is_read(tmp_path):
    file = tmp_path / "data.csv"
    file.write_bytes("größe,y\n1,0\n2,1\n".encode("utf-8-sig"))
    assert co.read(file, target="y").columns == ("größe",)


# -- labels and columns ----------------------------------------------------------------------------


def test_shares_as_labels_are_explained():
    X = np.arange(12.0).reshape(6, 2)
    with pytest.raises(co.CoterieError, match=r"look like shares of rows.* Give each row twice"):
        co.solve(co.Problem("logistic", intercept=True), (X, [0, 0.25, 1, 0.5, 1, 0]))
    with pytest.raises(co.CoterieError, match="which takes several"):
        co.solve(co.Problem("logistic", intercept=True), (X, [0, 1, 2, 0, 1, 2]))


def test_a_singular_one_hot_design_mentions_drop_first():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": random.normal(size=60), "city": random.choice(["a", "b", "c"], 60)}
    )
    y = frame["age"] + random.normal(size=60)
    problem = co.Problem("squared", intercept=True)
    with pytest.raises(
        co.CoterieError, match=r"categories of 'city' add up to 1: encode it with .*drop-first"
    ):
        co.solve(problem, (frame, y), prepare="one-hot").inference()
    assert co.solve(problem, (frame, y), prepare="one-hot(10, drop-first)").inference().rows == 60
    with pytest.raises(co.CoterieError, match="drop-first"):
        co.solve(problem, (pd.get_dummies(frame, dtype=float), y)).inference()


# -- the shell -------------------------------------------------------------------------------------


def test_verify_with_a_missing_file_speaks_of_files(told, tmp_path):
    for name, first in (("a", 1), ("b", 5)):
        (tmp_path / f"{name}.csv").write_text(
            "x,y\n" + "".join(f"{first + k},{k}\n" for k in range(4))
        )
    how = ["--target", "y"]
    assert (
        told("fit", "a.csv", "b.csv", *how, "--penalty", "l2", "--strength", "0.1", "-o", "f")[0]
        == 0
    )
    code, said = told("verify", "f/certificate.json", "f/model.npz", "a.csv", *how)
    assert code == 3
    assert (
        "the certificate covers 8 rows, and this data has 4. Give all data that was fitted" in said
    )
    assert "agents" not in said
    assert told("verify", "f/certificate.json", "f/model.npz", "a.csv", "b.csv", *how)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "f/certificate.json", "f/model.npz", "none.csv"],
        ["fit", "a.csv", "--target", "y", "--loss", "coxph"],
        [
            "fit",
            "a.csv",
            "--target",
            "y",
            "--method",
            "cocoa",
            "--penalty",
            "l1",
            "--strength",
            "1",
        ],
        ["fit", "a.csv", "--target", "z"],
        ["evaluate", "none.npz", "a.csv", "--target", "y"],
        ["predict", "none.npz", "a.csv"],
    ],
)
def test_the_shell_has_no_arguments_of_python(arguments, told, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{k},{k % 2}\n" for k in range(8)))
    code, said = told(*arguments)
    assert code in (2, 3)
    assert not [
        word for word in said.split() if word.partition("=")[0].isidentifier() and "=" in word
    ]


def test_exit_codes_have_explanations_of_their_own():
    codes = [code for code, _, _ in EXIT_CODES if code]
    advice = [advice for code, _, advice in EXIT_CODES if code]
    assert len({*codes}) == len(codes)
    assert len({*advice}) == len(advice)
    told = {code: advice for code, _, advice in EXIT_CODES}
    assert "nothing was sent" in told[3]
    assert "extension" in told[17]
