"""A party's nonce: commitments that tell nothing, randomness that nobody else knows, and both again
after a crash.
"""

from __future__ import annotations

import itertools
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import coterie as co
from coterie.data import Table
from coterie.engines.local import Local
from coterie.errors import CorruptFile
from coterie.run.certificate import Certificate
from coterie.study.nonce import commitment, secret
from coterie.study.proof import verify_together
from coterie.study.study import load_party
from coterie.transport.grpc_mesh import GrpcMesh
from tests.harness.parties import NAMES, data, same_secrets, together, write_study


def parties(folder):
    return [load_party(folder / name / "party.toml") for name in NAMES]


def test_a_row_cannot_be_found_from_what_is_said_of_the_data(tmp_path):
    write_study(tmp_path)
    own, study = parties(tmp_path)[0]
    guesses = [
        Table(np.array([row], float), name="ada") for row in itertools.product((0, 1, 2), repeat=4)
    ]
    row = guesses[57]
    assert [guess.digest() == row.digest() for guess in guesses].count(
        True
    ) == 1  # a plain digest finds it
    said = commitment(own, study, row)
    assert said not in {guess.digest() for guess in guesses}
    other = parties(tmp_path)[1][0]
    assert said not in {commitment(other, study, guess) for guess in guesses}
    assert said == commitment(own, study, row)


def test_the_nonce_is_made_once_by_whoever_is_first_and_read_by_its_owner_alone(tmp_path):
    write_study(tmp_path)
    own, study = parties(tmp_path)[0]
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: secret(own, study), range(16)))) == 1
    file = own.keys / "nonce.txt"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in own.keys.glob(".nonce*")] == []
    file.write_text(file.read_text()[:-1])
    with pytest.raises(CorruptFile, match=r"nonce\.txt was changed"):
        secret(own, study)


class Overheard(GrpcMesh):
    """Keeps what ada hears of the leaf cyd's first vector of the set-up."""

    def __init__(self, received, *given, **more):
        super().__init__(*given, **more)
        self.overheard = received

    def send(self, to, message, tag):
        if self.me == 2 and tag.purpose == "setup" and message.size == 60:
            self.overheard.append(np.array(message))
        super().send(to, message, tag)


@pytest.mark.parametrize("method", ["tree"])
def test_set_up_does_not_multiply_columns_by_numbers_that_others_know(tmp_path, method):
    tables = data("features")
    write_study(tmp_path, method=method, network="path", tol=1e-3)
    received = []
    results = together(tmp_path, tables, links=partial(Overheard, received))
    X = tables[2].X
    scaled = X / np.sqrt((X**2).sum(axis=0))

    def fits(random):
        # The message is the columns, scaled to equal lengths, times the drawn vector, up to one
        # factor.
        guess = scaled @ random.standard_normal(3)
        return (
            abs(guess @ received[0]) / np.linalg.norm(guess) / np.linalg.norm(received[0])
            > 1 - 1e-9
        )

    assert not fits(np.random.default_rng([0, 3, 0]))  # what the public seed gives
    words = np.frombuffer(secret(*parties(tmp_path)[2]), np.uint32).tolist()
    assert fits(np.random.default_rng([*words, 3, 0]))
    settings = {
        "split": "features",
        "network": "path",
        "method": method,
        "tol": 1e-3,
        "progress": False,
    }
    problem = co.Problem(loss="squared", penalty="l2", strength=0.1, intercept=False)
    same = co.solve(problem, tables, engine=same_secrets(tmp_path), **settings)
    assert (np.concatenate([result.model.coef_ for result in results]) == same.model.coef_).all()
    assert (
        same.history.gap.tolist()
        != co.solve(problem, tables, engine=Local(), **settings).history.gap.tolist()
    )


def test_commitments_verify_there_and_old_files_with_digests_do_too(tmp_path):
    tables = data("features")
    write_study(tmp_path, method="tree", network="path", tol=1e-3)
    together(tmp_path, tables)
    assert all(found.holds for found in together(tmp_path, tables, work=verify_together))
    changed = [tables[0], replace(tables[1], X=tables[1].X + 1e-9), tables[2]]
    for found in together(tmp_path, changed, work=verify_together):
        assert found.objections == ("bea: its data is not the data that was certified",)
    for name in NAMES:  # as an earlier version wrote it
        path = tmp_path / name / "result" / "certificate.json"
        old = Certificate.load(path)
        plain = tuple(
            replace(p, digest=t.digest()) for p, t in zip(old.participants, tables, strict=True)
        )
        replace(old, participants=plain).save(path)
    objections = {
        text
        for found in together(tmp_path, tables, work=verify_together)
        for text in found.objections
    }
    # They signed the commitments, and a model belongs to the certificate of its run.
    assert all(
        "signature" in text or "another run than its certificate" in text for text in objections
    ), objections
    assert any("signature" in text for text in objections)
