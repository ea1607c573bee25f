"""The command line, as a person would use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from sklearn.datasets import load_breast_cancer, load_iris

import coterie as co
from coterie import cli
from coterie.commands.shell_words import in_shell_words
from coterie.engines import engine as find_engine


@pytest.fixture
def patients(tmp_path):
    data = load_breast_cancer(as_frame=True)
    frame = ((data.data - data.data.mean()) / data.data.std()).iloc[:200, :6].copy()
    frame["patient"] = np.arange(200)
    frame["ill"] = np.where(data.target[:200] == 0, "yes", "no")
    frame.to_csv(tmp_path / "patients.csv", index=False)
    return frame


OURS = {"fit", "predict", "verify", "compare", "report", "users", "demo", "doctor", "exit-codes"}
FIT = [
    "--target",
    "ill",
    "--id",
    "patient",
    "--loss",
    "logistic",
    "--penalty",
    "l2",
    "--strength",
    "0.01",
]


def test_a_deadline_is_for_parties_in_other_processes(shell, patients, tmp_path):
    code, out, _ = shell(
        "fit",
        "patients.csv",
        *FIT,
        "--agents",
        2,
        "--engine",
        "peers",
        "--deadline",
        20,
        "-o",
        "answer",
    )
    assert code == 0, out
    assert find_engine("peers", 20).deadline == 20
    for engine, deadline, fix in (
        ("local", 20, "takes no deadline"),
        ("peers", 0, "a number of seconds above 0"),
        ("peers", "inf", "a number of seconds above 0"),
    ):
        code, _, err = shell(
            "fit", "patients.csv", *FIT, "--engine", engine, "--deadline", deadline, "-o", "other"
        )
        assert code == 3
        assert fix in " ".join(err.split())
        assert not (tmp_path / "other").exists()


def test_fit_predict_verify(shell, patients, tmp_path):
    code, out, _ = shell("fit", "patients.csv", *FIT, "--agents", 4, "--intercept", "-o", "answer")
    assert code == 0
    for word in ("optimal", "within", "rounds", "report.html"):
        assert word in out
    assert {file.name for file in (tmp_path / "answer").iterdir()} == {
        "model.npz",
        "certificate.json",
        "run.json",
        "report.html",
    }

    code, out, _ = shell(
        "verify", "answer/certificate.json", "answer/model.npz", "patients.csv", *FIT[:4]
    )
    assert code == 0
    assert "holds" in out

    code, _, _ = shell("predict", "answer/model.npz", "patients.csv", "-o", "predictions.csv")
    assert code == 0
    predicted = pd.read_csv("predictions.csv")["prediction"]
    assert np.mean(predicted == patients["ill"]) > 0.85
    code, _, err = shell("predict", "answer/model.npz", "patients.csv", "--users", "ill")
    assert code == 3, err
    assert "leave it out" in err


def test_verify_rejects_what_was_changed(shell, patients, tmp_path):
    shell("fit", "patients.csv", *FIT, "--agents", 2, "-o", "answer")
    certificate = tmp_path / "answer" / "certificate.json"
    changed = json.loads(certificate.read_text())
    changed["gap"] = 0.0
    (tmp_path / "forged.json").write_text(json.dumps(changed))
    code, _, err = shell("verify", "forged.json", "answer/model.npz", "patients.csv", *FIT[:4])
    assert code == 4
    assert "changed" in err

    patients.loc[3, "ill"] = "no" if patients.loc[3, "ill"] == "yes" else "yes"
    patients.to_csv("other.csv", index=False)
    code, _, err = shell("verify", certificate, "answer/model.npz", "other.csv", *FIT[:4])
    assert code == 4
    assert "not the data" in err


def test_several_files_are_several_parties(shell, patients):
    patients.iloc[:90].to_parquet("north.parquet")
    patients.iloc[90:].to_parquet("south.parquet")
    code, out, _ = shell(
        "fit", "north.parquet", "south.parquet", *FIT, "--method", "proximal-1", "--json"
    )
    assert code == 0
    summary = json.loads(out)
    assert summary["status"] == "optimal"
    certificate = co.Certificate.load(summary["certificate"])
    assert [(p.name, p.rows) for p in certificate.participants] == [("north", 90), ("south", 110)]
    # six columns and an intercept, two parties, up and down
    assert summary["scalars"] == 2 * 2 * 7 * summary["rounds"]


def test_json_everywhere(shell, patients):
    for arguments in (
        ["fit", "patients.csv", *FIT, "-o", "answer"],
        ["predict", "answer/model.npz", "patients.csv"],
        ["verify", "answer/certificate.json", "answer/model.npz", "patients.csv", *FIT[:4]],
        ["report", "answer"],
        [
            "compare",
            "patients.csv",
            *FIT,
            "-m",
            "newton",
            "-m",
            "proximal-2",
            "--turns",
            "1",
            "-o",
            "both",
        ],
        ["report", "both"],
        ["doctor", "--quick"],
        ["demo", "-o", "demo"],
        ["exit-codes"],
    ):
        code, out, _ = shell(*arguments, "--json")
        assert code == 0
        assert isinstance(json.loads(out), dict)


def test_a_toml_file_in_place_of_flags(shell, patients, tmp_path):
    (tmp_path / "study.toml").write_text(
        "target = 'ill'\nid = 'patient'\nloss = 'logistic'\npenalty = 'l1'\nstrength = "
        "0.01\nmax-rounds = 3\n"
    )
    code, out, _ = shell("fit", "patients.csv", "--config", "study.toml", "--json")
    assert code == co.Status.ITERATION_LIMIT.exit_code
    assert json.loads(out)["rounds"] == 3
    code, out, _ = shell(
        "fit", "patients.csv", "--config", "study.toml", "--max-rounds", 5, "--json"
    )
    assert json.loads(out)["rounds"] == 5, "a flag wins over the file"
    (tmp_path / "study.toml").write_text("stength = 0.01\n")
    code, _, err = shell("fit", "patients.csv", "--config", "study.toml")
    assert code == 2
    assert "strength" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fit", "nowhere.csv", "--target", "ill"], 3, ["nowhere.csv"]),
        (["fit", "patients.csv", "--target", "il", "--strength", "1"], 3, ["ill"]),
        (
            ["fit", "patients.csv", *FIT[:4], "--loss", "logistik", "--strength", "1"],
            3,
            ["logistic"],
        ),
        (["fit", "patients.csv", *FIT[:4], "--penalty", "l1"], 3, ["strength"]),
        (["fit", "patients.csv", *FIT, "--method", "proximal"], 3, ["proximal-2"]),
        (["fit", "patients.csv", *FIT, "--network", "rng"], 3, ["ring"]),
        (["fit", "patients.csv", "--target", "ill", *FIT[4:], "--tol", "0"], 3, ["1e-6"]),
        (
            ["verify", "patients.csv", "patients.csv", "patients.csv"],
            4,
            ["not a readable certificate"],
        ),
        (["predict", "patients.csv", "patients.csv"], 4, ["not a readable model"]),
        (["fit", "patients.csv", *FIT, "--max-rounds", "2"], 10, []),
        (["frobnicate"], 2, ["frobnicate"]),
    ],
)
def test_mistakes_name_the_fix_without_a_traceback(shell, patients, arguments, code, words):
    ended, out, err = shell(*arguments)
    assert ended == code, err
    for word in words:
        assert word in " ".join(err.split()), err
    assert "Traceback" not in out + err


def test_help_teaches(shell):
    code, out, _ = shell("--help")
    assert code == 0
    commands = typer.main.get_command(cli.app).commands
    assert {"fit", "predict", "verify", "compare", "report", "demo", "doctor", "exit-codes"} <= set(
        commands
    )
    for name, command in commands.items():
        assert name in out
        assert shell(name, "--help")[0] == 0
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert "--json" in flags or name not in OURS
        assert "--config" in flags or name == "exit-codes" or name not in OURS
    assert "--install-completion" in out
    for status in co.Status:
        assert f"{status.exit_code} {status.value}" in " ".join(out.replace("│", " ").split())


def test_version_and_module(shell):
    assert shell("--version")[1].strip() == co.__version__
    answer = subprocess.run(
        [sys.executable, "-m", "coterie", "--version"], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == co.__version__


def test_the_demo_tells_its_story(shell, tmp_path):
    code, out, _ = shell("demo")
    assert code == 0
    for word in ("hospital", "optimal", "Certificate", "Bill", "scikit-learn", "report.html"):
        assert word in out
    assert (tmp_path / "coterie-demo" / "report.html").stat().st_size > 10_000


def test_svmlight_parties_that_do_not_use_the_last_column(shell, tmp_path):
    rng = np.random.default_rng(0)
    for name, columns in (("north", 3), ("south", 4)):
        rows = []
        for _ in range(20):
            x = rng.standard_normal(columns)
            rows.append(f"{int(x[0] > 0)} " + " ".join(f"{j}:{value}" for j, value in enumerate(x)))
        (tmp_path / f"{name}.svm").write_text("\n".join(rows) + "\n")
    code, _, err = shell(
        "fit",
        "north.svm",
        "south.svm",
        "--loss",
        "logistic",
        "--strength",
        "0.1",
        "--json",
        "-o",
        "a",
    )
    assert code == 0, err
    assert len(co.LinearModel.load("a/model.npz").coef_) == 4
    code, _, err = shell("predict", "a/model.npz", "north.svm")
    assert code == 0, err


def test_an_output_that_cannot_be_written_is_no_traceback(shell, patients, tmp_path):
    (tmp_path / "occupied").write_text("")
    code, _, err = shell("fit", "patients.csv", *FIT, "-o", "occupied")
    assert code == 3
    assert "Traceback" not in err


def test_weights_bounds_and_acceleration_from_the_shell(shell, patients):
    patients["times"] = np.arange(200) % 3 + 1.0
    patients.to_csv("weighted.csv", index=False)
    weighted = ["weighted.csv", *FIT[:4], "--weight", "times"]
    box = [
        "--loss",
        "logistic",
        "--penalty",
        "box",
        "--lower",
        "-0.5",
        "--upper",
        "0.5",
        "--acceleration",
        "none",
    ]
    code, _, err = shell("fit", *weighted, *box, "--tol", "1e-3", "-o", "boxed")
    assert code == 0, err
    model = co.LinearModel.load("boxed/model.npz")
    assert np.abs(model.coef_).max() <= 0.5
    assert len(model.coef_) == 6
    assert co.Certificate.load("boxed/certificate.json").settings["acceleration"] == "none"
    assert shell("verify", "boxed/certificate.json", "boxed/model.npz", *weighted)[0] == 0
    assert shell("verify", "boxed/certificate.json", "boxed/model.npz", *weighted[:-2])[0] == 4


def test_exit_codes_are_explained(shell):
    entries = json.loads(shell("exit-codes", "--json")[1])["exit_codes"]
    assert {(entry["name"], entry["code"]) for entry in entries} >= {
        (s.value, s.exit_code) for s in co.Status
    }
    failures = [entry["code"] for entry in entries if entry["code"]]
    assert len(set(failures)) == len(failures)
    assert all(entry["advice"] for entry in entries)
    assert "communication_limit" in shell("exit-codes")[1]


def test_an_error_is_json_where_json_was_asked_for(shell, patients):
    code, out, err = shell("fit", "patients.csv", "--target", "il", "--json")
    assert (code, err) == (3, "")
    answer = json.loads(out)
    assert answer["exit_code"] == 3
    assert "ill" in answer["error"]


def test_compare_names_the_winners(shell, patients, tmp_path):
    methods = ["-m", "consensus", "-m", "newton", "-m", "proximal-2"]
    code, out, err = shell(
        "compare", "patients.csv", *FIT, *methods, "--figures", "pdf", "--json", "-o", "c"
    )
    assert code == 0, err
    answer = json.loads(out)
    by_name = {entry["method"]: entry for entry in answer["methods"]}
    assert list(by_name) == ["consensus", "newton", "proximal-2"]
    for measure, of in {
        "rounds": lambda e: e["rounds"],
        "bits": lambda e: e["total"]["bits"],
    }.items():
        assert min(by_name, key=lambda name: of(by_name[name])) in answer["winners"][measure]
    assert all(len(entry["seconds_of_runs"]) == 3 for entry in by_name.values())
    files = {file.name for file in (tmp_path / "c").iterdir()}
    assert files == {*by_name, "report.html", "figures", "timings.json"}
    assert len(list((tmp_path / "c" / "figures").glob("*.pdf"))) == 3
    page = (tmp_path / "c" / "report.html").read_text()
    (tmp_path / "c" / "report.html").unlink()
    code, out, _ = shell("report", "c")
    assert code == 0
    assert "★" in out
    assert (tmp_path / "c" / "report.html").read_text() == page, "the same page from the saved runs"


def test_compare_takes_all_that_can(shell, patients):
    code, out, _ = shell("compare", "patients.csv", *FIT, "--tol", "1e-2", "--turns", "1", "--json")
    assert code == 0
    answer = json.loads(out)
    assert {"consensus", "newton"} <= {entry["method"] for entry in answer["methods"]}
    assert "squared" in answer["refused"]["gram"]
    code, _, err = shell("compare", "patients.csv", *FIT, "-m", "gram")
    assert code == 3, "a method that was asked for by name is no less than needed"
    assert "squared" in err


def test_compare_says_once_why_no_method_takes_a_problem(shell, patients, tmp_path):
    patients.drop(columns="ill").assign(days=patients["patient"] + 1, died=1).to_csv(
        tmp_path / "times.csv", index=False
    )
    columns = ["--time", "days", "--event", "died", "--loss", "cox", "--split", "features"]
    code, _, err = shell("compare", "times.csv", *columns, "-o", "nowhere")
    assert code == 3
    assert " ".join(err.split()).count("survival needs data split by samples") == 1


def test_a_report_is_made_again_from_what_was_saved(shell, patients, tmp_path):
    shell("fit", "patients.csv", *FIT, "--agents", 3, "--network", "ring", "-o", "answer")
    page = (tmp_path / "answer" / "report.html").read_text()
    code, _, err = shell("report", "answer", "-o", "again.html", "--figures", "svg")
    assert code == 0, err
    assert (tmp_path / "again.html").read_text() == page
    assert {file.stem for file in (tmp_path / "answer" / "figures").iterdir()} >= {
        "gap-rounds",
        "network",
    }
    shell("fit", "patients.csv", *FIT, "--agents", 3, "--strength", "0.1", "-o", "other")
    (tmp_path / "other" / "run.json").replace(tmp_path / "answer" / "run.json")
    code, _, err = shell("report", "answer")
    assert code == 4
    assert "different runs" in err
    assert shell("report", ".")[0] == 4
    code, _, err = shell("report", "answer/figures")
    assert code == 3
    assert "coterie fit or compare wrote" in " ".join(err.split())


def test_parameters_columns_and_groups(shell, patients):
    settings = ["--method", "consensus", "--option", "rho=2.5"]
    code, _, err = shell(
        "fit", "patients.csv", *FIT, *settings, "--columns", "mean radius, mean area", "-o", "a"
    )
    assert code == 0, err
    assert co.Certificate.load("a/certificate.json").settings["method"]["rho"] == 2.5
    assert co.LinearModel.load("a/model.npz").columns == ("mean radius", "mean area")
    base = ["patients.csv", *FIT[:6], "--penalty", "group", "--strength", "0.02", "--tol", "1e-3"]
    code, _, err = shell("fit", *base, "--groups", "0,0,0,1,1,1", "-o", "b")
    assert code == 0, err
    assert co.LinearModel.load("b/model.npz").problem.penalty.groups == (0, 0, 0, 1, 1, 1)
    code, _, err = shell("fit", *base, "--option", "groups=[0, 0, 0, 1, 1, 1]", "-o", "c")
    assert code == 0, err
    assert (
        co.LinearModel.load("c/model.npz").digest() == co.LinearModel.load("b/model.npz").digest()
    )
    for wrong, word in (["--groups", "a,b"], "whole number"), (["--option", "rho"], "name=value"):
        code, _, err = shell("fit", *base, *wrong)
        assert code == 2
        assert word in " ".join(err.replace("│", " ").split())
    code, _, err = shell("fit", "patients.csv", *FIT, "--option", "roh=1")
    assert code == 3
    assert "roh" in err


def test_columns_of_several_parties(shell, patients):
    names = list(patients.columns[:6])
    patients[["patient", *names[:3]]].to_csv("bank.csv", index=False)
    patients[["patient", *names[3:], "ill"]].to_csv("shop.csv", index=False)
    split = ["bank.csv", "shop.csv", *FIT, "--split", "features", "--tol", "1e-3"]
    code, _, err = shell("fit", *split, "--columns", f"{names[1]},{names[4]}", "-o", "v")
    assert code == 0, err
    assert co.LinearModel.load("v/model.npz").columns == (names[1], names[4])
    verify = ["verify", "v/certificate.json", "v/model.npz", *split[:2], *FIT[:4]]
    assert shell(*verify, "--columns", f"{names[1]},{names[4]}")[0] == 0
    assert shell(*verify)[0] != 0
    code, _, err = shell("fit", *split, "--columns", "mean radios")
    assert code == 3
    assert "mean radius" in err


def test_a_toml_file_for_every_command_with_tables_and_arguments(shell, patients, tmp_path):
    (tmp_path / "fit.toml").write_text(
        "data = ['patients.csv']\ntarget = 'ill'\nid = 'patient'\nloss = 'logistic'\nstrength = "
        "0.01\n"
        "output = 'answer'\njson = true\nmethod = 'consensus'\n[option]\nrho = 3.0\n"
    )
    code, out, err = shell("fit", "--config", "fit.toml")
    assert code == 0, err
    assert json.loads(out)["certificate"] == "answer/certificate.json"
    assert co.Certificate.load("answer/certificate.json").settings["method"]["rho"] == 3.0
    (tmp_path / "verify.toml").write_text("target = 'ill'\nid = 'patient'\njson = true\n")
    code, out, _ = shell(
        "verify",
        "answer/certificate.json",
        "answer/model.npz",
        "patients.csv",
        "--config",
        "verify.toml",
    )
    assert code == 0
    assert json.loads(out)["holds"] is True


def test_personal_models_from_a_column_of_users(shell, tmp_path):
    rng = np.random.default_rng(0)
    X, users = rng.normal(size=(240, 3)), np.repeat(["ada", "bob", "cyd", "dee"], 60)
    flipped = np.where(np.isin(users, ["ada", "bob"]), 1, -1)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
        user=users, likes=np.where(X[:, 0] * flipped > 0, "y", "n")
    )
    frame.to_csv("phones.csv", index=False)
    personal = ["phones.csv", "--target", "likes", "--users", "user"]
    options = ["--network", "learned", "--option", "mu=0.5", "--tol", "0.05", "--max-rounds", "100"]
    code, _, err = shell("fit", *personal, *options, "-o", "p")
    assert code in (0, co.Status.ITERATION_LIMIT.exit_code), err
    model = co.PersonalModel.load("p/model.npz")
    assert model.users == ("ada", "bob", "cyd", "dee")
    assert model.problem.mu == 0.5
    assert shell("report", "p")[0] == 0
    code, _, err = shell(
        "predict", "p/model.npz", "phones.csv", "--users", "user", "-o", "said.csv"
    )
    assert code == 0, err
    assert np.mean(pd.read_csv("said.csv")["prediction"] == frame["likes"]) > 0.85
    assert shell("verify", "p/certificate.json", "p/model.npz", *personal)[0] == 0
    code, _, err = shell("fit", "phones.csv", "--target", "likes", "--split", "users")
    assert code == 3
    assert "--users" in err


def test_a_low_rank_model_from_the_shell(shell, tmp_path):
    data = load_iris(as_frame=True)
    data.data.assign(kind=data.target_names[data.target]).to_csv("iris.csv", index=False)
    low_rank = ["--loss", "multinomial", "--penalty", "traceball", "--radius", "5", "--tol", "0.01"]
    code, _, err = shell("fit", "iris.csv", "--target", "kind", *low_rank, "--agents", 3, "-o", "l")
    assert code == 0, err
    code, out, err = shell("predict", "l/model.npz", "iris.csv", "--json")
    assert code == 0, err
    assert np.mean(np.array(json.loads(out)["predictions"]) == data.target_names[data.target]) > 0.8
    assert (
        shell("verify", "l/certificate.json", "l/model.npz", "iris.csv", "--target", "kind")[0] == 0
    )


def test_the_shell_completes_names(tmp_path):
    words = "coterie fit --method prox"
    settings = {"_COTERIE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    command = Path(sys.executable).with_name("coterie")
    answer = subprocess.run(
        [command], env={**os.environ, **settings}, capture_output=True, text=True, cwd=tmp_path
    )
    assert set(answer.stdout.split()) == {"proximal-1", "proximal-2"}


# -- errors in the words of the shell --------------------------------------------------------------

FLAGS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("target", "penalty", "lower", "columns", "option", "id", "cv")
}
FLAGS["inference"] = "--inference"


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("name the others with columns=.", "name the others with --columns."),
        ("leave it out with columns=...", "leave it out with --columns COLUMNS"),
        ("target='il': no such column", "--target il: no such column"),
        ("e.g. Problem(penalty='box', lower=...).", "e.g. --penalty box --lower LOWER."),
        ("name their column with read(..., id=...).", "name their column with --id ID."),
        (
            "Give it (X, y), or name the label column with target=.",
            "Name the label column with --target.",
        ),
        ("Use kind='robust', or fewer", "Use --inference robust, or fewer"),
        ("use hessian='full' if", "use --option hessian=full if"),
        ("w = 0, |q| <= 1 and a == b stay", "w = 0, |q| <= 1 and a == b stay"),
        ("Convert with X.astype(float).", "write it as plain numbers in the file."),
    ],
)
def test_an_argument_is_a_flag_in_the_shell(python, shell):
    assert in_shell_words(python, FLAGS) == shell


def test_errors_of_the_shell_name_flags(shell, patients, tmp_path):
    assert "--target is missing" in shell("fit", "patients.csv")[2]
    (tmp_path / "dated.csv").write_text("day,dose,ill\n2024-01-02,1,0\n2024-01-03,2,1\n")
    told = " ".join(shell("fit", "dated.csv", "--target", "ill")[2].split())
    assert "column 'day' holds 2 values of type Date" in told
    assert "days since" in told
    assert "--columns" in told
    assert "Did you mean" not in shell("fit", "dated.csv", "--target", "id")[2]


@pytest.mark.parametrize(
    "text",
    [
        "age;dose;ill\n1,5;2;0\n2,25;1;1\n3;3;1\n",
        "age\tdose\till\n1.5\t2\t0\n2.25\t1\t1\n3\t3\t1\n",
    ],
)
def test_a_file_without_commas_is_read_all_the_same(tmp_path, text):
    (tmp_path / "rows.csv").write_text(text)
    table = co.read(tmp_path / "rows.csv", target="ill")
    assert table.columns == ("age", "dose")
    assert table.X.tolist() == [[1.5, 2], [2.25, 1], [3, 3]]


@pytest.mark.parametrize("line", ["--help", "exit-codes", "exit-codes --json"])
def test_a_closed_pipe_ends_quietly(line):
    shell = f"set -o pipefail; {sys.executable} -m coterie {line} | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "ft --json",
        "fit --json",
        "fit rows.csv --los squared --json",
        "fit rows.csv --agents two --json",
    ],
)
def test_a_wrong_command_line_is_answered_in_json(shell, line):
    code, out, err = shell(*line.split())
    answer = json.loads(out)
    assert (code, err, answer["name"], answer["exit_code"]) == (2, "", "usage", 2)
    assert answer["error"]
