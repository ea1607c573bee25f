"""The data of the papers: public files, by name, and our own seeded generators.

The environment variable COTERIE_DATA names the folder with the files. A file is read only if its
SHA-256 is the one written here, so a published number can be traced to the bytes it came from.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.data.table import Table, canonical_csr
from coterie.errors import CorruptFile, InvalidInput, MissingData
from coterie.numerics.arrays import Matrix

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows to learn from, rows kept back if the publisher says which, and what else belongs to the
    data.
    """

    train: Table
    test: Table | None = None
    extras: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Arrays such as the user of every row, by name; those that end in _train and _test have one
    entry per row.
    """
    source: str = ""
    """Where the data comes from, in words."""


@dataclass(frozen=True)
class _File:
    sha256: str
    source: str


_FILES = {
    "a1a.npz": _File(
        "70af36638ac28cc5ca561ad13619b523539d03255f3a979a68e2d03ebee01d11",
        "LIBSVM's collection, binary classification, a1a and a1a.t (UCI Adult; Platt 1998)",
    ),
    "w8a.npz": _File(
        "83a80b36475c0ee8c41657b846e3298abe2eff419a46bd51a53608f0892f52c6",
        "LIBSVM's collection, binary classification, w8a (Platt 1998)",
    ),
    "mnist.npz": _File(
        "97641339e2a10495e5e6800bf9c9cfbd0425f4b32d6b9e064877995e9af76521",
        "the MNIST handwritten digits (LeCun, Cortes, Burges), four IDX files",
    ),
    "har_stairs.npz": _File(
        "290d67d932a44c8c9e190905df0222c00cb75bef046a9a56af7e0e8055640984",
        "UCI's repository, Human Activity Recognition Using Smartphones (Anguita et al. 2013), "
        "walking up and down "
        "stairs, with features recomputed from the raw recordings",
    ),
    "school.npz": _File(
        "6fb1762f1d9c3b0e1b278d5d4d2d0c62a1e732761d8d8084641b2bceedc9fef1",
        (
            "the Inner London Education Authority's examination records (Goldstein 1991), as "
            "published with MALSAR"
        ),
    ),
    "computer_buyers.npz": _File(
        "2fb0cacea132c4c34105ad11970d50f2197b2e74fe1ea429c97dd6cfa83495b2",
        (
            "the conjoint analysis of personal computers (Lenk et al. 1996), as published with "
            "pmtkdata"
        ),
    ),
    "debian_text.npz": _File(
        "39147c71b5ce35ba61ce6e41545d04abdd52cfbd30cf8c8edaffb427e67573c6",
        "the package descriptions of Debian 12 (main, amd64) as word counts",
    ),
    "real-sim": _File(
        "0fd9b12b6dc60dab7885a7367b286a53aac5d92057dc1083ab13ade275120270",
        "LIBSVM's collection, binary classification, real-sim",
    ),
    "real-sim.bz2": _File(
        "7cd52374f55ce62e803ef33ca1c44689427c23d481eff64026f8ba9f53b8cc27",
        "LIBSVM's collection, binary classification, real-sim",
    ),
}


# -- files -----------------------------------------------------------------------------------------


def a1a() -> Dataset:
    """UCI Adult as binary features: 1605 × 119 to learn from; the test rows have the same 119
    columns.

    The published test part has four more columns (71 ones in all), which no training row uses.
    """
    arrays = _archive("a1a.npz")
    train, test = (
        Table(_csr(arrays, f"{part}_"), arrays[f"{part}_y"].astype(float), name=f"a1a {part}")
        for part in ("train", "test")
    )
    test = Table(canonical_csr(test.X[:, : train.d]), test.y, name=test.name)
    return Dataset(train, test, source=_FILES["a1a.npz"].source)


def w8a() -> Dataset:
    """Web pages as binary features: 49749 × 300, of which 4203 rows are empty."""
    arrays = _archive("w8a.npz")
    return Dataset(
        Table(_csr(arrays), arrays["y"].astype(float), name="w8a"), source=_FILES["w8a.npz"].source
    )


def mnist(digits: Sequence[int] | None = None, dtype: npt.DTypeLike = np.float64) -> Dataset:
    """Handwritten digits, 28 × 28 pixels in a row, from 0 to 1; all of them, or only those named,
    in original order.
    """
    if digits is not None and not set(digits) <= set(range(10)):
        raise InvalidInput(f"digits={digits!r} must be from 0 to 9, e.g. (0, 1).")
    arrays = _archive("mnist.npz")

    def part(which: str) -> Table:
        x, y = arrays[f"{which}_x"], arrays[f"{which}_y"]
        rows = np.arange(len(y)) if digits is None else np.flatnonzero(np.isin(y, list(digits)))
        X = x[rows].reshape(len(rows), -1).astype(dtype)
        X /= 255
        return Table(X, y[rows].astype(dtype), name=f"mnist {which}")

    return Dataset(part("train"), part("test"), source=_FILES["mnist.npz"].source)


def har_stairs() -> Dataset:
    """Walking upstairs (+1) or downstairs (−1): 561 features, 30 people (`user_train`, ...), split
    as in the paper.
    """
    arrays = _archive("har_stairs.npz")
    columns = tuple(map(str, arrays["feature_names"]))
    pooled = Table(
        arrays["x"].astype(float), arrays["y"].astype(float), columns=columns, name="har"
    )
    train, test = arrays["split_train"].astype(np.intp), arrays["split_test"].astype(np.intp)
    return _by_user(pooled, arrays["subject"], train, test, {}, _FILES["har_stairs.npz"].source)


def school(fold: int = 0, threshold: float | None = None) -> Dataset:
    """Exam scores of 15362 students of 139 schools (`user_train`, `user_test`), in one of ten
    published splits.

    `student_features` and `school_features` are the paper's groups of columns. With a threshold
    (the paper's is 20) the label is +1 for scores above it and −1 for the others.
    """
    if fold not in range(10):
        raise InvalidInput(f"fold={fold!r} must be from 0 to 9: there are ten published splits.")
    arrays = _archive("school.npz")
    columns = tuple(map(str, arrays["feature_names"]))
    pooled = Table(
        arrays["x"].astype(float), _above(arrays["y"], threshold), columns=columns, name="school"
    )
    train, test = (
        arrays["split_train"][fold].astype(np.intp),
        arrays["split_test"][fold].astype(np.intp),
    )
    groups = {key: arrays[key].astype(np.intp) for key in ("student_features", "school_features")}
    return _by_user(pooled, arrays["school"], train, test, groups, _FILES["school.npz"].source)


def computer_buyers(threshold: float | None = None) -> Dataset:
    """Ratings, 0 to 10, of 20 computers (14 attributes) by 190 buyers (`user_train`, ...), split as
    in the paper.

    `buyer_covariates` describes the buyers. With a threshold (the paper's is 5) the label is +1 for
    ratings above it and −1 for the others.
    """
    arrays = _archive("computer_buyers.npz")
    buyers, computers = arrays["rating"].shape
    columns = tuple(map(str, arrays["attribute_names"]))
    X = np.tile(arrays["design"].astype(float), (buyers, 1))
    pooled = Table(
        X, _above(arrays["rating"].ravel(), threshold), columns=columns, name="computers"
    )
    order = np.arange(buyers)[:, None] * computers + arrays["split_permutation"].astype(np.intp)
    learns = np.arange(computers) < arrays["split_n_train"][:, None]
    extras = {"buyer_covariates": arrays["buyer_covariates"].astype(float)}
    users = np.repeat(np.arange(buyers), computers)
    source = _FILES["computer_buyers.npz"].source
    return _by_user(pooled, users, order[learns], order[~learns], extras, source)


def debian_text() -> Dataset:
    """Package descriptions for users (+1) or developers (−1): 63440 × 20958 words, tf-idf, rows of
    length 1.
    """
    arrays = _archive("debian_text.npz")
    counts = _csr(arrays)
    df = np.bincount(counts.indices, minlength=counts.shape[1])
    counts.data = (1 + np.log(counts.data)) * np.log(counts.shape[0] / df)[counts.indices]
    columns = tuple(map(str, arrays["vocabulary"]))
    table = Table(
        _unit_rows(counts), arrays["y"].astype(float), columns=columns, name="debian text"
    )
    return Dataset(table, source=_FILES["debian_text.npz"].source)


def realsim() -> Dataset:
    """Text of four discussion groups, 72309 × 20958, rows of length 1: the file real-sim or
    real-sim.bz2 of LIBSVM.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        folder = _folder("real-sim")
        name = "real-sim" if (folder / "real-sim").is_file() else "real-sim.bz2"
        content = _checked(name)
    except MissingData as missing:
        raise MissingData(
            f"{missing} Or use datasets.text_like(), synthetic data of the same outline."
        ) from None
    if name.endswith(".bz2"):
        import bz2

        content = bz2.decompress(content)
    X, y = load_svmlight_file(io.BytesIO(content), n_features=20958, zero_based=False)
    return Dataset(Table(canonical_csr(X), y, name="real-sim"), source=_FILES[name].source)


# -- generators ------------------------------------------------------------------------------------


def text_like(
    rows: int = 72309, columns: int = 20958, nonzeros: int = 3709083, seed: int = 0
) -> Dataset:
    """Synthetic text of two classes with, by default, the outline of real-sim; rows have length 1.

    Rows, columns and the number of positive rows (22238 of 72309, or that share) are exact; the
    non-zeros are right to about 1 %. Every row draws words from its class's Zipf-like law, p_j ∝
    exp(±t_j) / (j + 10) with t_j normal; 1 % of the rows speak like the other class. None of the
    numbers is real data.
    """
    if not (rows >= 2 and columns >= 2 and rows <= nonzeros <= rows * columns // 2):
        raise InvalidInput(
            f"text_like({rows}, {columns}, {nonzeros}) must have 2 rows and 2 columns or more, at "
            "least one non-zero "
            "per row, and at most half of the cells not zero."
        )
    rng = np.random.default_rng(seed)
    positive = round(rows * 22238 / 72309)
    y = np.where(rng.permutation(rows) < positive, 1.0, -1.0)
    voice = np.where(rng.random(rows) < 0.01, -y, y)
    taste = 0.5 * rng.standard_normal(columns)
    rank = rng.permutation(columns)
    length = rng.lognormal(0.0, 0.7, rows)
    length = np.clip(length * (nonzeros / length.sum()), 1.0, columns / 2)
    row, word = [], []
    for side in (-1.0, 1.0):
        p = np.exp(side * taste) / (rank + 10.0)
        p /= p.sum()
        local = np.flatnonzero(voice == side)
        tokens = _tokens_for(length[local], p)
        row.append(np.repeat(local, tokens))
        word.append(np.searchsorted(np.cumsum(p)[:-1], rng.random(tokens.sum()), side="right"))
    cells = (np.concatenate(row), np.concatenate(word))
    X = canonical_csr(sp.coo_array((np.ones(len(cells[0])), cells), shape=(rows, columns)))
    df = np.bincount(X.indices, minlength=columns)
    X.data = (1 + np.log(X.data)) * np.log1p(rows / np.maximum(df, 1))[X.indices]
    return Dataset(Table(_unit_rows(X), y, name="text-like"), source=f"synthetic, seed {seed}")


def experiment2(
    n: int = 3000,
    d: int = 500,
    agents: int = 30,
    iid: bool = True,
    seed: int = 0,
    *,
    sparse: bool = False,
) -> Dataset:
    """y = ⟨x, w*⟩ + N(0, 1), as in Appendix D.1 of the primal-dual paper; w* and the agent of every
    row are extras.

    IID: x ~ N(0, diag(j⁻²)). Otherwise a third of the rows is standard normal, a third Student-t
    with 5 degrees of freedom, the rest uniform on [−5, 5], and the rows are shuffled. w* is all
    ones; `sparse` (for ℓ1) keeps the first fifth, 100 of 500, and puts zeros behind. Equal blocks
    of rows, as `split` makes them, are the agents' data.
    """
    rng = np.random.default_rng(seed)
    if iid:
        X = rng.standard_normal((n, d)) / np.arange(1, d + 1)
    else:
        third = n // 3
        X = np.concatenate(
            [
                rng.standard_normal((third, d)),
                rng.standard_t(5, (third, d)),
                rng.uniform(-5, 5, (n - 2 * third, d)),
            ]
        )
        rng.shuffle(X)
    coefficients = np.where(np.arange(d) < d // 5, 1.0, 0.0) if sparse else np.ones(d)
    y = X @ coefficients + rng.standard_normal(n)
    agent = np.repeat(
        np.arange(agents), [len(block) for block in np.array_split(np.arange(n), agents)]
    )
    extras = {"coefficients": coefficients, "user_train": agent}
    return Dataset(
        Table(X, y, name="experiment 2"), extras=extras, source=f"synthetic, seed {seed}"
    )


CLUSTERS = {45: 10, 135: 20, 225: 30, 315: 40}
"""The clusters of Moons: the angle of each, and its number of users."""
NEGLIGIBLE = 1e-3


def moons(
    variant: str = "paper", extra: str = "random", *, columns: int = 20, seed: int = 0
) -> Dataset:
    """Two interleaving moons for 100 users in four clusters, each user's turned by an angle of its
    own (Section 6.1).

    3 to 15 rows to learn from and 100 to test with per user; angles N(Θ_c, 5°) around 45°, 135°,
    225°, 315°; 5 % of the training labels flipped; the other columns `extra`: "random" (normal) as
    the text says, or "zeros". With variant="code", as in the authors' public program: zeros, an
    angle spread of 12°, and flipped test labels instead of training ones. The moons' own noise is
    0.1, the program's; the text gives none.

    Extras: `user_train`, `user_test`, `angles` (radians), `clusters`, and the true collaboration
    `graph`, w_kl = exp((cos(θ_k − θ_l) − 1) / 0.1) without weights below 10⁻³.
    """
    if variant not in ("paper", "code") or extra not in ("random", "zeros"):
        raise InvalidInput(
            f"moons({variant!r}, {extra!r}): variant is 'paper' or 'code', extra 'random' or "
            "'zeros'."
        )
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(len(CLUSTERS)), list(CLUSTERS.values()))
    angles = np.deg2rad(
        rng.normal(np.array(list(CLUSTERS))[clusters], 5.0 if variant == "paper" else 12.0)
    )
    flipped = (0.05, 0.0) if variant == "paper" else (0.0, 0.05)
    filling = extra if variant == "paper" else "zeros"
    return _turned_moons(
        rng, angles, clusters, (3, 15), columns, flipped, filling, f"moons, seed {seed}"
    )


def moons100(extra: str = "random", *, columns: int = 20, seed: int = 0) -> Dataset:
    """Two moons for 100 users without clusters (Appendix D.3): each turns them to an axis drawn
    from a normal law.

    3 to 20 rows to learn from; the rest, and the extras, as in `moons`; `clusters` are all 0.
    """
    rng = np.random.default_rng(seed)
    axes = rng.standard_normal((100, 2))
    angles = np.arctan2(axes[:, 1], axes[:, 0])
    clusters = np.zeros(100, np.int64)
    return _turned_moons(
        rng, angles, clusters, (3, 20), columns, (0.05, 0.0), extra, f"moons100, seed {seed}"
    )


def _turned_moons(
    rng: np.random.Generator,
    angles: npt.NDArray[np.float64],
    clusters: npt.NDArray[np.int64],
    rows: tuple[int, int],
    columns: int,
    flipped: tuple[float, float],
    extra: str,
    source: str,
) -> Dataset:
    from sklearn.datasets import make_moons

    users = len(angles)
    sizes = (rng.integers(rows[0], rows[1], size=users, endpoint=True), np.full(users, 100))
    parts = []
    for counts, share in zip(sizes, flipped, strict=True):
        X, y = np.zeros((counts.sum(), columns)), np.empty(counts.sum())
        ends = np.cumsum(counts)
        for angle, m, end in zip(angles, counts, ends, strict=True):
            local = slice(end - m, end)
            points, side = make_moons(m, noise=0.1, random_state=int(rng.integers(2**31)))
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            X[local, :2], y[local] = points @ turn.T, np.where(side == 1, 1.0, -1.0)
        if extra == "random":
            X[:, 2:] = rng.standard_normal((len(X), columns - 2))
        y[rng.random(len(y)) < share] *= -1
        parts.append((Table(X, y, name="moons"), np.repeat(np.arange(users), counts)))
    graph = np.exp((np.cos(angles[:, None] - angles) - 1) / 0.1)
    graph[graph < NEGLIGIBLE] = 0.0
    np.fill_diagonal(graph, 0.0)
    (train, user_train), (test, user_test) = parts
    extras = {
        "user_train": user_train,
        "user_test": user_test,
        "angles": angles,
        "clusters": clusters,
        "graph": graph,
    }
    return Dataset(train, test, extras, source=f"synthetic {source}")


# -- reading ---------------------------------------------------------------------------------------


def _folder(name: str) -> Path:
    folder = os.environ.get("COTERIE_DATA")
    if not folder:
        raise _missing(name, "the environment variable COTERIE_DATA is not set")
    return Path(folder)


def _missing(name: str, why: str) -> MissingData:
    return MissingData(
        f"the data file {name!r} is not here: {why}. Its content is public: {_FILES[name].source}. "
        "Put it into a folder and set COTERIE_DATA to that folder."
    )


def _checked(name: str) -> bytes:
    path = _folder(name) / name
    if not path.is_file():
        raise _missing(name, f"there is no file {str(path)!r}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != _FILES[name].sha256:
        raise CorruptFile(
            f"{str(path)!r} is not the file that was published: its SHA-256 is {found}, not "
            f"{_FILES[name].sha256}. "
            "Get it again."
        )
    return content


def _archive(name: str) -> Arrays:
    with np.load(io.BytesIO(_checked(name)), allow_pickle=False) as archive:
        return {key: archive[key] for key in archive}


def _csr(arrays: Arrays, prefix: str = "") -> Matrix:
    data, indices, indptr = (arrays[prefix + key] for key in ("data", "indices", "indptr"))
    shape = tuple(arrays[f"{prefix}shape"].tolist())
    return canonical_csr(
        sp.csr_array((data.astype(float), indices.astype(np.int32), indptr), shape=shape)
    )


def _by_user(
    pooled: Table,
    users: npt.NDArray[Any],
    train: npt.NDArray[np.intp],
    test: npt.NDArray[np.intp],
    extras: Arrays,
    source: str,
) -> Dataset:
    user_of = {
        "user_train": users[train].astype(np.int64),
        "user_test": users[test].astype(np.int64),
    }
    return Dataset(pooled.take_rows(train), pooled.take_rows(test), {**user_of, **extras}, source)


def _above(scores: npt.NDArray[Any], threshold: float | None) -> npt.NDArray[np.float64]:
    return scores.astype(float) if threshold is None else np.where(scores > threshold, 1.0, -1.0)


def _unit_rows(X: Matrix) -> Matrix:
    squares = np.bincount(
        np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.data**2, X.shape[0]
    )
    lengths = np.where(squares > 0, np.sqrt(squares), 1.0)
    X.data /= np.repeat(lengths, np.diff(X.indptr))
    return X


def _tokens_for(
    distinct: npt.NDArray[np.float64], p: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """How many words to draw for that many different ones: Σ_j 1 − (1 − p_j)^m is their expected
    number among m.
    """
    m = np.geomspace(1.0, 20.0 * len(p), 60)
    expected = np.array([-np.expm1(k * np.log1p(-p)).sum() for k in m])
    tokens: npt.NDArray[np.int64] = np.rint(np.interp(distinct, expected, m)).astype(np.int64)
    return tokens
