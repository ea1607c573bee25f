"""Catalogues of entries by name: those in the files of a folder, and those of extensions.

`Catalogue("coterie.numerics.losses", Loss, "loss")` imports every module of that package. It
collects the concrete subclasses of `Loss` by their `name`. The command line, the documentation
table and the law tests all read the catalogues, so a new file is the only change that a new loss,
penalty or method needs.

Outside this repository, call `co.register(MyLoss)`. A package may also name a module, or a
function, which registers its classes, in the entry point group `coterie.extensions`. Coterie loads
it when a catalogue is listed for the first time, or does not have a name.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import threading
import warnings
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, TypeVar

from coterie.errors import InvalidInput, UnknownName

GROUP = "coterie.extensions"
"""The group of entry points of packages that register something."""

NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
RESERVED = ("auto", "learned")
"""Names with another meaning, as a method or a network."""

ENTRY = {
    "networks": r"^def ([a-z]\w*)\(agents\b[^)]*\) -> Network:",
    "numerics/acceleration": r"^class ([A-Z]\w*)\(Wrapper\[",
}
"""Patterns of entries that are not classes with a `name`."""

T = TypeVar("T")
E = TypeVar("E")


class Entries(Mapping[str, E], Generic[E]):
    """Entries of one kind by name, sorted: those that a package's modules define, and those that
    were registered.
    """

    def __init__(self, package: str, kind: str):
        self._package = package
        self._kind = kind
        self._added: dict[str, E] = {}
        _CATALOGUES.append(self)

    # -- which things are entries; a subclass says it ----------------------------------------------

    def takes(self, thing: object) -> bool:
        """Whether a thing is of this kind, complete or not."""
        raise NotImplementedError

    def is_entry(self, thing: Any) -> bool:
        """Whether a thing of this kind in one of the package's modules is an entry, not a base of
        entries.
        """
        raise NotImplementedError

    def name_of(self, entry: Any) -> object:
        """The name of an entry."""
        raise NotImplementedError

    def lacks(self, entry: Any) -> Iterator[str]:
        """List the changes that an entry needs before it can be registered."""
        raise NotImplementedError

    # -- lookup ------------------------------------------------------------------------------------

    @cached_property
    def _own(self) -> dict[str, E]:
        package = importlib.import_module(self._package)
        found: dict[str, E] = {}
        for module_info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(module_info.name)
            for thing in vars(module).values():
                if not self.takes(thing) or thing.__module__ != module.__name__:
                    continue
                if self.is_entry(thing):
                    found[str(self.name_of(thing))] = thing
        return found

    def __getitem__(self, name: str) -> E:
        if name not in self:
            raise self.unknown(name)
        if name in self._own:
            return self._own[name]
        return self._added[name]

    def unknown(self, name: object, also: Iterable[str] = ()) -> UnknownName:
        """Make the error for a name that is neither in the catalogue nor in `also`."""
        failures = " ".join(EXTENSIONS.failures)
        return UnknownName(self._kind, name, {*self, *also}, REGISTER, failures)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name not in self._own and name not in self._added:
            EXTENSIONS.load()
        return name in self._own or name in self._added

    def __iter__(self) -> Iterator[str]:
        EXTENSIONS.load()
        return iter(sorted({*self._own, *self._added}))

    def items(self) -> ItemsView[str, E]:
        # `Mapping.items` would look every name up again.
        EXTENSIONS.load()
        return dict(sorted({**self._own, **self._added}.items())).items()

    def __len__(self) -> int:
        EXTENSIONS.load()
        return len(self._own) + len(self._added)

    # -- registration ------------------------------------------------------------------------------

    def add(self, entry: E) -> None:
        """Add an entry; refuse it if it is incomplete, or if its name has another meaning."""
        wanted = list(self.lacks(entry))
        if wanted:
            raise InvalidInput(
                f"{_full_name(entry)} cannot be registered as a {self._kind}: {'; '.join(wanted)}."
            )
        name = self.name_of(entry)
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in RESERVED:
            raise InvalidInput(
                f"{name!r} cannot be the name of a {self._kind}: use lower-case letters, "
                "digits, and '-' or '_' between them, from a letter on, and not "
                f"{' or '.join(map(repr, RESERVED))}."
            )
        known = self._own.get(name, self._added.get(name))
        # Run a second time, a cell of a notebook defines the same class again.
        if known is not None and (name in self._own or _full_name(known) != _full_name(entry)):
            raise InvalidInput(
                f"there is a {self._kind} called {name!r} already, {_full_name(known)}: give "
                f"{_full_name(entry)} another name."
            )
        self._added[name] = entry

    def remove(self, entry: E) -> None:
        """Forget an entry that was registered."""
        self._added = {name: known for name, known in self._added.items() if known is not entry}


class Catalogue(Entries[type[T]], Generic[T]):
    """The concrete subclasses of `base` in that package, by their `name`.

    The facts that every class must state are annotated in `base` as a ClassVar without a value;
    `allowed` has the possible values of some facts.
    """

    def __init__(self, package: str, base: Any, kind: str, /, **allowed: Sequence[str]):
        super().__init__(package, kind)
        self._base = base
        self._allowed = allowed

    def takes(self, thing: object) -> bool:
        return inspect.isclass(thing) and issubclass(thing, self._base)

    def is_entry(self, thing: Any) -> bool:
        return "name" in vars(thing)

    def name_of(self, entry: Any) -> object:
        return vars(entry)["name"]

    def lacks(self, entry: Any) -> Iterator[str]:
        if is_dataclass(self._base) and not _is_frozen_dataclass(entry):
            yield "write @dataclass(frozen=True) above it, and @co.register above that"
        missing = sorted(getattr(entry, "__abstractmethods__", ()))
        if missing:
            yield f"define {', '.join(missing)}"
        for attribute, text in self._required_attributes().items():
            if attribute == "name":
                stated = vars(entry).get("name")
            else:
                stated = getattr(entry, attribute, None)
            choice = self._allowed.get(attribute)
            among = ""
            if choice:
                among = f", one of {', '.join(map(repr, choice))}"
            if stated is None or (choice and stated not in choice):
                yield f"state its {attribute} ({attribute}: {text} = ...{among})"

    def _required_attributes(self) -> dict[str, str]:
        """The facts that every class must state, with their types."""
        found = {}
        for attribute, text in inspect.get_annotations(self._base).items():
            if "ClassVar" in text and not hasattr(self._base, attribute):
                found[attribute] = text
        return found


def _is_frozen_dataclass(cls: Any) -> bool:
    return "__dataclass_fields__" in vars(cls) and cls.__dataclass_params__.frozen


def _full_name(entry: Any) -> str:
    return f"{entry.__module__}.{entry.__qualname__}"


_CATALOGUES: list[Entries[Any]] = []
"""Every catalogue whose package has been imported; a subclass of `Loss` has imported that of
losses.
"""


def register(entry: E) -> E:
    """Register a loss, penalty, method, engine, task or kind of problem by its name.

    `co.Problem`, `co.solve`, `co.verify`, saved results and the command line then know it like
    those of Coterie. A program that loads a result needs the same registration; an installed
    package registers by an entry point of the group `coterie.extensions`.

    Parameters
    ----------
    entry : class or function
        A subclass of Loss, Penalty, Method, Engine, Task or Kind, or a function `(agents, ...) ->
        Network`.

    Returns
    -------
    class or function
        The argument, so that `@co.register` can decorate a class.

    Raises
    ------
    InvalidInput
        If the class is incomplete, or its name is taken.
    """
    _catalogue_of(entry).add(entry)
    return entry


def unregister(entry: Any) -> None:
    """Forget an entry that was registered; its name is free again."""
    _catalogue_of(entry).remove(entry)


def _catalogue_of(entry: object) -> Entries[Any]:
    if isinstance(entry, FunctionType):
        importlib.import_module("coterie.networks")
    for catalogue in _CATALOGUES:
        if catalogue.takes(entry):
            return catalogue
    given = f"an object of {type(entry).__name__}: register the class itself"
    name = getattr(entry, "__qualname__", None)
    if name:
        given = repr(name)
    raise InvalidInput(
        "co.register takes a subclass of Loss, Penalty, Method, Engine, Task or Kind, or a "
        f"function (agents, ...) -> Network; it was given {given}."
    )


REGISTER = (
    "If it is your own or another package's, install that package, or register it: "
    "co.register(...)."
)


class _Extensions:
    """The entry points of installed packages; one that fails is named, and the others stay."""

    def __init__(self) -> None:
        self.failures: tuple[str, ...] = ()
        self._lock = threading.RLock()
        self._begun = False

    def load(self) -> None:
        """Load all entry points, at the first call."""
        with self._lock:
            if self._begun:  # perhaps by an extension that lists a catalogue while it is loaded
                return
            self._begun = True
            self.failures = tuple(filter(None, map(_failure, entry_points(group=GROUP))))
        if self.failures:
            warnings.warn(" ".join(self.failures), RuntimeWarning, stacklevel=3)


def _failure(point: EntryPoint) -> str | None:
    """Load an entry point; if that fails, return a sentence with its package and the reason."""
    try:
        found = point.load()
        if inspect.isclass(found):
            register(found)
        elif not inspect.ismodule(found):
            found()
    except Exception as error:  # code of another package may raise any error
        package = "a package without a name"
        if point.dist is not None:
            package = f"{point.dist.name} {point.dist.version}"
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        return (
            f"The extension {point.name!r} ({point.value}) of {package} could not be loaded "
            f"({reason})."
        )
    return None


EXTENSIONS = _Extensions()


def names_in(folder: str, file: str = "*") -> tuple[str, ...]:
    """Read the names of a folder's entries from the text of its files, sorted.

    A help text then does not wait for imports.
    """
    pattern = re.compile(ENTRY.get(folder, r'^    name: ClassVar\[str\] = "([^"]+)"'), re.MULTILINE)
    local = Path(__file__).parent
    if "*" in folder:
        files = list(local.glob(f"{folder}/{file}.py"))
    else:
        files = list((local / folder).rglob(f"{file}.py"))
    if file == "*":
        files += [*local.glob(f"problems/*/{folder}.py"), *local.glob(f"problems/*/{folder}/*.py")]
    found: list[str] = []
    for path in files:
        found += pattern.findall(path.read_text("utf-8"))
    if folder in ENTRY:
        return tuple(sorted(name.lower().replace("_", "-") for name in found))
    return tuple(sorted(found))
