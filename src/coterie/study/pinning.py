"""Write keys into a study file, and remove a party with its key. The rest of the text stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from coterie.data.archives import write_atomically
from coterie.study.study import load_study

BLOCK = re.compile(r"^\[\[party\]\].*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"""^name\s*=\s*["'](.*?)["'].*$""", re.MULTILINE)
KEY = re.compile(r"^key\s*=.*\n?", re.MULTILINE)


def pin(path: Path, keys: Mapping[str, str]) -> None:
    """Write these parties' fingerprints into the study."""

    def pinned(block: re.Match[str]) -> str:
        name = NAME.search(block.group())
        if name is None or name.group(1) not in keys:
            return block.group()
        without_key = KEY.sub("", block.group())
        return NAME.sub(lambda line: f'{line.group()}\nkey = "{keys[line.group(1)]}"', without_key)

    _rewrite(path, BLOCK.sub(pinned, path.read_text("utf-8")))


def remove(path: Path, party: str) -> None:
    """Take a party out of the study, with its key."""
    load_study(path).index(party)

    def kept(block: re.Match[str]) -> str:
        name = NAME.search(block.group())
        if name is not None and name.group(1) == party:
            return ""
        return block.group()

    _rewrite(path, BLOCK.sub(kept, path.read_text("utf-8")))


def _rewrite(path: Path, text: str) -> None:
    """Write the study; restore the text before if the new one is not valid."""
    before = path.read_bytes()
    write_atomically(path, text.encode(), public=True)
    try:
        load_study(path)
    except BaseException:
        write_atomically(path, before, public=True)
        raise
