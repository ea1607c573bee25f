"""The papers' data: the right bytes, in the right shape; and our own generators."""

from __future__ import annotations

import bz2
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from coterie.data import split, validated
from coterie.errors import CorruptFile, InvalidInput, MissingData
from papers import datasets

needs_files = pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"),
    reason="set COTERIE_DATA to the folder with the papers' data files",
)

# loader: (arguments, train shape, non-zeros or None if dense, positive rows or None, test shape)
FILES = {
    "a1a": ((), (1605, 119), 22249, 395, (30956, 119)),
    "w8a": ((), (49749, 300), 579586, 1479, None),
    "mnist": (((0, 1),), (5923 + 6742, 784), None, 6742, (980 + 1135, 784)),
    "har_stairs": ((), (236, 561), None, None, (2714, 561)),
    "school": ((), (11472, 28), None, None, (3890, 28)),
    "computer_buyers": ((), (1407, 14), None, None, (2393, 14)),
    "debian_text": ((), (63440, 20958), 2594130, 18686, None),
}


@needs_files
@pytest.mark.parametrize("name", FILES)
def test_the_outline_of_every_file(name):
    arguments, shape, nonzeros, positive, test_shape = FILES[name]
    data = getattr(datasets, name)(*arguments)
    assert data.train.X.shape == shape
    assert (data.test is None) == (test_shape is None)
    assert data.test is None or data.test.X.shape == test_shape
    assert sp.issparse(data.train.X) == (nonzeros is not None)
    assert nonzeros is None or (data.train.X.nnz, data.train.X.indices.dtype) == (
        nonzeros,
        np.int32,
    )
    assert positive is None or np.count_nonzero(data.train.y == 1) == positive
    assert data.source
    for table, part in ((data.train, "train"), (data.test, "test")):
        if table is not None:
            assert validated(table, classification=False).X is table.X
            assert all(
                len(v) == table.n for key, v in data.extras.items() if key.endswith(f"_{part}")
            )


@needs_files
def test_a1a_keeps_its_test_rows():
    test = datasets.a1a().test
    assert np.count_nonzero(test.y == 1) == 7446
    assert test.X.nnz == 429343 - 71


@needs_files
def test_mnist_is_scaled_and_filtered():
    data = datasets.mnist((3,), dtype=np.float32)
    assert data.train.X.dtype == np.float32
    assert set(data.train.y) == {3.0}
    assert (data.train.X.min(), data.train.X.max()) == (0.0, 1.0)


@needs_files
def test_users_of_the_personal_data():
    har = datasets.har_stairs()
    sizes = [shard.n for shard in split(har.train, "users", har.extras["user_train"])]
    assert (len(sizes), min(sizes), max(sizes)) == (30, 3, 12)
    sizes = np.bincount(har.extras["user_test"])[1:]
    assert (sizes.min(), sizes.max()) == (69, 115)
    assert np.count_nonzero(np.concatenate([har.train.y, har.test.y]) == 1) == 1544

    school = datasets.school(threshold=20)
    sizes = np.bincount(school.extras["user_train"])
    assert (len(sizes), sizes.min(), sizes.max()) == (139, 16, 188)
    assert set(school.train.y) == {-1.0, 1.0}
    np.testing.assert_array_equal(school.train.y == 1, datasets.school().train.y > 20)
    groups = np.concatenate([school.extras["student_features"], school.extras["school_features"]])
    assert sorted(groups) == list(range(28))
    assert datasets.school(fold=1).train.digest() != datasets.school().train.digest()

    buyers = datasets.computer_buyers()
    for part, low, high in (("train", 5, 10), ("test", 10, 15)):
        sizes = np.bincount(buyers.extras[f"user_{part}"])
        assert (len(sizes), sizes.min(), sizes.max()) == (190, low, high)
    with np.load(Path(os.environ["COTERIE_DATA"]) / "computer_buyers.npz") as raw:
        rating, design, order = raw["rating"], raw["design"], raw["split_permutation"]
        learned = raw["split_n_train"][7]
    mine = buyers.extras["user_train"] == 7
    np.testing.assert_array_equal(buyers.train.y[mine], rating[7, order[:learned]])
    np.testing.assert_array_equal(buyers.train.X[mine], design[order[:learned]])


@needs_files
def test_debian_text_has_rows_of_length_one():
    table = datasets.debian_text().train
    np.testing.assert_allclose(np.sqrt(table.X.power(2).sum(axis=1)), 1.0, rtol=1e-12)
    assert len(set(table.columns)) == table.d
    # tf-idf grows with rarity: the rarest word of a row weighs more than the most frequent one at
    # equal counts.
    with np.load(Path(os.environ["COTERIE_DATA"]) / "debian_text.npz") as raw:
        counts, indices = raw["data"][: table.X.indptr[1]], raw["indices"]
    df = np.bincount(indices, minlength=table.d)
    first = table.X[[0]]
    once = counts == 1
    weight, rarity = first.data[once], -df[first.indices[once]]
    np.testing.assert_array_equal(
        np.argsort(weight, kind="stable"), np.argsort(rarity, kind="stable")
    )


@needs_files
@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_changed_file_is_refused(damage, tmp_path, monkeypatch):
    content = bytearray((Path(os.environ["COTERIE_DATA"]) / "computer_buyers.npz").read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    else:
        del content[-1]
    (tmp_path / "computer_buyers.npz").write_bytes(content)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(CorruptFile, match=r"computer_buyers\.npz.*SHA-256"):
        datasets.computer_buyers()


@pytest.mark.parametrize("folder", [None, "empty"])
@pytest.mark.parametrize("name", [*FILES, "realsim"])
def test_a_missing_file_says_what_to_do(name, folder, tmp_path, monkeypatch):
    if folder is None:
        monkeypatch.delenv("COTERIE_DATA", raising=False)
    else:
        monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(MissingData) as error:
        getattr(datasets, name)()
    text = str(error.value)
    assert "set COTERIE_DATA" in text
    assert ("is not set" in text) == (folder is None)
    published = {
        "a1a": "LIBSVM's collection, binary classification, a1a",
        "realsim": "LIBSVM",
        "mnist": "MNIST",
    }
    assert published.get(name, "") in text
    assert name != "realsim" or "text_like()" in text


@pytest.mark.parametrize("ending", ["", ".bz2"])
def test_realsim_is_read_once_it_is_there(ending, tmp_path, monkeypatch):
    text = b"1 1:0.5 20958:0.5\n-1 2:1\n"
    content = bz2.compress(text) if ending else text
    (tmp_path / f"real-sim{ending}").write_bytes(content)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(CorruptFile, match="real-sim"):
        datasets.realsim()
    file = datasets._File(hashlib.sha256(content).hexdigest(), "a test")
    monkeypatch.setitem(datasets._FILES, f"real-sim{ending}", file)
    table = datasets.realsim().train
    assert table.X.shape == (2, 20958)
    assert table.X.nonzero()[1].tolist() == [0, 20957, 1]
    assert table.y.tolist() == [1.0, -1.0]


@needs_files
def test_the_folder_may_be_a_copy(tmp_path, monkeypatch):
    shutil.copy(Path(os.environ["COTERIE_DATA"]) / "a1a.npz", tmp_path)
    before = datasets.a1a().train.digest()
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    assert datasets.a1a().train.digest() == before


def test_arguments_outside_the_files():
    for call in (
        lambda: datasets.mnist((10,)),
        lambda: datasets.school(fold=10),
        lambda: datasets.text_like(10, 10, 5),
    ):
        with pytest.raises(InvalidInput, match="must"):
            call()


# -- generators ------------------------------------------------------------------------------------


def test_text_like_has_the_outline_of_real_sim():
    table = datasets.text_like().train
    assert table.X.shape == (72309, 20958)
    assert abs(table.X.nnz - 3709083) < 0.01 * 3709083
    assert (np.count_nonzero(table.y == 1), np.count_nonzero(table.y == -1)) == (22238, 50071)
    np.testing.assert_allclose(np.sqrt(table.X.power(2).sum(axis=1)), 1.0, rtol=1e-12)
    assert table.X.data.min() > 0
    # Zipf-like: the most frequent hundredth of the words has a large share of the entries.
    use = np.sort(np.bincount(table.X.indices, minlength=table.d))[::-1]
    assert use[: table.d // 100].sum() > 0.2 * table.X.nnz
    assert validated(table, classification=False).X is table.X


def test_text_like_is_seeded_and_can_be_learned():
    small = {"rows": 2000, "columns": 3000, "nonzeros": 80_000}
    table = datasets.text_like(**small).train
    assert (
        table.digest()
        == datasets.text_like(**small).train.digest()
        != datasets.text_like(**small, seed=1).train.digest()
    )
    assert abs(table.X.nnz - 80_000) < 1600
    centre = table.X[:1000].T @ table.y[:1000]
    centre -= table.y[:1000].mean() * np.asarray(table.X[:1000].sum(axis=0)).ravel()
    scores = table.X[1000:] @ centre
    positive = table.y[1000:] == 1
    assert np.mean(scores[positive][:, None] > scores[~positive]) > 0.9


@pytest.mark.parametrize("iid", [True, False])
def test_experiment_2_follows_the_appendix(iid):
    data = datasets.experiment2(iid=iid, seed=4)
    X, y = data.train.X, data.train.y
    assert X.shape == (3000, 500)
    assert np.bincount(data.extras["user_train"]).tolist() == [100] * 30
    noise = y - X @ data.extras["coefficients"]
    assert abs(noise.mean()) < 0.08
    assert abs(noise.std() - 1) < 0.06
    assert data.extras["coefficients"].tolist() == [1.0] * 500
    assert (
        datasets.experiment2(sparse=True).extras["coefficients"].tolist()
        == [1.0] * 100 + [0.0] * 400
    )
    if iid:
        np.testing.assert_allclose(X.std(axis=0) * np.arange(1, 501), 1.0, atol=0.08)
    else:
        # Variances 1, 5/3 and 25/3; rows of all three kinds at every agent, because they are
        # shuffled.
        spread = X.std(axis=1)
        uniform = spread > 2.3
        assert np.count_nonzero(uniform) == 1000
        assert np.abs(X[uniform]).max() <= 5.0
        assert np.abs(X[~uniform]).max() > 5.0
        assert np.count_nonzero(spread < 1.13) == pytest.approx(1000, abs=30)
        assert all(uniform[shard.rows].any() for shard in split(data.train, "samples", 30))
    assert data.train.digest() == datasets.experiment2(iid=iid, seed=4).train.digest()
    assert data.train.digest() != datasets.experiment2(iid=iid, seed=5).train.digest()
