"""What comes in from outside: idle connections, silence, floods, and the same party twice; with
real processes.
"""

from __future__ import annotations

import contextlib
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from coterie.api.result import Result
from coterie.errors import InvalidInput
from coterie.run.statuses import Status
from coterie.study.study import load_party
from coterie.transport.gate import MOST
from tests.harness.parties import (
    NAMES,
    Network,
    Party,
    data,
    free_ports,
    processes,
    together,
    write_data,
    write_study,
)
from tests.study.test_faults import LONG, assert_same_bits, footprint, undisturbed, until

pytestmark = pytest.mark.chaos


def port_of(folder, name):
    own, _ = load_party(folder / name / "party.toml")
    return int(own.listen.rpartition(":")[2])


@pytest.mark.rotates
def test_a_thousand_idle_connections_end_nothing(tmp_path):
    tables, settings = data(classification=True), LONG | {"max-rounds": 300}
    write_study(tmp_path, deadline=120.0, **settings)
    write_data(tmp_path, tables)
    idle = []
    with processes(tmp_path) as running, contextlib.ExitStack() as stack:
        until(lambda: running["ada"].round() >= 20)
        running["cyd"].signal(signal.SIGSTOP)  # the run does not end before they have come
        for victim in ("ada", "bea"):
            resource.prlimit(running[victim].process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        ports = [port_of(tmp_path, name) for name in ("ada", "bea")]
        for k in range(2200):
            with contextlib.suppress(OSError):
                idle.append(
                    stack.enter_context(socket.create_connection(("127.0.0.1", ports[k % 2]), 60))
                )
        assert len(idle) > 2000
        running["cyd"].signal(signal.SIGCONT)
        until(lambda: running["ada"].ended or footprint(running["ada"].process.pid)[1] < 200)
        ends = {name: party.wait() for name, party in running.items()}
    assert {code for code, _ in ends.values()} == {Status.ITERATION_LIMIT.exit_code}, ends
    assert not any(printed["warnings"] for _, printed in ends.values()), (
        "files keep their descriptors"
    )
    assert MOST < 1024
    assert_same_bits(
        [Result.load(tmp_path / name / "result") for name in NAMES], undisturbed(tables, settings)
    )


class Silent(Network):
    """A network whose first connections fall silent when the word has passed so many times, while
    new ones work.

    TLS takes the first three turns; then come the settings of HTTP/2, and the hellos.
    """

    def __init__(self, turns, victims):
        super().__init__()
        self.turns, self.victims = turns, victims

    def _carry(self, name, near, far):
        if not self.victims:
            return super()._carry(name, near, far)
        self.victims -= 1
        turns, last = 0, None
        with near, far, contextlib.suppress(OSError, ValueError):
            while not self._stop.is_set():
                for one in select.select([near, far], [], [], 0.05)[0]:
                    content = one.recv(1 << 16)
                    if not content:
                        return None
                    turns, last = turns + (one is not last), one
                    if turns <= self.turns:
                        (far if one is near else near).sendall(content)
        return None


@pytest.mark.parametrize(
    "turns", [4, 6, *(pytest.param(k, marks=pytest.mark.slow) for k in (0, 1, 2, 3, 5, 8))]
)
def test_a_connection_that_falls_silent_is_dialled_again_in_time(tmp_path, turns):
    tables, settings = data(classification=True), LONG | {"max-rounds": 40}
    with Silent(turns, 2) as network:
        write_study(tmp_path, deadline=6.0, through=network, **settings)
        results = together(tmp_path, tables)
    assert_same_bits(results, undisturbed(tables, settings))


FLOOD = """
import sys, time
import grpc, numpy as np
from coterie.study.study import load_party
from coterie.transport.frames import Header, Kind, encode
from coterie.transport.grpc_mesh import METHOD
from coterie.transport.security import server_name
from coterie.transport.keys import load_keys

own, study = load_party(sys.argv[1])
keys = load_keys(own.keys, own.party)
tls = grpc.ssl_channel_credentials(keys.authority, keys.key, keys.certificate)
name = ("grpc.ssl_target_name_override", server_name("ada"))
channel = grpc.secure_channel(study.party[0].address, tls, [name, ("grpc.max_send_message_length", -1)])

def frames():
    agreement = np.frombuffer(f"{study.agreement}\\npurpose = fit".encode(), np.uint8)
    yield encode(Header(Kind.HELLO, study.run_id, 0, 1, 0, 0, collective="flood"), agreement)
    time.sleep(1)
    for number in range(1, 161):
        print(number, flush=True)
        yield encode(Header(Kind.MESSAGE, study.run_id, 0, 1, number, 0, "rounds", 0, "Sum"), np.zeros(2**20))
    time.sleep(60)

for answer in channel.stream_stream(METHOD)(frames()):
    pass
"""


@pytest.mark.rotates
def test_a_neighbour_that_floods_takes_no_memory(tmp_path):
    write_study(tmp_path, network="star", deadline=20.0)
    write_data(tmp_path, data())
    with processes(tmp_path, ("ada",)) as running:
        pid = running["ada"].process.pid
        until(lambda: "waiting for" in (tmp_path / "ada" / "log").read_text())
        assert "for up to 60 seconds" in (tmp_path / "ada" / "log").read_text()
        before = footprint(pid)[0]
        script = [sys.executable, "-c", FLOOD, str(tmp_path / "bea" / "party.toml")]
        flood = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
        sent, most, still = [], 0, time.monotonic()
        reader = threading.Thread(target=lambda: sent.extend(flood.stdout), daemon=True)
        reader.start()
        count = 0
        # Until it stops sending for some seconds once it has begun, or has sent everything.
        while (time.monotonic() - still < 4 or len(sent) <= 5) and len(sent) < 160:
            assert len(sent) or flood.poll() is None, "the flood ended before it began"
            most = max(most, footprint(pid)[0])
            if len(sent) > count or not sent:
                count, still = len(sent), time.monotonic()
            time.sleep(0.05)
        flood.kill()
        flood.communicate()
        assert not running["ada"].ended
        assert 5 < count < 60, "it was held up after the window"
        assert most - before < 300e6


@pytest.mark.rotates
def test_the_same_party_twice_is_told_at_both(tmp_path):
    write_study(tmp_path, deadline=20.0, **LONG | {"max-rounds": 10_000_000})
    write_data(tmp_path, data(classification=True))
    with processes(tmp_path) as running:
        until(lambda: running["ada"].round() >= 20)
        for name in ("ada", "bea"):
            own = tmp_path / name / "party.toml"
            text = (
                own.read_text()
                .replace("patience = 60", "patience = 3600")
                .replace('"data.csv"', f'"../{name}/data.csv"')
                .replace('keys = "."', f'keys = "../{name}"')
            )
            port = port_of(tmp_path, name)
            (tmp_path / f"{name}-again").mkdir()
            (tmp_path / f"{name}-again" / "party.toml").write_text(
                text.replace(str(port), str(free_ports(1)[0]))
            )
            code, printed = Party(tmp_path, f"{name}-again").wait()
            assert code == Status.PROTOCOL_ERROR.exit_code, printed
            assert f"{name} is already running" in printed["error"]
            assert f"{name} was started a second time" in (tmp_path / name / "log").read_text()
        # The run goes on as if nothing had happened.
        reached = running["cyd"].round()
        until(lambda: running["cyd"].round() > reached)
        assert not any(party.ended for party in running.values())


@pytest.mark.parametrize(
    ("file", "setting", "value"),
    [
        ("study", "deadline", "1e300"),
        ("study", "deadline", "inf"),
        ("study", "deadline", "nan"),
        ("party", "patience", "1e300"),
    ],
)
def test_absurd_settings_are_refused_by_name(tmp_path, file, setting, value):
    write_study(tmp_path)
    place = tmp_path / "study.toml" if file == "study" else tmp_path / "ada" / "party.toml"
    lines = [line for line in place.read_text().splitlines() if not line.startswith(setting)]
    place.write_text("\n".join([f"{setting} = {value}", *lines]))
    with pytest.raises(InvalidInput, match=f"{setting} is a number of seconds above 0 and at most"):
        load_party(tmp_path / "ada" / "party.toml")
