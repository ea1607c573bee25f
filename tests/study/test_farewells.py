"""A party that leaves can put no words into the mouth of another one: reasons are signed, quoted and
shortened, and the one who says them is named.
"""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import coterie as co
from coterie.errors import InvalidInput, PartyLost, ProtocolError
from coterie.run.statuses import Status
from coterie.study.party import fit_together
from coterie.study.study import load_party
from coterie.transport.farewell import SHOWN, Farewell, error_of, quoted, read, signed
from coterie.transport.frames import Kind
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.keys import load_keys
from coterie.transport.links import Tag
from tests.harness.parties import NAMES, data, processes, together, write_data, write_study
from tests.study.test_faults import LONG

TEXT = "cyd forged its data. \x1b[31m\u202eSend key.pem\nto help@example.org " + 900 * "x"
OTHERS = {"ada": "cyd", "cyd": "ada"}
"""The neighbours of bea, and whom bea blames there."""


def study(folder):
    write_study(folder, deadline=20.0, policy="", **LONG | {"max-rounds": 100_000})
    return data(classification=True)


def leaving(post):
    """Links that leave after some rounds at bea: `post` says what an edge is sent."""

    class Leaving(GrpcMesh):
        sent = 0

        def send(self, to, message, tag):
            if self.name(self.me) == "bea" and tag.purpose == "rounds":
                self.sent += 1
                if self.sent > 300:
                    for neighbour, edge in self._edges.items():
                        post(self, edge, OTHERS[self.name(neighbour)])
                    time.sleep(1.0)
                    raise InvalidInput("nobody hears this")
            super().send(to, message, tag)

    return Leaving


def unsigned(mesh, edge, other):
    """A farewell of the old form, in plain text."""
    edge.post(Kind.LEAVE, np.empty(0), Tag("", 0, other), note=TEXT)


def in_the_name_of_another(mesh, edge, other):
    """The words of another party, signed with bea's key."""
    words = Farewell(mesh.run_id, mesh.meeting, other, "", "", TEXT[:300])
    content = signed(mesh.security, words)
    edge.post(Kind.LEAVE, np.frombuffer(content, np.uint8), Tag("", 0, ""))


def of_another_meeting(mesh, edge, other):
    words = Farewell(mesh.run_id, bytes(32), "bea", other, "", TEXT[:300])
    content = signed(mesh.security, words)
    edge.post(Kind.LEAVE, np.frombuffer(content, np.uint8), Tag("", 0, ""))


def garbage(mesh, edge, other):
    edge.post(Kind.LEAVE, np.frombuffer(os.urandom(20_000), np.uint8), Tag("", 0, ""))


@pytest.mark.parametrize(
    ("post", "said"),
    [
        (unsigned, "bea left the run."),
        (in_the_name_of_another, "bea left the run, with a reason that is not signed."),
        (of_another_meeting, "bea left the run, with a reason of another run."),
        (garbage, "bea left the run, with a reason that is not signed."),
    ],
)
def test_words_that_are_not_signed_blame_who_sends_them(tmp_path, post, said):
    found = together(tmp_path, study(tmp_path), links=leaving(post))
    for name, result in zip(NAMES, found, strict=True):
        if name == "bea":
            continue
        assert isinstance(result, co.Result), result
        assert (result.status, result.lost_party) == (Status.PARTY_LOST, "bea")
        assert result.reason == said
        assert OTHERS[name] not in result.reason


def test_a_signed_accusation_names_its_author(tmp_path):
    """Neighbours that are told of each other's loss see that bea says so, to each another name."""

    def post(mesh, edge, other):
        words = Farewell(mesh.run_id, mesh.meeting, "bea", other, "", TEXT)
        content = signed(mesh.security, words)
        edge.post(Kind.LEAVE, np.frombuffer(content, np.uint8), Tag("", 0, ""))

    found = together(tmp_path, study(tmp_path), links=leaving(post))
    for name, result in zip(NAMES, found, strict=True):
        if name == "bea":
            continue
        other = OTHERS[name]
        beginning = f'bea reports that it lost {other}: "cyd forged its data. [31m Send key.pem to'
        assert result.reason.startswith(beginning), result.reason
        assert result.reason.endswith(' ..."')
        assert len(result.reason) < SHOWN + 60
        assert result.reason.isprintable()


def test_a_reason_is_passed_on_as_it_was_signed(tmp_path):
    """ada learns of cyd's reason through bea, in cyd's words, and not as bea's."""
    tables = study(tmp_path)

    def work(own, study, consent, table):
        def watch(t, record):
            if own.party == "cyd" and t > 50:
                raise InvalidInput('a "disk" is full.')

        return fit_together(own, study, consent=consent, table=table, watch=watch)

    work.__name__ = "work_together"
    ada, bea, _ = together(tmp_path, tables, work=work)
    assert ada.reason == bea.reason == "cyd left the run: \"a 'disk' is full.\""
    assert ada.lost_party == bea.lost_party == "cyd"


def keys_of(folder, name):
    own, study = load_party(folder / name / "party.toml")
    return load_keys(own.keys, name, study.pins())


def test_a_signed_reason_is_read_or_refused(tmp_path):
    write_study(tmp_path)
    ada, bea = (keys_of(tmp_path, name) for name in NAMES[:2])
    words = Farewell("run", b"m", "ada", "", Status.PROTOCOL_ERROR, "no")
    content = signed(ada, words)
    assert read(bea, content, NAMES) == words
    error = error_of(words, content)
    assert isinstance(error, PartyLost)
    assert (str(error), error.party, error.status) == (
        'ada left the run: "no"',
        "ada",
        Status.PROTOCOL_ERROR,
    )
    assert error.farewell == content
    refused, places = 0, range(0, len(content), 3)
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 4
        try:
            assert read(bea, bytes(changed), NAMES) == words, "white space in a TLS certificate"
        except ProtocolError:
            refused += 1
    assert refused > 0.9 * len(places)
    for wrong in (
        Farewell("run", b"m", "bea", "", "", "no"),
        Farewell("run", b"m", "ada", "nobody", "", "no"),
        Farewell("run", b"m", "nobody", "", "", "no"),
    ):
        with pytest.raises(ProtocolError):
            read(bea, signed(ada, wrong), NAMES)


def test_quoted_text_is_one_short_printable_line():
    assert quoted('a\n\tb "c"\x1b[2J\u202e\u200b') == "\"a b 'c' [2J\""
    assert len(quoted("x" * 5000)) == SHOWN + 2
    assert quoted("") == '""'


FRAMES = """
import sys, time
import numpy as np
from coterie.transport.frames import Kind
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.links import Tag
send, sent = GrpcMesh.send, []

def framing(self, to, message, tag):
    sent.append(tag.purpose)
    if sent.count("rounds") > 300:
        for neighbour, edge in self._edges.items():
            other = {0: "cyd", 2: "ada"}[neighbour]
            edge.post(Kind.LEAVE, np.empty(0), Tag("", 0, other), note=other + " forged its data.")
        time.sleep(3)
        sys.exit(1)
    send(self, to, message, tag)

GrpcMesh.send = framing
from coterie.cli import main
sys.exit(main())
"""


@pytest.mark.chaos
@pytest.mark.rotates
def test_processes_with_default_policies_blame_the_one_who_left(tmp_path):
    tables = study(tmp_path)
    write_data(tmp_path, tables)
    with processes(tmp_path, scripts={"bea": FRAMES}) as running:
        ends = {name: running[name].wait() for name in OTHERS}
    for name, (code, printed) in ends.items():
        assert code == Status.PARTY_LOST.exit_code
        assert printed["lost_party"] == "bea"
        assert "forged" not in (tmp_path / name / "result" / "run.json").read_text()
        assert "forged" not in (tmp_path / name / "log").read_text()
