"""Imports point downwards; public names are complete, sorted and documented."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import typing
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest

import coterie
from coterie import estimators

ROOT = Path(coterie.__file__).parent
LAYERS = [
    {"errors", "catalogue", "choices", "installation", "problems", "data/archives"}
    | {"run/settings", "run/stages", "run/statuses"}
    | {
        "numerics/arrays",
        "numerics/backends",
        "numerics/factors",
        "numerics/kernels",
        "numerics/threads",
    }
    | {"numerics", "numerics/tuning"},
    {
        "data",
        "networks",
        "numerics/losses",
        "numerics/penalties",
        "numerics/local_loss",
        "stats/moments",
    }
    | {"problems/*/labels", "problems/*/loss", "problems/*/risk_sets", "problems/*/concordance"}
    | {"problems/*/predictors", "problems/*/tasks"},
    {"run/collectives", "run/site"},
    {
        "run",
        "run/certificate",
        "numerics/acceleration",
        "problems/column_penalties",
        "problems/problem",
        "problems/proof",
        "problems/users",
    }
    | {"problems/kind", "problems/one_score", "problems/parts", "problems/rows"}
    | {"problems/*/problem", "problems/*/view", "problems/*/likelihood", "problems/*/proof"}
    | {"problems/*/data", "problems/*/local"},
    {"transport"},
    {"methods", "engines", "problems/*/methods"},
    {"api/description", "api/evaluation", "api/inference", "problems/models", "problems/*/model"},
    {"api/result", "problems/*/assembly"},
    {
        "stats",
        "run/finish",
        "run/groups",
        "run/method_choice",
        "run/parties",
        "run/setup",
        "run/tables",
    }
    | {"api/comparison", "api/entries", "problems/*/stats"},
    {"api"},
    {
        "estimators",
        "report",
        "study",
        "api/demo",
        "api/doctor",
        "problems/*/kind",
        "problems/*/report",
        "problems/*/section",
    },
    {"commands"},
    {"cli", "__main__"},
]
"""Files that import from their own layer and from those above it in this list; the most specific
entry counts.
"""
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
STRANGERS = [
    ("methods", "engines"),
    ("methods", "transport"),
    ("engines", "methods"),
    ("transport", "methods"),
]
STRANGERS += [("numerics/losses", "numerics/penalties"), ("numerics/penalties", "numerics/losses")]
MODULES = sorted(
    path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT
)


KINDS_OF_PROBLEMS = {path.parent.name for path in ROOT.glob("problems/*/kind.py")}


def part_of(path: Path) -> str:
    return part_of_name(("coterie", *path.relative_to(ROOT).with_suffix("").parts))


def part_of_name(parts: tuple[str, ...]) -> str:
    """The entry of LAYERS for a module, or for a name in one: of a kind of problem, the role of the
    file.
    """
    places = parts[1:]
    if places[0] == "problems" and len(places) > 2 and places[1] in KINDS_OF_PROBLEMS:
        places = ("problems", "*", *places[2:])
    for end in range(len(places), 0, -1):
        if "/".join(places[:end]) in LEVEL:
            return "/".join(places[:end])
    return places[0]


def imports_of(path: Path) -> set[str]:
    found = set()
    tree = ast.parse(path.read_text())
    typed = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    only_types = {inner for node in typed for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in only_types:
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return {
        part_of_name(tuple(name.split(".")))
        for name in found
        if name and name.startswith("coterie.")
    }


def test_imports_point_downwards():
    for path in MODULES:
        part, where = part_of(path), path.relative_to(ROOT)
        assert part in LEVEL, f"{part} has no place in LAYERS"
        for other in imports_of(path) & LEVEL.keys():
            assert LEVEL[other] <= LEVEL[part], f"{where} imports {other}, which is above it"
            assert (part, other) not in STRANGERS, f"{where} must not know {other}"


def test_only_commands_reach_for_the_whole_package():
    """`co.anything` is an import that the test above does not see."""
    for path in MODULES:
        whole = [
            n
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Import)
            for n in n.names
        ]
        assert part_of(path) == "commands" or "coterie" not in [name.name for name in whole], path


def loaded_with(path: Path) -> set[Path]:
    """The modules that Python loads with this one: imports at its top level, not those inside
    functions.
    """
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    files = {ROOT.parent / (name.replace(".", "/") + ".py") for name in names}
    return files & set(MODULES)


def test_no_module_imports_itself_in_the_end():
    above = {path: loaded_with(path) for path in MODULES}
    while free := [path for path, below in above.items() if not below & above.keys()]:
        for path in free:
            del above[path]
    assert not above, (
        "these import each other in a circle: "
        f"{sorted(str(path.relative_to(ROOT)) for path in above)}"
    )


def test_every_kind_of_problem_is_complete():
    """One catalogue: whoever adds a kind of problem to it adds its proofs and its model."""
    from coterie.problems import kinds

    for kind in kinds():
        assert not kind.__abstractmethods__
        assert kind.model_class.kind == kind.name


def test_transports_are_siblings():
    """A driver has collectives, and no transport is another one with parts replaced."""
    from coterie.transport.collectives import Collectives, OneProcess
    from coterie.transport.mpi_collectives import MpiCollectives
    from coterie.transport.point_to_point import PointToPoint

    for transport in (OneProcess, PointToPoint, MpiCollectives):
        assert transport.__bases__ == (Collectives,)
        assert not transport.__abstractmethods__


@pytest.mark.parametrize("part", ["transport", "study"])
def test_nothing_from_another_organisation_is_unpickled(part):
    for path in (ROOT / part).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "")}
                assert not names & {"pickle", "cloudpickle", "marshal", "shelve"}, (
                    f"{path.name} can unpickle"
                )


def test_no_kernel_is_too_complex():
    """Compiled loops may be longer than other functions, for which pyproject.toml has the limit."""
    limits = ("--isolated", "--select", "C901", "--config", "lint.mccabe.max-complexity=20")
    command = [sys.executable, "-m", "ruff", "check", *limits, ROOT / "numerics" / "kernels"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_public_names_are_complete_and_sorted():
    assert coterie.__all__ == sorted(coterie.__all__)
    assert set(coterie._HOME) == set(coterie.__all__) - {"networks"}
    assert set(estimators.__all__) <= set(coterie.__all__) <= set(dir(coterie))
    for name, home in coterie._HOME.items():
        assert getattr(coterie, name) is getattr(sys.modules[f"coterie.{home}"], name)
    assert coterie.networks is sys.modules["coterie.networks"]


def test_names_that_are_functions_and_modules_are_the_functions():
    code = (
        "import coterie.api.solve, coterie.api.path, coterie.api.plan, coterie.api.verify, "
        "coterie as co\n"
    )
    code += "assert all(map(callable, (co.solve, co.path, co.plan, co.verify)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_attribute_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'slove'"):
        _ = coterie.slove
    assert not hasattr(coterie, "_nothing")
    assert coterie.numerics.losses.LOSSES["squared"]


def test_public_names_are_documented():
    for name in coterie.__all__:
        thing = getattr(coterie, name)
        if typing.get_origin(thing) is not None:
            continue  # an alias cannot have a docstring; the reference shows the one below it
        assert (inspect.getdoc(thing) or "").strip(), f"{name} has no docstring"
        if not inspect.isclass(thing):
            continue
        for attribute, member in vars(thing).items():
            if not attribute.startswith("_") and (
                inspect.isfunction(member) or isinstance(member, property)
            ):
                assert inspect.getdoc(member), f"{name}.{attribute} has no docstring"


def test_the_picture_shows_every_part_at_its_level():
    picture = ElementTree.parse(ROOT.parents[1] / "docs" / "layers.svg").getroot()
    bold = [
        text.text or ""
        for text in picture.iter("{http://www.w3.org/2000/svg}text")
        if text.get("font-size") == "16"
    ]
    drawn = [part for line in bold for part in line.split(" · ")]
    assert sorted(drawn) == sorted(set(LEVEL) - {"__main__"})
    levels = [min(LEVEL[part], LEVEL["commands"]) for part in drawn]
    assert levels == sorted(levels, reverse=True)


def test_tests_that_share_what_is_slow_to_start_run_in_one_process():
    from tests.conftest import group_of

    shared = [
        "engines/test_clusters.py",
        "engines/test_gossip_clusters.py",
        "problems/shared/test_shared_parties.py",
    ]
    assert {group_of(f"tests/{file}") for file in shared} == {"clusters"}
    assert (
        group_of("tests/study/test_peers.py") == "tests/study/test_peers.py"
    )  # a fixture serves all of it
    assert group_of("tests/repository/test_house.py") is None


def test_each_rotating_test_is_run_in_one_rotation_whichever_files_run(monkeypatch):
    from tests import conftest

    def item(file, number):
        return mock.Mock(
            path=file, number=number, **{"get_closest_marker.return_value": number > 0}
        )

    def chosen(rotation, files, keyword=""):
        monkeypatch.setenv("ROTATION", rotation)
        items = [item(Path(file), number) for file in files for number in range(10)]
        conftest.pytest_collection_modifyitems(
            mock.Mock(args=[], **{"option.keyword": keyword}), items
        )
        return [(one.path.name, one.number) for one in items]

    everything = chosen("all", "ab")
    parts = [chosen(rotation, "ab") for rotation in "0123"]
    assert sorted(one for part in parts for one in part if one[1] > 0) == [
        one for one in everything if one[1] > 0
    ]
    assert all(("a", 0) in part for part in parts)
    assert chosen("2", "b") == [one for one in parts[2] if one[0] == "b"]
    assert chosen("2", "ab", keyword="name") == everything


def test_there_is_one_line_search():
    """Whoever judges a step by the objective has to compute it from losses."""
    calls = {
        str(path.relative_to(ROOT))
        for path in [
            *ROOT.glob("methods/**/*.py"),
            *ROOT.glob("problems/*/methods*/*.py"),
            *ROOT.glob("problems/*/methods.py"),
        ]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "primal"
    }
    searches = {
        path.name
        for path in ROOT.glob("methods/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "coterie.methods.line_search"
        if {"best_step", "objectives_at"} & {alias.name for alias in node.names}
    }
    assert calls == {"methods/line_search.py"}
    assert searches == {"newton.py", "searched_rows.py", "curved_pairs.py"}
