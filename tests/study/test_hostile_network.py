"""A network that delays, cuts, duplicates, reorders, stalls and corrupts, and parties that are
killed: the right model, or a status that names a party; never a hang, never a wrong model.
"""

from __future__ import annotations

import contextlib
import random
import select
import time

import pytest

from coterie.api.result import Result
from coterie.run.statuses import Status
from tests.harness.parties import NAMES, Network, data, processes, write_data, write_study
from tests.study.test_faults import LONG, assert_same_bits, undisturbed, until

pytestmark = pytest.mark.chaos

SECONDS = 30
SETTINGS = LONG | {"max-rounds": 3000}
LOSSES = {Status.PARTY_LOST.exit_code, Status.PROTOCOL_ERROR.exit_code}


class Hostile(Network):
    """What one chunk of bytes may meet on its way."""

    def __init__(self, seed):
        super().__init__()
        self.dice = random.Random(seed)
        self.angry = False
        self.done = dict.fromkeys(("delay", "cut", "duplicate", "reorder", "stall", "corrupt"), 0)

    def _carry(self, name, near, far):
        held = {}
        with near, far, contextlib.suppress(OSError, ValueError):
            while not self._stop.is_set():
                for one in select.select([near, far], [], [], 0.05)[0]:
                    other = far if one is near else near
                    content = one.recv(1 << 14)
                    if not content:
                        return
                    what = self.dice.random()
                    for kind, chance in zip(
                        self.done, (0.02, 0.002, 0.001, 0.001, 0.0005, 0.002), strict=True
                    ):
                        what -= chance
                        if what < 0 and self.angry:
                            self.done[kind] += 1
                            break
                    else:
                        kind = ""
                    if kind == "delay":
                        time.sleep(self.dice.uniform(0, 0.1))
                    elif kind == "cut":
                        return
                    elif kind == "stall":
                        self._stop.wait(self.dice.uniform(5, 40))
                        return
                    elif kind == "reorder":
                        held[other] = content
                        continue
                    elif kind == "corrupt":
                        changed = bytearray(content)
                        changed[self.dice.randrange(len(changed))] ^= 1 << self.dice.randrange(8)
                        content = bytes(changed)
                    other.sendall(
                        content + held.pop(other, b"") + (content if kind == "duplicate" else b"")
                    )


def run(folder, seed, seconds=SECONDS):
    tables = data(seed=seed, classification=True)
    dice = random.Random(1000 + seed)
    with Hostile(seed) as network:
        write_study(folder, deadline=12.0, through=network, **SETTINGS)
        write_data(folder, tables)
        with processes(folder) as running:
            until(lambda: running["ada"].round() >= 20)
            network.angry, end, kills = True, time.monotonic() + seconds, 0
            while time.monotonic() < end and not any(party.ended for party in running.values()):
                time.sleep(dice.uniform(5, 15))
                victim = running[dice.choice(NAMES)]
                if time.monotonic() < end and not any(party.ended for party in running.values()):
                    victim.kill()
                    victim.start()
                    kills += 1
            network.angry = False
            ends = {name: party.wait(150) for name, party in running.items()}
    print(
        {
            "seed": seed,
            "kills": kills,
            **network.done,
            "ends": {name: code for name, (code, _) in ends.items()},
        }
    )
    local = undisturbed(tables, SETTINGS)
    assert {code for code, _ in ends.values()} <= LOSSES | {local.status.exit_code}, ends
    whole = [name for name, (code, _) in ends.items() if code not in LOSSES]
    if len(whole) == len(NAMES):
        assert_same_bits([Result.load(folder / name / "result") for name in NAMES], local)
    for name in set(NAMES) - set(whole):
        # Who did not come to the end names a party, and claims no model.
        printed = ends[name][1]
        said = printed.get("error") or str(Result.load(folder / name / "result").error)
        assert any(party in said for party in NAMES), said
    for name in whole:
        part = Result.load(folder / name / "result")
        assert part.certificate.gap == local.certificate.gap


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(20))
def test_the_right_model_or_a_named_party(tmp_path, seed):
    run(tmp_path, seed)
