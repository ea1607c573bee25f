"""Keys that the parties agreed on: whoever shows another one is refused by name, with the same
words everywhere.
"""

from __future__ import annotations

import json
import re
import time

import pytest

from coterie.commands.exit_codes import REFUSED, VERIFICATION_FAILED
from coterie.errors import InvalidInput
from coterie.study.party import fit_together
from coterie.study.study import load_study
from coterie.transport.keys import fingerprint, make_request, sign
from tests.harness.parties import NAMES, data, together, write_study
from tests.harness.shell import shell


def provision(folder, *arguments):
    ran = shell("provision", str(folder / "study.toml"), "--json", *map(str, arguments))
    return json.loads(ran.stdout)


def another_key(folder, name):
    """A key that the coordinator makes for that party, and signs."""
    (folder / name / "key.pem").unlink()
    request = make_request(folder / name, name).read_bytes()
    (folder / name / "certificate.pem").write_bytes(
        sign(folder / "coordinator", request, list(NAMES))[1]
    )
    return fingerprint(request)


def refused_by_all(folder, name, shown, pinned):
    words = (
        f"{name} shows another key than the study holds for it: SHA-256 {shown} instead of {pinned}"
    )
    ends = together(folder, data("features"))
    assert [words in str(end) for end in ends] == [True] * 3, ends
    assert [end.status for end in ends] == ["protocol_error"] * 3


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_the_coordinator_made_is_refused_by_name(tmp_path, name):
    write_study(tmp_path, network="path")
    pinned = load_study(tmp_path / "study.toml").pins()[name]
    refused_by_all(tmp_path, name, another_key(tmp_path, name), pinned)


def test_the_old_key_is_refused_after_another_was_signed_with_replace(tmp_path):
    write_study(tmp_path, network="path", tol=1e-2)
    old = {file: (tmp_path / "bea" / file).read_bytes() for file in ("key.pem", "certificate.pem")}
    (tmp_path / "signed" / "bea").mkdir(parents=True)
    (tmp_path / "signed" / "bea" / "certificate.pem").write_bytes(old["certificate.pem"])
    (tmp_path / "bea" / "key.pem").unlink()
    request = provision(tmp_path, "--party", "bea")["made"][0]
    assert "sign with --replace" in provision(tmp_path, "--sign", request)["error"]
    new = provision(tmp_path, "--sign", request, "--replace")["keys"]["bea"]
    assert load_study(tmp_path / "study.toml").pins()["bea"] == new
    (tmp_path / "bea" / "certificate.pem").write_bytes(
        (tmp_path / "signed/bea/certificate.pem").read_bytes()
    )
    assert [end.status for end in together(tmp_path, data("features"))] == ["optimal"] * 3
    for file, content in old.items():
        (tmp_path / "bea" / file).write_bytes(content)
    refused_by_all(tmp_path, "bea", fingerprint(old["certificate.pem"]), new)


@pytest.mark.parametrize("late", [0.0, 1.5])
def test_a_fingerprint_that_was_swapped_at_one_party_is_refused_by_all(tmp_path, late):
    write_study(tmp_path, network="path")
    text = (tmp_path / "study.toml").read_text()
    pins = load_study(tmp_path / "study.toml").pins()
    swapped = pins["bea"][::-1]
    (tmp_path / "ada" / "study.toml").write_text(text.replace(pins["bea"], swapped))
    party = tmp_path / "ada" / "party.toml"
    party.write_text(party.read_text().replace("../study.toml", "study.toml"))

    def one(own, study, **given):
        time.sleep(late if own.party == "cyd" else 0.0)
        return fit_together(own, study, consent=True, **given)

    ends = together(tmp_path, data("features"), work=one)
    assert [end.status for end in ends] == ["protocol_error"] * 3
    # cyd is no neighbour of ada, and hears it from bea, which waits for it a while.
    for end in ends:
        assert "do not agree on the study" in str(end)
        assert f"party 1 = bea, key {pins['bea']}" in str(end)
        assert f"party 1 = bea, key {swapped}" in str(end)


def test_without_a_key_in_the_study_there_is_no_run(tmp_path):
    write_study(tmp_path)
    text = (tmp_path / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(re.sub(r"^key = .*\n", "", text, flags=re.MULTILINE))
    with pytest.raises(InvalidInput, match=r"study\.toml holds no key of ada, bea, cyd"):
        raise together(tmp_path, data("features"))[0]


def test_keys_are_logged_listed_renewed_and_removed(tmp_path):
    write_study(tmp_path, network="path", tol=1e-2)
    pins = load_study(tmp_path / "study.toml").pins()
    said = []
    together(tmp_path, data("features"), say=said.append)
    assert said.count("keys: " + "; ".join(f"{name} {pins[name]}" for name in NAMES)) == 3
    listed = provision(tmp_path, "--list")["keys"]
    assert all(
        re.fullmatch(rf"{pins[name]}, valid until \d{{4}}-\d\d-\d\d", listed[name])
        for name in NAMES
    )
    # The same key, for longer: the study stays as it is, and so do runs and their snapshots.
    before = (tmp_path / "study.toml").read_text()
    requests = [part for name in NAMES for part in ("--sign", tmp_path / name / "request.pem")]
    provision(tmp_path, *requests, "--days", "1")
    soon = provision(tmp_path, "--list")["keys"]["bea"]
    provision(tmp_path, "--renew", "bea", "--days", "90")
    assert soon < provision(tmp_path, "--list")["keys"]["bea"]
    assert before == (tmp_path / "study.toml").read_text()
    provision(tmp_path, "--remove", "cyd")
    assert load_study(tmp_path / "study.toml").names == ["ada", "bea"]
    refused = provision(tmp_path, "--remove", "bea")
    assert refused["exit_code"] == REFUSED
    assert "at least two parties" in refused["error"]
    assert load_study(tmp_path / "study.toml").names == ["ada", "bea"]


def test_a_certificate_of_another_authority_is_not_renewed(tmp_path):
    write_study(tmp_path / "one")
    write_study(tmp_path / "other")
    refused = provision(tmp_path / "one", "--sign", tmp_path / "other" / "ada" / "certificate.pem")
    assert refused["exit_code"] == VERIFICATION_FAILED
    assert "this is not a signing request" in refused["error"]


def test_the_example_has_its_keys_in_the_study(tmp_path):
    provision(tmp_path / "try", "--example", "--all-local")
    assert set(load_study(tmp_path / "try" / "study.toml").pins()) == {
        "clinic",
        "laboratory",
        "imaging",
    }
