"""Linear models of a torch tensor on one GPU, beside the same run on this machine's cores: seconds
and differences.

    python benchmarks/linear_gpu.py             n = 1,000,000, d = 500, synthetic
    python benchmarks/linear_gpu.py --quick     a thousandth of it, on whatever there is: does it
                                                run?

Times are those of `co.solve` with everything around it (checks, digest, rounds, certificate), the
second of two runs; both end with a certificate at the tolerance. The difference is that of the
coefficients, over the largest of them.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

import coterie as co

FULL = (1_000_000, 500)
QUICK = (1_000, 20)
CASES = [
    ("gram", "squared", "l2", "float64"),
    ("gram", "squared", "l1", "float64"),
    ("newton", "logistic", "l2", "float64"),
    ("newton", "logistic", "l2", "float32"),
    ("newton", "logistic", "l2", "bfloat16"),
    ("lbfgs-rows", "logistic", "l2", "float64"),
    ("proximal-2", "squared", "l2", "float64"),
    ("interior-point", "hinge", "l2", "float64"),
]


def timed(data: Any, wait: Any, **options: Any) -> tuple[Any, float]:
    """The second of two runs, and its seconds."""
    for _ in range(2):
        wait()
        began = time.perf_counter()
        result = co.solve(**options, data=data)
        wait()
        seconds = time.perf_counter() - began
    return result, seconds


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--only", help="a method")
    parser.add_argument("--no-host", action="store_true", help="skip the runs on the cores")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    n, d = QUICK if arguments.quick else FULL
    torch.manual_seed(0)
    X = torch.randn((n, d), device=device, dtype=torch.float64) * torch.rand(
        d, device=device, dtype=torch.float64
    )
    scores = X @ torch.randn(d, device=device, dtype=torch.float64) / d**0.5
    noisy = (scores + torch.randn_like(scores)).cpu().numpy()
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: n = {n:,}, d = {d}, {arguments.agents} agents")
    print("| method | loss, penalty | X in | seconds | on the cores | difference | rounds, gap |")
    print("|---|---|---|---|---|---|---|")
    for method, loss, penalty, kind in CASES:
        if arguments.only not in (None, method):
            continue
        problem = co.Problem(loss, penalty, 1e-3, intercept=True)
        y = noisy if problem.loss.kind == "regression" else noisy > 0
        tensor = X.to(getattr(torch, kind))
        tol = (
            1e-6
            if method in ("proximal-2", "interior-point")
            else 1e-9
            if kind == "float64"
            else 1e-6
        )
        options = {
            "problem": problem,
            "agents": arguments.agents,
            "method": method,
            "tol": tol,
            "max_rounds": 300,
        }
        result, seconds = timed((tensor, y), wait, **options)
        beside = difference = "–"
        if not arguments.no_host:
            array = tensor.to(torch.float64 if kind == "float64" else torch.float32).cpu().numpy()
            other, there = timed((array, y), wait, **options)
            size = np.abs(other.model.coef_).max()
            beside = f"{there:.2f}"
            difference = f"{np.abs(result.model.coef_ - other.model.coef_).max() / size:.1e}"
        told = f"{result.bill.rounds}, {result.certificate.relative_gap:.1e}"
        print(
            (
                f"| `{method}` | {loss}, {penalty} | {kind} | {seconds:.2f} | {beside} | "
                f"{difference} "
                f"| {told} |"
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
