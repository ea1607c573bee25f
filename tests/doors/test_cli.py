"""The command line, as a person would use it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

import coterie as co
from coterie import cli


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["coterie", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return command


@pytest.fixture
def patients(tmp_path):
    data = load_breast_cancer(as_frame=True)
    frame = ((data.data - data.data.mean()) / data.data.std()).iloc[:200, :6].copy()
    frame["patient"] = np.arange(200)
    frame["ill"] = np.where(data.target[:200] == 0, "yes", "no")
    frame.to_csv(tmp_path / "patients.csv", index=False)
    return frame


FIT = ["--target", "ill", "--id", "patient", "--loss", "logistic", "--penalty", "l2", "--strength", "0.01"]


def test_fit_predict_verify(run, patients, tmp_path):
    code, out, _ = run("fit", "patients.csv", *FIT, "--agents", 4, "--intercept", "-o", "answer")
    assert code == 0
    for word in ("optimal", "within", "rounds", "report.html"):
        assert word in out
    assert {file.name for file in (tmp_path / "answer").iterdir()} == {"model.npz", "certificate.json", "report.html"}

    code, out, _ = run("verify", "answer/certificate.json", "answer/model.npz", "patients.csv", *FIT[:4])
    assert code == 0
    assert "holds" in out

    code, _, _ = run("predict", "answer/model.npz", "patients.csv", "-o", "predictions.csv")
    assert code == 0
    predicted = pd.read_csv("predictions.csv")["prediction"]
    assert np.mean(predicted == patients["ill"]) > 0.85


def test_verify_rejects_what_was_changed(run, patients, tmp_path):
    run("fit", "patients.csv", *FIT, "--agents", 2, "-o", "answer")
    certificate = tmp_path / "answer" / "certificate.json"
    changed = json.loads(certificate.read_text())
    changed["gap"] = 0.0
    (tmp_path / "forged.json").write_text(json.dumps(changed))
    code, _, err = run("verify", "forged.json", "answer/model.npz", "patients.csv", *FIT[:4])
    assert code == 4
    assert "changed" in err

    patients.loc[3, "ill"] = "no" if patients.loc[3, "ill"] == "yes" else "yes"
    patients.to_csv("other.csv", index=False)
    code, _, err = run("verify", certificate, "answer/model.npz", "other.csv", *FIT[:4])
    assert code == 4
    assert "not the data" in err


def test_several_files_are_several_parties(run, patients):
    patients.iloc[:90].to_parquet("north.parquet")
    patients.iloc[90:].to_parquet("south.parquet")
    code, out, _ = run("fit", "north.parquet", "south.parquet", *FIT, "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary["status"] == "optimal"
    certificate = co.Certificate.load(summary["certificate"])
    assert [(p.name, p.rows) for p in certificate.participants] == [("north", 90), ("south", 110)]
    # six columns, two parties, up and down
    assert summary["scalars"] == 2 * 2 * 6 * summary["rounds"]


def test_json_everywhere(run, patients):
    for arguments in (
        ["fit", "patients.csv", *FIT, "-o", "answer"],
        ["predict", "answer/model.npz", "patients.csv"],
        ["verify", "answer/certificate.json", "answer/model.npz", "patients.csv", *FIT[:4]],
        ["doctor"],
        ["demo", "-o", "demo"],
    ):
        code, out, _ = run(*arguments, "--json")
        assert code == 0
        json.loads(out)


def test_a_toml_file_in_place_of_flags(run, patients, tmp_path):
    (tmp_path / "study.toml").write_text(
        "target = 'ill'\nid = 'patient'\nloss = 'logistic'\npenalty = 'l1'\nstrength = 0.01\nmax-rounds = 3\n"
    )
    code, out, _ = run("fit", "patients.csv", "--config", "study.toml", "--json")
    assert code == co.Status.ITERATION_LIMIT.exit_code
    assert json.loads(out)["rounds"] == 3
    code, out, _ = run("fit", "patients.csv", "--config", "study.toml", "--max-rounds", 5, "--json")
    assert json.loads(out)["rounds"] == 5, "a flag wins over the file"
    (tmp_path / "study.toml").write_text("stength = 0.01\n")
    code, _, err = run("fit", "patients.csv", "--config", "study.toml")
    assert code == 2
    assert "strength" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fit", "nowhere.csv", "--target", "ill"], 3, ["nowhere.csv"]),
        (["fit", "patients.csv", "--target", "il", "--strength", "1"], 3, ["ill"]),
        (["fit", "patients.csv", *FIT[:4], "--loss", "logistik", "--strength", "1"], 3, ["logistic"]),
        (["fit", "patients.csv", *FIT[:4], "--penalty", "l1"], 3, ["strength"]),
        (["fit", "patients.csv", *FIT, "--method", "proximal"], 3, ["proximal-2"]),
        (["fit", "patients.csv", *FIT, "--network", "rng"], 3, ["ring"]),
        (["fit", "patients.csv", "--target", "ill", *FIT[4:], "--tol", "0"], 3, ["1e-6"]),
        (["verify", "patients.csv", "patients.csv", "patients.csv"], 4, ["not a readable certificate"]),
        (["predict", "patients.csv", "patients.csv"], 4, ["not a readable model"]),
        (["fit", "patients.csv", *FIT, "--max-rounds", "2"], 10, []),
        (["frobnicate"], 2, ["frobnicate"]),
    ],
)
def test_mistakes_name_the_fix_without_a_traceback(run, patients, arguments, code, words):
    ended, out, err = run(*arguments)
    assert ended == code, err
    for word in words:
        assert word in " ".join(err.split()), err
    assert "Traceback" not in out + err


def test_help_teaches(run):
    code, out, _ = run("--help")
    assert code == 0
    for command in ("fit", "predict", "verify", "demo", "doctor"):
        assert command in out
    for command in ("fit", "predict", "verify", "demo", "doctor"):
        assert run(command, "--help")[0] == 0
    assert "Exit codes" in out


def test_version_and_module(run):
    assert run("--version")[1].strip() == co.__version__
    answer = subprocess.run([sys.executable, "-m", "coterie", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == co.__version__


def test_the_demo_tells_its_story(run, tmp_path):
    code, out, _ = run("demo")
    assert code == 0
    for word in ("hospital", "optimal", "Certificate", "Bill", "scikit-learn", "report.html"):
        assert word in out
    assert (tmp_path / "coterie-demo" / "report.html").stat().st_size > 10_000


def test_svmlight_parties_that_do_not_use_the_last_column(run, tmp_path):
    rng = np.random.default_rng(0)
    for name, columns in (("north", 3), ("south", 4)):
        rows = []
        for _ in range(20):
            x = rng.standard_normal(columns)
            rows.append(f"{int(x[0] > 0)} " + " ".join(f"{j}:{value}" for j, value in enumerate(x)))
        (tmp_path / f"{name}.svm").write_text("\n".join(rows) + "\n")
    code, _, err = run("fit", "north.svm", "south.svm", "--loss", "logistic", "--strength", "0.1", "--json", "-o", "a")
    assert code == 0, err
    assert len(co.LinearModel.load("a/model.npz").coef_) == 4
    code, _, err = run("predict", "a/model.npz", "north.svm")
    assert code == 0, err


def test_an_output_that_cannot_be_written_is_no_traceback(run, patients, tmp_path):
    (tmp_path / "occupied").write_text("")
    code, _, err = run("fit", "patients.csv", *FIT, "-o", "occupied")
    assert code == 3
    assert "Traceback" not in err


def test_weights_bounds_and_acceleration_from_the_shell(run, patients):
    patients["times"] = np.arange(200) % 3 + 1.0
    patients.to_csv("weighted.csv", index=False)
    weighted = ["weighted.csv", *FIT[:4], "--weight", "times"]
    box = ["--loss", "logistic", "--penalty", "box", "--lower", "-0.5", "--upper", "0.5", "--acceleration", "none"]
    code, _, err = run("fit", *weighted, *box, "--tol", "1e-3", "-o", "boxed")
    assert code == 0, err
    model = co.LinearModel.load("boxed/model.npz")
    assert np.abs(model.coef_).max() <= 0.5
    assert len(model.coef_) == 6
    assert co.Certificate.load("boxed/certificate.json").settings["acceleration"] == "none"
    assert run("verify", "boxed/certificate.json", "boxed/model.npz", *weighted)[0] == 0
    assert run("verify", "boxed/certificate.json", "boxed/model.npz", *weighted[:-2])[0] == 4
