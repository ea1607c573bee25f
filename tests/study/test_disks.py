"""Disks that are full, read-only or forbidden, and processes without file descriptors: nobody loses
the result.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess

import pytest

from coterie.api.result import Result
from coterie.run.statuses import Status
from coterie.study.folder import MARKER
from tests.harness.parties import NAMES, data, processes, write_data, write_study
from tests.study.test_faults import LONG, assert_same_bits, undisturbed, until

pytestmark = pytest.mark.chaos

SAID = {
    "ENOSPC": "No space left on device",
    "EROFS": "Read-only file system",
    "EACCES": "Permission denied",
    "EMFILE": "Too many open files",
}
WHOLE = ["bill.json", "certificate.json", "model.npz", "run.json"]


class Disk:
    """A small disk of a party, for its snapshots and its result, that fails and is mended."""

    def __init__(self, folder, fault):
        self.folder, self.fault = folder, fault
        folder.mkdir()
        self.prefix = []
        if fault in ("ENOSPC", "EROFS"):
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)],
                capture_output=True,
                check=False,
            )
            if done.returncode:
                pytest.skip("a small disk can be mounted by root alone")
        if fault == "EACCES" and os.geteuid() == 0:
            # The rights of any user: what belongs to somebody else and is closed, stays closed.
            self.prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]

    def fail(self, party):
        match self.fault:
            case "ENOSPC":
                with (
                    contextlib.suppress(OSError),
                    (self.folder / "ballast").open("wb", buffering=0) as file,
                ):
                    while True:
                        file.write(bytes(4096))
            case "EROFS":
                subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)
            case "EACCES":
                for folder in (self.folder, *self.folder.rglob("*/")):
                    folder.chmod(0o500)
                    if os.geteuid() == 0:
                        os.chown(folder, 65534, 65534)
            case "EMFILE":
                self.limit = resource.prlimit(party.process.pid, resource.RLIMIT_NOFILE)
                resource.prlimit(party.process.pid, resource.RLIMIT_NOFILE, (0, self.limit[1]))

    def mend(self, party):
        match self.fault:
            case "ENOSPC":
                (self.folder / "ballast").unlink()
            case "EROFS":
                subprocess.run(["mount", "-o", "remount,rw", str(self.folder)], check=True)
            case "EACCES":
                for folder in (self.folder, *self.folder.rglob("*/")):
                    folder.chmod(0o700)
                    os.chown(folder, os.geteuid(), os.getegid())
            case "EMFILE":
                resource.prlimit(party.process.pid, resource.RLIMIT_NOFILE, self.limit)

    def remove(self):
        if self.fault in ("ENOSPC", "EROFS"):
            subprocess.run(["umount", "-l", str(self.folder)], check=False)
        elif self.fault == "EACCES":
            shutil.rmtree(self.folder, ignore_errors=True)


@pytest.mark.rotates
@pytest.mark.parametrize("faults", [("ENOSPC", "EACCES"), ("EROFS", "EMFILE")], ids="+".join)
def test_a_disk_that_fails_costs_nobody_the_result(tmp_path, faults):
    tables, settings = data(classification=True), LONG | {"max-rounds": 300}
    write_study(tmp_path, deadline=30.0, **settings)
    write_data(tmp_path, tables)
    disks = {
        name: Disk(tmp_path / name / "disk", fault)
        for name, fault in zip(NAMES[1:], faults, strict=True)
    }
    for name, disk in disks.items():
        file = tmp_path / name / "party.toml"
        file.write_text(
            f'{file.read_text()}output = "{disk.folder}/result"\ncheckpoint = '
            f'"{disk.folder}/kept"\n'
        )
    ended = Status.ITERATION_LIMIT.exit_code
    try:
        with processes(
            tmp_path, prefixes={name: disk.prefix for name, disk in disks.items()}
        ) as running:
            until(
                lambda: all(list(disk.folder.glob("kept/*/round-*.npz")) for disk in disks.values())
            )
            for name, disk in disks.items():
                disk.fail(running[name])
            # Who has room has the result, and waits for nobody.
            code, printed = running["ada"].wait()
            assert code == ended
            assert printed["warnings"] == []
            for name, disk in disks.items():
                log = tmp_path / name / "log"
                until(lambda log=log: "it is kept, and tried again" in log.read_text())
                assert not running[name].ended
                # All of it is there or nothing, never a half.
                with contextlib.suppress(PermissionError):
                    assert sorted(file.name for file in disk.folder.glob("result/[!.]*")) in (
                        [],
                        WHOLE,
                    )
                disk.mend(running[name])
            for name, fault in zip(disks, faults, strict=True):
                code, printed = running[name].wait()
                assert code == ended
                assert SAID[fault] in printed["warnings"][0]
        places = [tmp_path / "ada" / "result", *(disk.folder / "result" for disk in disks.values())]
        results = [Result.load(place) for place in places]
        assert_same_bits(results, undisturbed(tables, settings))
        for place, result in zip(places, results, strict=True):
            assert sorted(file.name for file in place.iterdir()) == [MARKER, *WHOLE]
            assert bool(result.warnings) == (place != places[0])
    finally:
        for disk in disks.values():
            disk.remove()
