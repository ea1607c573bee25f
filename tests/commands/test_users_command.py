"""`coterie users`: the accuracy for every user, of models that it fits or that were saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import coterie as co
from coterie.report import write_report

USERS = 24
HEADINGS = ["user", "rows", "train", "test_rows", "test", "neighbours", "confidence"]
ASKED = ["--users", "phone", "--target", "likes"]
FAST = ["--method", "dada", "--max-rounds", "60", "-p", "count=10", "-p", "alternations=1"]


def phones(seed, sizes):
    """Even users like the first column, odd ones its opposite."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(USERS), sizes)
    X = rng.normal(size=(len(of), 2))
    likes = np.where(X[:, 0] * np.where(of % 2, -1, 1) > 0, "yes", "no")
    return pd.DataFrame(
        {"a": X[:, 0], "b": X[:, 1], "phone": [f"p{k:02d}" for k in of], "likes": likes}
    )


@pytest.fixture
def run(shell):
    phones(0, np.arange(USERS) % 5 + 6).to_csv("train.csv", index=False)
    phones(1, 30)[["b", "likes", "phone", "a"]].to_csv("test.csv", index=False)

    def command(*arguments):
        return shell(*arguments) if arguments[:1] == ("predict",) else shell("users", *arguments)

    return command


def test_accuracies_are_those_of_the_model_and_every_form_says_the_same(run):
    """Columns are found by their names: those of the test file are in another order."""
    how = ["train.csv", *ASKED, *FAST, "--test", "test.csv", "--save", "fitted"]
    code, out, err = run(*how, "-o", "users.parquet", "--json")
    told, model = json.loads(out), co.PersonalModel.load("fitted/model.npz")
    assert code == told["exit_code"], err
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    for row in told["users"]:
        for frame, rows, name in ((train, "rows", "train"), (test, "test_rows", "test")):
            own = frame[frame["phone"] == row["user"]]
            assert row[rows] == len(own)
            assert row[name] == np.mean(model.predict(own[["a", "b"]], row["user"]) == own["likes"])
        place = model.users.index(row["user"])
        assert row["neighbours"] == model.weights[[place]].nnz
        assert row["confidence"] == row["rows"] / 10
    scores = [row["test"] for row in told["users"]]
    assert told["accuracy"]["test"]["mean"] == pytest.approx(np.mean(scores))
    assert told["accuracy"]["test"]["least"] == min(scores)
    assert told["accuracy"]["train"]["median"] == pytest.approx(
        np.median([row["train"] for row in told["users"]])
    )
    assert told["accuracy"]["test"]["mean"] > 0.7
    assert told["output"] == "users.parquet"
    table = pd.read_parquet("users.parquet")
    assert table.columns.tolist() == HEADINGS
    assert table.to_dict("records") == told["users"]
    saved = ["--model", "fitted/model.npz", *ASKED]
    assert run(*saved, "train.csv", "--test", "test.csv", "-o", "again.csv")[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv("again.csv"), table, check_dtype=False)
    _, out, _ = run(*saved, "--test", "test.csv", "--json")
    again = json.loads(out)
    assert [row["test"] for row in again["users"]] == scores
    assert {row["train"] for row in again["users"]} == {None}
    assert again["accuracy"]["train"] is None
    assert "status" not in again


def test_a_long_list_is_shortened_and_begins_with_whom_it_serves_worst(run):
    run("train.csv", *ASKED, *FAST, "--save", "fitted")
    saved = ["--model", "fitted/model.npz", *ASKED, "--test", "test.csv"]
    code, out, _ = run(*saved)
    assert code == 0
    listed = [line.split() for line in out.splitlines() if line.strip().startswith("p")]
    assert len(listed) == 20
    assert f"… {USERS - 20} more" in out
    shown = [float(line[2]) for line in listed]
    assert shown == sorted(shown)
    everybody = run(*saved, "--all")[1]
    assert all(f"p{k:02d}" in everybody for k in range(USERS))
    scores = [row["test"] for row in json.loads(run(*saved, "--json")[1])["users"]]
    assert f"mean {np.mean(scores):.3f}, least {min(scores):.3f}" in " ".join(everybody.split())


def test_parameters_are_chosen_at_the_users(run):
    how = [
        "train.csv",
        *ASKED,
        *FAST,
        "--cv",
        "3",
        "--network",
        "ring",
        "--beta",
        "0.01,10",
        "--mu",
        "0.5",
        "--json",
    ]
    _, out, err = run(*how)
    told = json.loads(out)
    tried = {trial["beta"]: trial["score"] for trial in told["trials"]}
    assert sorted(tried) == [0.01, 10.0], err
    assert told["parameters"]["beta"] == max(tried, key=tried.get)
    assert told["parameters"]["mu"] == 0.5
    alone = run("train.csv", *ASKED, "--method", "local", "-p", "count=10", "--max-rounds", "20")[1]
    assert "Method local" in alone


def test_linear_models_are_chosen_at_the_users(run):
    code, out, err = run(
        "train.csv",
        *ASKED,
        "--method",
        "shared",
        "--test",
        "test.csv",
        "--json",
        "--save",
        "fitted",
    )
    told = json.loads(out)
    assert code == told["exit_code"] == 0, err
    assert {trial["choice"] for trial in told["trials"]} == {"pooled", "levels", "shared", "alone"}
    assert told["accuracy"]["test"]["mean"] > 0.8
    assert set(told["parameters"]) == {"mu", "nu"}
    assert isinstance(co.models.load_model("fitted/model.npz"), co.SharedModel)


def test_the_default_is_a_choice_and_says_so(run):
    code, out, err = run(
        "train.csv", *ASKED, "-p", "count=6", "-p", "alternations=1", "--json", "--save", "fitted"
    )
    told = json.loads(out)
    assert code == told["exit_code"] == 0, err
    assert {"pooled", "shared", "global", "local", "dada-linear"} <= {
        trial["choice"] for trial in told["trials"]
    }
    result = co.Result.load("fitted")
    assert "was chosen by cross-validation at the users (pooled 0." in result.explanation
    assert "as asked for" not in result.explanation
    assert (
        "was chosen by cross-validation at the users"
        in write_report(result, "page.html").read_text()
    )
    code, _, err = run("train.csv", *ASKED, "-p", "step=frank-wolfe")
    assert code == 3
    assert "--method auto takes no 'step'; name the method that does" in " ".join(err.split())


def test_one_file_per_user_and_settings_from_a_file(run, tmp_path):
    for user, rows in pd.read_csv("train.csv").groupby("phone"):
        if user in ("p00", "p01", "p02"):
            rows.drop(columns="phone").to_csv(f"{user}.csv", index=False)
    (tmp_path / "how.toml").write_text(
        "target = 'likes'\nmethod = 'local'\nmax-rounds = 20\njson = true\n"
    )
    _, out, err = run("p00.csv", "p01.csv", "p02.csv", "--config", "how.toml", "--test", "p01.csv")
    rows = json.loads(out)["users"]
    assert [row["user"] for row in rows] == ["p00", "p01", "p02"], err
    assert [row["test"] for row in rows] == [None, rows[1]["train"], None]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ([], "there is nothing to fit"),
        (["--model", "fitted/model.npz"], "there are no rows to test the model on"),
        (["train.csv", *ASKED, "--beta", "1,10"], "--beta 1,10 has several values: add --cv 3"),
        (
            ["train.csv", *ASKED, "-o", "users.xls"],
            "no kind of table called '.xls'. Known: .csv, .parquet",
        ),
        (["train.csv", "--target", "likes"], "--users"),
        (
            [
                "--model",
                "fitted/model.npz",
                "--users",
                "phone",
                "--target",
                "a",
                "--test",
                "test.csv",
            ],
            "column 'a'",
        ),
        (
            ["--model", "fitted/model.npz", *ASKED, "--test", "strangers.csv"],
            "user 'stranger' was not among the 24",
        ),
        (
            ["--model", "fitted/model.npz", *ASKED, "--test", "maybe.csv"],
            "has labels ['maybe'], and the model knows",
        ),
        (
            ["--model", "one.npz", *ASKED, "--test", "test.csv"],
            "one model for all users, not one per user",
        ),
    ],
)
def test_refusals_name_the_fix(run, arguments, match):
    if "fitted/model.npz" in arguments:
        run("train.csv", *ASKED, "--method", "local", "--max-rounds", "2", "--save", "fitted")
    frame = pd.read_csv("test.csv")
    frame.assign(phone="stranger").to_csv("strangers.csv", index=False)
    frame.assign(likes="maybe").to_csv("maybe.csv", index=False)
    co.solve(co.Problem("squared", "l2", 1.0, intercept=False), (np.eye(4), np.ones(4))).model.save(
        "one.npz"
    )
    code, _, err = run(*arguments)
    assert code == 3
    assert match in " ".join(err.split())
    assert "Traceback" not in err


def test_strangers_take_the_average_where_that_is_asked_for(run):
    run("train.csv", *ASKED, "--method", "local", "--max-rounds", "2", "--save", "fitted")
    pd.read_csv("test.csv").assign(phone="stranger").to_csv("strangers.csv", index=False)
    saved = [
        "--model",
        "fitted/model.npz",
        *ASKED,
        "--test",
        "strangers.csv",
        "--unknown",
        "neighbours",
        "--json",
    ]
    row = json.loads(run(*saved)[1])["users"][-1]
    assert (row["user"], row["test_rows"], row["rows"], row["confidence"]) == (
        "stranger",
        30 * USERS,
        None,
        None,
    )
    assert 0 < row["test"] < 1
    predict = ["predict", "fitted/model.npz", "strangers.csv", "--users", "phone"]
    code, _, err = run(*predict)
    assert code == 3
    assert "or use --unknown common for the common model" in " ".join(err.split())
    answers = run(*predict, "--unknown", "common")[1].split()
    assert np.mean(np.array(answers) == pd.read_csv("strangers.csv")["likes"]) == pytest.approx(
        row["test"]
    )


def test_users_with_one_or_two_rows_have_models(run):
    rows = ["phone,a,b,likes", "one,0.1,0.2,1", "two,0.3,-0.2,0", "two,0.1,0.4,0"]
    rng = np.random.default_rng(1)
    for phone in ("three", "four"):
        rows += [f"{phone},{a:.3f},{b:.3f},{int(a > 0)}" for a, b in rng.normal(size=(9, 2))]
    Path("few.csv").write_text("\n".join(rows) + "\n")
    quick = ["-p", "alternations=1", "--max-rounds", "20"]
    for method in ("local", "dada-linear"):
        code, out, err = run(
            "few.csv", *ASKED, "--method", method, *quick, "--test", "few.csv", "--json"
        )
        assert code in (0, co.Status.ITERATION_LIMIT.exit_code), err
        assert {row["user"]: row["rows"] for row in json.loads(out)["users"]}["one"] == 1
    code, _, err = run("few.csv", *ASKED, "--method", "shared", "--network", "ring")
    assert code == 3
    assert "--network ring does not apply" in err
