"""Make the folder in which Spark, its JVM and their libraries keep temporary files.

Each process has its own folder; see `leman_core.process.temp_folders`.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path

from leman_core.model.service_errors import InvalidArgument, Unavailable
from leman_core.process.temp_folders import OwnFolder, socket_folder

_PREFIX = "leman-spark-"
#: Spark splits options at spaces and folders at commas.
_PLAIN = re.compile(r"[\w./+@=-]+")
#: The length in bytes of the longest file name that Spark or Leman gives to a socket in the folder.
_SOCKET_NAME = 43


class TempFolder(OwnFolder):
    """The folder of this process."""

    @classmethod
    def make(cls, base: str, *, patient: bool = True) -> TempFolder | None:
        """Make a new folder in `base` or, if that is empty, in the system's temporary folder.

        Before that, remove folders in `base` that dead processes left.

        Returns None if Spark would misread the name of the system's temporary folder. `patient`: see `make_in`.

        Raises:
            InvalidArgument: BAD_SETTING, if `base` is not absolute, has a name that Spark would misread, or cannot be
                written.
            Unavailable: SPARK_NOT_STARTED, if the system has no writable temporary folder.
            BlockingIOError: Another process is making such a folder, and `patient` is False.
        """
        try:
            return cls._make(base, patient=patient)
        except BlockingIOError:
            raise
        except OSError as error:
            why = f"Spark has no folder for its temporary files: {error}"
            if base:
                raise InvalidArgument("BAD_SETTING", f"LEMAN_SPARK__SCRATCH_DIR={base}: {why}") from error
            raise Unavailable(
                "SPARK_NOT_STARTED", f"{why}. Set TMPDIR or LEMAN_SPARK__SCRATCH_DIR to a writable folder"
            ) from error

    @classmethod
    def _make(cls, base: str, *, patient: bool) -> TempFolder | None:
        folder = Path(base or tempfile.gettempdir())
        if not folder.is_absolute() or not _PLAIN.fullmatch(str(folder)):
            if base:
                raise InvalidArgument(
                    "BAD_SETTING",
                    f"LEMAN_SPARK__SCRATCH_DIR={base}: Spark needs an absolute path without spaces and commas",
                )
            return None
        folder.mkdir(parents=True, exist_ok=True)
        return cls.make_in(folder, _PREFIX, patient=patient)

    @property
    def jvm_options(self) -> list[str]:
        """The options that make the JVM and the libraries it loads use this folder."""
        return [f"-Djava.io.tmpdir={self.path}"]

    @property
    def sockets(self) -> Path:
        """The folder for sockets: this folder or, if the paths of sockets in it would be too long, a different one.

        Raises:
            OSError: No folder has a path that is short enough.
        """
        return Path(socket_folder(_SOCKET_NAME, str(self.path)))

    @property
    def settings(self) -> dict[str, str]:
        """The settings that make Spark place its sockets in `sockets`; empty if that is this folder."""
        with contextlib.suppress(OSError):
            if self.sockets != self.path:
                return {"spark.python.unix.domain.socket.dir": str(self.sockets)}
        return {}
