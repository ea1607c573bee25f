"""What depends on the kind of a problem is in its folder: elsewhere no kind is compared by name or
class.
"""

from __future__ import annotations

import ast
from pathlib import Path

import coterie
from coterie.problems import NAMES
from coterie.problems.kind import Kind

ROOT = Path(coterie.__file__).parent
CLASSES = {"Problem", "AnyProblem", "Personal", "Shared", "Model", "UserModel"}
CLASSES |= {
    "LinearModel",
    "LowRankModel",
    "MulticlassModel",
    "PersonalModel",
    "SharedModel",
    "SurvivalModel",
}

ALLOWED = {
    "api/solve.py": "a wrong first argument is refused",
    "api/evaluate.py": "a wrong first argument is refused",
    "commands/baseline.py": "the command is for survival models",
    "commands/predict.py": (
        "--users is for models of users, and coefficients have another shape for several classes"
    ),
    "commands/users.py": 'the command is for models of users, and "shared" is a method',
    "estimators/personalized.py": 'the estimator is for two kinds, and "shared" is a method',
}
"""Files outside of `problems` that ask for a kind, and why."""


def names_a_kind(node):
    """Whether a comparison has the name of a kind on either side."""
    if not isinstance(node, ast.Compare):
        return False
    return any(isinstance(part, ast.Constant) and part.value in NAMES for part in ast.walk(node))


def asks_for_a_class(node):
    """Whether an `isinstance` is about a class of problems or models."""
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
    ):
        return False
    named = {getattr(part, "id", getattr(part, "attr", None)) for part in ast.walk(node.args[1])}
    return bool(named & CLASSES)


def asks_for_a_kind(text):
    return any(names_a_kind(node) or asks_for_a_class(node) for node in ast.walk(ast.parse(text)))


def test_no_kind_is_asked_for_outside_of_problems():
    files = {str(path.relative_to(ROOT)): path for path in ROOT.rglob("*.py")}
    asking = {name for name, path in files.items() if asks_for_a_kind(path.read_text())}
    assert {name for name in asking if not name.startswith("problems/")} == set(ALLOWED)


def test_what_the_check_finds():
    assert asks_for_a_kind('problem.kind.name == "linear"')
    assert asks_for_a_kind('agent.problem.kind.name in ("low-rank", "shared")')
    assert asks_for_a_kind("isinstance(model, co.MulticlassModel | UserModel)")
    assert not asks_for_a_kind("problem.kind.models.prepares and isinstance(loss, Huber)")


def test_a_kind_is_an_index_of_small_objects():
    members = {name for name in (*vars(Kind), *Kind.__annotations__) if not name.startswith("_")}
    assert len(members) <= 16, "put what depends on the kind into one of its objects"
