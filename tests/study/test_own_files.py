"""A party's own files stay: results have a folder of their own, and remove nothing but results."""

from __future__ import annotations

import pytest

import coterie as co
from coterie.errors import InvalidInput
from coterie.study.description import describe_together
from coterie.study.folder import MARKER
from coterie.study.party import fit_together
from coterie.study.study import load_party
from tests.harness.parties import NAMES, data, together, write_data, write_study

LOGISTIC = {"loss": "logistic", "penalty": "l2", "strength": 0.05}
OWN = {
    "path/thesis.txt": "years of work",
    "path/strength-000/notes.txt": "mine",
    ".new-year-plans/plan.txt": "mine",
    "last-run/notes.txt": "mine",
    "notes.txt": "mine",
}
"""Files of a party, with names that look like those of results."""


@pytest.fixture
def folder(tmp_path):
    write_study(tmp_path, problem=LOGISTIC, policy="", split="samples", tol=1e-4)
    write_data(tmp_path, data("samples", n=300, d=3, classification=True))
    return tmp_path


def put(folder, files=OWN):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def content(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def with_output(folder, party, output):
    file = folder / party / "party.toml"
    file.write_text(f'output = "{output}"\n{file.read_text()}')


@pytest.mark.parametrize("work", [fit_together, describe_together])
@pytest.mark.parametrize("output", [".", "mine"])
def test_a_folder_with_other_files_is_refused_before_anything_is_sent(folder, work, output):
    with_output(folder, "bea", output)
    files = OWN | {"inference.json": "mine", "choice.json": "mine", "run.json": "mine"}
    put(folder / "bea" / output, files)
    before = content(folder / "bea")
    own, study = load_party(folder / "bea" / "party.toml")
    with pytest.raises(InvalidInput, match="holds files that no result wrote") as refused:
        work(own, study, consent=True)
    assert 'output = "result"' in str(refused.value)
    assert content(folder / "bea").items() >= before.items()
    assert not list(folder.glob(f"**/{MARKER}"))


def test_files_between_results_stay(folder):
    """A path, then a fit without one: the path of results goes, and own files stay."""
    text = (folder / "study.toml").read_text()
    path = text.replace("strength = 0.05", "").replace(
        "[problem]", "[path]\nstrengths = [0.1, 0.01]\ncv = 2\n[problem]", 1
    )
    (folder / "study.toml").write_text(path)
    for name in NAMES:
        file = folder / name / "party.toml"
        file.write_text(f"{file.read_text()}policy.budget = inf\n")
    assert all(isinstance(one, co.Result) for one in together(folder))
    result = folder / "bea" / "result"
    assert (result / MARKER).is_file()
    assert (result / "path" / "path.json").is_file()
    put(result)
    (folder / "study.toml").write_text(text)
    for _ in range(2):
        found = together(folder)
        assert [one.status for one in found] == ["optimal"] * 3
    for name, text in OWN.items():
        assert (result / name).read_text() == text, name
    results = {"bill.json", "certificate.json", "model.npz", "run.json", MARKER}
    assert content(result).keys() == OWN.keys() | results


def test_a_link_is_not_followed(folder):
    victim = folder / "victim"
    put(victim, {"model.npz": "precious", "strength-000/model.npz": "precious"})
    result = folder / "bea" / "result"
    together(folder)
    (result / "model.npz").unlink()
    (result / "model.npz").symlink_to(victim / "model.npz")
    (result / "path").symlink_to(victim)
    together(folder)
    assert set(content(victim).values()) == {b"precious"}
    assert len(content(victim)) == 2
    assert (result / "path").is_symlink()
    assert co.Result.load(result).status == "optimal"


def test_an_output_that_is_a_file_is_refused(folder):
    (folder / "bea" / "result").write_text("a file")
    own, study = load_party(folder / "bea" / "party.toml")
    with pytest.raises(InvalidInput, match="is a file"):
        fit_together(own, study, consent=True)


def test_the_folder_of_checkpoints_may_be_inside(folder):
    for name in NAMES:
        with_output(folder, name, "out")
        file = folder / name / "party.toml"
        file.write_text(f'checkpoint = "out/kept"\n{file.read_text()}')
    put(folder / "bea" / "out" / "kept", {"round": "of a run that was killed"})
    assert [one.status for one in together(folder)] == ["optimal"] * 3
