"""What the processes of a system take while something goes on: memory, handles, threads; the disk of its database."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from benchmarks.common import Document

Row = dict[str, float]


class Sampler:
    """Looks at processes every so often, in a thread; use it as a context."""

    def __init__(self, processes: Mapping[str, int], folder: Path | None = None, seconds: float = 0.5) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}
        self._folder = folder
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_again_and_again, daemon=True)
        #: By name; `disk` is one of them where a folder is given.
        self.rows: dict[str, list[Row]] = {name: [] for name in processes} | ({"disk": []} if folder else {})

    def __enter__(self) -> Sampler:
        self._begun = time.monotonic()
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def document(self) -> Document:
        """Before, at the peak and after, in megabytes, for each process."""
        return {
            name: {
                "before_mb": rows[0]["mb"],
                "peak_mb": max(row["mb"] for row in rows),
                "after_mb": rows[-1]["mb"],
            }
            for name, rows in self.rows.items()
            if rows
        }

    def _look_again_and_again(self) -> None:
        while not self._over.wait(self._seconds):
            self._look()

    def _look(self) -> None:
        at = time.monotonic() - self._begun
        for name, process in self._processes.items():
            with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                row = {"at": at, "mb": process.memory_info().rss / 2**20}
                self.rows[name].append({**row, "threads": process.num_threads(), "handles": process.num_fds()})
        if self._folder is not None:
            self.rows["disk"].append({"at": at, "mb": _size(self._folder) / 2**20})


def _size(folder: Path) -> int:
    """Return the bytes of all files; what goes away meanwhile does not count."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                total += path.stat().st_size
    return total
