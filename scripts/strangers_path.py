"""Go the way of somebody new: a clone in an empty folder, `make demo`, then README from top to
bottom.

    python scripts/strangers_path.py [EMPTY_FOLDER]

Every command of README is run with what `make demo` installed there, and every number that it
prints is compared with the one on the page. Without a folder it uses one that is removed at the
end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
READ = """
import contextlib, io, os, subprocess, sys
import pandas as pd
from sklearn.datasets import load_breast_cancer
from tests.pages import ROOT, blocks, commands, prints

os.chdir(sys.argv[1])
data = load_breast_cancer(as_frame=True)
frame = data.data.assign(ill=data.target)
for name, rows in {"north.parquet": frame[:250], "south.parquet": frame[250:]}.items():
    rows.to_parquet(name)
frame.drop(columns="ill").head(20).to_csv("new-patients.csv", index=False)

wrong, namespace = 0, {}
for block in blocks(ROOT / "README.md"):
    if block.language == "python":
        exec(compile(block.text, "README.md", "exec"), namespace)
        print(f"line {block.line}: Python: ran", flush=True)
    for command, expected in commands(block) if block.language == "console" else ():
        if not command.startswith("coterie"):
            continue
        ran = subprocess.run(command.split(), capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
        right = ran.returncode == 0 and (not expected or prints(ran.stdout, expected))
        wrong += not right
        print(f"line {block.line}: {command}: {'as told' if right else 'DIFFERS'}", flush=True)
        if not right:
            print(f"README says\\n\\n{expected}\\nand this was printed\\n\\n{ran.stdout}{ran.stderr}")
sys.exit(wrong > 0)
"""


def walk(folder: Path) -> int:
    """0 if README is right for somebody who begins in that folder."""
    clone, own = folder / "coterie", folder / "own"
    own.mkdir()
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    subprocess.run(["make", "demo"], cwd=clone, check=True)
    python = clone / ".venv" / "bin" / "python"
    where = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run([python, "-c", READ, own], cwd=clone, env=where).returncode


def main(arguments: list[str]) -> int:
    if arguments:
        folder = Path(arguments[0])
        folder.mkdir(parents=True, exist_ok=True)
        assert not any(folder.iterdir()), f"{folder} is not empty"
        return walk(folder)
    with tempfile.TemporaryDirectory() as folder:
        return walk(Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
