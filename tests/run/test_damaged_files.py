"""Snapshots, models and certificates that were damaged or made up: what was written, or a refusal
of our own.
"""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from functools import cache

import numpy as np
import pytest

import coterie as co
from coterie.data.archives import csv_text, read_archive, write_archive
from coterie.errors import CorruptFile, CoterieError, InvalidInput
from coterie.problems.models import load_model
from coterie.run.checkpoint import Checkpoint, Snapshot
from coterie.transport.keys import load_keys, make_authority, make_request, provide_all, sign
from tests.harness.shell import shell
from tests.transport.test_decoder import ODD, changed

pytestmark = pytest.mark.chaos


@cache
def fitted(kind):
    X = np.random.default_rng(0).standard_normal((24, 3))
    y = np.sign(X @ [1.0, -1.0, 0.5] + 0.1)
    if kind == "linear":
        return co.solve(
            co.Problem("logistic", "l2", 0.1, intercept=False), (X, y), agents=2, progress=False
        )
    if kind == "low-rank":
        problem = co.Problem("squared", "traceball", radius=1.0)
        return co.solve(
            problem, (X, np.outer(y, [1.0, 2.0])), agents=2, progress=False, max_rounds=3
        )
    users = [(X[k::3], y[k::3]) for k in range(3)]
    return co.solve(co.Personal(), users, split="users", progress=False, max_rounds=3)


class Kept:
    """A file of that kind, and how it is read."""

    def __init__(self, kind, folder):
        self.kind = kind
        folder.mkdir(parents=True)
        if kind == "snapshot":
            states = [{"w": 1}, ("a", np.arange(5.0))]
            self.checkpoint = Checkpoint(folder, "this run")
            self.path = self.checkpoint.save(
                Snapshot(7, states[1:], {"rounds": []}, np.array([[1, 0.5, 3]]), {"bound": [1.0]})
            )
        elif kind == "certificate":
            self.path = fitted("linear").certificate.save(folder / "certificate.json")
        else:
            self.path = fitted(kind).model.save(folder / "model.npz")
        self.written = self.path.read_bytes()
        self.content = self.read()

    def read(self):
        """What the file says, in a form that can be compared."""
        if self.kind == "snapshot":
            found = self.checkpoint.load([tuple], self.checkpoint.newest())
            history = found.history.tolist()
            return json.dumps([found.round, found.bill, history, found.best]), repr(found.states)
        if self.kind == "certificate":
            certificate = co.Certificate.load(self.path)
            return (
                certificate.statement(),
                [v.tolist() for v in certificate.witness],
                certificate.model_digest,
            )
        model = load_model(self.path)
        return model.digest(), getattr(model, "part", None)

    def put(self, content):
        self.path.write_bytes(content)


KINDS = ("snapshot", "linear", "low-rank", "personal", "certificate")


def odd_header(kept, dice):
    """The file with nonsense in a place of its header, and a digest that fits."""

    def worse(value):
        if isinstance(value, dict) and value and dice.random() < 0.8:
            key = dice.choice(sorted(value))
            return (
                {**value, key: worse(value[key])}
                if dice.random() < 0.9
                else {k: value[k] for k in value if k != key}
            )
        if isinstance(value, list) and value and dice.random() < 0.7:
            place = dice.randrange(len(value))
            return [*value[:place], worse(value[place]), *value[place + 1 :]]
        odd = dice.choice([*ODD, "\ud7ff", [[[]]], {"state": {}}, {"array": "none"}, {"tuple": 3}])
        return odd.decode() if isinstance(odd, bytes) else odd

    kept.put(kept.written)
    if kept.kind == "certificate":
        from coterie.run.certificate.document import _seal

        content = json.loads(kept.written)
        content.pop("seal")
        content = worse(content)
        sealed = {**content, "seal": _seal(content)} if isinstance(content, dict) else content
        kept.put(json.dumps(sealed).encode())
        return
    header, arrays = read_archive(kept.path, "file")
    header.pop("seal")
    header = worse(header)
    if dice.random() < 0.3 and arrays:
        name = dice.choice(sorted(arrays))
        arrays[name] = dice.choice(
            [np.empty(0), np.zeros((2, 2)), np.array("text"), np.zeros(3, complex)]
        )
    if not isinstance(header, dict):
        header = {}
    write_archive(kept.path, header, arrays)


def fuzz(folder, examples, seed=0):
    """Each a bit, some bytes, or a place of the header changed; how many were read as what was
    written.
    """
    dice = random.Random(seed)
    same = 0
    kept = [Kept(kind, folder / kind) for kind in KINDS]
    for k in range(examples):
        one = kept[k % len(kept)]
        how = dice.randrange(4)
        if how == 3:
            odd_header(one, dice)
        elif how == 2:
            one.put(changed(one.written, dice.randbytes(4 * dice.randrange(1, 5))))
        else:
            flipped = bytearray(one.written)
            place = dice.randrange(8 * len(flipped))
            flipped[place // 8] ^= 1 << (place % 8)
            one.put(bytes(flipped))
        try:
            found = one.read()
        except CoterieError:
            continue
        if how < 3:
            assert found == one.content, (one.kind, how, k)
        same += 1
    return same


def test_no_damage_is_read_as_something_else(tmp_path):
    same = fuzz(tmp_path, 1500)
    assert 0 < same < 750


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_damage_is_read_as_something_else_a_hundred_thousand_times(tmp_path):
    assert fuzz(tmp_path, 100_000, seed=1) < 50_000


def test_the_older_snapshot_is_used_where_the_newest_is_damaged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random_ = np.random.default_rng(1)
    table = np.column_stack([random_.standard_normal((40, 3)), random_.integers(0, 2, 40)])
    (tmp_path / "data.csv").write_text(
        "a,b,c,y\n" + "\n".join(",".join(map(str, row)) for row in table.tolist())
    )

    def fit(rounds, name):
        command = [
            "fit",
            "data.csv",
            "--target",
            "y",
            "--loss",
            "logistic",
            "--penalty",
            "l2",
            "--strength",
            "1e-4",
        ]
        command += ["--method", "consensus", "--tol", "1e-15", "--max-rounds", str(rounds)]
        command += ["--checkpoint", "kept", "-o", name, "--json"]
        ended = shell(*command)
        assert ended.exit_code in (0, 10, 11, 12, 13, 14), ended.output
        return load_model(tmp_path / name / "model.npz").coef_

    fit(20, "first")
    snapshots = sorted((tmp_path / "kept").rglob("round-*.npz"))
    assert len(snapshots) == 2
    damaged = bytearray(snapshots[-1].read_bytes())
    # The compression method in the list of contents, which zip does not protect by a checksum.
    damaged[damaged.rindex(b"PK\x01\x02") + 10] ^= 1 << 3
    snapshots[-1].write_bytes(damaged)
    resumed = fit(30, "resumed")
    for snapshot in (tmp_path / "kept").rglob("round-*.npz"):
        snapshot.unlink()
    assert (resumed == fit(30, "again")).all()


def test_a_zip_bomb_is_refused_by_its_header(tmp_path):
    bomb = io.BytesIO()
    entry = io.BytesIO()
    np.lib.format.write_array(entry, np.zeros(1))
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", entry.getvalue() + bytes(50 * 2**20))
    path = tmp_path / "model.npz"
    path.write_bytes(bomb.getvalue())
    with pytest.raises(CorruptFile, match="compressed"):
        load_model(path)
    # One that is not compressed, and announces an array larger than any memory.
    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        huge, {"descr": "<f8", "fortran_order": False, "shape": (2**45,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", huge.getvalue())
    with pytest.raises(CorruptFile, match="has 0 bytes"):
        load_model(path)


def test_a_key_that_others_can_read_is_refused_with_what_to_type(tmp_path):
    own = provide_all(tmp_path, "study", ["ada"])["ada"]
    load_keys(own, "ada")
    (own / "key.pem").chmod(0o640)
    with pytest.raises(InvalidInput, match=r"chmod 600 .*key\.pem"):
        load_keys(own, "ada")
    with pytest.raises(InvalidInput, match="chmod 600"):
        make_request(own, "ada")
    coordinator = tmp_path / "coordinator"
    (coordinator / "authority-key.pem").chmod(0o604)
    (own / "key.pem").chmod(0o600)
    with pytest.raises(InvalidInput, match=r"chmod 600 .*authority-key\.pem"):
        sign(coordinator, make_request(own, "ada").read_bytes(), ["ada"])
    assert make_authority(coordinator, "study").stat().st_mode & 0o777 != 0o600


def test_keys_snapshots_and_results_are_for_their_owner_alone(tmp_path):
    mask = os.umask(0o022)
    try:
        fitted("linear").save(tmp_path / "result")
        Checkpoint(tmp_path / "kept", "run").save(Snapshot(1, []))
        own = provide_all(tmp_path, "study", ["ada"])["ada"]
    finally:
        os.umask(mask)
    for file in [*(tmp_path / "result").iterdir(), *(tmp_path / "kept").iterdir(), own / "key.pem"]:
        assert file.stat().st_mode & 0o777 == 0o600, file
    assert (own / "certificate.pem").stat().st_mode & 0o777 == 0o644


def test_a_spreadsheet_runs_nothing_of_a_table():
    rows = [
        ['=HYPERLINK("http://x")', 1.5],
        ["+cmd", -2.0],
        ["-x", "@y"],
        ["-7", "plain, with comma"],
        [None, 'a "b"'],
    ]
    import csv

    text = csv_text(["id", "prediction"], rows)
    found = list(csv.reader(io.StringIO(text)))
    assert found[1:] == [
        ['\'=HYPERLINK("http://x")', "1.5"],
        ["'+cmd", "-2.0"],
        ["'-x", "'@y"],
        ["-7", "plain, with comma"],
        ["", 'a "b"'],
    ]
    assert list(csv.reader(io.StringIO(csv_text(["id"], [["=1+1"]], raw=True))))[1] == ["=1+1"]
