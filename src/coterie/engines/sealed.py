"""Seal the messages between a driver and its tasks, on a network with strangers: they are signed
with a key of the run, and contain plain data.

A sealed message is an HMAC under a key that only the driver and its tasks have, and a pickle. It is
opened if the HMAC holds, and only objects that hold data are made of it: arrays, data classes,
enumerations, exceptions. It imports no module, and calls no function except those with which numpy
and `array` make arrays.
"""

from __future__ import annotations

import hmac
import io
import pickle
import sys
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import scipy.sparse as sp

from coterie.errors import ProtocolError

SIZE = 32
PLAIN = {
    "array": {"_array_reconstructor", "array"},
    "builtins": {"bytearray", "complex", "frozenset", "object", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath"},
}


def seal(content: bytes, key: bytes) -> bytes:
    """The bytes with their HMAC."""
    return hmac.digest(key, content, "sha256") + content


def unseal(sealed: bytes, key: bytes) -> bytes:
    """The bytes that a process of this run sealed."""
    content = sealed[SIZE:]
    if not hmac.compare_digest(sealed[:SIZE], hmac.digest(key, content, "sha256")):
        raise ProtocolError(
            "a task handed back something that is not of this run: its signature does not match."
        )
    return content


def pack(thing: object, key: bytes) -> bytes:
    """Seal an object for the driver."""
    return seal(pickle.dumps(thing), key)


def unpack(sealed: bytes, key: bytes) -> Any:
    """The object in a sealed message of this run."""
    return _Opener(io.BytesIO(unseal(sealed, key))).load()


def order(sealed: bytes, key: bytes) -> Any:
    """The order of the driver of this run to its own task. It may contain functions, like all that
    a cluster sends to tasks.
    """
    return pickle.loads(unseal(sealed, key))


class _Opener(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in PLAIN.get(module, ()):
            return super().find_class(module, name)
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and _is_plain(found):
            return found
        raise ProtocolError(f"a task handed back {module}.{name}, which is not data.")


def _is_plain(kind: type) -> bool:
    kinds = (Exception, Enum, msgspec.Struct, np.generic, sp.sparray, sp.spmatrix)
    return (
        is_dataclass(kind)
        or issubclass(kind, kinds)
        or kind.__module__.partition(".")[0] == "coterie"
    )
