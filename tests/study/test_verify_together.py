"""`coterie verify` between organisations: the parties compute the proof again, and all come to the
same verdict.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.commands.exit_codes import REFUSED
from coterie.errors import InvalidData
from coterie.numerics.arrays import digest
from coterie.problems.linear.model import LinearModel
from coterie.run.certificate import Certificate
from coterie.study.disclosure import disclosure
from coterie.study.pinning import pin
from coterie.study.proof import verify_together
from coterie.study.study import load_study
from coterie.transport.keys import fingerprint
from tests.harness.parties import NAMES, RIDGE, data, together, write_data, write_study
from tests.harness.shell import shell
from tests.study.test_peers import LASSO, LOW_RANK, coterie, keyed

GROUP = {
    "loss": "logistic",
    "penalty": "group",
    "strength": 0.02,
    "groups": [0, 0, 1, 2, 2, 2, 3, 4, 4],
    "intercept": False,
}
USERS = {"mu": 1.0, "beta": 5.0}


def low_rank():
    random = np.random.default_rng(0)
    X = random.standard_normal((60, 6))
    y = np.array(["red", "green", "blue"])[(X @ random.standard_normal((6, 3))).argmax(axis=1)]
    parts = co.data.split(co.read((X, y)), "samples", 3)
    return [replace(table, name=name, rows=None) for table, name in zip(parts, NAMES, strict=True)]


CASES = {
    "split by features": (
        {"problem": LASSO, "network": "path"},
        data("features", classification=True),
    ),
    "in another order": ({"problem": RIDGE | {"intercept": True}, "id": "patient"}, keyed()),
    "groups": (
        {"problem": GROUP, "method": "graph-cp", "network": "ring"},
        data("features", classification=True),
    ),
    "float32": (
        {"problem": RIDGE | {"intercept": True}, "network": "star"},
        data("features", dtype=np.float32),
    ),
    "split by samples": (
        {"problem": LASSO, "split": "samples", "method": "proximal-1"},
        data("samples", classification=True),
    ),
    "rows on a path": (
        {"split": "samples", "network": "path", "method": "cocoa"},
        data("samples", sparse=True),
    ),
    "low rank": ({"problem": LOW_RANK, "split": "samples", "max-rounds": 8}, low_rank()),
    "users": (
        {"problem": USERS, "split": "users", "max-rounds": 4},
        data("samples", classification=True),
    ),
    "users on a path": (
        {"problem": USERS, "split": "users", "network": "path", "max-rounds": 4},
        data("samples", classification=True),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_run_proved_is_found_again_by_all(tmp_path, case):
    settings, tables = CASES[case]
    write_study(tmp_path, **{"tol": 1e-4, **settings})
    fitted = together(tmp_path, tables)
    found = together(tmp_path, tables, work=verify_together)
    for result, one in zip(fitted, found, strict=True):
        assert one.holds, one
        assert one.gap == pytest.approx(result.certificate.gap, rel=1e-9, abs=1e-12)
        assert one.primal == pytest.approx(result.certificate.primal, rel=1e-12)
        assert one.signed_by == tuple(NAMES)
        assert any("rows" in text for text in one.compared)
        assert any("how the model was found" in text for text in one.unchecked)


# -- falsified files -------------------------------------------------------------------------------


def flip_a_number(folder):
    file = folder / "cyd" / "result" / "model.npz"
    content = bytearray(file.read_bytes())
    content[content.index(np.load(file)["coef"].tobytes()) + 6] ^= 1
    file.write_bytes(content)


def other_part(folder):
    file = folder / "cyd" / "result" / "model.npz"
    model = LinearModel.load(file)
    changed = replace(model, coef_=model.coef_ * (1 + 1e-9))
    changed.save(file)
    return changed


def other_part_and_certificate(folder):
    changed = other_part(folder)
    file = folder / "cyd" / "result" / "certificate.json"
    certificate = Certificate.load(file)
    parts = certificate.settings["parts"] | {"cyd": changed.digest()}
    settings = {**certificate.settings, "parts": parts}
    replace(certificate, settings=settings, model_digest=changed.digest()).save(file)
    return changed


def other_part_certificate_and_run(folder):
    changed = other_part_and_certificate(folder)
    resealed_run(folder / "cyd" / "result" / "run.json", model=changed.digest())


def in_certificate(change, *names):
    def forge(folder):
        for name in names:
            file = folder / name / "result" / "certificate.json"
            change(Certificate.load(file)).save(file)

    return forge


def half_the_gap(certificate):
    gap, unit = certificate.gap / 2, certificate.unit
    return replace(certificate, dual=certificate.primal - gap, gap=gap, relative_gap=gap / unit)


def edit_certificate(folder):
    file = folder / "bea" / "result" / "certificate.json"
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))


def shifted(certificate):
    witness = tuple(v + 1e-3 if v.size else v for v in certificate.witness)
    return replace(certificate, witness=witness)


def in_all_models(change, **settings):
    """All parties agree on other models: every certificate names their digests."""

    def forge(folder):
        files = {name: folder / name / "result" for name in NAMES}
        models = {
            name: change(LinearModel.load(result / "model.npz")) for name, result in files.items()
        }
        parts = {name: model.digest() for name, model in models.items()}
        for name, result in files.items():
            models[name].save(result / "model.npz")
            certificate = Certificate.load(result / "certificate.json")
            said = {**certificate.settings, "parts": parts, **settings}
            replace(certificate, settings=said, model_digest=parts[name]).save(
                result / "certificate.json"
            )

    return forge


def with_more_rows(certificate):
    participants = tuple(
        replace(participant, rows=participant.rows * 1000)
        for participant in certificate.participants
    )
    return replace(certificate, participants=participants)


def with_settings(**changes):
    return lambda certificate: replace(certificate, settings={**certificate.settings, **changes})


def of_an_older_kind(folder):
    for name in NAMES:
        file = folder / name / "result" / "certificate.json"
        content = json.loads(file.read_text())
        content = {**content, "coterie_certificate": 1, "signatures": {}}
        content.pop("seal")
        sealed = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        file.write_text(json.dumps({**content, "seal": digest(sealed)}))


FORGERIES = {
    "swapped classes": (
        in_all_models(
            lambda model: replace(model, classes_=model.classes_[::-1].copy()), classes=[1.0, -1.0]
        ),
        [
            f"{name}: the model has the classes 1.0, -1.0, but the data has -1.0, 1.0"
            for name in NAMES
        ],
    ),
    "the part of another": (
        in_all_models(lambda model: replace(model, part="dan of elsewhere")),
        [f"{name}: its model is the part of dan of elsewhere" for name in NAMES],
    ),
    "more rows": (
        in_certificate(with_more_rows, *NAMES),
        [
            f"{name}: ada has 60 rows and 3 columns, but its certificate states 60000"
            for name in NAMES
        ],
    ),
    "what nobody signed": (
        in_certificate(with_settings(approved="yes"), *NAMES),
        [
            f"{name}: the certificate has settings that this version does not know: approved"
            for name in NAMES
        ],
    ),
    "an older unit, without signatures": (
        in_certificate(
            lambda one: replace(with_settings(unit="zeros")(one), signatures={}), *NAMES
        ),
        [
            f"{name}: the certificate has settings that this version does not know: unit"
            for name in NAMES
        ],
    ),
    "an older format, without signatures": (
        of_an_older_kind,
        [
            (
                f"{name}: its certificate.json was changed after it was written, or is a file of "
                "another kind"
            )
            for name in NAMES
        ],
    ),
    "a number of a part": (flip_a_number, ["cyd: its model.npz was changed after it was written"]),
    "a part, written again": (other_part, ["cyd: its model.npz is not the one that was certified"]),
    "a part and its certificate": (
        other_part_and_certificate,
        [
            "ada, bea differs from that of cyd",
            "cyd: its run.json was changed after it was written, or is of another run",
        ],
    ),
    "a part, its certificate and its run": (
        other_part_certificate_and_run,
        ["ada, bea differs from that of cyd"],
    ),
    "a certificate": (
        edit_certificate,
        ["bea: its certificate.json was changed after it was written"],
    ),
    "a gap, sealed again": (
        in_certificate(half_the_gap, "bea"),
        ["bea: gap is", "bea: the signature of ada under its certificate does not hold"],
    ),
    "no signatures": (
        in_certificate(lambda one: replace(one, signatures={}), "cyd"),
        [f"cyd: {name} has not signed its certificate" for name in NAMES],
    ),
    "the signature of another": (
        in_certificate(
            lambda one: replace(one, signatures={**one.signatures, "ada": one.signatures["bea"]}),
            "cyd",
        ),
        ["cyd: the signature of ada under its certificate does not hold"],
    ),
    "all gaps, sealed again": (
        in_certificate(half_the_gap, *NAMES),
        [f"{name}: gap is" for name in NAMES],
    ),
    "the dual vector": (in_certificate(shifted, "ada"), [f"{name}: gap is" for name in NAMES]),
    "a dual vector too short": (
        in_certificate(lambda one: replace(one, witness=tuple(v[:-1] for v in one.witness)), "ada"),
        ["ada: its certificate lacks what a proof needs"],
    ),
    "no parts": (
        in_certificate(
            lambda one: replace(
                one, settings={k: v for k, v in one.settings.items() if k != "parts"}
            ),
            "bea",
        ),
        ["bea: its certificate names no parts"],
    ),
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A study that was fitted, without the parties' addresses: files to copy."""
    folder = tmp_path_factory.mktemp("fitted")
    tables = data("features", classification=True)
    write_study(folder, problem=LASSO, network="path", tol=1e-3)
    assert [result.status for result in together(folder, tables)] == ["optimal"] * 3
    return folder, tables


@pytest.mark.rotates
@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_was_falsified_is_found_and_said_by_all(tmp_path, fitted, forgery):
    forge, expected = FORGERIES[forgery]
    folder, tables = fitted
    write_study(tmp_path, problem=LASSO, network="path", tol=1e-3)
    for name in NAMES:
        (tmp_path / name / "result").mkdir()
        for file in (folder / name / "result").iterdir():
            (tmp_path / name / "result" / file.name).write_bytes(file.read_bytes())
        for key in [*(folder / name).glob("*.pem"), folder / name / "nonce.txt"]:
            (tmp_path / name / key.name).write_bytes(key.read_bytes())
        (tmp_path / name / "nonce.txt").chmod(0o600)
    pins = {name: fingerprint((folder / name / "certificate.pem").read_bytes()) for name in NAMES}
    pin(tmp_path / "study.toml", pins)
    assert all(one.holds for one in together(tmp_path, tables, work=verify_together))
    forge(tmp_path)
    found = together(tmp_path, tables, work=verify_together)
    assert found[0].objections == found[1].objections == found[2].objections
    assert len(found[0].objections) >= len(expected)
    assert all(any(text in one for one in found[0].objections) for text in expected), found[
        0
    ].objections
    # Only what was falsified is objected to: beside a changed part, nobody else's files are blamed.
    blamed = {one.split(":")[0] for one in found[0].objections if ":" in one}
    assert blamed == {text.split(":")[0] for text in expected if ":" in text}


def test_other_data_is_found_by_its_party(fitted):
    folder, tables = fitted
    changed = [*tables[:1], replace(tables[1], X=tables[1].X + 1e-12), tables[2]]
    for one in together(folder, changed, work=verify_together):
        assert one.objections == ("bea: its data is not the data that was certified",)
    for error in together(
        folder,
        [table.take_rows(np.arange(50 + k)) for k, table in enumerate(tables)],
        work=verify_together,
    ):
        assert isinstance(error, InvalidData)
        assert "party 'bea': has 51 rows but party 'ada' has 50" in str(error)


def test_a_file_that_is_not_there_is_refused_before_anybody_is_called(tmp_path):
    write_study(tmp_path)
    write_data(tmp_path, data("features"))
    refused = shell("verify", tmp_path / "bea" / "party.toml")
    assert refused.exit_code == REFUSED
    assert "certificate.json cannot be read (No such file or directory)" in refused.text
    refused = shell("predict", tmp_path / "bea" / "party.toml", tmp_path / "bea" / "data.csv")
    assert refused.exit_code == REFUSED
    assert "model.npz does not exist" in refused.text


def test_who_verifies_alone_is_told_how(fitted):
    folder, _ = fitted
    result = folder / "ada" / "result"
    refused = shell(
        "verify", result / "certificate.json", result / "model.npz", folder / "study.toml"
    )
    assert refused.exit_code == REFUSED
    assert "run `coterie verify party.toml` at every party" in refused.text


@pytest.mark.parametrize(
    "given", [["certificate.json"], ["certificate.json", "model.npz"], ["party.toml", "model.npz"]]
)
def test_the_wrong_number_of_files_is_answered_with_the_right_one(given):
    refused = shell("verify", *given)
    assert refused.exit_code == 2
    told = " ".join(refused.output.replace("│", " ").split())
    assert f"{len(given)} file{'s were' if len(given) > 1 else ' was'} given" in told
    assert "certificate.json, model.npz and the data that was fitted" in told
    assert "party.toml" in told


def test_the_page_says_what_is_sent_to_verify(tmp_path):
    write_study(tmp_path)
    page = disclosure(load_study(tmp_path / "study.toml"), "bea", data("features")[1])
    assert "Sent to verify, by `coterie verify`:\n  - " in page


def test_a_changed_number_ends_the_command_with_the_same_code_at_every_party(tmp_path):
    """With real processes; tests/study/test_peers.py runs the command where everything is in
    order.
    """
    names, tables = NAMES[:2], data("features", names=NAMES[:2])
    write_study(tmp_path, names=names, problem=RIDGE | {"intercept": True}, tol=1e-3)
    write_data(tmp_path, tables)
    together(tmp_path, names=names)
    file = tmp_path / "bea" / "result" / "model.npz"
    model = LinearModel.load(file)
    replace(model, coef_=model.coef_ + np.eye(4)[1] * 1e-6).save(file)
    ended = coterie("verify", tmp_path, "--json")
    found = json.loads(ended.stdout)
    assert ended.returncode == found["exit_code"] == 4, ended.stdout + ended.stderr
    for name in names:
        assert found["parties"][name]["exit_code"] == 4
        assert not found["parties"][name]["holds"]
        assert found["parties"][name]["objections"] == [
            "bea: its model.npz is not the one that was certified"
        ]


# -- files next to the certificate -----------------------------------------------------------------


@pytest.fixture(scope="module")
def with_errors(tmp_path_factory):
    """A study with standard errors, and its tables."""
    folder = tmp_path_factory.mktemp("errors")
    plain = {"loss": "logistic", "penalty": "none", "intercept": True}
    tables = data("samples", classification=True, n=150, d=2, seed=2)
    flipped = np.random.default_rng(5).random(50) < 0.3
    tables = [replace(table, y=np.where(flipped, -table.y, table.y)) for table in tables]
    write_study(folder, problem=plain, split="samples", inference="robust", tol=1e-8)
    together(folder, tables)
    return folder, tables


def content_of(file):
    return json.loads(file.read_text())


def resealed_run(file, **changes):
    content = content_of(file) | changes
    content.pop("seal")
    file.write_text(json.dumps({**content, "seal": digest(json.dumps(content, sort_keys=True))}))


@pytest.mark.parametrize(
    "field", ["standard_errors", "estimates", "p_values", "names", "sums", "kind", "missing"]
)
def test_forged_standard_errors_are_refused_by_all(with_errors, field):
    folder, tables = with_errors
    file = folder / "bea" / "result" / "inference.json"
    honest = file.read_text()
    content = json.loads(honest)
    other = {"names": content["names"][::-1], "kind": "model"}.get(field)
    try:
        if field == "missing":
            file.unlink()
        else:
            changed = [value * 1.001 for value in content[field]] if other is None else other
            file.write_text(json.dumps({**content, field: changed}))
        for one in together(folder, tables, work=verify_together):
            assert not one.holds
            assert any("bea: its inference.json" in text for text in one.objections), one.objections
    finally:
        file.write_text(honest)


def test_honest_standard_errors_are_named_and_a_forged_run_is_refused(with_errors):
    folder, tables = with_errors
    for one in together(folder, tables, work=verify_together):
        assert one.holds, one
        assert "the robust standard errors of 3 coefficients" in one.compared
    file = folder / "ada" / "result" / "run.json"
    honest = file.read_text()
    resealed_run(file, explanation="Method cocoa, as asked for.")
    for one in together(folder, tables, work=verify_together):
        assert any("ada: run.json explains another method" in text for text in one.objections), one
    file.write_text(honest)


def edited(name, **changes):
    """Changes a file of a folder that has no seal."""

    def forge(folder):
        file = folder / name
        file.write_text(json.dumps(content_of(file) | changes))

    return forge


FORGED_FILES = {
    "rounds": (edited("bill.json", rounds=1), "bill.json has another rounds"),
    "total": (
        edited("bill.json", total={"messages": 1, "scalars": 1, "bits": 1}),
        "bill.json has another total",
    ),
    "purposes": (edited("bill.json", bill=[]), "bill.json has another bill"),
    "another part": (edited("bill.json", path={}), "bill.json has another path"),
    "no bill": (lambda folder: (folder / "bill.json").unlink(), "bill.json cannot be read"),
    "choice": (
        lambda folder: (folder / "choice.json").write_text("{}"),
        "choice.json that the study does not ask for",
    ),
    "path": (lambda folder: (folder / "path").mkdir(), "path/ was changed"),
    "scores": (
        lambda folder: (folder / "evaluation.json").write_text("{}"),
        "evaluation.json cannot be read",
    ),
}


@pytest.mark.parametrize("what", FORGED_FILES)
def test_other_files_of_one_party_are_compared(with_errors, tmp_path, what):
    folder, tables = with_errors
    copy = tmp_path / "study"
    shutil.copytree(folder, copy)
    forge, objection = FORGED_FILES[what]
    forge(copy / "ada" / "result")
    for one in together(copy, tables, work=verify_together):
        assert any(text.startswith("ada: ") and objection in text for text in one.objections), one


def test_the_bill_is_compared_and_costs_that_no_file_repeats_are_named(with_errors):
    folder, tables = with_errors
    for one in together(folder, tables, work=verify_together):
        assert "bill.json, with the bill of run.json" in one.compared
        assert any("the cost of standard errors" in text for text in one.unchecked)


@pytest.fixture(scope="module")
def with_path(tmp_path_factory):
    """A study with a path, and its tables."""
    folder = tmp_path_factory.mktemp("path")
    tables = data("samples", classification=True)
    settings = {"path.strengths": [0.5, 0.05], "path.cv": 2}
    problem = {"loss": "logistic", "penalty": "l2", "intercept": True}
    write_study(folder, problem=problem, split="samples", tol=1e-4, **settings)
    results = together(folder, tables)
    assert all(result.status.success for result in results), results
    return folder, tables


def forged_strength(folder):
    place = folder / "path" / "strength-000"
    certificate = Certificate.load(place / "certificate.json")
    gap = certificate.gap / 2
    numbers = {"gap": gap, "dual": certificate.primal - gap, "relative_gap": gap / certificate.unit}
    replace(certificate, **numbers).save(place / "certificate.json")


def other_strengths(folder):
    content = content_of(folder / "path" / "path.json")
    content |= {"strengths": content["strengths"][::-1]}
    content.pop("seal")
    (folder / "path" / "path.json").write_text(
        json.dumps({**content, "seal": digest(json.dumps(content))})
    )


FORGED_PATHS = {
    "certificate": (forged_strength, "path/strength-000: ada: gap is"),
    "strengths": (other_strengths, "its certificate is about"),
    "no path": (lambda folder: shutil.rmtree(folder / "path"), "lacks the one that it asks for"),
    "no strength": (
        lambda folder: shutil.rmtree(folder / "path" / "strength-001"),
        "path/ was changed",
    ),
    "cost": (edited("bill.json", path={}), "bill.json has another path"),
}


@pytest.mark.parametrize("what", [None, *FORGED_PATHS])
def test_every_certificate_of_a_path_is_verified_together(with_path, tmp_path, what):
    folder, tables = with_path
    if what is None:
        for one in together(folder, tables, work=verify_together):
            assert one.holds, one
            assert "the 2 certificates of the path, with all parties" in one.compared
            assert any("only a new cross-validation gives" in text for text in one.unchecked)
        return
    copy = tmp_path / "study"
    shutil.copytree(folder, copy)
    forge, objection = FORGED_PATHS[what]
    forge(copy / "ada" / "result")
    for one in together(copy, tables, work=verify_together):
        assert any(objection in text for text in one.objections), one
