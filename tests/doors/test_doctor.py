"""`coterie doctor`: what is there works, what is missing is named with its fix, and a missing extra is no illness."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from coterie.commands.exit_codes import REFUSED
from coterie.doctor import EXTRAS, PACKAGES, Finding, lines_to_type
from coterie.engines import ENGINES

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from coterie.cli import main
sys.argv[1:] = {arguments!r}
main()
"""
OPTIONAL = ("ray", "pyspark", "mpi4py", "grpc", "cryptography")


def command(*arguments, without=()):
    """The command in a Python in which those packages cannot be imported: exit code, output, errors."""
    script = WITHOUT.format(missing=without, arguments=arguments)
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=280)
    return found.returncode, found.stdout, found.stderr


def findings(*arguments, without=()):
    code, out, _ = command("doctor", "--json", *arguments, without=without)
    told = json.loads(out)
    assert (code == 0) == told["works"]
    return {finding["what"]: finding for finding in told["findings"]}


def test_without_extras_it_is_healthy_and_tells_what_to_install():
    found = findings(without=OPTIONAL)
    assert {*PACKAGES, *(f"engine {name}" for name in ENGINES), *(f"extra {name}" for name in EXTRAS)} <= set(found)
    assert found["engine local"]["works"]
    assert "a tiny fit ended optimal" in found["engine local"]["detail"]
    for name in set(ENGINES) - {"local"}:
        told = found[f"engine {name}"]
        assert (told["works"], told["needed"]) == (False, False)
        assert f"pip install 'coterie[{name}]'" in told["detail"]


def test_it_says_which_line_to_type():
    code, out, _ = command("doctor", "--quick", without=OPTIONAL)
    assert code == 0
    assert "For a first fit, type coterie demo" in " ".join(out.split())
    there = Finding("numpy", True, "numpy 2", fix="")
    gone = [Finding(name, False, "", needed, f"pip install {name}") for name, needed in (("scipy", True), ("x", False))]
    assert lines_to_type([there]) == {"For a first fit": "coterie demo"}
    assert lines_to_type([there, *gone]) == {"To mend it": "pip install scipy", "For what is optional": "pip install x"}
    assert lines_to_type([gone[1], Finding("y", False, "", False, "pip install y")])["For what is optional"] == (
        "pip install x y"
    )


def test_an_engine_that_is_not_installed_is_refused(tmp_path):
    (tmp_path / "few.csv").write_text("x,y\n1,2\n2,3\n3,5\n4,6\n")
    fit = ["fit", str(tmp_path / "few.csv"), "--target", "y", "--agents", "2", "--engine", "ray"]
    code, _, errors = command(*fit, without=("ray",))
    assert code == REFUSED
    assert "pip install 'coterie[ray]'" in " ".join(errors.split())


@pytest.mark.slow
@pytest.mark.cluster
def test_every_engine_that_is_installed_is_started_and_works():
    found = findings()
    for name, engine in ENGINES.items():
        told = found[f"engine {name}"]
        if engine.missing() is None:
            assert told["works"], told
            assert "a tiny fit ended optimal" in told["detail"]
