"""Digests of small tables wait until they are read, and notice tables that have changed."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.data import Table, pending
from coterie.data.pending import PendingDigest, pending_digests
from coterie.errors import InvalidData
from coterie.numerics.kernels.checksum import checksum
from coterie.run.certificate import Participant


def table(sparse=False, dtype=float):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((11, 3)).astype(dtype)
    y, weights, offset = rng.standard_normal((3, 11))
    if sparse:
        X = sp.csr_array(np.where(X > 0, X, 0))
    return Table(X, y, np.abs(weights), offset=offset, name="north")


def fitted():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    weights = rng.uniform(1, 2, 60)
    result = co.solve(co.Problem("squared", "l2", 0.1), (X, y, weights), agents=4, progress=False)
    return result, X, y, weights


def test_a_fit_computes_no_digest_and_its_certificate_has_those_of_the_tables(monkeypatch):
    digest, computed = Table.digest, []
    monkeypatch.setattr(Table, "digest", lambda self: computed.append(self.name) or digest(self))
    result, X, y, weights = fitted()
    assert computed == []
    found = [party.digest for party in result.certificate.participants]
    assert computed == ["agent 0", "agent 1", "agent 2", "agent 3"]
    parts = [slice(k, k + 15) for k in range(0, 60, 15)]
    assert found == [Table(X[at], y[at], weights[at]).digest() for at in parts]
    assert found == [party.digest for party in result.certificate.participants]
    assert len(computed) == 8, "four of this test, and none twice"


@pytest.mark.parametrize("part", ["X", "y", "weights", "order"])
def test_a_table_that_changed_after_the_fit_is_refused(part, tmp_path):
    result, X, y, weights = fitted()
    if part == "order":
        X[[20, 21]] = X[[21, 20]]
    else:
        {"X": X[:, 0], "y": y, "weights": weights}[part][20] += 1e-9
    refusal = "party 'agent 1': the numbers of its table were changed after the fit"
    with pytest.raises(InvalidData, match=refusal):
        result.save(tmp_path / "run")
    for read in (repr, pickle.dumps, lambda certificate: certificate.data_digest):
        with pytest.raises(InvalidData, match=refusal):
            read(result.certificate)


def test_a_digest_that_was_read_is_kept(tmp_path):
    result, X, *_ = fitted()
    known = result.certificate.data_digest
    X += 1.0
    assert result.certificate.data_digest == known
    certificate = pickle.loads(pickle.dumps(result.certificate))
    assert certificate.participants == result.certificate.participants
    path = result.certificate.save(tmp_path / "certificate.json")
    assert type(certificate).load(path).data_digest == known


def test_a_participant_is_a_frozen_dataclass_whose_digest_may_wait():
    first = fitted()[0].certificate.participants[0]
    renamed = dataclasses.replace(first, name="east")
    assert (renamed.name, renamed.digest) == ("east", first.digest)
    assert first == dataclasses.replace(renamed, name="agent 0")
    assert hash(first) == hash(pickle.loads(pickle.dumps(first)))
    assert list(first.listed()) == ["name", "rows", "columns", "digest"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.digest = ""
    with pytest.raises(TypeError, match="digest"):
        Participant("east", 1, 1)


def test_a_restored_table_is_accepted():
    result, X, *_ = fitted()
    before = X[0, 0]
    X[0, 0] += 1.0
    with pytest.raises(InvalidData, match="Save or print the certificate before"):
        repr(result.certificate)
    X[0, 0] = before
    assert "digest=" in repr(result.certificate)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_part_of_a_table_enters_its_checksum(sparse, dtype):
    given = table(sparse, dtype)
    waiting = PendingDigest(given)
    X = given.X
    arrays = [given.y, given.weights, given.offset]
    arrays += [X.data, X.indices, X.indptr] if sparse else [X]
    for array in arrays:
        for place in range(array.size):
            before = array.flat[place]
            array.flat[place] = before + 1
            with pytest.raises(InvalidData, match="party 'north'"):
                waiting.value()
            array.flat[place] = before
    assert waiting.value() == given.digest()


def test_digests_of_large_tables_and_of_unusual_memory_do_not_wait(monkeypatch):
    given = table()
    assert pending_digests([given, given]) is not None
    strided = Table(np.zeros((11, 6))[:, ::2], given.y)
    assert pending_digests([given, strided]) is None
    monkeypatch.setattr(pending, "MOST", 2 * given.X.size - 1)
    assert pending_digests([given, given]) is None
    result, X, y, weights = fitted()
    digest = Table(X[:15], y[:15], weights[:15]).digest()
    X += 1.0
    assert result.certificate.participants[0].digest == digest


def test_a_checksum_is_the_sum_that_its_docstring_states():
    words = np.random.default_rng(2).integers(0, 2**64, 11, np.uint64)
    factor, start = 0x9E3779B97F4A7C15, 7
    parts = [start] * 4
    for place, word in enumerate(words.tolist()):
        lane = place % 4 if place < 8 else 0
        parts[lane] = (parts[lane] * factor + word) % 2**64
    expected = 0
    for part in parts:
        expected = (expected * factor + part) % 2**64
    assert int(checksum(words, np.uint64(start))) == expected
