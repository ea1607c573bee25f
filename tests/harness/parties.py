"""Studies for tests: files, keys, parties in threads or processes, and a network between them that
can fail.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import scipy.sparse as sp

import coterie as co
from coterie.engines.local import Local
from coterie.errors import CoterieError
from coterie.run.bill import DIGESTS, Bill
from coterie.study.nonce import secret
from coterie.study.party import fit_together
from coterie.study.pinning import pin
from coterie.study.study import load_party
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.keys import fingerprint, provide_all

NAMES = ("ada", "bea", "cyd")
RIDGE = {"loss": "squared", "penalty": "l2", "strength": 0.1, "intercept": False}


FIRST_PORT, PORTS = 20_000, 12_000
"""Ports below those that Linux gives to connections: none of these takes one before it is used."""
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_places = itertools.count(os.getpid() * 97 + WORKER * PORTS // 2)


def free_ports(count):
    """Return ports on which nobody listens. The processes of a test run begin at other ones."""
    found = []
    while len(found) < count:
        port = FIRST_PORT + next(_places) % PORTS
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            found.append(port)
    return found


ANYTHING = "policy.minimum-rows = 0\npolicy.budget = inf"
"""A policy for a few made-up rows."""


def write_study(
    folder, names=NAMES, problem=RIDGE, deadline=30.0, through=None, policy=ANYTHING, **settings
):
    """study.toml, keys, and a party.toml for each; with `through` a network, addresses are those of
    its proxies.
    """
    folder.mkdir(exist_ok=True)
    if settings.get("split", "features") == "features":
        settings = (
            {"labels-shared": True} | ({} if "id" in settings else {"same-order": True}) | settings
        )
    lines = [
        'name = "test"',
        f"deadline = {deadline}",
        *(f"{key} = {json.dumps(v)}" for key, v in settings.items()),
    ]
    lines += ["[problem]", *(f"{key} = {json.dumps(value)}" for key, value in problem.items())]
    ports = free_ports(len(names))
    for name, port in zip(names, ports, strict=True):
        public = port if through is None else through.open(name, port)
        lines += ["[[party]]", f'name = "{name}"', f'address = "127.0.0.1:{public}"']
    (folder / "study.toml").write_text("\n".join(lines))
    made = provide_all(folder, "test", list(names))
    pin(
        folder / "study.toml",
        {name: fingerprint((own / "certificate.pem").read_bytes()) for name, own in made.items()},
    )
    for name, port in zip(names, ports, strict=True):
        target = 'target = "y"\n' if name == names[0] or settings.get("split") == "samples" else ""
        text = (
            f'study = "../study.toml"\nparty = "{name}"\ndata = "data.csv"\nkeys = "."\npatience '
            f"= 60\n{target}"
        )
        (folder / name / "party.toml").write_text(text + f'listen = "127.0.0.1:{port}"\n{policy}\n')
    return folder


def data(
    split="features",
    classification=False,
    dtype=float,
    sparse=False,
    n=60,
    d=9,
    seed=0,
    names=NAMES,
):
    """One table per party, as `read` would make them of files."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)).astype(dtype)
    y = X @ random.standard_normal(d) + 0.3 * random.standard_normal(n)
    y = np.sign(y) if classification else y
    X = sp.csr_array(X * (random.random((n, d)) < 0.4)) if sparse else X
    tables = co.data.split(co.read((X, y), columns=[f"x{j}" for j in range(d)]), split, len(names))
    return [
        replace(table, name=name, cols=None, rows=None)
        for table, name in zip(tables, names, strict=True)
    ]


def same_secrets(folder, names=NAMES):
    """The embedded engine, drawing from the secrets of these parties: to compare bits with."""
    return Local(secrets=[secret(*load_party(folder / name / "party.toml")) for name in names])


def write_data(folder, tables):
    for table in tables:
        labels = [] if table.y is None else ["y"]
        rows = table.X.tolist() if table.y is None else np.column_stack([table.X, table.y]).tolist()
        lines = [",".join([*table.columns, *labels]), *(",".join(map(repr, row)) for row in rows)]
        (folder / table.name / "data.csv").write_text("\n".join(lines) + "\n")


def together(folder, tables=None, names=NAMES, work=fit_together, links=GrpcMesh, **more):
    """What each party comes to, or the error it ends with; a thread each, with real TLS in between.

    All agree to what is sent. `links` makes the links of a party, for tests in which these fail or
    are overheard.
    """
    if getattr(work, "__name__", "").endswith("_together"):
        more = {"consent": True} | more

    def one(name):
        own, study = load_party(folder / name / "party.toml")
        given = {} if tables is None else {"table": tables[names.index(name)]}
        try:
            return work(own, study, **given, **more)
        except CoterieError as error:
            return error

    with (
        mock.patch("coterie.study.meeting.GrpcMesh", links),
        ThreadPoolExecutor(len(names)) as pool,
    ):
        return list(pool.map(one, names))


def without_digests(bill):
    """The bill without the digests that organisations compare after each sum that has no masks.

    There is at least one exchange of them for each such sum.
    """
    state = bill.state()
    digests = [rows for purpose, _, rows in state["apart"] if purpose == DIGESTS]
    sums = sum(entry[0] for _, collective, *entry in state["alike"] if collective == "Sum")
    for rows in digests:
        assert max(messages for messages, _, _ in rows) >= sums
        assert not any(numbers for _, numbers, _ in rows)
    apart = [row for row in state["apart"] if row[0] != DIGESTS]
    plain = Bill(bill.network)
    plain.restore({**state, "apart": apart})
    assert bool(digests) == (plain != bill)
    return plain


class Party:
    """A party's agent as a process of its own."""

    def __init__(self, folder, name, *arguments, prefix=(), script="", environment=None):
        """`script`: the text of a program that takes the place of `coterie`."""
        self.folder, self.name = folder, name
        self.environment = environment or {}
        self.command = [
            *prefix,
            sys.executable,
            *(["-c", script] if script else ["-m", "coterie"]),
            "agent",
            str(folder / name / "party.toml"),
            "--json",
        ]
        self.command += ["--yes"]
        self.command += arguments
        self.start()

    def start(self):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
            **self.environment,
        }
        self.log = (self.folder / self.name / "log").open("a")
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment
        )

    def kill(self):
        self.signal(signal.SIGKILL)
        if not self.log.closed:
            self.process.communicate()
            self.log.close()

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=280):
        """Its exit code, and what it printed; one that does not end says where it hangs."""
        try:
            printed, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGABRT)
            self.process.communicate()
            raise AssertionError((self.folder / self.name / "log").read_text()[-20_000:]) from None
        self.log.close()
        return self.process.returncode, json.loads(printed or "{}")

    @property
    def ended(self):
        return self.process.poll() is not None

    def round(self):
        """The round of its newest snapshot."""
        found = sorted((self.folder / self.name / "checkpoint").glob("*/round-*.npz"))
        return int(found[-1].stem.removeprefix("round-")) if found else 0

    def is_saving(self):
        """What it has begun to write, and not yet put in its place."""
        return list((self.folder / self.name / "checkpoint").glob("*/.round-*"))

    def is_frozen(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return "State:\tT" in status


@contextlib.contextmanager
def processes(folder, names=NAMES, prefixes=None, scripts=None, environment=None):
    running = {
        name: Party(
            folder,
            name,
            prefix=(prefixes or {}).get(name, ()),
            script=(scripts or {}).get(name, ""),
            environment=environment,
        )
        for name in names
    }
    try:
        yield running
    finally:
        for party in running.values():
            party.signal(signal.SIGCONT)
            party.kill()


class Network:
    """TCP proxies in front of the parties: what they carry can be held back, or cut."""

    def __init__(self):
        self.held = set()
        self._stop = threading.Event()
        self._threads = []
        self._pairs = []

    def open(self, name, port):
        """A public port for that party."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(0.1)
        self._run(self._accept, name, port, listener)
        return listener.getsockname()[1]

    def _run(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self, name, port, listener):
        with listener:
            while not self._stop.is_set():
                try:
                    near, _ = listener.accept()
                except TimeoutError:
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", port))
                except OSError:
                    near.close()
                    continue
                self._pairs.append((name, near, far))
                self._run(self._carry, name, near, far)

    def _carry(self, name, near, far):
        with near, far, contextlib.suppress(OSError, ValueError):
            while not self._stop.is_set():
                if name in self.held:
                    time.sleep(0.02)
                    continue
                for one in select.select([near, far], [], [], 0.05)[0]:
                    content = one.recv(1 << 16)
                    while name in self.held and not self._stop.is_set():
                        time.sleep(0.02)
                    if not content:
                        return
                    (far if one is near else near).sendall(content)

    def hold(self, *names):
        """A partition: nothing comes through to those parties, and nobody is told."""
        self.held |= set(names)

    def heal(self):
        self.held = set()

    def cut(self, name):
        """All connections to that party break."""
        for party, near, far in self._pairs:
            if party == name:
                for one in (near, far):
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stop.set()
        for thread in self._threads:
            thread.join(2)
