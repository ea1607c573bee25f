"""Methods: one file per family, found by name. See `docs/add-a-method.md`."""

from __future__ import annotations

from typing import Any

from coterie.catalogue import Catalogue
from coterie.methods.disclosure import Disclosure
from coterie.methods.method import Method

__all__ = ["METHODS", "Disclosure", "Method", "method"]

METHODS: Catalogue[Method] = Catalogue("coterie.methods", Method, "method", split=("features", "samples", "users"))


def method(name: str | Method, **parameters: Any) -> Method:
    """The method of that name with its parameters; a `Method` is returned as it is."""
    return name if isinstance(name, Method) else METHODS[name](**parameters)
