"""Write docs/call-graphs.md: which module calls which before the rounds of a fit begin.

python scripts/call_graphs.py

Five ways lead to the rounds: `co.solve`, Spark from a data frame, `coterie agent`, an estimator and
`co.path`. Each is run and traced with `sys.setprofile`, up to the call that starts the rounds.
"""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import typer
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

import coterie as co
from coterie.commands.agent import agent
from coterie.engines import Run
from coterie.engines.spark_session import session
from coterie.run.rounds import Conversation
from coterie.study.example import PARTIES, write_example

ROOT = Path(co.__file__).parent
PAGE = ROOT.parents[1] / "docs" / "call-graphs.md"
BEGIN, END = "<!-- begin -->\n", "<!-- end -->\n"
SHOWN = ("api", "cli", "commands", "engines", "estimators", "run", "stats", "study")
"""Folders in the graphs; the others hold what these compute with."""
ONE_WAY = ("api", "run", "study")
"""Folders whose modules are entered once."""
NOTICES = ("api/progress", "run/stages")
"""Modules that are told, again and again, how far a step is."""
VALUES = (
    "run/bill",
    "run/disclosure",
    "run/settings",
    "run/site",
    "study/broadcasts",
    "study/study",
)
"""Modules of values and declarations. Each step reads them; what they call for that is no step."""
MIDDLE = "stats/fitting"
"""Where the five ways come together."""
SETS_UP = (MIDDLE, "run/setup")
PARTIES_HERE_AND_THERE = ("run/parties", "study/among")
"""The classes of `Parties`."""


# -- tracing ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """A function that is running."""

    module: str
    function: str
    number: int
    """Tells this frame from others of the same function."""


@dataclass(frozen=True)
class Call:
    """A function of the package is called."""

    to: Frame
    above: tuple[Frame, ...]
    """The functions of the package that wait, the outermost first."""

    @property
    def crosses(self) -> bool:
        """Whether the caller is another module."""
        return not self.above or self.above[-1].module != self.to.module

    @property
    def comes_back(self) -> bool:
        """Whether a function of this module waits for a function of another one, which calls."""
        return self.crosses and any(frame.module == self.to.module for frame in self.above)


@dataclass
class Tracer:
    """Collects the calls of this thread until the rounds begin."""

    calls: list[Call] = field(default_factory=list)
    numbers: dict[FrameType, int] = field(default_factory=dict)
    """The number of each frame that was seen."""
    begun: bool = False

    def hear(self, frame: FrameType, event: str, argument: object) -> None:
        """What `sys.setprofile` reports."""
        module = module_of(frame.f_code)
        if self.begun or module is None or event != "call":
            return
        if frame in self.numbers:  # a generator goes on
            return
        self.numbers[frame] = len(self.numbers)
        waiting = list(frames_above(frame))
        codes = [one.f_code for one in waiting]
        self.begun = begins_rounds(frame, module)
        if is_import([frame.f_code, *codes]) or is_part_of(frame.f_code, codes):
            return
        if is_property(frame):
            return
        above = [self.known(one) for one in reversed(waiting)]
        to = self.known(frame)
        assert to is not None
        self.calls.append(Call(to, tuple(one for one in above if one is not None)))

    def known(self, frame: FrameType) -> Frame | None:
        """The frame, if it is one of the package."""
        module = module_of(frame.f_code)
        if module is None:
            return None
        return Frame(module, frame.f_code.co_qualname, self.numbers.get(frame, -1))


def module_of(code: CodeType) -> str | None:
    """The module of the package, such as "run/setup"; None for any other code."""
    return _module_of_file(code.co_filename)


@cache
def _module_of_file(name: str) -> str | None:
    file = Path(name)
    if not file.is_relative_to(ROOT):
        return None
    return file.relative_to(ROOT).with_suffix("").as_posix()


def frames_above(frame: FrameType) -> Iterator[FrameType]:
    """The frames that wait for this one, the innermost first."""
    above = frame.f_back
    while above is not None:
        yield above
        above = above.f_back


def is_import(codes: Sequence[CodeType]) -> bool:
    """Whether a module is being loaded."""
    return any(code.co_name == "<module>" and module_of(code) for code in codes)


def is_part_of(code: CodeType, waiting: Sequence[CodeType]) -> bool:
    """Whether the code stands inside a function that waits: a comprehension, or a nested
    function.
    """
    return any(code in one.co_consts for one in waiting)


def is_property(frame: FrameType) -> bool:
    """Whether an attribute is read."""
    owner = type(frame.f_locals.get("self"))
    return isinstance(inspect.getattr_static(owner, frame.f_code.co_name, None), property)


def begins_rounds(frame: FrameType, module: str) -> bool:
    """Whether the call starts the rounds: an engine takes a run, or an organisation does."""
    if frame.f_code.co_name != "run":
        return False
    if module == "run/rounds":
        return True
    run = frame.f_locals.get("run")
    return isinstance(run, Run) and not isinstance(run.steps, Conversation)


def traced(work: Callable[[], object]) -> list[Call]:
    """The calls of this work until its rounds begin."""
    tracer = Tracer()
    before = sys.getprofile()
    sys.setprofile(tracer.hear)
    try:
        work()
    finally:
        sys.setprofile(before)
    assert tracer.begun, "no rounds began"
    return tracer.calls


# -- reading a trace -------------------------------------------------------------------------------


def upward(calls: Sequence[Call]) -> set[tuple[str, str]]:
    """Module and function of each call that comes back to a module that waits."""
    return {
        (call.to.module, call.to.function)
        for call in calls
        if call.comes_back and is_step(call.to.module)
    }


def visited_again(calls: Sequence[Call]) -> set[str]:
    """Modules that are left, and entered again after another module was entered."""
    found = set()
    entries: list[str] = []
    left_at: dict[str, int] = {}
    for call in calls:
        module = call.to.module
        on_the_way = {frame.module for frame in call.above}
        if not on_the_way.isdisjoint(VALUES):
            continue
        if is_step(module) and module not in on_the_way:
            since = entries[left_at.get(module, len(entries)) :]
            if any(other != module for other in since):
                found.add(module)
            entries.append(module)
        for one in (*on_the_way, module):
            left_at[one] = len(entries)
    return found


def is_step(module: str) -> bool:
    """Whether the module does a step of its own, in a folder whose modules are entered once."""
    return folder_of(module) in ONE_WAY and module not in (*NOTICES, *VALUES)


def is_shown(module: str) -> bool:
    """Whether the module is in the graphs."""
    return folder_of(module) in SHOWN and module not in NOTICES


def folder_of(module: str) -> str:
    """The first part of the name."""
    return module.partition("/")[0]


def middle(calls: Sequence[Call]) -> list[str]:
    """What the set-up of the rounds calls, in turn; the same for all ways."""
    found: list[str] = []
    for call in calls:
        inside = [frame.module for frame in call.above]
        if MIDDLE not in inside or inside[-1] not in SETS_UP or not call.crosses:
            continue
        line = f"{inside[-1]} → {in_general(call)}"
        if is_shown(call.to.module) and line not in found:
            found.append(line)
    return found


def in_general(call: Call) -> str:
    """The function that is called, whoever the parties are."""
    module, function = call.to.module, call.to.function
    if module in PARTIES_HERE_AND_THERE:
        return f"Parties.{function.rpartition('.')[2]}"
    if call.comes_back:
        return "a function that was handed on"
    return f"{module}: {function}"


def graph(calls: Sequence[Call]) -> str:
    """An indented line for each module, below the module that calls it, with the functions that
    are called.
    """
    tree: dict[tuple[str, ...], list[str]] = {}
    for call in calls:
        shown = [frame.module for frame in (*call.above, call.to) if is_shown(frame.module)]
        path = tuple(
            module for place, module in enumerate(shown) if place == 0 or module != shown[place - 1]
        )
        if not call.crosses or not is_shown(call.to.module):
            continue
        for end in range(1, len(path) + 1):
            tree.setdefault(path[:end], [])
        if call.to.function not in tree[path]:
            tree[path].append(call.to.function)
    return "\n".join(line_of(path, tree[path]) for path in in_turn(tree))


def line_of(path: tuple[str, ...], functions: Sequence[str]) -> str:
    """The module that the path leads to, and its functions that are called there."""
    indent = "  " * (len(path) - 1)
    return f"{indent}{path[-1]}: {', '.join(functions)}"


def in_turn(paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The paths, each followed by those below it, in the order in which they came up."""
    places = {path: place for place, path in enumerate(paths)}
    return sorted(places, key=lambda path: [places[path[:end]] for end in range(1, len(path) + 1)])


# -- the five ways ---------------------------------------------------------------------------------


PROBLEM = co.Problem("logistic", "l2", 0.01)


def by_solve() -> list[Call]:
    """`co.solve` with arrays."""
    return traced_again(lambda: co.solve(PROBLEM, arrays(), agents=3))


def by_spark() -> list[Call]:
    """Spark from a data frame: the driver's part."""
    X, y = arrays()
    rows = [(float(label), *map(float, row[:4])) for row, label in zip(X, y, strict=True)]
    frame = session().createDataFrame(rows, ["y", "a", "b", "c", "d"]).repartition(2)
    data = co.Rows(frame, target="y")
    return traced_again(lambda: co.solve(PROBLEM, data, engine="spark"))


def by_agent() -> list[Call]:
    """`coterie agent`, at the last of three parties."""
    folder = Path(tempfile.mkdtemp())
    try:
        write_example(folder / "study.toml")
        coterie("provision", folder / "study.toml", "--all-local").wait()
        *others, last = (folder / name / "party.toml" for name in PARTIES)
        started = [coterie("agent", other, "--yes") for other in others]
        calls = traced(lambda: take_part(last))
        for one in started:
            one.wait()
    finally:
        shutil.rmtree(folder)
    return calls


def by_estimator() -> list[Call]:
    """An estimator, as in scikit-learn."""
    return traced_again(lambda: co.LinearClassifier(agents=3).fit(*arrays()))


def by_path() -> list[Call]:
    """`co.path` with two strengths: the first of its fits."""
    return traced_again(lambda: co.path(PROBLEM, arrays(), [0.1, 0.01], agents=3))


WAYS: dict[str, Callable[[], list[Call]]] = {
    "co.solve": by_solve,
    "Spark from a data frame": by_spark,
    "coterie agent": by_agent,
    "An estimator": by_estimator,
    "co.path": by_path,
}


def arrays() -> tuple[Any, Any]:
    """Rows and labels."""
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


def traced_again(work: Callable[[], object]) -> list[Call]:
    """The calls of work that was done once before, so that nothing is loaded or kept for the first
    time.
    """
    work()
    return traced(work)


def take_part(own: Path) -> None:
    """What `coterie agent` does in this process, without its output."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(typer.Exit):
        agent([own], yes=True)


def coterie(*arguments: object) -> subprocess.Popen[bytes]:
    """A command, started."""
    command = [sys.executable, "-m", "coterie", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# -- the page --------------------------------------------------------------------------------------


def section(name: str, calls: Sequence[Call]) -> str:
    """The graph of one way, as it stands on the page."""
    return f"## {name}\n\n```text\n{graph(calls)}\n```\n"


def main() -> None:
    """Trace all ways, and write the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = "\n".join(section(name, way()) for name, way in WAYS.items())
    PAGE.write_text(f"{before}{BEGIN}\n{sections}\n{END}{after}")


if __name__ == "__main__":
    main()
