"""The house stands straight: imports point downwards, public names are complete, sorted and documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
import typing
from pathlib import Path
from xml.etree import ElementTree

import pytest

import coterie
import papers
from coterie import estimators

ROOT = Path(coterie.__file__).parent
LAYERS = [
    {"statuses", "errors", "catalogue", "arrays", "backends", "factors", "files", "kernels", "tuning"}
    | {"stacked_design", "stages", "threads"},
    {"losses", "penalties", "networks", "data", "predictors", "here", "survival", "tasks"},
    {"words"},
    {"problem", "personal", "agent", "crowd", "bill", "certificate", "checkpoint", "steps", "rounds", "verdict"}
    | {"acceleration", "switching"},
    {"transport", "carriers"},
    {"methods", "engines"},
    {"models", "inference", "evaluation", "description", "result"},
    {"families"},
    {"session", "comparison"},
    {"plan", "progress", "sinks", "solve", "verify", "path", "evaluate", "describe"},
    {"estimators", "report", "demo", "doctor", "peers"},
    {"commands"},
    {"cli", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
STRANGERS = [("methods", "engines"), ("methods", "transport"), ("engines", "methods"), ("transport", "methods")]
STRANGERS += [("losses", "penalties"), ("penalties", "losses")]
OLD_NAMES = ["coterie.carriers"]
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return {name.split(".")[1] for name in found if name and name.startswith("coterie.")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path):
    room = room_of(path)
    assert room in LEVEL, f"{room} has no place in LAYERS"
    for other in imports_of(path) & LEVEL.keys():
        assert LEVEL[other] <= LEVEL[room], f"{room} imports {other}, which is above it"
        assert (room, other) not in STRANGERS, f"{room} must not know {other}"


def test_only_commands_reach_for_the_whole_package():
    """`co.anything` is an import that the test above does not see."""
    for path in MODULES:
        whole = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import) for n in n.names]
        assert room_of(path) == "commands" or "coterie" not in [name.name for name in whole], path


def loaded_with(path: Path) -> set[Path]:
    """The modules that Python loads with this one: imports at its top level, not those inside functions."""
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
    assert not above, f"these import each other in a circle: {sorted(str(path.relative_to(ROOT)) for path in above)}"


def test_every_family_has_a_proof_a_model_and_a_name():
    """One catalogue: whoever adds a kind of problem to it adds its proofs and its model."""
    from coterie.certificate.best import proof_of
    from coterie.families import FAMILIES
    from coterie.models import MODELS

    assert FAMILIES.keys() == MODELS.keys()
    for name in FAMILIES:
        assert {"certify", "dual_at", "introduce"} <= set(vars(proof_of(name)))


def test_transports_are_siblings():
    """A driver has collectives, and no transport is another one with parts replaced."""
    from coterie.transport.collectives import Collectives, OneProcess
    from coterie.transport.mpi_collectives import MpiCollectives
    from coterie.transport.point_to_point import PointToPoint

    for transport in (OneProcess, PointToPoint, MpiCollectives):
        assert transport.__bases__ == (Collectives,)
        assert not transport.__abstractmethods__


@pytest.mark.parametrize("room", ["transport", "peers"])
def test_nothing_from_another_organisation_is_unpickled(room):
    for path in (ROOT / room).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "")}
                assert not names & {"pickle", "cloudpickle", "marshal", "shelve"}, f"{path.name} can unpickle"


def test_public_names_are_complete_and_sorted():
    assert coterie.__all__ == sorted(coterie.__all__)
    assert set(coterie._HOME) == set(coterie.__all__) - {"networks"}
    assert set(estimators.__all__) <= set(coterie.__all__) <= set(dir(coterie))
    for name, home in coterie._HOME.items():
        assert getattr(coterie, name) is getattr(sys.modules[f"coterie.{home}"], name)
    assert coterie.networks is sys.modules["coterie.networks"]


def test_names_that_are_functions_and_modules_are_the_functions():
    code = "import coterie.solve, coterie.path, coterie.plan, coterie.verify, coterie as co\n"
    code += "assert all(map(callable, (co.solve, co.path, co.plan, co.verify)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_attribute_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'slove'"):
        _ = coterie.slove
    assert not hasattr(coterie, "_nothing")
    assert coterie.losses.LOSSES["squared"]


@pytest.mark.parametrize("name", coterie.__all__)
def test_public_names_are_documented(name):
    thing = getattr(coterie, name)
    if typing.get_origin(thing) is not None:
        return  # an alias cannot have a docstring; the reference shows the one below it
    assert (inspect.getdoc(thing) or "").strip()
    if inspect.isclass(thing):
        for attribute, member in vars(thing).items():
            if not attribute.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{name}.{attribute} has no docstring"


def all_modules():
    found = [*pkgutil.walk_packages([str(ROOT)], "coterie."), *pkgutil.iter_modules(papers.__path__, "papers.")]
    return [info.name for info in found if not info.name.endswith("__main__")]


@pytest.mark.parametrize("name", all_modules())
def test_every_module_says_what_it_is_for(name):
    if name in ("coterie.kernels.half_precision", "coterie.kernels.leaf_digests"):
        pytest.importorskip("triton", reason="needs PyTorch with CUDA")
    if name in OLD_NAMES:
        pytest.skip("an old name, which warns")
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip()
    exported = getattr(module, "__all__", [])
    assert hasattr(module, "__path__") or not exported, "only packages list names; in a module an underscore is enough"
    assert list(exported) == sorted(exported, key=lambda n: (not n.isupper(), not n[0].isupper(), n)), f"{name}.__all__"
    for entry in exported:
        assert hasattr(module, entry)


def test_the_picture_shows_every_room_at_its_level():
    picture = ElementTree.parse(ROOT.parents[1] / "docs" / "rooms.svg").getroot()
    bold = [
        text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text") if text.get("font-size") == "16"
    ]
    drawn = [room for line in bold for room in line.split(" · ")]
    assert sorted(drawn) == sorted(set(LEVEL) - {"__main__"} - {name.partition(".")[2] for name in OLD_NAMES})
    levels = [min(LEVEL[room], LEVEL["commands"]) for room in drawn]
    assert levels == sorted(levels, reverse=True)


def test_old_names_are_found_with_a_warning(monkeypatch):
    monkeypatch.delitem(sys.modules, "coterie.carriers", raising=False)
    from coterie import words
    from coterie.transport.gossip import Gossip
    from coterie.transport.in_process import InProcess

    with pytest.warns(DeprecationWarning, match=r"coterie\.carriers is now coterie\.transport"):
        carriers = importlib.import_module("coterie.carriers")
    assert importlib.import_module("coterie.carriers.in_process").InProcess is InProcess
    assert carriers.gossip.Gossip is Gossip
    with pytest.warns(DeprecationWarning, match="Letter is now Publication"):
        assert words.Letter is words.Publication
    with pytest.raises(AttributeError, match="Word_"):
        words.Word_  # noqa: B018


@pytest.mark.parametrize("name", ["choose_method", "dealt", "gather", "no_network", "points_of", "prepared"])
def test_what_solve_had_is_found_with_a_warning(name):
    solve = importlib.import_module("coterie.solve")
    with pytest.warns(DeprecationWarning, match=rf"coterie\.solve\.{name} is now coterie\."):
        assert callable(getattr(solve, name))
    with pytest.raises(AttributeError, match="nothing"):
        solve.nothing  # noqa: B018


def test_a_method_with_an_appeal_is_still_scored_by_it():
    from coterie.methods import Method

    with pytest.warns(DeprecationWarning, match="Old.appeal is now score"):

        class Old(Method):
            @classmethod
            def appeal(cls, problem, network, sizes=None):
                return 7.0, "age"

    assert Old.score(None, None) == (7.0, "age")


def test_tests_that_share_what_is_slow_to_start_run_in_one_process():
    from tests.conftest import group_of

    engines = [f"tests/engines/test_{name}.py" for name in ("clusters", "gossip_clusters", "shared_parties")]
    assert {group_of(file) for file in engines} == {"clusters"}
    assert group_of("tests/engines/test_peers.py") == "tests/engines/test_peers.py"  # a fixture serves all of it
    assert group_of("tests/doors/test_house.py") is None
