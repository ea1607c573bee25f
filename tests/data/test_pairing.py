"""Rows that belong together: matched by id, or by position on request; and columns that look like
keys.
"""

from __future__ import annotations

import json
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

import coterie as co
from coterie.data.keys import LEAST_ROWS, noted
from coterie.engines.local import Local
from coterie.errors import DataWarning, InvalidData, InvalidInput
from coterie.run.settings import Settings
from coterie.run.tables import gather
from coterie.stats.reading import remote_tables
from coterie.study.study import load_study

N = 60
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((N, 4))
Y = X @ [1.0, -2.0, 0.5, 0.0] + 0.1 * RANDOM.standard_normal(N)
IDS = RANDOM.permutation(10_000)[:N]
RIDGE = co.Problem("squared", "l2", 1e-3, intercept=True)
BANK = pd.DataFrame({"id": IDS, "a": X[:, 0], "b": X[:, 1], "y": Y})
SHOP = pd.DataFrame({"id": IDS, "c": X[:, 2], "d": X[:, 3]}).sample(frac=1, random_state=1)
ALONE = [BANK.drop(columns="id"), SHOP.drop(columns="id")]


@pytest.fixture
def run(shell):
    BANK.to_csv("bank.csv", index=False)
    SHOP.to_csv("shop.csv", index=False)
    ALONE[0].to_csv("bare-bank.csv", index=False)
    ALONE[1].loc[BANK.index].to_csv("bare-shop.csv", index=False)

    def command(*arguments):
        code, out, err = shell(*arguments)
        return code, out, " ".join(err.split())

    return command


# -- rows ------------------------------------------------------------------------------------------

FRAMES = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pytest.importorskip("polars").from_pandas(frame),
    "arrow": lambda frame: pytest.importorskip("pyarrow").Table.from_pandas(
        frame, preserve_index=False
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_are_paired_by_position_only_on_request(kind):
    bank, shop = (FRAMES[kind](frame) for frame in ALONE)
    for data in (
        [co.read(bank, target="y"), shop],
        [(FRAMES[kind](ALONE[0][["a", "b"]]), Y), shop],
    ):
        with pytest.raises(
            InvalidData, match=r"'party 0' and of party 'party 1' .*id=.*same_order=True"
        ):
            co.solve(RIDGE, data, split="features")
        assert co.solve(RIDGE, data, split="features", same_order=True).status == "optimal"


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "npz", "svm"])
def test_so_are_files_of_every_kind(ending, tmp_path):
    bank, shop = tmp_path / f"bank.{ending}", tmp_path / f"shop.{ending}"
    if ending == "npz":
        np.savez(bank, X=X[:, :2], y=Y)
        np.savez(shop, X=X[:, 2:])
    elif ending == "svm":
        dump_svmlight_file(X[:, :2], Y, str(bank))
        np.savez(shop := tmp_path / "shop.npz", X=X[:, 2:])
    else:
        write = {"csv": "to_csv", "parquet": "to_parquet", "arrow": "to_feather"}[ending]
        for path, frame in ((bank, ALONE[0]), (shop, ALONE[1].loc[BANK.index])):
            getattr(frame, write)(path, **({} if ending == "arrow" else {"index": False}))
    named = {} if ending in ("npz", "svm") else {"target": "y"}
    data = [co.read(bank, **named), co.read(shop)]
    with pytest.raises(InvalidData, match="same_order=True"):
        gather(data, "features", None)
    assert [table.n for table in gather(data, "features", None, same_order=True)] == [N, N]


def test_arrays_and_pieces_of_one_table_need_no_request():
    pooled = co.solve(RIDGE, (X, Y), tol=1e-9).model.coef_
    sparse = sp.csr_array(X[:, 2:])
    for data in (
        [(X[:, :2], Y), X[:, 2:]],
        [(X[:, :2], Y), sparse],
        [co.Table(X[:, :2], Y), co.Table(X[:, 2:])],
    ):
        found = co.solve(RIDGE, data, split="features", tol=1e-9)
        np.testing.assert_allclose(found.model.coef_, pooled, atol=1e-4)
    whole = co.read(ALONE[0], target="y")
    assert (
        co.solve(RIDGE, co.data.split(whole, "features", 2), split="features").status == "optimal"
    )
    assert co.solve(RIDGE, whole, split="features", agents=2).status == "optimal"


def test_ids_match_rows_in_any_order():
    tables, _ = co.align([co.read(BANK, target="y", id="id"), co.read(SHOP, id="id")])
    found = co.solve(RIDGE, tables, split="features", tol=1e-9)
    pooled = co.solve(RIDGE, (X, Y), tol=1e-9)
    np.testing.assert_allclose(found.model.coef_, pooled.model.coef_, atol=1e-4)
    assert co.evaluate(found, tables, split="features").scores["r2"] > 0.99
    assert co.verify(found.certificate, found.model, tables).holds


def test_a_column_at_two_parties_is_refused():
    for other in (
        SHOP,
        SHOP.rename(columns={"c": "a", "id": "key"}),
        SHOP.rename(columns={"d": "y", "id": "key"}),
    ):
        twice = next(name for name in other.columns if name in BANK.columns)
        data = [co.read(BANK, target="y", name="bank"), co.read(other, name="shop")]
        for request in (False, True):
            with pytest.raises(
                InvalidData, match=rf"column '{twice}' is at party 'bank' and at party 'shop'.*id="
            ):
                co.solve(RIDGE, data, split="features", same_order=request)
    same = [co.read(BANK, target="y", name="shop"), co.read(SHOP, name="shop")]
    with pytest.raises(InvalidData, match="column 'id' is at party 'shop 0' and at party 'shop 1'"):
        co.solve(RIDGE, same, split="features")
    aligned = [
        co.read(BANK, target="y", id="id"),
        co.read(SHOP.rename(columns={"c": "a"}), id="id"),
    ]
    with pytest.raises(InvalidData, match="column 'a' is at"):
        co.solve(RIDGE, co.align(aligned)[0], split="features")


@pytest.mark.filterwarnings("ignore::coterie.errors.DataWarning")
def test_paths_plans_and_preparations_refuse_the_same():
    data = [co.read(ALONE[0], target="y"), co.read(ALONE[1])]
    for call in (
        partial(co.path, RIDGE, data, [0.1, 0.01], split="features"),
        partial(co.plan, RIDGE, data, split="features"),
        partial(co.solve, RIDGE, data, split="features", prepare="standardise"),
    ):
        with pytest.raises(InvalidData, match="same_order=True"):
            call()
        assert call(same_order=True)


def test_tables_at_workers_are_refused_from_what_is_known_of_them():
    sources = [
        lambda: co.read(ALONE[0], target="y", name="bank"),
        lambda: co.read(ALONE[1], name="shop"),
    ]
    with pytest.raises(InvalidData, match=r"'bank' and of party 'shop'.*same_order=True"):
        remote_tables(sources, Local(), RIDGE, Settings.of(split="features"))
    settings = Settings.of(split="features", same_order=True)
    found = remote_tables(sources, Local(), RIDGE, settings)
    assert found.tables[1].fetch().n == N
    twice = [sources[0], lambda: co.read(ALONE[0][["a"]], name="shop")]
    with pytest.raises(InvalidData, match="column 'a' is at party 'bank' and at party 'shop'"):
        remote_tables(twice, Local(), RIDGE, settings)


def test_the_shell_asks_for_an_id_or_for_the_order(run):
    fit = ["--target", "y", "--split", "features", "--strength", "0.001", "--intercept"]
    code, _, err = run("fit", "bank.csv", "shop.csv", *fit)
    assert code == 3
    assert "column 'id' is at party 'bank' and at party 'shop'" in err
    assert "with --id." in err
    code, _, err = run("fit", "bare-bank.csv", "bare-shop.csv", *fit)
    assert code == 3
    assert "--id" in err
    assert "--same-order" in err
    code, _, err = run(
        "fit", "bare-bank.csv", "bare-shop.csv", *fit, "--same-order", "-o", "by-position"
    )
    assert code == 0, err
    code, _, err = run("fit", "bank.csv", "shop.csv", *fit, "--id", "id", "-o", "by-id")
    assert code == 0, err
    found = [
        co.LinearModel.load(f"{folder}/model.npz").coef_ for folder in ("by-position", "by-id")
    ]
    np.testing.assert_allclose(*found, atol=1e-4)
    model = [
        "by-position/certificate.json",
        "by-position/model.npz",
        "bare-bank.csv",
        "bare-shop.csv",
    ]
    for request in ([], ["--same-order"]):
        assert run("verify", *model, "--target", "y", *request)[0] == 0
    scored = ["evaluate", *model[1:], "--target", "y", "--split", "features"]
    code, _, err = run(*scored)
    assert code == 3
    assert "--same-order" in err
    assert run(*scored, "--same-order")[0] == 0
    code, _, err = run("fit", "bank.csv", "shop.csv", *fit, "--id", "id", "--same-order")
    assert code == 3
    assert "Give one" in err
    code, _, err = run("fit", "bank.csv", "--target", "y", "--same-order")
    assert code == 3
    assert "--split features" in err


def test_a_study_of_columns_names_an_id_or_the_order(tmp_path):
    parties = '[[party]]\nname = "a"\n[[party]]\nname = "b"\naddress = "127.0.0.1:9"\n'
    file = tmp_path / "study.toml"

    def study(line, split="features"):
        file.write_text(
            f'name = "s"\nsplit = "{split}"\n{line}\n[problem]\nloss = "squared"\n{parties}'
        )
        return load_study(file)

    assert study('id = "patient"').id == "patient"
    assert study("same-order = true").same_order
    assert "same-order" not in study('id = "patient"').agreement
    assert "same-order = true" in study("same-order = true").agreement
    with pytest.raises(InvalidInput, match=r"id = 'patient'; or, .* same-order = true"):
        study("")
    with pytest.raises(InvalidInput, match="leave one out"):
        study('id = "patient"\nsame-order = true')
    with pytest.raises(InvalidInput, match="split = 'features'"):
        study("same-order = true", "samples")


# -- keys ------------------------------------------------------------------------------------------

KEYS = {
    "whole numbers": (IDS, "whole numbers"),
    "whole numbers as floats": (IDS.astype(float), "whole numbers"),
    "negative and large": (IDS - 5_000 + 10**12, "whole numbers"),
    "consecutive": (np.arange(N)[::-1] + 7, "whole numbers"),
}
NO_KEYS = {
    "measurements": X[:, 0],
    "rounded measurements": np.round(X[:, 0], 3),
    "ages": RANDOM.integers(20, 80, N),
    "classes": np.arange(N) % 2,
    "one number occurs twice": np.append(IDS[:-1], IDS[0]),
    "a constant": np.ones(N),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_a_column_with_another_whole_number_in_every_row_looks_like_a_key(key, wrap):
    values, what = KEYS[key]
    table = noted(co.read((wrap(np.column_stack([X, values])), Y), name="bank"))
    assert len(table.notes) == 1
    assert table.notes[0].startswith(
        f"party 'bank': column 4 looks like a key: it has {N} different {what}"
    )


@pytest.mark.parametrize("key", NO_KEYS)
def test_measurements_counts_and_classes_do_not(key):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(more=NO_KEYS[key])
    assert noted(co.read(frame)).notes == ()


def test_small_tables_have_different_numbers_by_chance():
    for rows, known in ((LEAST_ROWS - 1, 0), (LEAST_ROWS, 1)):
        spread = 3 * np.arange(rows)
        assert len(noted(co.read(spread[:, None])).notes) == known
        assert len(noted(co.read(np.arange(rows)[:, None])).notes) == 1
    assert noted(co.read(np.arange(4)[:, None])).notes == ()
    assert noted(co.read(np.empty((0, 3)))).notes == ()


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_pandas_frame_is_named(name):
    table = noted(co.read(pd.DataFrame({name: X[:, 0], "a": X[:, 1]}), name="bank"))
    assert [f"column {name!r} looks like the index" in note for note in table.notes] == [True]


def test_text_in_every_row_is_named_before_it_is_prepared():
    frame = pd.DataFrame({"name": [f"person {k}" for k in range(N)], "a": X[:, 0]})
    with pytest.warns(
        DataWarning, match=rf"column 'name' looks like a key: it has {N} different texts"
    ):
        co.solve(RIDGE, (frame, Y), prepare="one-hot", max_rounds=2)


@pytest.mark.parametrize("split", ["samples", "features", "users"])
def test_every_fit_warns_once_and_keeps_the_warning(split):
    table = np.column_stack([X, IDS])
    problem, data = RIDGE, (table, Y)
    if split == "users":
        problem, data = co.Shared("squared", mu=1.0), (table, Y, np.arange(N) % 3)
    with pytest.warns(DataWarning, match="column 4 looks like a key") as warned:
        result = co.solve(problem, data, split=split, max_rounds=5)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert "column 4 looks like a key" in result.warnings[0]
    assert "column 4 looks like a key" in str(result)


def test_a_path_and_an_estimator_warn_once():
    table = np.column_stack([X, IDS])
    with pytest.warns(DataWarning) as warned:
        co.path(RIDGE, (table, Y), [0.1, 0.01], cv=2, agents=2)
    assert len(warned) == 1
    with pytest.warns(DataWarning) as warned:
        co.LinearClassifier(agents=2).fit(table, np.arange(N) % 3)
    assert len(warned) == 1


def test_users_count_their_rows_and_are_not_warned():
    parts = [(np.column_stack([X[k::3], np.arange(N // 3)]), Y[k::3]) for k in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        co.solve(co.Shared("squared", mu=1.0), parts, split="users", max_rounds=3)
    parts = [(np.column_stack([X[k::3], IDS[k::3]]), Y[k::3]) for k in range(3)]
    with pytest.warns(DataWarning, match="column 4 looks like a key") as warned:
        co.solve(co.Shared("squared", mu=1.0), parts, split="users", max_rounds=3)
    assert len(warned) == 1


def test_the_shell_prints_the_warning_and_has_it_in_json(run):
    code, out, err = run(
        "fit", "bank.csv", "--target", "y", "--strength", "0.01", "--intercept", "--agents", 2
    )
    assert code == 0
    assert err.startswith("warning: party 'bank': column 'id' looks like a key")
    assert err.count("looks like a key") == 1
    assert "looks like a key" in out
    code, out, err = run(
        "fit", "bank.csv", "--target", "y", "--strength", "0.01", "--intercept", "--json"
    )
    assert "looks like a key" in err
    assert "looks like a key" in json.loads(out)["warnings"][0]
    code, out, err = run(
        "fit", "bank.csv", "--target", "y", "--id", "id", "--strength", "0.01", "--intercept"
    )
    assert err == ""


def test_a_party_at_a_worker_is_warned_of_its_own_columns():
    sources = [
        lambda: (np.column_stack([X[:30], IDS[:30]]), Y[:30]),
        lambda: (np.column_stack([X, X[:, 0]]), Y),
    ]
    with pytest.warns(DataWarning, match="party 'party 0': column 4") as warned:
        found = remote_tables(sources, Local(), RIDGE, Settings())
    assert len(warned) == 1
    assert len(found.tables[0].notes) == 1


def test_of_many_parties_only_some_are_named():
    parts = [(np.column_stack([X, IDS]), Y) for _ in range(9)]
    with pytest.warns(DataWarning) as warned:
        result = co.solve(RIDGE, parts, max_rounds=2)
    assert len(warned) == len(result.warnings) == 6
    assert result.warnings[-1] == "4 more columns of parties look like keys."
