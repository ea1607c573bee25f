"""A folder as a catalogue: adding a file adds an entry.

`Catalogue("coterie.losses", Loss, "loss")` imports every module of `coterie.losses` and collects the concrete
subclasses of `Loss` by their `name`. The command line, the documentation table and the law tests all read from here, so
a new file is the only change a new loss, penalty or method needs.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeGuard, TypeVar

from coterie.errors import UnknownName

__all__ = ["Catalogue", "names_in"]

ENTRY = {
    "networks": r"^def ([a-z]\w*)\(agents\b[^)]*\) -> Network:",
    "acceleration": r"^class ([A-Z]\w*)\(Wrapper\):",
}
"""How an entry is written where it is not a class with a `name`."""

T = TypeVar("T")


class Catalogue(Mapping[str, type[T]], Generic[T]):
    """The concrete subclasses of `base` in that package, by their `name`, sorted."""

    def __init__(self, package: str, base: Any, kind: str):
        self._package, self._base, self._kind = package, base, kind

    @cached_property
    def _entries(self) -> dict[str, type[T]]:
        package = importlib.import_module(self._package)
        found: dict[str, type[T]] = {}
        for module_info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{module_info.name}")
            for cls in vars(module).values():
                if inspect.isclass(cls) and cls.__module__ == module.__name__ and self._is_entry(cls):
                    found[vars(cls)["name"]] = cls
        return dict(sorted(found.items()))

    def _is_entry(self, cls: Any) -> TypeGuard[type[T]]:
        return issubclass(cls, self._base) and "name" in vars(cls)

    def __getitem__(self, name: str) -> type[T]:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise UnknownName(self._kind, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def names_in(folder: str, file: str = "*") -> tuple[str, ...]:
    """The names in that folder, sorted, read from the text of its files: a help text does not wait for imports."""
    pattern = re.compile(ENTRY.get(folder, r'^    name: ClassVar\[str\] = "([^"]+)"'), re.MULTILINE)
    files = (Path(__file__).parent / folder).glob(f"{file}.py")
    found = [name for path in files for name in pattern.findall(path.read_text("utf-8"))]
    return tuple(sorted(name.lower().replace("_", "-") for name in found)) if folder in ENTRY else tuple(sorted(found))
