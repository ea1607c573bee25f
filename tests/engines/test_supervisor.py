"""The supervisor of the processes of a run: what it keeps, when it gives up, when it stops them."""

from __future__ import annotations

import _thread
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.engines import Run
from coterie.engines.processes import RunSpec
from coterie.engines.supervisor import report, supervise
from coterie.errors import InvalidProblem, NumericalError, PartyLost
from coterie.networks import star
from coterie.run.bill import Bill
from coterie.run.certificate import Bound, Point
from coterie.run.rounds import Outcome
from coterie.run.settings import Limits
from coterie.run.statuses import Status
from coterie.run.stopping import Record

NETWORK = star(2, server=True)
SPEC = RunSpec(Run((), None, NETWORK, Limits()), (0, 1), ("ada", "bea"), None, "")
SAVED = replace(SPEC, folder=Path("nowhere"))
LOST = PartyLost("bea stopped answering", "bea")


def outcome(process, round=1, status=Status.OPTIMAL, error=None):
    history = [Record(round, 0.0, 0, 1.0, 0.5, 0.5)]
    bound = Bound(1.0, 0.5, None)
    return Outcome(
        status,
        [Point(np.full(1, 10.0 * process + round))],
        bound,
        1.0,
        Bill(NETWORK),
        history,
        error,
    )


class Script:
    """Processes that say what is written, so many lines at a time; at the end of the script they
    are silent.
    """

    def __init__(self, *received):
        self.received, self.said = list(received), []

    def listen(self, running, seconds):
        if not self.received:
            assert seconds == 0, "waits for processes that will never say anything again"
            return []
        lines = self.received.pop(0)
        assert all(line[0] in running for line in lines), "listens to a process that has ended"
        return lines

    def introduce(self, addresses):
        self.said.append(addresses)

    def stop(self):
        self.said.append("stop")


MET = [(1, "address", "b"), (0, "address", "a")]
KEPT = [(0, "kept", outcome(0)), (1, "kept", outcome(1))]
ENDED = [(0, "end", outcome(0, 3)), (1, "end", outcome(1, 3))]


def followed(*scripts, spec=SPEC, restarts=0, watch=lambda t, record: None):
    attempts = iter(scripts)
    return supervise(spec, watch, restarts, lambda: nullcontext(next(attempts)))


def test_all_are_introduced_and_the_ends_put_together():
    script = Script(MET, KEPT, ENDED)
    found = followed(script)
    assert found.status == "optimal"
    assert [point.w[0] for point in found.points] == [3.0, 13.0]
    assert script.said == [["a", "b"]]


BEA_DIES = [KEPT[1], (1, "lost", LOST)]


@pytest.mark.parametrize(
    "lines", [[[*BEA_DIES, KEPT[0]]], [BEA_DIES, [KEPT[0]]]], ids=["at once", "later"]
)
def test_what_was_said_before_a_process_died_is_kept(lines):
    """The news of a death may come before what others said earlier."""
    found = followed(Script(MET, *lines))
    assert found.status == "party_lost"
    assert found.error is LOST
    assert [point.w[0] for point in found.points] == [1.0, 11.0]


def test_nothing_kept_is_the_error_itself():
    with pytest.raises(PartyLost, match="bea stopped answering"):
        followed(Script(MET, [(1, "lost", LOST)]))


def test_with_a_checkpoint_all_begin_again():
    lost = [Script(MET, [(1, "lost", LOST)]) for _ in range(2)]
    assert followed(*lost, Script(MET, ENDED), spec=SAVED, restarts=2).status == "optimal"
    with pytest.raises(PartyLost):
        followed(*[Script(MET, [(1, "lost", LOST)]) for _ in range(2)], spec=SAVED, restarts=1)
    with pytest.raises(PartyLost):
        followed(Script(MET, [(1, "lost", LOST)]), Script(MET, ENDED), restarts=2)


def test_in_real_time_the_others_go_on():
    ada = outcome(0, 2, Status.PARTY_LOST, LOST)
    script = Script(MET, KEPT, [(1, "lost", LOST)], [(0, "kept", outcome(0, 2))], [(0, "end", ada)])
    found = followed(script, spec=replace(SPEC, pace=0.1))
    assert found.error is LOST
    assert not script.received, "everything was heard"


def test_the_cause_is_told_and_not_what_follows():
    with pytest.raises(InvalidProblem, match="no such thing"):
        followed(Script(MET, [(0, "error", LOST)], [(1, "error", InvalidProblem("no such thing"))]))
    ill = NumericalError("not finite")
    assert followed(Script(MET, KEPT, [(0, "error", LOST), (1, "error", ill)])).error is ill


def test_a_watch_that_has_enough_stops_the_process_of_agent_0():
    script = Script(MET, KEPT, ENDED)
    followed(script, watch=lambda t, record: True)
    assert script.said == [["a", "b"], "stop"]


class Interrupting(Script):
    """Ctrl-C comes before all have met."""

    def listen(self, running, seconds):
        if len(self.received) == 3:
            _thread.interrupt_main()
            threading.Event().wait(0.01)
        return super().listen(running, seconds)


def test_ctrl_c_is_told_once_and_only_to_processes_that_have_met():
    script = Interrupting(MET, KEPT, ENDED)
    followed(script)
    assert script.said == [["a", "b"], "stop"]


def test_the_other_end_tells_an_error():
    said = []
    report(lambda *line: said.append(line), list, SPEC, None)
    ((kind, error),) = said
    assert kind == "error"
    assert isinstance(error, Exception)
