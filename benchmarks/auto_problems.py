"""Four sets of problems for `method="auto"`: its cost model is calibrated on the first and tested on
the others.

The data of the first twenty is made here. That of the next twenty is made by scikit-learn or comes
with it: measurements, digits, patches of two photographs, and the lines of its descriptions as
text. Both sets were fixed before anything was calibrated. Three numbers were changed after the
testing set was measured, so a third set was made later, of data unlike both, and fixed before any
method ran on it. The fourth set has every combination of a loss, a penalty and a split, on data
that is drawn; it was fixed before any method ran on it, too. No number of the package may be chosen
by what happens on `TESTING`, `THIRD` or `FOURTH`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures

import coterie as co

Data = tuple[Any, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A problem, how to get its data, and who has which part of it."""

    problem: co.Problem
    data: Callable[[], Data]
    agents: int = 8
    split: str = "samples"
    network: str | None = None


# -- data for calibration: made here ---------------------------------------------------------------


def _labels(scores: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Labels that follow scores: classes with noise, numbers with noise and outliers, or counts."""
    scores = scores / (np.std(scores) or 1.0)
    if kind == "classes":
        return np.where(scores + 0.5 * rng.standard_normal(len(scores)) > 0, 1.0, -1.0)
    if kind == "counts":
        return rng.poisson(np.exp(np.clip(scores, -3, 3))).astype(float)
    wild = np.where(rng.random(len(scores)) < 0.05, 5 * rng.standard_normal(len(scores)), 0.0)
    return np.asarray(
        scores + 0.3 * rng.standard_normal(len(scores)) + (wild if kind == "outliers" else 0.0)
    )


def _gaussian(
    n: int, d: int, kind: str, *, correlated: float = 0.0, few: int = 0, seed: int = 0
) -> Data:
    """Gaussian columns; correlated, the spectrum falls like k to that power; labels depend on `few`
    columns, or all.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if correlated:
        turned, _ = np.linalg.qr(rng.standard_normal((d, d)))
        X = X * np.arange(1, d + 1) ** -correlated @ turned
        X /= X.std()
    w = rng.standard_normal(d) * (np.arange(d) < (few or d))
    return X, _labels(X @ w, kind, rng)


def _sparse(n: int, d: int, share: float, kind: str, *, seed: int = 0) -> Data:
    """Columns that are rarer and rarer, as words are; so many of the numbers are not 0."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, d + 1) ** 0.9
    chance = np.minimum(1.0, chance * share * d / chance.sum())
    columns = [np.flatnonzero(rng.random(n) < p) for p in chance]
    rows, places = (
        np.concatenate(columns),
        np.repeat(np.arange(d), [len(column) for column in columns]),
    )
    X = sp.csr_array((rng.lognormal(0.0, 0.5, len(rows)), (rows, places)), shape=(n, d))
    return X, _labels(X @ (rng.standard_normal(d) * (rng.random(d) < 0.2)), kind, rng)


def _categories(n: int, columns: int, levels: int, kind: str) -> Data:
    """One column for every level of every category, tall and sparse."""
    rng = np.random.default_rng(5)
    drawn = rng.integers(0, levels, (n, columns)) + levels * np.arange(columns)
    X = sp.csr_array(
        (np.ones(n * columns), drawn.ravel(), columns * np.arange(n + 1)),
        shape=(n, columns * levels),
    )
    return X, _labels(X @ rng.standard_normal(columns * levels), kind, rng)


def _fields(n: int, side: int) -> Data:
    """Smooth random fields as pixels from 0 to 1, half of them with a brighter middle."""
    rng = np.random.default_rng(6)
    k = np.fft.fftfreq(side)
    fall = 1.0 / (0.05 + np.hypot(k[:, None], k))
    waves = np.fft.fft2(rng.standard_normal((n, side, side))) * fall
    field = np.real(np.fft.ifft2(waves))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    bump = np.exp(-(np.hypot(*np.meshgrid(*2 * [np.linspace(-2, 2, side)])) ** 2))
    pixels = field / field.std() + 0.7 * y[:, None, None] * bump
    return (1 / (1 + np.exp(-pixels))).reshape(n, -1).astype(np.float32), y.astype(np.float32)


_P = co.Problem
_FIVES = tuple(k // 5 for k in range(20))
CALIBRATION = {
    "correlated": Case(
        _P("logistic", "l2", 1e-4), partial(_gaussian, 4000, 200, "classes", correlated=0.7)
    ),
    "tall": Case(
        _P("logistic", "group", 1e-2, groups=_FIVES, intercept=True),
        partial(_gaussian, 20000, 20, "classes"),
        16,
    ),
    "fields": Case(_P("logistic", "l2", 1e-4), partial(_fields, 6000, 28), 4),
    "words": Case(_P("logistic", "l2", 1e-4), partial(_sparse, 3000, 6000, 0.01, "classes"), 4),
    "rare words": Case(
        _P("logistic", "l1", 1e-3), partial(_sparse, 4000, 8000, 0.005, "classes", seed=1)
    ),
    "genes": Case(_P("logistic", "l1", 2e-2), partial(_gaussian, 300, 2000, "classes", few=10), 2),
    "ridge": Case(
        _P("squared", "l2", 1e-3), partial(_gaussian, 5000, 50, "numbers", correlated=1.0), 16
    ),
    "lasso": Case(_P("squared", "l1", 5e-2), partial(_gaussian, 400, 1500, "numbers", few=20), 4),
    "sparse net": Case(
        _P("squared", "elasticnet", 1e-3), partial(_sparse, 3000, 3000, 0.01, "numbers", seed=2)
    ),
    "bounded": Case(
        _P("squared", "nonnegative"), partial(_gaussian, 1500, 100, "numbers", correlated=0.5)
    ),
    "margin": Case(
        _P("hinge", "l2", 1e-3), partial(_gaussian, 2000, 40, "classes", correlated=0.5)
    ),
    "wide margin": Case(
        _P("hinge", "l2", 1e-3), partial(_sparse, 2000, 3000, 0.01, "classes", seed=3), 4
    ),
    "categories": Case(
        _P("squared_hinge", "l2", 1e-4), partial(_categories, 10000, 8, 20, "classes"), 1
    ),
    "outliers": Case(
        _P("huber", "l2", 1e-3), partial(_gaussian, 2000, 300, "outliers", correlated=0.5), 64
    ),
    "counts": Case(
        _P("poisson", "l2", 1e-3, intercept=True), partial(_gaussian, 1500, 60, "counts")
    ),
    "medians": Case(_P("absolute", "l1", 1e-2), partial(_gaussian, 800, 30, "outliers", few=5)),
    "upper": Case(
        _P("quantile", "box", lower=-0.2, upper=0.2, level=0.9),
        partial(_gaussian, 1000, 20, "outliers"),
        4,
    ),
    "columns": Case(
        _P("logistic", "l2", 1e-3),
        partial(_gaussian, 600, 300, "classes", correlated=0.5),
        4,
        "features",
    ),
    "wide columns": Case(
        _P("squared", "l1", 3e-2),
        partial(_gaussian, 300, 1200, "numbers", few=10),
        8,
        "features",
        "ring",
    ),
    "columns of words": Case(
        _P("huber", "elasticnet", 1e-3),
        partial(_sparse, 2000, 2000, 0.01, "outliers", seed=4),
        16,
        "features",
    ),
}


# -- data for testing: made by scikit-learn, or part of it -----------------------------------------


def _scaled(X: Any) -> np.ndarray:
    X = np.asarray(X, float)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0]


def _signs(y: Any) -> np.ndarray:
    return np.where(y, 1.0, -1.0)


def _cancer(degree: int = 1) -> Data:
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return _scaled(
        PolynomialFeatures(degree, include_bias=False).fit_transform(_scaled(X))
    ), _signs(y == 1)


def _diabetes(degree: int = 1) -> Data:
    X, y = datasets.load_diabetes(return_X_y=True)
    return _scaled(
        PolynomialFeatures(degree, include_bias=False).fit_transform(_scaled(X))
    ), _scaled(y[:, None])[:, 0]


def _digits(what: str) -> Data:
    """Even or odd; how dark the lower half is, from the upper one; one pixel from the others."""
    pixels, y = datasets.load_digits(return_X_y=True)
    if what == "odd":
        return _scaled(pixels), _signs(y % 2 == 1)
    if what == "counts":
        return _scaled(pixels[:, :32]), np.sum(pixels[:, 32:] > 8, axis=1).astype(float)
    others = np.delete(pixels / 16, 28, axis=1)
    return others, pixels[:, 28] / 16


@cache
def _patches(n: int, side: int = 28) -> Data:
    """Grey patches of two photographs; which one they are of."""
    rng = np.random.default_rng(0)
    photographs = [
        photo.mean(axis=2, dtype=np.float32) / 255 for photo in datasets.load_sample_images().images
    ]
    y = rng.integers(0, 2, n)
    height, width = photographs[0].shape
    top, left = rng.integers(0, height - side, n), rng.integers(0, width - side, n)
    X = np.array(
        [
            photographs[k][i : i + side, j : j + side].ravel()
            for k, i, j in zip(y, top, left, strict=True)
        ]
    )
    return X, _signs(y).astype(np.float32)


def _middle(n: int) -> Data:
    """The pixel in the middle of a patch, from the others."""
    X, _ = _patches(n)
    X = X - X.mean(axis=1, keepdims=True)
    return np.delete(X, 406, axis=1), X[:, 406].copy()


@cache
def _text(columns: int) -> Data:
    """Lines of the descriptions of scikit-learn's data, by their groups of letters: of medicine, or
    not.
    """
    medicine = [
        datasets.load_breast_cancer().DESCR,
        datasets.load_diabetes().DESCR,
        datasets.load_linnerud().DESCR,
    ]
    others = [datasets.load_digits().DESCR, datasets.load_iris().DESCR, datasets.load_wine().DESCR]
    lines, y = [], []
    for label, texts in ((True, medicine), (False, others)):
        for text in texts:
            words = text.split()
            pieces = [" ".join(words[k : k + 8]) for k in range(0, len(words), 2)]
            lines += pieces
            y += [label] * len(pieces)
    X = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=columns).transform(
        lines
    )
    order = np.random.default_rng(1).permutation(len(y))
    return sp.csr_array(X)[order], _signs(np.array(y)[order])


def _binned(n: int) -> Data:
    """Friedman's first function above its median, of columns in 16 bins each: tall and sparse."""
    X, y = datasets.make_friedman1(n, 10, noise=1.0, random_state=2)
    bins = KBinsDiscretizer(16, encode="onehot", strategy="uniform").fit_transform(X)
    return sp.csr_array(bins), _signs(y > np.median(y))


def _friedman(which: int, n: int, degree: int = 1, positive: bool = False) -> Data:
    made = (datasets.make_friedman1, datasets.make_friedman2, datasets.make_friedman3)[which - 1]
    X, y = made(n, noise=0.0 if positive else 1.0, random_state=which)
    y = y / y.mean() if positive else _scaled(y[:, None])[:, 0]
    if positive:
        y = y * np.random.default_rng(3).gamma(4.0, 0.25, n)
    return _scaled(PolynomialFeatures(degree, include_bias=False).fit_transform(_scaled(X))), y


TESTING = {
    "photographs": Case(_P("logistic", "l2", 1e-4), partial(_patches, 20000)),
    "cancer pairs": Case(_P("logistic", "l2", 1e-3), partial(_cancer, 2), 4),
    "cancer few": Case(_P("logistic", "l1", 1e-2, intercept=True), partial(_cancer, 2), 8),
    "text": Case(_P("logistic", "l2", 1e-4), partial(_text, 8192)),
    "text few": Case(_P("logistic", "l1", 1e-3), partial(_text, 8192), 4),
    "text regression": Case(_P("squared", "l2", 1e-3), partial(_text, 4096), 2),
    "middle pixel": Case(_P("squared", "l2", 1e-4), partial(_middle, 5000), 16),
    "diabetes triples": Case(_P("squared", "l1", 2e-2), partial(_diabetes, 3), 4),
    "friedman net": Case(_P("squared", "elasticnet", 1e-2), partial(_friedman, 1, 3000, 2), 64),
    "pixel bounded": Case(_P("squared", "nonnegative"), partial(_digits, "pixel")),
    "digits margin": Case(_P("hinge", "l2", 1e-3), partial(_digits, "odd")),
    "text margin": Case(_P("hinge", "l2", 1e-3), partial(_text, 4096), 4),
    "binned": Case(_P("squared_hinge", "l2", 1e-4), partial(_binned, 20000), 16),
    "diabetes huber": Case(
        _P("huber", "group", 1e-2, groups=_FIVES * 3 + _FIVES[:5]), partial(_diabetes, 2), 2
    ),
    "dark pixels": Case(_P("poisson", "l2", 1e-3, intercept=True), partial(_digits, "counts")),
    "friedman gamma": Case(
        _P("gamma", "l2", 1e-3, intercept=True), partial(_friedman, 1, 1000, 2, positive=True), 1
    ),
    "diabetes medians": Case(_P("absolute", "l1ball", radius=1.0), partial(_diabetes, 2), 4),
    "cancer columns": Case(_P("logistic", "l2", 1e-3, intercept=True), _cancer, 3, "features"),
    "digit columns": Case(
        _P("squared", "l1", 1e-2), partial(_digits, "pixel"), 8, "features", "ring"
    ),
    "patch columns": Case(
        _P("quantile", "l2", 1e-2, level=0.7), partial(_middle, 600), 4, "features"
    ),
}


# -- data for the third set: made here, in other ways ----------------------------------------------


def _standard(X: np.ndarray) -> np.ndarray:
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


def _waves(n: int, d: int) -> Data:
    """Cosines of points in the plane, as for a kernel: nearly all columns follow from a few. Inside
    a ring, or not.
    """
    rng = np.random.default_rng(11)
    points = rng.standard_normal((n, 2))
    X = np.sqrt(2 / d) * np.cos(
        1.5 * points @ rng.standard_normal((2, d)) + rng.uniform(0, 2 * np.pi, d)
    )
    radius = np.hypot(*points.T) + 0.2 * rng.standard_normal(n)
    return X, _signs(np.abs(radius - 1.2) < 0.5)


def _shares(n: int, d: int) -> Data:
    """Independent shares from 0 to 1, not centred, dense; all of them matter a little."""
    rng = np.random.default_rng(12)
    X = rng.random((n, d))
    return X, _labels((X - 0.5) @ rng.standard_normal(d), "classes", rng)


def _lags(n: int, d: int, *, outliers: bool = False) -> Data:
    """A process that remembers two steps, from what it was at the last d ones."""
    rng = np.random.default_rng(13)
    series = np.zeros(n + d + 100)
    noise = rng.standard_t(2.0, len(series)) if outliers else rng.standard_normal(len(series))
    for t in range(2, len(series)):
        series[t] = 1.6 * series[t - 1] - 0.65 * series[t - 2] + noise[t]
    series = series[100:] / np.median(np.abs(series))
    X = np.lib.stride_tricks.sliding_window_view(series[:-1], d)
    return np.ascontiguousarray(X), series[d:].copy()


def _genotypes(n: int, d: int, kind: str) -> Data:
    """0, 1 or 2 copies of rare variants, neighbours inherited together; few of them matter."""
    rng = np.random.default_rng(14)
    latent = np.zeros((2, n, d))
    for j in range(d):
        kept = 0.0 if j % 25 == 0 else 0.9
        latent[:, :, j] = kept * latent[:, :, j - 1] + np.sqrt(1 - kept**2) * rng.standard_normal(
            (2, n)
        )
    X = np.sum(latent > rng.uniform(0.2, 1.8, d), axis=0).astype(float)
    w = np.zeros(d)
    w[rng.choice(d, 15, replace=False)] = rng.choice([-1.0, 1.0], 15)
    return X, _labels((X - X.mean(axis=0)) @ w, kind, rng)


def _clicks(n: int, d: int, fields: int, seed: int) -> Data:
    """A 1 for the value of each field, values as frequent as in Zipf's law: few for most columns.
    Few labels are 1.
    """
    rng = np.random.default_rng(seed)
    each = d // fields
    values = np.minimum(rng.zipf(1.3, (n, fields)) - 1, each - 1) + each * np.arange(fields)
    X = sp.csr_array((np.ones(n * fields), values.ravel(), fields * np.arange(n + 1)), shape=(n, d))
    X.sum_duplicates()
    scores = X @ rng.standard_normal(d) + rng.logistic(size=n)
    return X, _signs(scores > np.quantile(scores, 0.9))


def _matches(n: int, players: int) -> Data:
    """Who won: 1 for one player, -1 for the other; the good ones play more often."""
    rng = np.random.default_rng(16)
    skill = np.sort(rng.standard_normal(players))[::-1]
    often = 1.0 / np.arange(1, players + 1) ** 0.5
    first = rng.choice(players, n, p=often / often.sum())
    second = (first + rng.integers(1, players, n)) % players
    X = sp.csr_array(
        (np.tile([1.0, -1.0], n), np.column_stack([first, second]).ravel(), 2 * np.arange(n + 1)),
        shape=(n, players),
    )
    X.sort_indices()
    return X, _signs(skill[first] - skill[second] + rng.logistic(size=n) > 0)


def _spectra(n: int, d: int) -> Data:
    """Peaks of eight substances that overlap, with noise; how much there is of two of them."""
    rng = np.random.default_rng(17)
    places = np.linspace(0, 1, d)
    peaks = np.exp(-(((places - rng.random((8, 1))) / rng.uniform(0.02, 0.1, (8, 1))) ** 2))
    amounts = rng.gamma(2.0, 0.5, (n, 8))
    X = amounts @ peaks + 0.02 * rng.standard_normal((n, d))
    return X, amounts[:, 0] + 0.5 * amounts[:, 1] + 0.05 * rng.standard_normal(n)


def _scales(n: int, d: int) -> Data:
    """Heavy tails, and columns measured in units from a tenth to ten."""
    rng = np.random.default_rng(18)
    X = rng.standard_t(3.0, (n, d)) + 0.5 * rng.standard_normal((n, 1))
    scores = X @ rng.standard_normal(d)
    return X * np.logspace(-1, 1, d)[rng.permutation(d)], _labels(scores, "classes", rng)


def _clusters(n: int, d: int, kind: str, *, seed: int = 19) -> Data:
    """Twelve clusters, each with a label or an amount of its own; its rows stand together."""
    rng = np.random.default_rng(seed)
    which = np.sort(rng.integers(0, 12, n))
    X = _standard(rng.standard_normal((12, d))[which] + 1.5 * rng.standard_normal((n, d)))
    if kind == "amounts":
        return X, np.exp(0.5 * rng.standard_normal(12))[which] * rng.gamma(3.0, 1 / 3, n)
    return X, _labels(rng.standard_normal(12)[which] + 2 * X[:, 0], kind, rng)


def _hats(n: int, columns: int, knots: int, kind: str) -> Data:
    """Hat functions on so many knots of every column: two numbers of each row and column are
    not 0.
    """
    rng = np.random.default_rng(20)
    points = rng.beta(2.0, 4.0, (n, columns)) * (knots - 1)
    left = np.minimum(points.astype(int), knots - 2)
    places = left + knots * np.arange(columns)
    part = points - left
    indices = np.stack([places, places + 1], axis=2).reshape(n, -1)
    values = np.stack([1 - part, part], axis=2).reshape(n, -1)
    width = columns * knots
    X = sp.csr_array(
        (values.ravel(), indices.ravel(), 2 * columns * np.arange(n + 1)), shape=(n, width)
    )
    return X, _labels(np.sin(points).sum(axis=1), kind, rng)


_TENS = tuple(k // 10 for k in range(120))
THIRD = {
    "waves": Case(_P("logistic", "l2", 1e-5), partial(_waves, 8000, 400)),
    "shares": Case(_P("logistic", "l2", 1e-4, intercept=True), partial(_shares, 6000, 1000), 2),
    "lags": Case(_P("squared", "l2", 1e-3), partial(_lags, 8000, 64), 32),
    "wild lags": Case(
        _P("huber", "group", 1e-2, groups=_TENS), partial(_lags, 3000, 120, outliers=True), 4
    ),
    "genotypes": Case(
        _P("logistic", "l1", 1e-2, intercept=True), partial(_genotypes, 1000, 3000, "classes"), 4
    ),
    "heredity": Case(_P("squared", "l2", 1e-2), partial(_genotypes, 800, 4000, "numbers"), 16),
    "clicks": Case(_P("logistic", "l2", 1e-5), partial(_clicks, 20000, 5000, 10, 15), 4),
    "few clicks": Case(_P("logistic", "elasticnet", 1e-4), partial(_clicks, 8000, 2000, 5, 25), 16),
    "matches": Case(_P("logistic", "l2", 1e-3), partial(_matches, 6000, 300), 12),
    "spectra": Case(_P("squared", "elasticnet", 1e-3), partial(_spectra, 300, 1200), 3),
    "bounded spectra": Case(
        _P("squared", "box", lower=0.0, upper=0.5), partial(_spectra, 600, 200), 6
    ),
    "scales": Case(_P("logistic", "l2", 1e-3, intercept=True), partial(_scales, 5000, 100), 16),
    "clusters": Case(_P("hinge", "l2", 1e-2), partial(_clusters, 3000, 100, "classes"), 12),
    "wide clusters": Case(
        _P("hinge", "l1", 1e-2), partial(_clusters, 500, 1500, "classes", seed=29), 4
    ),
    "arrivals": Case(
        _P("poisson", "l1", 1e-3, intercept=True), partial(_hats, 4000, 8, 10, "counts")
    ),
    "amounts": Case(
        _P("gamma", "l2", 1e-3, intercept=True), partial(_clusters, 3000, 40, "amounts"), 2
    ),
    "rare delays": Case(
        _P("quantile", "l2", 1e-3, level=0.95), partial(_hats, 2000, 4, 15, "outliers"), 5
    ),
    "columns of lags": Case(
        _P("squared", "l2", 1e-3), partial(_lags, 1000, 200), 5, "features", "star"
    ),
    "columns of genotypes": Case(
        _P("logistic", "l1", 1e-2),
        partial(_genotypes, 500, 1000, "classes"),
        10,
        "features",
        "path",
    ),
    "columns of scales": Case(
        _P("squared_hinge", "l2", 1e-2), partial(_scales, 1500, 60), 6, "features"
    ),
}


# -- data for the fourth set: every loss, penalty and split, the rest drawn ------------------------

LOSSES = (
    "squared",
    "logistic",
    "hinge",
    "squared_hinge",
    "absolute",
    "huber",
    "quantile",
    "poisson",
    "gamma",
)
PENALTIES = ("none", "l2", "l1", "elasticnet", "group", "box", "nonnegative", "l1ball")
SHAPES = {
    "samples": {
        "tall": ((2000, 20000), (4, 40)),
        "middle": ((600, 2500), (60, 240)),
        "wide": ((80, 300), (300, 1000)),
    },
    "features": {
        "tall": ((500, 3000), (6, 40)),
        "middle": ((300, 800), (60, 200)),
        "wide": ((60, 200), (250, 600)),
    },
}
"""The least and greatest number of rows, and of columns, of each shape."""
COLUMNS = ("independent", "correlated", "factors", "sparse", "scales", "means")
AGENTS = {"samples": (1, 2, 4, 8, 20, 50), "features": (2, 3, 6, 12)}
NETWORKS = (None, "ring", "star", "path")


@dataclass(frozen=True)
class Drawn:
    """What is drawn for a problem of the fourth set; its data follows from it."""

    seed: int
    loss: str
    shape: str
    columns: str
    n: int
    d: int
    rare: bool
    """Whether one class has a twentieth of the rows, or a twentieth of the labels is far away."""

    def data(self) -> Data:
        """The rows and the labels."""
        rng = np.random.default_rng([self.seed, 2])
        X = self._columns(rng)
        w = rng.standard_normal(self.d) * (rng.random(self.d) < rng.choice([0.1, 0.5, 1.0]))
        w[rng.integers(self.d)] = 1.0
        scores = X @ w
        scores = (scores - scores.mean()) / (scores.std() or 1.0)
        return (sp.csr_array(X) if self.columns == "sparse" else X), self._labels(scores, rng)

    def _columns(self, rng: np.random.Generator) -> np.ndarray:
        X = rng.standard_normal((self.n, self.d))
        if self.columns == "correlated":
            near = rng.uniform(0.7, 0.97)
            for j in range(1, self.d):
                X[:, j] = near * X[:, j - 1] + np.sqrt(1 - near**2) * X[:, j]
        elif self.columns == "factors":
            few = max(2, self.d // 10)
            common = rng.standard_normal((self.n, few)) @ rng.standard_normal((few, self.d))
            X = 0.3 * X + common / np.sqrt(few)
        elif self.columns == "sparse":
            X = np.abs(X) * (rng.random((self.n, self.d)) < rng.uniform(0.01, 0.3, self.d))
        elif self.columns == "scales":
            X = X * 10.0 ** rng.uniform(-1.5, 1.0, self.d)
        elif self.columns == "means":
            X = X + rng.uniform(0.0, 5.0, self.d)
        return X

    def _labels(self, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noisy = scores + rng.choice([0.3, 1.0]) * rng.standard_normal(self.n)
        if self.loss in ("logistic", "hinge", "squared_hinge"):
            return _signs(noisy > np.quantile(noisy, 0.95 if self.rare else 0.5))
        if self.loss == "poisson":
            return rng.poisson(np.exp(np.clip(scores - self.rare, -4, 2))).astype(float)
        if self.loss == "gamma":
            return np.exp(np.clip(0.5 * scores, -2, 2)) * rng.gamma(3.0, 1 / 3, self.n)
        far = self.rare * (rng.random(self.n) < 0.05)
        return np.asarray(noisy + 10 * far * rng.standard_normal(self.n))


def _penalty(name: str, loss: str, d: int, rng: np.random.Generator) -> dict[str, Any]:
    """The parameters of the penalty, and of the loss."""
    given: dict[str, Any] = {}
    if name in ("l2", "l1", "elasticnet", "group"):
        given["strength"] = float(10.0 ** rng.uniform(-4.0, -1.0 if name == "l2" else -1.5))
    if name == "elasticnet":
        given["l1_ratio"] = float(rng.choice([0.1, 0.5, 0.9]))
    if name == "group":
        given["groups"] = tuple(k // 4 for k in range(d))
    if name == "box":
        given |= {"lower": float(rng.choice([-0.2, 0.0])), "upper": float(rng.choice([0.1, 0.5]))}
    if name == "l1ball":
        given["radius"] = float(rng.choice([0.3, 1.0, 3.0]))
    if loss == "quantile":
        given["level"] = float(rng.choice([0.1, 0.7, 0.95]))
    return given


def drawn_case(number: int, loss: str, penalty: str, split: str) -> Case:
    """The problem of the fourth set with that number. Without a penalty it has many rows, so that
    it has a solution.
    """
    rng = np.random.default_rng([number, 1])
    shape = str(rng.choice(["tall", "middle", "wide"]))
    if penalty == "none":
        shape = "tall"
    rows, columns = SHAPES[split][shape]
    n, d = (int(np.exp(rng.uniform(*np.log(both)))) for both in (rows, columns))
    drawn = Drawn(number, loss, shape, str(rng.choice(COLUMNS)), n, d, bool(rng.random() < 0.3))
    given = _penalty(penalty, loss, d, rng)
    agents = min(int(rng.choice(AGENTS[split])), d if split == "features" else n // 2)
    network = NETWORKS[rng.integers(len(NETWORKS))] if split == "features" and agents > 2 else None
    problem = _P(loss, penalty, intercept=bool(rng.random() < 0.5), **given)
    return Case(problem, drawn.data, agents, split, network)


FOURTH = {
    f"{loss}, {penalty}, {split}": drawn_case(number, loss, penalty, split)
    for number, (loss, penalty, split) in enumerate(
        product(LOSSES, PENALTIES, ("samples", "features"))
    )
}
SETS = {"calibration": CALIBRATION, "testing": TESTING, "third": THIRD, "fourth": FOURTH}
