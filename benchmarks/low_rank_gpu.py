"""Multinomial dfw-trace at the size of ImageNet on one GPU: milliseconds an epoch, memory, and
where the time goes.

    python benchmarks/low_rank_gpu.py             n = 1,281,167, d = 2048, m = 1000, synthetic
                                                  features in bfloat16
    python benchmarks/low_rank_gpu.py --quick     a thousandth of it, on whatever there is: does it
                                                  run?

The method is `dfw-trace` as `co.solve` runs it: one agent holds all rows on the GPU, one power
iteration an epoch, and the step 2/(t + 2). An epoch reads the features twice (Xᵀz and X u; the
second serves the power iteration and the update), the probabilities twice (P v and Pᵀx), and makes
one fused pass that updates the scores and takes their softmax. Features and probabilities are
bfloat16, scores and sums float32. Times are medians over the epochs after the first three, in which
kernels are compiled; the sum of 30 epochs is wall time. The certificate at the end is float64, from
the data. Then `co.solve` as users call it, to 1e-2: checks, digest, rounds and certificates, twice,
because the first run also compiles.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

import coterie as co
from coterie.data import Table
from coterie.methods import method
from coterie.run.agent import Agent
from coterie.run.bill import Bill
from coterie.run.certificate import certify
from coterie.run.rounds import introduced
from coterie.transport.in_process import InProcess

FULL = (1_281_167, 2048, 1000)
QUICK = (1281, 64, 50)


def features(n: int, d: int, m: int, device: str, seed: int = 0) -> tuple[Any, Any]:
    """Features of norm about 1, like those behind a ReLU, and labels that a rank-10 matrix explains
    with noise.
    """
    torch.manual_seed(seed)
    X = torch.empty((n, d), dtype=torch.bfloat16, device=device)
    W = torch.randn((d, 10), device=device) @ torch.randn((10, m), device=device)
    labels = torch.empty(n, dtype=torch.int64, device=device)
    for start in range(0, n, 1 << 16):
        rows = slice(start, start + (1 << 16))
        block = torch.randn((min(n, rows.stop) - start, d), device=device).relu_() * (2 / d) ** 0.5
        X[rows] = block.to(torch.bfloat16)
        scores = block @ W
        labels[rows] = (scores + torch.randn_like(scores)).argmax(dim=1)
    return X, labels


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--power", type=int, default=1)
    parser.add_argument("--no-proof", action="store_true", help="skip the certificate at the end")
    parser.add_argument(
        "--solve-only",
        action="store_true",
        help="only co.solve, in a process that has compiled nothing",
    )
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, d, m = QUICK if arguments.quick else FULL
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    X, labels = features(n, d, m, device)
    if not arguments.solve_only:
        _epochs(arguments, X, labels, m, device, wait)
    for options in ({}, {"method": "dfw-trace"}):
        for agents in (1, 8):
            for turn in ("first", "second"):
                _solved(X, labels, wait, turn, agents=agents, **options)


def _solved(X: Any, labels: Any, wait: Any, turn: str, **options: Any) -> None:
    """Time one run."""
    wait()
    began = time.perf_counter()
    result = co.solve(
        co.Problem("multinomial", "traceball", radius=30.0),
        (X, labels),
        tol=1e-2,
        max_rounds=200,
        **options,
    )
    wait()
    seconds, gap = time.perf_counter() - began, result.certificate.relative_gap
    name = result.certificate.settings["method"]["name"]
    print(
        f"co.solve, {name}, {options['agents']} agents, {turn} run: {seconds:.2f} s, "
        f"{result.bill.rounds} rounds, "
        f"relative gap {gap:.1e}",
        flush=True,
    )


def _epochs(arguments: Any, X: Any, labels: Any, m: int, device: str, wait: Any) -> None:
    """Epochs of dfw-trace alone, and where their time goes."""
    n, d = X.shape
    problem = co.Problem("multinomial", "traceball", radius=30.0, classes=tuple(range(m)))
    table = Table(X=X, y=labels.cpu().numpy().astype(np.float64), name="gpu")
    network = co.networks.star(1, server=True)
    transport, chosen = (
        InProcess(network, Bill(network)),
        method("dfw-trace", power=arguments.power),
    )
    agent = introduced([Agent(0, 1, table, problem, "samples")], transport, "setup")[0]
    state = transport.converse([chosen.start(agent)], "setup")[0]

    def epoch(t: int) -> float:
        nonlocal state
        wait()
        began = time.perf_counter()
        state = transport.converse([chosen.round(agent, state, t)], "rounds")[0]
        wait()
        return 1e3 * (time.perf_counter() - began)

    first = [epoch(t) for t in range(1, 4)]  # the kernels are compiled here
    wait()
    began = time.perf_counter()
    times = [epoch(t) for t in range(4, 4 + arguments.epochs)]
    whole = time.perf_counter() - began

    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(
        f"{name}, torch {torch.__version__}: n = {n:,}, d = {d}, m = {m}, bfloat16 features, K = "
        f"{arguments.power}"
    )
    print(
        f"epoch: median {statistics.median(times):.2f} ms, best {min(times):.2f} ms; first three "
        f"{sum(first):.0f} ms"
    )
    print(f"{arguments.epochs} epochs: {whole:.3f} s")
    if device == "cuda":
        print(f"memory: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most")
    _, information = agent.scratch["followed"]
    u, v = state.u[:, -1].copy(), state.v[:, -1].copy()
    parts = {
        "∇F v = Xᵀ((P − H) v)": lambda: information.times(v),
        "∇Fᵀu = (P − H)ᵀ X u": lambda: (
            setattr(information, "_last", None),
            information.times_transposed(u),
        ),
        "  of which X u": lambda: information.backend.product(
            information.X, information.backend.converted(u)
        ),
        "update and softmax": lambda: information.move(0.0, -30.0, u, v),
    }
    for label, work in parts.items():
        taken = []
        for _ in range(10):
            wait()
            began = time.perf_counter()
            work()
            wait()
            taken.append(1e3 * (time.perf_counter() - began))
        print(f"  {label:24s} {statistics.median(taken):7.2f} ms")
    if not arguments.no_proof:
        began = time.perf_counter()
        bound = transport.converse([certify(agent, chosen.point(agent, state))], "proof")[0]
        seconds = time.perf_counter() - began
        print(
            f"objective {bound.primal:.4f} of {agent.known.primal_at_zero:.4f}, gap "
            f"{bound.gap:.4f}, {seconds:.1f} s"
        )


if __name__ == "__main__":
    main()
