"""Methods: one file per family, found by name. See `docs/add-a-method.md`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from coterie.catalogue import Catalogue
from coterie.methods.method import Method
from coterie.problems import KINDS
from coterie.run.disclosure import Disclosure

__all__ = ["METHODS", "Disclosure", "Method", "method"]


class Methods(Catalogue[Method]):
    """The methods of this folder, and those of single kinds of problems."""

    @cached_property
    def _own(self) -> dict[str, type[Method]]:
        of_kinds = {one.name: one for kind in KINDS.built_in() for one in kind.methods}
        return {**super()._own, **of_kinds}


METHODS = Methods("coterie.methods", Method, "method", split=("features", "samples", "users"))


def method(name: str | Method[Any, Any], **parameters: Any) -> Method[Any, Any]:
    """Return the method of that name with these parameters; a `Method` is returned unchanged."""
    if isinstance(name, Method):
        return name
    return METHODS[name](**parameters)
