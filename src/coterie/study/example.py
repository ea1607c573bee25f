"""Write a study to try out: three parties have different columns of the same patients, each in a
file.
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
"""The share of the rows that each party has."""
STUDY = """\
name = "breast-cancer"
split = "features"
id = "patient"
network = "path"
tol = 1e-4
labels-shared = true  # split by features, all parties can compute the labels

[problem]
loss = "logistic"
penalty = "l1"
strength = 0.01
intercept = true
"""
PARTY = """\
study = "../{study}"
party = "{party}"
data = "patients.csv"
keys = "."
"""


def write_example(path: str | Path, seed: int = 0) -> Path:
    """Write study.toml and, in a folder for each party, its data and its party.toml.

    The data is scikit-learn's breast cancer set: ten columns per party, labels at the clinic. Each
    party has its rows in an order of its own, and lacks a few.
    """
    path = Path(path)
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    found = load_breast_cancer()
    X, names = scale(found.data), [name.replace(" ", "_") for name in found.feature_names]
    labels = np.where(found.target == 1, "benign", "malignant")
    random = np.random.default_rng(seed)
    ids = random.permutation(100_000)[: len(X)]
    text = STUDY
    for k, (party, port) in enumerate(zip(PARTIES, _free_ports(len(PARTIES)), strict=True)):
        own = folder / party
        own.mkdir(exist_ok=True)
        columns = range(10 * k, 10 * (k + 1))
        rows = np.flatnonzero(random.random(len(X)) < KEPT)
        random.shuffle(rows)
        has_labels = k == 0
        header = ["patient", *(names[j] for j in columns)]
        if has_labels:
            header.append("diagnosis")
        with (own / "patients.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for i in rows:
                row = [int(ids[i]), *(float(X[i, j]) for j in columns)]
                if has_labels:
                    row.append(labels[i])
                writer.writerow(row)
        own_text = PARTY.format(study=path.name, party=party)
        if has_labels:
            own_text += 'target = "diagnosis"\n'
        (own / "party.toml").write_text(own_text)
        text += f'\n[[party]]\nname = "{party}"\naddress = "127.0.0.1:{port}"\n'
    path.write_text(text)
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
