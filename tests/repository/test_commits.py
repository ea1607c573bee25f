"""First lines of commits are short, and the version stands in one place, with a heading in the
changelog.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import coterie as co

ROOT = Path(__file__).parents[2]
LONGEST = 72
SINCE = "2026-11-17"
"""The day from which the rule holds; older commits stay as they are."""


def too_long(subjects: list[str]) -> list[str]:
    return [subject for subject in subjects if len(subject) > LONGEST]


def test_first_lines_of_commits_are_short():
    assert too_long(["x" * 72, "x" * 73]) == ["x" * 73]
    log = ["git", "log", "--no-merges", f"--since={SINCE}", "-50", "--format=%s"]
    try:
        found = subprocess.run(log, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs git")
    if found.returncode:
        pytest.skip("not a git checkout")
    assert too_long(found.stdout.splitlines()) == []


def test_the_version_stands_in_one_place_and_in_the_changelog():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert co.__version__ == version
    written = [
        path.name
        for path in (ROOT / "src").rglob("*.py")
        if re.search(rf'"{re.escape(version)}"', path.read_text())
    ]
    assert written == []
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", version]
