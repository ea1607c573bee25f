"""Callbacks, adapters and the logger are told what the history says."""

from __future__ import annotations

import logging
import struct
import time

import numpy as np
import pytest

import coterie as co
from coterie.api import sinks

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))
y = X.sum(axis=1) + 0.1 * rng.normal(size=60)
PROBLEM = co.Problem("squared", "l1", 0.01, intercept=False)


def test_a_callback_is_told_the_history():
    told: list[tuple[str, float, int]] = []
    result = co.solve(PROBLEM, (X, y), agents=3, callback=lambda *measure: told.append(measure))
    for name in ("gap", "primal", "dual", "bits", "seconds"):
        mine = [(step, value) for measure, value, step in told if measure == name]
        assert mine == [(row.round, float(getattr(row, name))) for row in result.history]
    assert len(told) == 5 * len(result.history)


def test_a_callback_changes_nothing():
    told = co.solve(PROBLEM, (X, y), agents=3, callback=lambda *measure: None)
    assert told.model.digest() == co.solve(PROBLEM, (X, y), agents=3).model.digest()


def test_one_logger_hears_of_the_run(caplog):
    with caplog.at_level(logging.DEBUG, logger="coterie"):
        result = co.solve(PROBLEM, (X, y), agents=3)
    assert {record.name for record in caplog.records} == {"coterie"}
    first, *middle, last = [record.getMessage() for record in caplog.records]
    assert first.startswith(result.certificate.settings["method"]["name"])
    assert last.startswith(f"optimal after {result.rounds} rounds")
    assert len(middle) == len(result.history)


def test_tensorboard_event_files_hold_the_history(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    result = co.solve(PROBLEM, (X, y), agents=3, callback=sinks.tensorboard(tmp_path))
    (file,) = tmp_path.iterdir()
    expected = [(row.round, np.float32(row.gap)) for row in result.history]
    found, until = [], time.monotonic() + 200.0
    while (
        found != expected and time.monotonic() < until
    ):  # a thread of tensorboardX writes, when it finds the time
        content, found = file.read_bytes(), []
        while (
            len(content) >= 16
        ):  # a record is its length, a checksum, the event, and another checksum
            (length,) = struct.unpack("<Q", content[:8])
            if len(content) < 16 + length:
                break
            event = Event.FromString(content[12 : 12 + length])
            found += [
                (event.step, value.simple_value)
                for value in event.summary.value
                if value.tag == "gap"
            ]
            content = content[16 + length :]
        time.sleep(0.01)
    assert found == expected


def test_mlflow_runs_hold_the_history(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip(
        "mlflow", reason="mlflow is not installed: pip install 'coterie[tracking]'"
    )
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("coterie")
    with mlflow.start_run() as run:
        result = co.solve(PROBLEM, (X, y), agents=3, callback=sinks.mlflow())
    kept = mlflow.MlflowClient().get_metric_history(run.info.run_id, "gap")
    assert [(metric.step, metric.value) for metric in kept] == [
        (row.round, row.gap) for row in result.history
    ]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(co.CoterieError, match=r"pip install .*\[tracking\]"):
        sinks.mlflow()
