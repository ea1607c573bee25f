"""Translate errors for the command line: an argument `target=` of Python is the flag `--target`."""

from __future__ import annotations

import re
from collections.abc import Mapping

ARGUMENT = (
    r"\b([a-z]\w*)=('[^']*'|\"[^\"]*\"|\.\.\.|\[[^\]]*\]|-?\d[\w.+-]*\w|\d|True|False)?(?![=\w])"
)
PHRASES = {
    r"[Gg]ive (it )?\(X, y\), or name the label column with target=": (
        "name the label column with target="
    ),
    (
        r"\b(?:co\.)?(?:Problem|read|solve|Personal|Shared|path|evaluate)"
        r"\((?:\.\.\., )?([^()]*)\)"
    ): r"\1",
    r"(?:text that spells numbers becomes numbers with|Convert with) [Xy]\.astype\(float\)": (
        "write it as plain numbers in the file"
    ),
    r"Convert it with \.astype\(float\)": "Write it as plain numbers",
    r"match the rows with co\.align\(\[id=\.\.\., \.\.\.\]\)": (
        "name the column with the row ids with id="
    ),
    r", ((?:and )?)(?=\w+=)": r" \1",
}
"""Phrases that apply to Python only, and their translation. Arguments are rewritten afterwards."""
RENAMED = {"kind": "inference", "alpha": "strength", "clusters": "cluster"}


def in_shell_words(message: str, flags: Mapping[str, str]) -> str:
    """Write the message with the flags of this command in place of Python's arguments."""
    for phrase, words in PHRASES.items():
        message = re.sub(phrase, words, message)
    message = re.sub(ARGUMENT, lambda found: _flag(found, flags), message)
    return re.sub(
        r"(^|\. )([a-z])(?=ame the label column)", lambda at: at[1] + at[2].upper(), message
    )


def _flag(found: re.Match[str], flags: Mapping[str, str]) -> str:
    name = found[1]
    value = (found[2] or "").strip("'\"")
    flag = flags.get(RENAMED.get(name, name))
    if flag is None and "option" in flags and value:
        return f"--option {name}={value}"
    if flag is None:
        return f"{name} {value}".rstrip()
    if value == "...":
        value = name.upper()
    if value == "True":
        return flag
    if value == "False":
        return flag.replace("--", "--no-", 1)
    return f"{flag} {value}".rstrip()
