"""Only outbound: the recipes of docs/firewalls.md, with real TLS, a real HAProxy and a real
sshd.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from coterie.errors import InvalidInput
from coterie.study.study import load_study
from tests.harness.parties import NAMES, data, free_ports, together, write_study
from tests.study.test_faults import LONG, assert_same_bits, undisturbed

pytestmark = pytest.mark.chaos

PAGE = Path(__file__).parents[2] / "docs" / "firewalls.md"
SETTINGS = LONG | {"max-rounds": 40}


def rewrite(folder, change):
    place = folder / "study.toml"
    place.write_text(change(place.read_text()))


def addresses(folder):
    return re.findall(r'address = "(.*)"', (folder / "study.toml").read_text())


def check(tables, results):
    assert_same_bits(results, undisturbed(tables, SETTINGS))


@contextlib.contextmanager
def running(command, port):
    """A program of somebody else's, until it listens there."""
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        for _ in range(4000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_who_dials_is_a_setting_and_who_has_no_address_dials_all(tmp_path):
    tables = data(classification=True)
    write_study(tmp_path, deadline=10.0, **SETTINGS)
    _, bea, cyd = addresses(tmp_path)
    # ada dials bea although it is first, and bea, whom nobody may dial but ada, dials cyd; cyd
    # alone has no open port.
    rewrite(
        tmp_path, lambda text: text.replace("[problem]", 'dials = [["ada", "bea"]]\n[problem]', 1)
    )
    rewrite(tmp_path, lambda text: text.replace(f'address = "{cyd}"', ""))
    ada = tmp_path / "ada" / "party.toml"
    ada.write_text(
        re.sub('listen = ".*"', f'listen = "127.0.0.1:{free_ports(1)[0]}"', ada.read_text())
    )
    assert load_study(tmp_path / "study.toml").dialled_by(0, [1]) == {1}
    assert load_study(tmp_path / "study.toml").dialled_by(1, [0, 2]) == set()
    assert bea in (tmp_path / "study.toml").read_text()
    check(tables, together(tmp_path, tables))


def test_neighbours_of_whom_none_can_be_reached_are_refused(tmp_path):
    write_study(tmp_path, **SETTINGS)
    rewrite(tmp_path, lambda text: re.sub('address = ".*"', "", text))
    with pytest.raises(InvalidInput, match=r"ada and bea are neighbours, and bea has no address"):
        load_study(tmp_path / "study.toml")
    write_study(tmp_path, **SETTINGS)
    both = 'dials = [["ada", "bea"], ["bea", "ada"]]'
    rewrite(tmp_path, lambda text: text.replace("[problem]", f"{both}\n[problem]", 1))
    with pytest.raises(InvalidInput, match="one dials the other, not both"):
        load_study(tmp_path / "study.toml")


@pytest.mark.skipif(
    shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None, reason="needs Debian's haproxy"
)
def test_a_gateway_passes_tls_on_by_name(tmp_path):
    tables = data(classification=True)
    write_study(tmp_path, deadline=20.0, **SETTINGS)
    inside, public = addresses(tmp_path), free_ports(1)[0]
    recipe = re.search(
        r"<!-- file: haproxy.cfg -->\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL
    )[1]
    front, back = recipe.split("\nbackend clinic")
    front = front.replace("bind :7400", f"bind 127.0.0.1:{public}")
    rule = next(line for line in front.splitlines() if "use_backend" in line)
    front = front.replace(rule, "\n".join(rule.replace("clinic", name) for name in NAMES))
    backs = [
        ("\nbackend clinic" + back).replace("clinic", name).replace("10.0.0.17:7400", address)
        for name, address in zip(NAMES, inside, strict=True)
    ]
    (tmp_path / "haproxy.cfg").write_text("\n".join([front, *backs]))
    for address in inside:
        rewrite(
            tmp_path, lambda text, address=address: text.replace(address, f"127.0.0.1:{public}")
        )
    program = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    with running([program, "-db", "-f", tmp_path / "haproxy.cfg"], public):
        check(tables, together(tmp_path, tables))


@pytest.mark.skipif(
    shutil.which("sshd", path="/usr/sbin:/usr/bin") is None or shutil.which("ssh") is None,
    reason="needs Debian's openssh-server and openssh-client",
)
def test_two_parties_that_cannot_be_reached_meet_through_ssh(tmp_path):
    tables = data(classification=True)
    write_study(tmp_path, deadline=20.0, **SETTINGS)
    relay = tmp_path / "relay"
    relay.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(relay / name)], check=True
        )
    (relay / "authorized").write_text((relay / "user.pub").read_text())
    (relay / "authorized").chmod(0o600)
    port, public = free_ports(2)
    program = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": relay / "host",
        "AuthorizedKeysFile": relay / "authorized",
        "PidFile": relay / "pid",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
        "GatewayPorts": "clientspecified",
    }
    (relay / "sshd_config").write_text(
        "\n".join(f"{name} {value}" for name, value in settings.items())
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    # ada listens on its own machine only; the others reach it at the relay.
    ada = addresses(tmp_path)[0]
    rewrite(tmp_path, lambda text: text.replace(ada, f"127.0.0.1:{public}"))
    known = [
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        f"UserKnownHostsFile={relay / 'known'}",
        "-o",
        "BatchMode=yes",
    ]
    tunnel = [
        "ssh",
        "-N",
        "-R",
        f"127.0.0.1:{public}:{ada}",
        "-i",
        relay / "user",
        "-p",
        port,
        *known,
        "127.0.0.1",
    ]
    with running([program, "-D", "-e", "-f", relay / "sshd_config"], port), running(tunnel, public):
        check(tables, together(tmp_path, tables))
