"""What tasks of a cluster hand back: of this run, and nothing but data."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.engines import sealed, worker_connections
from coterie.errors import InvalidData, ProtocolError
from coterie.run.statuses import Status

KEY = b"k" * 32


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("call", [(os.system, "true"), (subprocess.Popen, ["true"]), (eval, "1")])
def test_a_message_runs_nothing(call):
    with pytest.raises(ProtocolError, match="which is not data"):
        sealed.unpack(sealed.pack(Evil(*call), KEY), KEY)


def test_a_message_of_another_run_is_not_opened():
    message = bytearray(sealed.pack([1, 2], KEY))
    with pytest.raises(ProtocolError, match="not of this run"):
        sealed.unpack(bytes(message), b"x" * 32)
    message[-3] ^= 1
    with pytest.raises(ProtocolError, match="not of this run"):
        sealed.unpack(bytes(message), KEY)


def test_data_arrives_as_it_was():
    result = co.solve(
        co.Problem("squared", "l2", 0.1, intercept=False),
        (np.eye(6), np.arange(6.0)),
        agents=2,
        progress=False,
    )
    things = [
        result.bill,
        result.certificate.participants,
        result.history,
        Status.OPTIMAL,
        np.float32(2),
        {"a": {1, 2}},
    ]
    for thing, again in zip(things, sealed.unpack(sealed.pack(things, KEY), KEY), strict=True):
        assert pickle.dumps(again) == pickle.dumps(thing) or again == thing
    sparse = sealed.unpack(sealed.pack(sp.csr_array(np.eye(3)), KEY), KEY)
    assert (sparse.toarray() == np.eye(3)).all()
    error = sealed.unpack(sealed.pack(InvalidData("north has no rows"), KEY), KEY)
    assert type(error) is InvalidData
    assert str(error) == "north has no rows"


def test_only_tasks_open_pickles_and_only_their_drivers_orders():
    folder = Path(sealed.__file__).parent
    assert [
        file.name for file in sorted(folder.glob("*.py")) if "pickle.load" in file.read_text()
    ] == ["sealed.py"]
    assert (
        inspect.getsource(sealed).count("pickle.load")
        == inspect.getsource(sealed.order).count("pickle.load")
        == 1
    )
    users = [file.name for file in sorted(folder.glob("*.py")) if "order(" in file.read_text()]
    assert users == ["sealed.py", "worker_connections.py"]
    assert "order(" in inspect.getsource(worker_connections.serve)
    assert inspect.getsource(worker_connections).count(" order(") == 1
    with pytest.raises(ProtocolError, match="signature"):
        sealed.order(sealed.pack("leave", KEY), bytes(32))
