"""Working directory and environment of a function process: each job finds those in which the function was loaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from leman_executor.worker.processes.masked_values import masked


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """Working directory, environment and umask as they were at one moment."""

    folder: str
    environment: dict[str, str]
    umask: int

    @classmethod
    def here(cls) -> ProcessEnvironment:
        """Return those of this process."""
        umask = os.umask(0o022)
        os.umask(umask)
        try:
            folder = os.getcwd()  # noqa: PTH109 a Path has no use for it
        except FileNotFoundError:
            folder = ""
        return cls(folder, dict(os.environ), umask)

    def restore(self) -> None:
        """Make them those of this process again; a folder that is gone stays gone."""
        os.umask(self.umask)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)


class Kept:
    """The environment that a function process goes back to before each job."""

    def __init__(self) -> None:
        self._kept: ProcessEnvironment | None = None
        self._loaded = False

    def begin(self) -> None:
        """Begin a job: undo what the last one changed."""
        if self._kept is None:
            self._kept = ProcessEnvironment.here()
        else:
            self._kept.restore()

    def give(self, variables: Mapping[str, str]) -> None:
        """Set environment variables of the job, before its function is loaded; afterwards they are what was kept.

        All jobs of a process have the same ones (see `WorkContext.process_name`).
        """
        if not self._loaded:
            os.environ.update(variables)
            masked.take(variables.values())

    def loaded(self) -> None:
        """Keep what the function set up while it was loaded, as it belongs to it; only the first time counts."""
        if self._kept is not None and not self._loaded:
            self._kept, self._loaded = ProcessEnvironment.here(), True


#: The environment of this process; without `begin` nothing is kept or restored.
kept = Kept()
