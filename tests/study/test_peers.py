"""Parties between organisations: the same bits as the embedded engine, over real TLS, in real
processes.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.links import measure
from scripts import disclosure_table

import coterie as co
from coterie.api.result import Result
from coterie.catalogue import unregister
from coterie.commands.exit_codes import REFUSED
from coterie.errors import CoterieError, InvalidData, InvalidInput, ProtocolError
from coterie.methods import METHODS
from coterie.problems.models import load_model
from coterie.run.certificate import Certificate
from coterie.run.disclosure import Disclosure
from coterie.study.disclosure import candidates, check_labels, disclosure
from coterie.study.party import fit_together, read_own
from coterie.study.proof import verify_together
from coterie.study.scores import predict_together
from coterie.study.study import load_party, load_study
from coterie.transport.broadcast import SignedBroadcast, SignedMessage
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.keys import load_keys, provide_all
from coterie.transport.layout import Layout
from coterie.transport.links import Tag
from tests.harness.parties import (
    ANYTHING,
    NAMES,
    RIDGE,
    data,
    same_secrets,
    together,
    without_digests,
    write_data,
    write_study,
)
from tests.harness.shell import shell

BY_NAME = ANYTHING + '\npolicy.methods = ["blocks"]'
LASSO = {"loss": "logistic", "penalty": "l1", "strength": 0.02, "intercept": True}


def pooled_coefficients(results, split):
    return (
        np.concatenate([r.model.coef_ for r in results])
        if split == "features"
        else results[0].model.coef_
    )


CASES = [
    ("graph-cp", "features", "ring", RIDGE, {}),
    ("graph-cp", "features", "path", LASSO, {}),
    ("tree", "features", "path", LASSO, {}),
    ("pvrd2", "features", "ring", RIDGE, {"max-rounds": 60}),
    ("vrd2", "features", "path", RIDGE, {"max-rounds": 60}),
    ("diffusion", "features", "ring", RIDGE, {"max-rounds": 60}),
    ("dynamic-diffusion", "features", "ring", RIDGE, {"max-rounds": 60}),
    ("cocoa", "samples", None, RIDGE, {}),
    ("consensus", "samples", None, LASSO, {}),
    ("lin-consensus", "samples", "ring", RIDGE, {}),
    ("proximal-1", "samples", None, LASSO, {}),
    ("proximal-2", "samples", "path", RIDGE, {}),
    ("gram", "samples", None, RIDGE, {}),
    (
        "newton",
        "samples",
        None,
        {"loss": "logistic", "penalty": "l2", "strength": 0.01, "intercept": False},
        {},
    ),
    (
        "softmax-newton",
        "samples",
        None,
        {"loss": "multinomial", "penalty": "l2", "strength": 0.01, "intercept": False},
        {},
    ),
    ("cox-newton", "samples", None, {"loss": "cox", "penalty": "l1", "strength": 0.01}, {}),
    ("auto", "samples", None, RIDGE, {}),
]
LOW_RANK_METHODS = ["dfw-trace", "naive-dfw", "sva", "dfw-subspace"]


def some_problem(method):
    """One that this method can solve."""
    for problem in (RIDGE, LASSO, RIDGE | {"loss": "absolute"}):
        try:
            method().check(co.Problem(**problem), co.networks.star(3, server=True))
        except InvalidInput:
            continue
        return problem
    raise AssertionError(f"{method.name} needs a case of its own")


# A method that was added later is tried too.
CASES += [
    (name, entry.split, None, some_problem(entry), {})
    for name, entry in METHODS.items()
    if entry.split != "users" and name not in {*LOW_RANK_METHODS, *(case[0] for case in CASES)}
]


@pytest.mark.rotates
@pytest.mark.parametrize(("method", "split", "network", "problem", "more"), CASES)
def test_peers_are_the_embedded_engine_bit_by_bit(tmp_path, method, split, network, problem, more):
    tables = data(split, problem["loss"] in ("logistic", "multinomial"))
    if problem["loss"] == "cox":
        tables = [
            replace(t, y=co.survival_labels(np.ceil(9 * np.exp(t.y)), np.arange(t.n) % 3 > 0))
            for t in tables
        ]
    secure = split == "samples" and not (method != "auto" and METHODS[method].one_sender)
    settings = {
        "method": method,
        "split": split,
        "tol": 1e-4,
        "max-rounds": 300,
        "secure-sums": secure,
        **more,
    }
    settings["policy"] = BY_NAME if method == "blocks" else ANYTHING
    write_study(tmp_path, problem=problem, **settings, **({"network": network} if network else {}))
    results = together(tmp_path, tables)
    local = co.solve(
        co.Problem(**problem),
        tables,
        split=split,
        network=network,
        method=method,
        tol=1e-4,
        max_rounds=settings["max-rounds"],
        secure_sums=secure,
        engine=same_secrets(tmp_path),
        progress=False,
    )
    assert [r.status for r in results] == [local.status] * 3
    assert np.abs(pooled_coefficients(results, split) - local.model.coef_).max() <= 1e-10
    if split == "features":
        assert sum(r.model.intercept_ for r in results) == pytest.approx(
            local.model.intercept_, abs=1e-10
        )
    for name, result in zip(NAMES, results, strict=True):
        assert without_digests(result.bill) == local.bill
        assert result.history.gap == pytest.approx(local.history.gap, abs=1e-10)
        # What was written is what was returned, and the certificate is about the same data.
        written = Result.load(tmp_path / name / "result")
        assert [p.rows for p in written.certificate.participants] == [
            p.rows for p in local.certificate.participants
        ]
        assert written.certificate.data_digest == results[0].certificate.data_digest
        # Somebody who can guess the data cannot confirm the guess.
        told = {participant.digest for participant in written.certificate.participants}
        assert told.isdisjoint(participant.digest for participant in local.certificate.participants)
        assert written.certificate.gap == pytest.approx(local.certificate.gap, abs=1e-10)
        assert written.certificate.settings["parts"][name] == written.model.digest()
        assert json.loads((tmp_path / name / "result" / "bill.json").read_text())["total"] == vars(
            result.bill.total
        )


LOW_RANK = {"loss": "multinomial", "penalty": "traceball", "radius": 5.0}


@pytest.mark.parametrize("method", LOW_RANK_METHODS)
def test_low_rank_models_too(tmp_path, method):
    random = np.random.default_rng(0)
    X = random.standard_normal((60, 6))
    y = np.array(["red", "green", "blue"])[(X @ random.standard_normal((6, 3))).argmax(axis=1)]
    tables = [
        replace(t, name=n, rows=None)
        for t, n in zip(co.data.split(co.read((X, y)), "samples", 3), NAMES, strict=True)
    ]
    problem = {**LOW_RANK, "intercept": method.startswith("dfw")}
    write_study(tmp_path, problem=problem, method=method, split="samples", **{"max-rounds": 15})
    results = together(tmp_path, tables)
    local = co.solve(
        co.Problem(**problem),
        tables,
        method=method,
        max_rounds=15,
        secure_sums=True,
        progress=False,
    )
    for result in results:
        assert result.status == local.status
        assert np.abs(result.model.coef_ - local.model.coef_).max() <= 1e-10
        assert np.abs(result.model.intercept_ - local.model.intercept_).max() <= 1e-10
        assert result.model.classes_.tolist() == ["blue", "green", "red"]
        assert result.bill == local.bill


def test_a_matrix_is_completed_in_stages_between_organisations(tmp_path):
    random = np.random.default_rng(0)
    pairs = random.permutation(np.argwhere(np.ones((8, 7))))[:45].astype(float)
    tables = [
        replace(t, name=n, rows=None)
        for t, n in zip(
            co.data.split(co.read((pairs, random.standard_normal(45))), "samples", 3),
            NAMES,
            strict=True,
        )
    ]
    problem = {
        "loss": "completion",
        "penalty": "traceball",
        "radius": 5.0,
        "shape": [8, 7],
        "stages": 3,
    }
    write_study(tmp_path, problem=problem, split="samples", **{"max-rounds": 11})
    results = together(tmp_path, tables)
    local = co.solve(co.Problem(**problem), tables, max_rounds=11, secure_sums=True, progress=False)
    for result in results:
        assert np.abs(result.model.coef_ - local.model.coef_).max() <= 1e-10
        assert result.certificate.gap == pytest.approx(local.certificate.gap, abs=1e-10)
        assert result.bill == local.bill
        assert "stages" in result.certificate.proves


@pytest.mark.parametrize(("dtype", "sparse"), [(np.float32, False), (float, True)])
def test_precision_and_sparsity_are_those_of_the_embedded_engine(tmp_path, dtype, sparse):
    tables = data("features", dtype=dtype, sparse=sparse)
    write_study(tmp_path, method="tree", network="path", tol=1e-3)
    results = together(tmp_path, tables)
    local = co.solve(
        co.Problem(**RIDGE),
        tables,
        split="features",
        network="path",
        method="tree",
        tol=1e-3,
        engine=same_secrets(tmp_path),
        progress=False,
    )
    assert results[0].model.coef_.dtype == dtype
    assert (pooled_coefficients(results, "features") == local.model.coef_).all()
    assert without_digests(results[2].bill) == local.bill


def test_one_party_in_float32_follows_the_others(tmp_path):
    tables = data("features")
    tables[1] = replace(tables[1], X=tables[1].X.astype(np.float32))
    write_study(tmp_path, method="tree", network="path", tol=1e-3)
    results = together(tmp_path, tables)
    local = co.solve(
        co.Problem(**RIDGE),
        tables,
        split="features",
        network="path",
        method="tree",
        tol=1e-3,
        engine=same_secrets(tmp_path),
        progress=False,
    )
    assert (pooled_coefficients(results, "features") == local.model.coef_).all()


def test_files_that_leave_their_last_columns_out_are_padded_as_they_are_here(tmp_path):
    tables = [replace(table, X=sp.csr_array(table.X), columns=None) for table in data("samples")]
    narrow = replace(tables[1], X=sp.csr_array(tables[1].X.toarray()[:, :-1]))
    tables[1] = replace(narrow, open_ended=True)
    results = together(write_study(tmp_path, split="samples", tol=1e-6), tables)
    local = co.solve(co.Problem(**RIDGE), tables, tol=1e-6, secure_sums=True, progress=False)
    assert (results[1].model.coef_ == local.model.coef_).all()
    for error in together(
        write_study(tmp_path / "again", split="samples"), [tables[0], narrow, tables[2]]
    ):
        assert isinstance(error, InvalidData)
        assert "party 'bea'" in str(error)
        assert "columns but party 'ada' has" in str(error)


def test_an_empty_party_changes_nothing(tmp_path):
    tables = data("samples")
    pooled = co.solve(co.Problem(**RIDGE), tables, tol=1e-8, progress=False)
    tables[1:] = [
        replace(
            tables[1],
            X=np.vstack([t.X for t in tables[1:]]),
            y=np.concatenate([t.y for t in tables[1:]]),
        ),
        replace(tables[2].take_rows(np.arange(0)), y=None),
    ]
    openly = {"split": "samples", "secure-sums": False}  # whoever has no rows hides nobody
    write_study(tmp_path, tol=1e-8, **openly)
    results = together(tmp_path, tables)
    assert [r.status for r in results] == ["optimal"] * 3
    assert results[2].model.coef_ == pytest.approx(pooled.model.coef_, abs=1e-5)
    nobody = [replace(t.take_rows(np.arange(0)), y=None) for t in tables]
    for error in together(write_study(tmp_path / "again", **openly), nobody):
        assert isinstance(error, InvalidData)
        assert "no party has any rows" in str(error)


@pytest.mark.parametrize(
    ("limit", "status"),
    [({"max-seconds": 0.3}, "time_limit"), ({"max-bits": 3e5}, "communication_limit")],
)
def test_limits_stop_all_parties_after_the_same_round(tmp_path, limit, status):
    problem = {"loss": "logistic", "penalty": "l2", "strength": 1e-5, "intercept": False}
    write_study(tmp_path, problem=problem, method="graph-cp", network="path", tol=1e-15, **limit)
    results = together(tmp_path, data("features", classification=True))
    assert [r.status for r in results] == [status] * 3
    assert results[0].rounds == results[1].rounds == results[2].rounds > 0
    assert results[0].bill == results[2].bill


# -- rows ------------------------------------------------------------------------------------------


def keyed(n=80, seed=3, text=False):
    """Three parties with rows of their own in an order of their own, ids included."""
    tables = data("features", n=n)
    random = np.random.default_rng(seed)
    ids = random.permutation(10 * n)[:n]
    made = []
    for table in tables:
        rows = random.permutation(n)[: n - 7]
        made.append(
            replace(table.take_rows(rows), ids=ids[rows].astype(str) if text else ids[rows])
        )
    return made


@pytest.mark.parametrize("psi", [False, True])
@pytest.mark.parametrize("text", [False, True])
def test_rows_are_matched_by_id(tmp_path, psi, text):
    if psi:
        pytest.importorskip(
            "private_set_intersection.python", reason="openmined-psi is not installed"
        )
    tables = keyed(text=text)
    write_study(tmp_path, method="tree", network="path", tol=1e-3, id="patient", psi=psi)
    results = together(tmp_path, tables)
    aligned, _ = co.align(tables)
    local = co.solve(
        co.Problem(**RIDGE),
        aligned,
        split="features",
        network="path",
        method="tree",
        tol=1e-3,
        engine=same_secrets(tmp_path),
        progress=False,
    )
    assert aligned[0].n < min(table.n for table in tables)
    assert (pooled_coefficients(results, "features") == local.model.coef_).all()
    assert all(without_digests(r.bill) == local.bill for r in results)


def spoilt(kind):
    tables = keyed()
    if kind == "duplicates":
        tables[1] = replace(
            tables[1], ids=np.where(np.arange(tables[1].n) < 3, tables[1].ids[0], tables[1].ids)
        )
    elif kind == "types":
        tables[2] = replace(tables[2], ids=tables[2].ids.astype(str))
    elif kind == "nothing in common":
        tables[2] = replace(tables[2], ids=tables[2].ids + 100_000)
    elif kind == "two label parties":
        tables[1] = replace(tables[1], y=np.zeros(tables[1].n))
    elif kind == "no labels":
        tables[0] = replace(tables[0], y=None)
    return tables


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("types", r"ada has 73 \(integers\); bea has 73 \(integers\); cyd has 73 \(text\)"),
        ("nothing in common", r"no id occurs at every party: ada has 73"),
        ("two label parties", "labels at 2 parties: ada, bea"),
        ("no labels", "labels at no party"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_all_with_the_counts(tmp_path, kind, message):
    write_study(tmp_path, method="tree", network="path", id="patient")
    errors = together(tmp_path, spoilt(kind))
    assert [type(error) for error in errors] == [InvalidData] * 3, errors
    for error in errors:
        with pytest.raises(InvalidData, match=message):
            raise error
    assert not list(tmp_path.glob("*/result"))


def test_private_matching_finds_nothing_in_common_too(tmp_path):
    pytest.importorskip("private_set_intersection.python", reason="openmined-psi is not installed")
    write_study(tmp_path, method="tree", network="path", id="patient", psi=True)
    for error in together(tmp_path, spoilt("nothing in common")):
        assert isinstance(error, InvalidData), error
        assert "no id occurs at every party: ada has 73" in str(error)


def test_duplicates_are_refused_by_their_party_and_the_others_are_told(tmp_path):
    write_study(tmp_path, method="tree", network="path", id="patient")
    errors = together(tmp_path, spoilt("duplicates"))
    assert isinstance(errors[1], InvalidData)
    assert "1 id occurs more than once" in str(errors[1])
    assert all(
        "bea left the run: \"party 'bea': 1 id occurs more than once" in str(errors[k])
        for k in (0, 2)
    )


def test_unequal_row_counts_without_ids_are_refused(tmp_path):
    tables = data("features")
    tables[2] = tables[2].take_rows(np.arange(50))
    write_study(tmp_path, method="tree", network="path")
    for error in together(tmp_path, tables):
        assert "party 'cyd': has 50 rows but party 'ada' has 60" in str(error)


def test_a_name_at_two_parties_is_refused_where_rows_are_in_the_same_order(tmp_path):
    write_study(tmp_path)
    tables = data()
    tables[2] = replace(tables[2], columns=("x7", tables[0].columns[1], "x8"))
    page = disclosure(load_study(tmp_path / "study.toml"), "ada", tables[0])
    assert "keyed hashes of the column names" in page
    first, second, third = together(tmp_path, tables)
    for error in (first, third):
        assert isinstance(error, InvalidData)
        assert "a column ('x1') is at ada and at cyd" in str(error)
    assert "(the same name) is at ada and at cyd" in str(second)


def test_bad_values_are_refused_before_anybody_is_called(tmp_path):
    write_study(tmp_path)
    (tmp_path / "ada" / "data.csv").write_text("a,b,y\n1,inf,2\n3,inf,5\n")
    own, study = load_party(tmp_path / "ada" / "party.toml")
    with pytest.raises(
        InvalidData, match=r"party 'ada': column 'b' has 2 values that are not finite"
    ):
        read_own(own, study)


# -- agreement -------------------------------------------------------------------------------------


def test_studies_that_differ_are_shown_line_by_line(tmp_path):
    write_study(tmp_path, network="path", tol=1e-3)
    other = (tmp_path / "study.toml").read_text().replace("0.001", "0.002").replace('"l2"', '"l1"')
    (tmp_path / "cyd" / "study.toml").write_text(other)
    file = tmp_path / "cyd" / "party.toml"
    file.write_text(file.read_text().replace("../study.toml", "study.toml"))
    errors = together(tmp_path, data("features"))
    # Who is not their neighbour ends in the same way, with the reason.
    assert errors[0].status == "protocol_error"
    assert "bea and cyd do not agree on the study" in str(errors[0])
    for error in errors[1:]:
        assert isinstance(error, ProtocolError), error
        lines = str(error).splitlines()
        assert sum(line.endswith("tol = 0.001") for line in lines) == 1
        assert sum(line.endswith("tol = 0.002") for line in lines) == 1
        assert sum("penalty" in line for line in lines) == 2
        assert not any("seed" in line for line in lines)


def test_the_version_of_the_program_is_part_of_what_is_agreed_on(tmp_path):
    write_study(tmp_path)
    assert (
        load_study(tmp_path / "study.toml").agreement.splitlines()[0]
        == f"coterie = {co.__version__}"
    )


def test_who_predicts_does_not_meet_who_fits(tmp_path):
    tables = data("features")
    write_study(tmp_path, names=NAMES[:2], tol=1e-2)
    together(tmp_path, tables[:2], names=NAMES[:2])
    (tmp_path / "bea" / "new.csv").write_text("x3,x4,x5\n1,2,3\n")

    def work(own, study, table):
        if own.party == "bea":
            return predict_together(own, study, tmp_path / "bea" / "new.csv", consent=True)
        return fit_together(own, study, table=table, consent=True)

    for error in together(tmp_path, tables[:2], names=NAMES[:2], work=work):
        assert isinstance(error, ProtocolError), error
        assert "purpose = fit" in str(error)
        assert "purpose = predict" in str(error)


def test_a_party_may_do_without_snapshots(tmp_path):
    tables = data("features")
    write_study(tmp_path, network="path", tol=1e-3)
    file = tmp_path / "bea" / "party.toml"
    file.write_text(file.read_text() + 'checkpoint = ""\n')
    assert [r.status for r in together(tmp_path, tables)] == ["optimal"] * 3
    assert (tmp_path / "ada" / "checkpoint").exists()
    assert not (tmp_path / "bea" / "checkpoint").exists()


def test_a_study_that_was_changed_begins_anew(tmp_path):
    tables = data("features")[:2]
    write_study(tmp_path, names=NAMES[:2], tol=1e-3, seed=0)
    file = tmp_path / "study.toml"
    for text in (file.read_text(), file.read_text().replace("strength = 0.1", "strength = 0.2")):
        file.write_text(text)
        assert [r.status for r in together(tmp_path, tables, names=NAMES[:2])] == ["optimal"] * 2
    assert len(list((tmp_path / "ada" / "checkpoint").iterdir())) == 2


class Tampering(SignedBroadcast):
    """Party 1 of the path 0 – 1 – 2, which changes what it passes on about something: up to ada, or
    down to cyd.
    """

    about = "cards"

    def up(self, words):
        return words

    down = up

    def gathered(self, mine, about, merge):
        if self.links.me != 1 or about != self.about:
            return super().gathered(mine, about, merge)
        (child,), parent, tag = self.children, self.parent, Tag("study", 0, about)
        words = msgspec.msgpack.decode(
            merge([mine, self.links.receive_bytes(child, tag)]), type=dict[int, bytes]
        )
        self.links.send_bytes(parent, msgspec.msgpack.encode(self.up(words)), tag)
        words = msgspec.msgpack.decode(self.links.receive_bytes(parent, tag), type=dict[int, bytes])
        self.links.send_bytes(child, msgspec.msgpack.encode(self.down(words)), tag)
        return msgspec.msgpack.encode(words)


def changing(speaker, other=None):
    """Another body under that speaker's signature, or another speaker's word in its place."""

    def change(broadcast, words):
        collective = msgspec.msgpack.decode(words[speaker], type=SignedMessage)
        changed = msgspec.msgpack.encode(msgspec.structs.replace(collective, body=b"changed"))
        return words | {speaker: changed if other is None else words[other]}

    return change


TAMPERING = {
    "speaks for its parent": (
        {"up": lambda broadcast, words: words | {0: words[1]}},
        "cards: bea sent messages of parties outside its branch",
    ),
    "changes what its child says": (
        {"up": changing(2)},
        r"the message of cyd \(cards\) was changed",
    ),
    "changes what its parent says": (
        {"down": changing(0)},
        r"the message of ada \(cards\) was changed",
    ),
    "changes what its child hears of itself": (
        {"down": changing(2)},
        "cards: what cyd sent came back changed",
    ),
    "hands out another certificate": (
        {"up": changing(2, 1), "about": "introduction"},
        "TLS certificate that was passed on for cyd is not valid",
    ),
    "leaves somebody out": (
        {"down": lambda broadcast, words: {0: words[0]}},
        r"cards: only \[0\] of 3 parties sent a message",
    ),
    "hands out nonsense": (
        {"down": lambda broadcast, words: words | {0: b"x"}},
        "unexpected payload",
    ),
    "says one thing here and another there": (
        {
            "down": lambda broadcast, words: (
                words | {1: broadcast._signed(b"something else", "cards")}
            )
        },
        r"the message of ... \(digests\) was changed",
    ),
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    made = provide_all(tmp_path_factory.mktemp("keys"), "study", list(NAMES))
    return [load_keys(made[name], name) for name in NAMES]


def conversation(keys, kind):
    """What each of three parties on a path hears of the others' names, twice, or the error that it
    ends with.
    """
    network = co.networks.path(3)
    links = [
        GrpcMesh(j, Layout(network, range(3), j).partners, "run", keys[j], 3.0, names=NAMES)
        for j in range(3)
    ]
    for one in links:
        one.connect([other.address for other in links])

    def one(place):
        with links[place]:
            try:
                broadcast = kind(links[place], network)
                return [
                    broadcast.all_gather(NAMES[place].encode(), about)
                    for about in ("cards", "digests")
                ]
            except CoterieError as error:
                return error

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(one, range(3)))


@pytest.mark.parametrize("how", TAMPERING)
def test_who_passes_words_on_cannot_change_them(keys, how):
    changes, message = TAMPERING[how]
    ends = conversation(keys, type("Changed", (Tampering,), changes))
    assert all(isinstance(end, CoterieError) for end in (ends[0], ends[2])), ends
    assert any(isinstance(end, ProtocolError) and re.search(message, str(end)) for end in ends), (
        ends
    )


def test_words_of_another_meeting_are_not_taken(keys):
    received = []

    class Recording(Tampering):
        def up(self, words):
            received.append(words[2])
            return words

    assert conversation(keys, Recording) == [[[b"ada", b"bea", b"cyd"]] * 2] * 3

    class Replaying(Tampering):
        def up(self, words):
            return words | {2: received[0]}

    ends = conversation(keys, Replaying)
    assert "the message of cyd" in str(ends[0])


def test_a_whole_meeting_cannot_be_played_back(keys):
    """Not even from its first word on, where every signature holds and all is of one session: that
    of another day.
    """
    received = {}

    class Recording(Tampering):
        def gathered(self, mine, about, merge):
            self.about = about
            return super().gathered(mine, about, merge)

        def down(self, words):
            received[self.about] = words
            return words

    assert conversation(keys, Recording) == [[[b"ada", b"bea", b"cyd"]] * 2] * 3
    ends = conversation(
        keys,
        type(
            "Replaying", (Recording,), {"down": lambda broadcast, words: received[broadcast.about]}
        ),
    )
    assert "what cyd sent came back changed" in str(ends[2])


class Bent(GrpcMesh):
    """Bea's links, over which cyd hears other sums than bea did, by a hair."""

    def send(self, to, message, tag):
        if self.me == 1 and to == 2 and (tag.purpose, tag.collective) == ("proof", "Sum"):
            message = message * (1 + 1e-13)
        super().send(to, message, tag)


def test_who_passes_sums_on_cannot_change_them(tmp_path):
    write_study(tmp_path, network="path", tol=1e-3)
    tables = data("features")
    for error in together(tmp_path, tables, links=Bent):
        assert error.status == "protocol_error", error
        assert "cyd received other sums than ada" in str(error)
    assert not list(tmp_path.glob("*/result"))
    assert [result.status for result in together(tmp_path, tables)] == ["optimal"] * 3


@pytest.mark.parametrize("method", ["pvrd2", "tree", "lbfgs"])
def test_labels_are_told_only_if_all_agreed(tmp_path, method):
    write_study(tmp_path, method=method, network="ring", **{"labels-shared": False})
    own, study = load_party(tmp_path / "ada" / "party.toml")
    with pytest.raises(
        InvalidInput, match="write `labels-shared = true` into the study; if not, do not run it"
    ):
        fit_together(own, study, table=data("features")[0])  # before anybody is called


def test_labels_that_are_not_shared_leave_blocks_which_policies_have_to_name(tmp_path):
    tables = data("features", True)
    problem = {"loss": "logistic", "penalty": "l1", "strength": 0.01, "intercept": False}
    for policy in (ANYTHING, BY_NAME):
        write_study(
            tmp_path, problem=problem, network="path", policy=policy, **{"labels-shared": False}
        )
        ends = together(tmp_path, tables)
        if policy == ANYTHING:
            assert all(
                "'blocks' sends the columns: a policy has to name it" in str(end) for end in ends
            )
    assert [end.status for end in ends] == ["optimal"] * 3
    local = co.solve(
        co.Problem(**problem), tables, split="features", network="path", method="blocks", tol=1e-6
    )
    np.testing.assert_allclose(pooled_coefficients(ends, "features"), local.model.coef_, atol=1e-4)
    for name, end in zip(NAMES, ends, strict=True):
        assert end.certificate.settings["proved_by"] == "the party with the labels, alone"
        assert set(end.certificate.signatures) == set(NAMES)
        # The dual vector, from which labels follow, stays where the labels are.
        assert [len(v) > 0 for v in end.certificate.witness] == [name == NAMES[0], False, False]
    # Others change the rotation, and with it the last bits; no message may tell the labels in a
    # second run either.
    own, study = load_party(tmp_path / "bea" / "party.toml")
    with pytest.raises(InvalidInput, match="proved this certificate alone"):
        verify_together(own, study, table=tables[1])
    write_study(tmp_path / "again", problem=problem, network="path", policy=BY_NAME, method="tree")
    assert all("is not among methods" in str(end) for end in together(tmp_path / "again", tables))


def test_a_subclass_with_a_new_name_does_not_slip_past_the_rule_on_labels(tmp_path):
    @co.register
    @dataclass(frozen=True)
    class Disguised(METHODS["tree"]):
        name: ClassVar[str] = "disguised"

    try:
        write_study(tmp_path, method="disguised", network="ring", **{"labels-shared": False})
        study = load_study(tmp_path / "study.toml")
        with pytest.raises(InvalidInput, match="disguised: from the messages of this method"):
            check_labels(study)
        assert METHODS["tree"].disclosure.sent in disclosure(study, "bea", data("features")[1])
    finally:
        unregister(Disguised)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("deadline = 30.0", "deadlin = 8.0"), "unknown field `deadlin`"),
        (("deadline = 30.0", "deadline = 0"), "deadline is a number of seconds above 0"),
        (("deadline = 30.0", "deadline = 30.0\ntol = -1.0"), "tol is a relative duality gap"),
        (
            ("deadline = 30.0", "deadline = 30.0\ncheck-every = 0"),
            "check_every must be a whole number",
        ),
        (('name = "bea"', 'name = "ada"'), "two parties have the same name"),
        (('name = "bea"', 'name = "b/ea"'), "not a valid party name"),
        (("127.0.0.1:", "nowhere"), "is host:port"),
        (('loss = "squared"', 'loss = "sqared"'), "Did you mean 'squared'"),
        (('name = "test"', 'name = "test"\npsi = true'), "psi matches rows by an id"),
        (('name = "test"', 'name = "test"\nnetwork = "rign"'), "ring"),
        (('name = "test"', 'name = "test"\nmethod = "graph-pc"'), "graph-cp"),
        (('name = "test"', 'name = "test"\nmethod = "tree"\noptions.rho = 1'), "rho"),
        (('name = "test"', 'name = "test"\nmethod = "cocoa"'), "split by samples, not by features"),
        (
            ('name = "test"', 'name = "test"\nnetwork = [["ada", "bea"]]'),
            "2 agents, but there are 3 parties",
        ),
        (
            ('name = "test"', 'name = "test"\nnetwork = [["ada", "dan"]]'),
            "no party of this study called 'dan'",
        ),
    ],
)
def test_a_study_that_makes_no_sense_is_refused_with_the_place(tmp_path, change, message):
    write_study(tmp_path)
    load_study(tmp_path / "study.toml")
    text = (tmp_path / "study.toml").read_text()
    assert change[0] in text
    (tmp_path / "study.toml").write_text(text.replace(*change))
    with pytest.raises(InvalidInput, match=message):
        load_study(tmp_path / "study.toml")


def test_the_disclosure_names_who_hears_what(tmp_path):
    write_study(tmp_path, network="path", method="graph-cp", id="patient")
    study = load_study(tmp_path / "study.toml")
    page = disclosure(study, "ada", keyed()[0])
    assert "To: bea; over the network" in page
    assert "73 rows, 3 columns, the labels" in page
    assert METHODS["graph-cp"].disclosure.sent in page
    assert METHODS["graph-cp"].disclosure.learned in page
    assert "keyed hashes of your ids" in page
    assert "the labels" not in disclosure(study, "cyd", keyed()[2]).split("\n\n")[1]


def test_the_disclosure_lists_what_may_be_chosen(tmp_path):
    write_study(tmp_path, network="path")
    study = load_study(tmp_path / "study.toml")
    page = disclosure(study, "bea", data("features")[1])
    named = {
        name for name, method in METHODS.items() if f"- {name}: {method.disclosure.sent}" in page
    }
    assert named == candidates(study).keys() == {"blocks", "graph-cp", "lbfgs", "tree"}


@pytest.mark.parametrize("intercept", [False, True])
def test_the_disclosure_names_the_means(tmp_path, intercept):
    write_study(tmp_path, problem=RIDGE | {"intercept": intercept}, split="samples")
    page = disclosure(load_study(tmp_path / "study.toml"), "bea", data("samples")[1])
    assert ("for each column: its sum." in page) == intercept


@pytest.mark.parametrize("name", METHODS)
def test_every_method_states_what_it_tells(name):
    statistics, tells = METHODS[name].disclosure, METHODS[name].discloses_labels
    assert isinstance(statistics, Disclosure)
    assert all((statistics.sent, statistics.learned, statistics.secure))
    # Certificates of a vertical model let everybody compute the labels; a method whose own do not
    # may say so here.
    assert tells == (METHODS[name].split == "features" and not METHODS[name].moves_columns)


@pytest.mark.rotates
@pytest.mark.parametrize("split", ["samples", "features"])
def test_the_engine_on_one_machine_is_the_embedded_one_bit_by_bit(split):
    tables = data(split)
    settings = {
        "split": split,
        "network": "path",
        "tol": 1e-3,
        "secure_sums": None if split == "features" else True,
    }
    fits = [
        co.solve(co.Problem(**RIDGE), tables, engine=engine, progress=False, **settings)
        for engine in ("local", "peers")
    ]
    assert fits[0].status == fits[1].status == "optimal"
    assert (fits[0].model.coef_ == fits[1].model.coef_).all()
    assert fits[0].bill == fits[1].bill


# -- prediction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["path", "star"])
def test_predictions_are_summed_for_the_label_party_alone(tmp_path, network):
    tables = keyed()
    write_study(
        tmp_path, problem=RIDGE | {"intercept": True}, network=network, tol=1e-3, id="patient"
    )
    results = together(tmp_path, tables)
    aligned, _ = co.align(tables)
    new = {}
    for table in tables:
        new[table.name] = tmp_path / table.name / "new.csv"
        with new[table.name].open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", *table.columns])
            writer.writerows(
                [i, *row] for i, row in zip(table.ids.tolist(), table.X.tolist(), strict=True)
            )

    def one(name):
        own, study = load_party(tmp_path / name / "party.toml")
        return predict_together(own, study, new[name], consent=True)

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(one, NAMES))
    expected = sum(
        t.X @ r.model.coef_ + r.model.intercept_ for t, r in zip(aligned, results, strict=True)
    )
    assert answers[0].table.ids.tolist() == aligned[0].ids.tolist()
    assert answers[0].answers == pytest.approx(expected, abs=1e-12)
    assert answers[1].answers is None
    assert answers[2].scores is None


# -- the commands ----------------------------------------------------------------------------------


def coterie(*arguments, **more):
    command = [sys.executable, "-m", "coterie", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, **more)


@pytest.mark.rotates
def test_the_commands_of_the_readme(tmp_path):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    section = readme.partition("## Three organisations, two commands")[2].partition("\n## ")[0]
    first, second, third = re.findall(r"^\$ coterie (.*)$", section, re.MULTILINE)
    made = coterie(*first.split(), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    ran = coterie(*second.split(), "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    study = tmp_path / "try-out" / "study.toml"
    found = json.loads(ran.stdout)["parties"]
    parties = load_study(study).names
    tables = []
    for party in parties:
        own, definition = load_party(study.parent / party / "party.toml")
        tables.append(read_own(own, definition))
    aligned, _ = co.align(tables)
    results = [Result.load(study.parent / party / "result") for party in parties]
    # Between organisations no policy names blocks; in one process columns may move.
    assert results[0].certificate.settings["method"]["name"] == "lbfgs"
    local = co.solve(
        definition.make_problem(),
        aligned,
        split="features",
        network=definition.make_network(),
        method="lbfgs",
        tol=definition.tol,
        engine=same_secrets(study.parent, parties),
        progress=False,
    )
    assert all(result.status == "optimal" for result in results)
    assert (
        np.abs(np.concatenate([r.model.coef_ for r in results]) - local.model.coef_).max() <= 1e-10
    )
    for party, result in zip(parties, results, strict=True):
        assert without_digests(result.bill) == local.bill
        assert found[party]["total"] == vars(result.bill.total)
        assert (
            Certificate.load(study.parent / party / "result" / "certificate.json").relative_gap
            <= definition.tol
        )

    checked = coterie(*third.split(), "--json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for one in json.loads(checked.stdout)["parties"].values():
        assert one["holds"]
        assert one["gap"] == pytest.approx(local.certificate.gap, rel=1e-9)


def test_each_party_makes_its_own_key_and_the_coordinator_signs(tmp_path):
    write_study(tmp_path)
    for name in (*NAMES, "coordinator"):
        for file in (tmp_path / name).glob("*.pem"):
            file.unlink()
    study, requests = tmp_path / "study.toml", []
    for name in NAMES:
        made = shell("provision", study, "--party", name, "--json")
        assert made.exit_code == 0, made.output
        requests += json.loads(made.stdout)["made"]
    signed = shell(
        "provision", study, *(part for request in requests for part in ("--sign", request))
    )
    assert signed.exit_code == 0, signed.output
    for name in NAMES:
        assert not (tmp_path / "signed" / name / "key.pem").exists()
        for file in (tmp_path / "signed" / name).iterdir():
            file.rename(tmp_path / name / file.name)
    results = together(tmp_path, data("features"))
    assert [r.status for r in results] == ["optimal"] * 3


@pytest.mark.parametrize("missing", ["key.pem", "certificate.pem", "authority.pem"])
def test_without_keys_there_is_no_run(tmp_path, missing):
    write_study(tmp_path)
    (tmp_path / "ada" / missing).unlink()
    own, study = load_party(tmp_path / "ada" / "party.toml")
    with pytest.raises(InvalidInput, match=f"{missing} cannot be read"):
        fit_together(own, study, table=data("features")[0], consent=True)


def test_the_page_can_be_seen_without_taking_part(tmp_path):
    write_study(tmp_path)
    (tmp_path / "ada" / "data.csv").write_text("a,b,y\n1,2,2\n3,4,5\n")
    shown = shell("agent", tmp_path / "ada" / "party.toml", "--show")
    assert shown.exit_code == 0, shown.output
    assert "what ada sends" in shown.output
    assert not (tmp_path / "ada" / "result").exists()
    refused = shell("agent", tmp_path / "bea" / "party.toml")
    assert refused.exit_code == REFUSED
    assert "data.csv" in refused.text


def test_the_pages_of_a_folder_can_be_seen_without_a_rehearsal(tmp_path):
    write_study(tmp_path)
    write_data(tmp_path, data("features"))
    shown = shell("agent", tmp_path, "--show")
    assert shown.exit_code == 0, shown.output
    assert all(shown.output.count(f"what {name} sends") == 1 for name in NAMES)
    assert not list(tmp_path.glob("*/result"))
    refused = shell("agent", tmp_path, "--predict", tmp_path / "ada" / "data.csv")
    assert refused.exit_code == REFUSED
    assert "predict with one party.toml at each party" in refused.text


def test_a_part_of_a_model_does_not_predict_alone(tmp_path):
    tables = data("features")
    write_study(tmp_path, names=NAMES[:2], tol=1e-2)
    write_data(tmp_path, tables[:2])
    together(tmp_path, names=NAMES[:2])
    model = tmp_path / "bea" / "result" / "model.npz"
    assert load_model(model).part == "bea of test"
    refused = shell("predict", model, tmp_path / "bea" / "data.csv")
    assert refused.exit_code == REFUSED
    assert "this is bea's part" in refused.text


def test_another_key_is_not_signed_by_the_way(tmp_path):
    write_study(tmp_path)
    study = tmp_path / "study.toml"
    first = json.loads(shell("provision", study, "--party", "ada", "--json").stdout)
    request = ["--sign", first["made"][0]]
    for _ in range(2):
        signed = shell("provision", study, *request)
        assert signed.exit_code == 0, signed.output
        assert f"SHA-256 {first['keys']['ada']}" in signed.output
    (tmp_path / "ada" / "key.pem").unlink()
    second = json.loads(shell("provision", study, "--party", "ada", "--json").stdout)
    assert second["keys"] != first["keys"]
    refused = shell("provision", study, *request)
    assert refused.exit_code == REFUSED
    assert "belongs to another key" in refused.text
    assert shell("provision", study, *request, "--replace").exit_code == 0


def bad_data(folder):
    (folder / "cyd" / "data.csv").write_text("c\n1\nnan\n")


def other_authority(folder):
    made = provide_all(folder / "other", "test", list(NAMES))
    for file in made["cyd"].iterdir():
        file.replace(folder / "cyd" / file.name)


def other_study(folder):
    (folder / "cyd" / "study.toml").write_text(
        (folder / "study.toml").read_text().replace('"l2"', '"l1"')
    )
    file = folder / "cyd" / "party.toml"
    file.write_text(file.read_text().replace("../study.toml", "study.toml"))


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("spoil", "reason", "codes"),
    [
        (bad_data, "column 'c' has 1 missing value", [18, 18, 3]),
        pytest.param(
            other_authority, "cannot prove that it is bea", [18, 18, 19], marks=pytest.mark.slow
        ),
        pytest.param(
            other_study, "do not agree on the study", [19, 19, 19], marks=pytest.mark.slow
        ),
    ],
)
def test_a_rehearsal_in_which_one_is_refused_ends_for_all_with_the_reason(
    tmp_path, spoil, reason, codes
):
    write_study(tmp_path, network="path", deadline=3600.0)
    write_data(tmp_path, data("features"))
    spoil(tmp_path)
    ran = coterie("agent", *(tmp_path / name / "party.toml" for name in NAMES), "--json")
    found = json.loads(ran.stdout)
    assert [found["parties"][name]["exit_code"] for name in NAMES] == codes, found
    assert all(reason in found["parties"][name]["error"] for name in NAMES), found
    assert ran.returncode == found["exit_code"] == codes[-1]


def test_the_table_of_methods_is_made_of_what_they_state():
    text = disclosure_table.PAGE.read_text("utf-8")
    assert text == disclosure_table.page(text), "run `python scripts/disclosure_table.py`"


@pytest.mark.slow
def test_tls_costs_at_most_twice_the_plain_link():
    for collective in ("Sum", "Exchange"):
        plain, tls, cpu = measure(collective, 4, [16384])[16384]
        print(collective, round(tls / plain, 2), round(cpu, 2))
        assert tls / plain <= 2
        assert cpu <= 2
