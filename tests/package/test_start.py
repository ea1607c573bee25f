"""`import coterie` and the command line start quickly: what is slow to import comes when it is
used.
"""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from coterie import cli
from coterie.catalogue import names_in
from coterie.engines import ENGINES
from coterie.methods import METHODS
from coterie.networks import TOPOLOGIES
from coterie.numerics import kernels
from coterie.numerics.acceleration import WRAPPERS
from coterie.numerics.losses import LOSSES
from coterie.numerics.penalties import PENALTIES
from coterie.problems.low_rank.tasks import TASKS

HEAVY = {
    "cryptography", "grpc", "matplotlib", "mlflow", "mpi4py", "narwhals", "networkx", "numba", "numpy", "pandas",
    "polars", "pyarrow", "pyspark", "ray", "scipy", "sklearn", "torch",
}  # fmt: skip
USAGE_ERRORS = {
    "no such command": "ft",
    "no such flag": "fit rows.csv --los squared",
    "an argument is missing": "fit",
    "not a whole number": "fit rows.csv --agents two",
    "no pair": "fit rows.csv --option rho",
    "compare, no such flag": "compare rows.csv --methods newton",
    "plan without data": "plan",
    "predict without data": "predict model.npz",
    "verify without a model": "verify certificate.json",
    "nothing to provision": "provision study.toml",
    "users, not a number": "users rows.csv --beta large",
    "agent without a file": "agent",
    "an unreadable configuration": "fit rows.csv --config nowhere.toml",
}


def spent(*arguments: str, code: int = 0, cache: Path | None = None) -> float:
    """Processor seconds of that run of Python; what it compiles is kept in that folder."""
    kept = {"NUMBA_CACHE_DIR": str(cache)} if cache else {}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **kept}, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == code, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imported(code: str) -> set[str]:
    """Which modules Python has imported when that code has ended."""
    show = (
        "import atexit, sys\natexit.register(lambda: print('imported', *sys.modules, "
        "file=sys.stderr))\n"
    )
    done = subprocess.run([sys.executable, "-c", show + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split()[1:])


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_importing_loads_little():
    """Modules are counted, because a clock depends on what else the machine does."""
    added = imported("import coterie") - imported("pass")
    assert len(added) < 130, sorted(added)


SEVERAL_COMMANDS = """
import sys
from coterie.cli import main
for line in sys.argv[1:]:
    sys.argv = ["coterie", *line.split()]
    try:
        main()
    except SystemExit as ended:
        print("ended", ended.code, *sys.modules, file=sys.stderr)
"""


def test_what_only_prints_and_what_is_refused_imports_nothing_slow():
    codes = dict.fromkeys(["--version", "--help", "fit --help"], 0) | dict.fromkeys(
        USAGE_ERRORS.values(), 2
    )
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL_COMMANDS, *codes], capture_output=True, text=True, check=True
    )
    ends = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("ended ")]
    assert [int(code or 0) for code, *_ in ends] == list(codes.values())
    imports = [packages({*modules}) & HEAVY for _, *modules in ends]
    assert not any(imports), dict(zip(codes, imports, strict=True))


def test_what_is_slow_is_imported_when_it_is_used():
    assert not packages(imported("import coterie")) & HEAVY
    assert (
        not packages(imported("import coterie.cli; list(coterie.cli._Commands().values())")) & HEAVY
    )
    assert not packages(imported("import coterie as co; co.solve, co.path, co.read, co.verify")) & {
        "cryptography", "grpc", "matplotlib", "pandas", "pyspark", "ray", "sklearn", "torch",
    }  # fmt: skip


FIRST_FIT = """
import numpy as np, coterie as co
X = np.random.default_rng(0).normal(size=(1000, 20))
co.solve(co.Problem("logistic", "l2", 1e-2, intercept=False), (X, np.sign(X[:, 0])), agents=4, progress=False)
"""


def test_a_first_fit_compiles_little(tmp_path):
    first, second = np.inf, np.inf
    for turn in "abc":  # the second and third where others were at work
        first = min(first, spent("-c", FIRST_FIT, cache=tmp_path / turn))
        second = min(second, spent("-c", FIRST_FIT, cache=tmp_path / turn))
        # 2.3 seconds against 1.8 on two busy cores; with slices copied 4.4.
        if first <= 1.8 * second:
            return
    assert first <= 1.8 * second


@pytest.mark.parametrize(
    "file", sorted(Path(kernels.__file__).parent.glob("*.py")), ids=lambda file: file.stem
)
def test_no_kernel_copies_a_slice(file):
    """To do so with a loop compiles in a tenth of a second; numba's own way makes error messages,
    and takes two.
    """
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            for target in ast.walk(ast.Tuple(node.targets)):
                assert not isinstance(target, ast.Slice), f"line {node.lineno}"


def test_names_that_help_shows_are_those_of_the_catalogues():
    for folder, entries in {
        "numerics/acceleration": WRAPPERS,
        "engines": ENGINES,
        "numerics/losses": LOSSES,
        "methods": METHODS,
        "networks": TOPOLOGIES,
        "numerics/penalties": PENALTIES,
        "problems/low_rank/tasks": TASKS,
    }.items():
        assert names_in(folder) == tuple(sorted(entries)), folder
    users = [name for name, method in METHODS.items() if method.split == "users"]
    folders = ("problems/personal/methods", "problems/shared/methods")
    assert sorted(name for folder in folders for name in names_in(folder)) == users


def test_a_command_has_the_name_of_its_file():
    for name, command in typer.main.get_command(cli.app).commands.items():
        assert command.callback.__name__.replace("_", "-") == name


def test_nothing_but_names_is_imported_before_a_command_can_say_that_it_was_stopped():
    command = (
        "import sys; before = set(sys.modules); import coterie; "
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert "importlib.metadata" not in run.stdout.split()
    assert "email" not in run.stdout.split()
