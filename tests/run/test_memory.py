"""A long run needs little memory: what it keeps of a round, and what a checkpoint of it needs."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter

import numpy as np

from coterie.run.checkpoint import Checkpoint, Snapshot
from coterie.run.stopping import Record, as_array, of_array
from coterie.study.party import fit_together
from tests.harness.parties import NAMES, data, together, write_study

RECORDS = 20_000
BYTES = 600
"""What a checkpoint may need, while it is written, for each record of the history."""


def history(count):
    random = np.random.default_rng(0)
    numbers = random.random((count, 4)).tolist()
    return [Record(k, one, 10**12 + k, *rest) for k, (one, *rest) in enumerate(numbers)]


def test_a_history_is_the_same_after_a_checkpoint(tmp_path):
    records = [*history(5), Record(5, 0.1, 2**52, np.inf, -np.inf, np.nan)]
    kept = Checkpoint(tmp_path, "run")
    kept.save(Snapshot(7, [], history=as_array(records)))
    found = of_array(kept.load([], 7).history)
    assert repr(found) == repr(records)
    assert {type(one.round) for one in found} == {type(one.bits) for one in found} == {int}
    assert of_array(as_array([])) == []


def test_a_checkpoint_of_a_long_history_needs_little_memory(tmp_path):
    records = history(RECORDS)
    tracemalloc.start()
    Checkpoint(tmp_path, "run").save(Snapshot(7, [], history=as_array(records)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BYTES * RECORDS
    assert not hasattr(records[0], "__dict__")


def test_rounds_between_organisations_leave_no_objects_behind(tmp_path):
    """What stays of rounds with split columns: a record for each certificate, no more.

    A snapshot that is being written has objects of its own, so that each count is the smallest or
    the largest of three.
    """
    settings = {"method": "graph-cp", "network": "path", "tol": 1e-16, "max-rounds": 330}
    problem = {"loss": "logistic", "penalty": "l2", "strength": 1e-5, "intercept": False}
    write_study(tmp_path, problem=problem, **settings, **{"check-every": 10})
    early, late = (100, 110, 120), (300, 310, 320)
    counted = {}

    def work(own, study, consent, table):
        def watch(t, record):
            if own.party == NAMES[0] and t in (*early, *late):
                gc.collect()
                counted[t] = Counter(type(one) for one in gc.get_objects())

        return fit_together(own, study, consent=consent, table=table, watch=watch)

    work.__name__ = "work_together"
    together(tmp_path, data(classification=True), work=work)
    before = counted[100] | counted[110] | counted[120]
    more = (counted[300] & counted[310] & counted[320]) - before
    certificates = 200 // 10
    assert more.pop(Record) <= len(NAMES) * (certificates + 1)
    assert sum(more.values()) <= 100, more.most_common(5)
