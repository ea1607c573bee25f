"""What gossip sends between processes, and its bill. MPI runs this file as a script, with one user
per rank:

    mpiexec -n 6 python -m tests.harness.gossip_payload CASE
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import coterie as co
from tests.harness.wire import payloads

USERS = 6
PUBLISHED = {
    "step": "frank-wolfe",
    "graph_step": "gradient",
    "likeness": "models",
    "graph_factor": 1.0,
    "schedule": "paper",
    "revisit": False,
}
CASES: dict[str, dict[str, Any]] = {
    "published, given graph": {"network": "ring", "step": "frank-wolfe"},
    "pairwise, given graph": {"network": "ring"},
    "published, learned graph": {"network": "learned", "sample": 2, **PUBLISHED},
    "learned graph": {"network": "learned", "sample": 2},
}
ROUNDS = 60
COUNT = 16


def tables() -> list[co.Table]:
    """Users of two kinds, of different sizes."""
    rng = np.random.default_rng(0)
    found = []
    for k in range(USERS):
        X = rng.uniform(-1, 1, (5 + k, 4))
        y = np.where(X[:, k % 2] + 0.2 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
        found.append(co.Table(X, y, name=f"user-{k}"))
    return found


def measured(case: str, engine: Any) -> dict[str, Any]:
    """The messages of this process in a fit, the bits of the bill, and a digest of the model."""
    with payloads() as counts:
        result = co.solve(
            co.Personal(count=COUNT, beta=4.0, mu=0.5),
            tables(),
            engine=engine,
            split="users",
            tol=1e-12,
            max_rounds=ROUNDS,
            progress=False,
            **CASES[case],
        )
    messages, filled, size = counts["wake-up"]
    return {
        "messages": messages,
        "filled": filled,
        "bits": 8 * size,
        "billed": result.bill.bits,
        "billed messages": result.bill.messages,
        "model": result.model.coef_.toarray().tobytes().hex(),
        "graph": result.model.weights.toarray().tobytes().hex(),
    }


if __name__ == "__main__":
    from mpi4py import MPI

    every = MPI.COMM_WORLD.gather(measured(sys.argv[1], "mpi"))
    if every is not None:
        total = {name: sum(own[name] for own in every) for name in ("messages", "filled", "bits")}
        print(json.dumps(every[0] | total))
