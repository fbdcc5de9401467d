"""A disk of a few MB that can be full or read-only, where this machine lets a test mount one; a process that may read
or open no file."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class Disk:
    """A file system of its own under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self) -> None:
        """Leaves no byte."""
        with contextlib.suppress(OSError), self._ballast.open("ab") as file:
            while True:
                file.write(b"x" * 4096)
                file.flush()

    def free(self) -> None:
        """There is room again."""
        self._ballast.unlink()

    @contextlib.contextmanager
    def read_only(self, folder: Path | None = None) -> Iterator[None]:
        """The disk, or one folder of it."""
        if folder is None:
            _run("mount", "-o", "remount,ro", self.root)
        else:
            _run("mount", "--bind", folder, folder)
            _run("mount", "-o", "remount,bind,ro", folder)
        try:
            yield
        finally:
            if folder is None:
                _run("mount", "-o", "remount,rw", self.root)
            else:
                _run("umount", folder)


@contextlib.contextmanager
def small_disk(root: Path, size: str = "4m") -> Iterator[Disk]:
    """Skips the test where nothing can be mounted."""
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", root]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no disk of its own can be mounted here: {made.stderr.strip()}")
    try:
        yield Disk(root)
    finally:
        _run("umount", "--lazy", root)


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """This process is someone who may read nothing of root's. Skips the test where it is not root."""
    if os.geteuid():
        pytest.skip("only root can become someone else")
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def without_descriptors() -> Iterator[None]:
    """This process can open no file more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
