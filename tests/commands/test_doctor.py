"""`coterie doctor`: what is there works, what is missing is named with its fix, and a missing extra
is no illness.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coterie import installation
from coterie.api.doctor import EXTRAS, PACKAGES, Finding, lines_to_type
from coterie.commands.exit_codes import REFUSED
from coterie.engines import ENGINES
from coterie.installation import extra_command, own_package
from tests.harness.clusters import MPI_ENVIRONMENT

ROOT = Path(__file__).parents[2]

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from coterie.cli import main
sys.argv[1:] = {arguments!r}
main()
"""
OPTIONAL = ("ray", "pyspark", "mpi4py", "grpc", "cryptography")


def command(*arguments, without=()):
    """The command in a Python in which those packages cannot be imported: exit code, output,
    errors.
    """
    script = WITHOUT.format(missing=without, arguments=arguments)
    environment = {**os.environ, **MPI_ENVIRONMENT}
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=280
    )
    return found.returncode, found.stdout, found.stderr


def findings(*arguments, without=()):
    code, out, _ = command("doctor", "--json", *arguments, without=without)
    told = json.loads(out)
    assert (code == 0) == told["works"]
    return {finding["what"]: finding for finding in told["findings"]}


def test_without_extras_it_is_healthy_and_tells_what_to_install():
    found = findings(without=OPTIONAL)
    assert {
        *PACKAGES,
        *(f"engine {name}" for name in ENGINES),
        *(f"extra {name}" for name in EXTRAS),
    } <= set(found)
    assert found["engine local"]["works"]
    assert "a tiny fit ended optimal" in found["engine local"]["detail"]
    for name in set(ENGINES) - {"local"}:
        told = found[f"engine {name}"]
        assert (told["works"], told["needed"]) == (False, False)
        assert told["detail"].endswith(extra_command(name))


def test_it_says_which_line_to_type():
    code, out, _ = command("doctor", "--quick", without=OPTIONAL)
    assert code == 0
    assert "For a first fit, type coterie demo" in " ".join(out.split())
    there = Finding("numpy", True, "numpy 2", fix="")
    pip = f"{sys.executable} -m pip install"
    gone = [
        Finding(name, False, "", needed, f"{pip} {name}")
        for name, needed in (("scipy", True), ("x", False))
    ]
    assert lines_to_type([there]) == {"For a first fit": "coterie demo"}
    assert lines_to_type([there, *gone]) == {
        "To mend it": f"{pip} scipy",
        "For what is optional": f"{pip} x",
    }
    assert (
        lines_to_type([gone[1], Finding("y", False, "", False, f"{pip} y")])["For what is optional"]
        == f"{pip} x y"
    )


def test_an_engine_that_is_not_installed_is_refused(tmp_path):
    (tmp_path / "few.csv").write_text("x,y\n1,2\n2,3\n3,5\n4,6\n")
    fit = ["fit", str(tmp_path / "few.csv"), "--target", "y", "--agents", "2", "--engine", "ray"]
    code, _, errors = command(*fit, without=("ray",))
    assert code == REFUSED
    assert extra_command("ray") in " ".join(errors.split())


@pytest.mark.slow
@pytest.mark.cluster
def test_every_engine_that_is_installed_is_started_and_works():
    found = findings()
    for name, engine in ENGINES.items():
        told = found[f"engine {name}"]
        if engine.missing() is None:
            assert told["works"], told
            assert "a tiny fit ended optimal" in told["detail"]


def test_the_command_is_right_for_a_clone_and_for_an_installed_package(tmp_path, monkeypatch):
    pip = f"{sys.executable} -m pip install"
    monkeypatch.chdir(tmp_path)
    assert extra_command("peers") == f"{pip} '{ROOT}[peers]'"
    monkeypatch.chdir(ROOT)
    assert extra_command("peers") == f"{pip} '.[peers]'"
    # Installed, the module is below site-packages, where no pyproject.toml is.
    monkeypatch.setattr(installation, "CLONE", tmp_path)
    assert extra_command("peers") == f"{pip} 'coterie[peers]'"
    assert own_package() == "coterie"


def test_every_message_names_the_interpreter():
    """No message says `pip` alone, which may be that of another Python; and every named extra is
    there.
    """
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        assert path.name == "installation.py" or "pip install" not in text, path
        for named in re.findall(r"MissingExtra\([^)]*?\"([a-z]+)\"\)", text) + re.findall(
            r"extra_command\('(\w+)'\)", text
        ):
            assert named in extras, f"{path}: {named}"


def test_what_make_demo_installs_is_what_readme_and_tutorials_need():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert "--editable '.[tutorials]'" in (ROOT / "Makefile").read_text()
    assert "coterie[peers]" in extras["tutorials"]
    assert any(line.startswith("pandas") for line in extras["tutorials"])
