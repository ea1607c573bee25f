"""An engine for tests: what `engine="peers"` does in processes, in threads of this one."""

from __future__ import annotations

import functools
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from coterie.engines.engine import Engine
from coterie.engines.processes import RunSpec, live, put_together
from coterie.transport.keys import load_keys, provide_all


@dataclass(frozen=True)
class Threads(Engine):
    """What `engine="peers"` does in processes, in threads of this one: keys, TLS and masks are
    real.
    """

    name = "threads"
    summary = "for tests"
    apart = True

    def run(self, run):
        spec = RunSpec.of(run, len(run.agents))
        keys, meeting = keys_for(spec.names), threading.Barrier(spec.processes)
        addresses = [""] * spec.processes

        def one(own):
            def meet(address):
                addresses[own.process] = address
                meeting.wait()
                return addresses

            return live(spec, own, meet, run_id="threads", deadline=120.0, keys=keys[own.process])

        with ThreadPoolExecutor(spec.processes) as pool:
            return put_together(list(pool.map(one, spec.shared_out(run))), spec)


@functools.cache
def keys_for(names):
    with tempfile.TemporaryDirectory() as folder:
        made = provide_all(Path(folder), "run", list(names))
        return [load_keys(made[name], name) for name in names]
