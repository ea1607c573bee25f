"""The folder of a party's results, `output` in party.toml: a folder of its own, with a marker.

Results replace files of known names, and remove those that belong to an earlier result. So a folder
with other files is refused before a party connects, and results remove nothing but such names.
"""

from __future__ import annotations

from pathlib import Path

from coterie.data.archives import write_atomically
from coterie.errors import InvalidInput
from coterie.study.study import PartyFile

MARKER = ".coterie-result"
"""The file that marks a folder of results."""
NOTE = b"Results replace files in this folder. Keep your own files elsewhere.\n"
NAMED = 3
"""How many other files an error names."""


def check_folder(own: PartyFile) -> None:
    """Refuse an output folder with files that no result wrote."""
    folder = own.output
    try:
        others = _others(own, folder)
    except OSError:
        return  # It cannot be read: results that cannot be written are tried again.
    if not others:
        return
    more = ""
    if len(others) > NAMED:
        more = ", ..."
    raise InvalidInput(
        f"output: {folder} holds files that no result wrote ({', '.join(others[:NAMED])}{more}). "
        "Results replace files of their folder: name a new one in party.toml, for example output "
        '= "result".'
    )


def _others(own: PartyFile, folder: Path) -> list[str]:
    """The files of a folder that has no marker."""
    if (folder / MARKER).is_file() or not folder.exists():
        return []
    if not folder.is_dir():
        raise InvalidInput(f"output: {folder} is a file. Name a folder for the results.")
    return sorted(one.name for one in folder.iterdir() if one != own.checkpoint)


def claim(folder: Path) -> Path:
    """Make a folder for results, and mark it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MARKER).is_file():
        write_atomically(folder / MARKER, NOTE)
    return folder
