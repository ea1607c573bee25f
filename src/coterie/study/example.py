"""A study to try out: three parties that hold different columns of the same patients, in files of
their own.
"""

from __future__ import annotations

import csv
import socket
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

PARTIES = ("clinic", "laboratory", "imaging")
KEPT = 0.95


def write_example(path: str | Path, seed: int = 0) -> Path:
    """Write study.toml and, in a folder for each party, its data and its party.toml.

    The data is scikit-learn's breast cancer set, ten columns a party, labels at the clinic. Each
    party has its rows in an order of its own and lacks a few, as in life.
    """
    path = Path(path)
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    found = load_breast_cancer()
    X, names = scale(found.data), [name.replace(" ", "_") for name in found.feature_names]
    labels = np.where(found.target == 1, "benign", "malignant")
    random = np.random.default_rng(seed)
    ids = random.permutation(100_000)[: len(X)]
    lines = [
        'name = "breast-cancer"',
        'split = "features"',
        'id = "patient"',
        'network = "path"',
        "tol = 1e-4",
    ]
    lines += ["labels-shared = true  # split by features, all parties can compute the labels", ""]
    lines += [
        "[problem]",
        'loss = "logistic"',
        'penalty = "l1"',
        "strength = 0.01",
        "intercept = true",
    ]
    for k, (party, port) in enumerate(zip(PARTIES, _free_ports(len(PARTIES)), strict=True)):
        own = folder / party
        own.mkdir(exist_ok=True)
        columns = range(10 * k, 10 * (k + 1))
        rows = np.flatnonzero(random.random(len(X)) < KEPT)
        random.shuffle(rows)
        with (own / "patients.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["patient", *(names[j] for j in columns), *(["diagnosis"] if k == 0 else [])]
            )
            writer.writerows(
                [int(ids[i]), *(float(X[i, j]) for j in columns), *([labels[i]] if k == 0 else [])]
                for i in rows
            )
        target = 'target = "diagnosis"\n' if k == 0 else ""
        text = (
            f'study = "../{path.name}"\nparty = "{party}"\ndata = "patients.csv"\nkeys = '
            f'"."\n{target}'
        )
        (own / "party.toml").write_text(text)
        lines += ["", "[[party]]", f'name = "{party}"', f'address = "127.0.0.1:{port}"']
    path.write_text("\n".join(lines) + "\n")
    return path


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
