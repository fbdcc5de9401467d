"""The folder in which Spark, its JVM and their libraries keep temporary files.

Each process has its own; see `leman_core.process.temp_folders`.
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
#: The length in bytes of the name of a socket of Spark or Leman in it.
_SOCKET_NAME = 43


class TempFolder(OwnFolder):
    """The folder of this process."""

    @classmethod
    def make(cls, base: str, *, patient: bool = True) -> TempFolder | None:
        """Make a new folder in `base`, or in the system's temporary folder, after removing leftovers there.

        Returns None if Spark would misread the name of the system's temporary folder. `patient`: see `make_in`.

        Raises:
            InvalidArgument: BAD_SETTING, if `base` is not absolute, has a name that Spark would misread, or cannot be
                written.
            Unavailable: SPARK_NOT_STARTED, if the system has no writable temporary folder.
            BlockingIOError: Another process holds it, and `patient` is False.
        """
        try:
            return cls._make(base, patient=patient)
        except BlockingIOError:
            raise
        except OSError as error:
            why = f"Spark has no folder for its temporary files: {error}"
            if base:
                raise InvalidArgument("BAD_SETTING", f"LEMAN_SPARK__SCRATCH_DIR={base}: {why}") from error
            raise Unavailable("SPARK_NOT_STARTED", f"{why}. See to TMPDIR, or LEMAN_SPARK__SCRATCH_DIR") from error

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
        """The options for the JVM and the libraries that it loads."""
        return [f"-Djava.io.tmpdir={self.path}"]

    @property
    def sockets(self) -> Path:
        """The folder for sockets: another one if the paths of sockets in this one would be too long.

        Raises:
            OSError: There is none with a short path.
        """
        return Path(socket_folder(_SOCKET_NAME, str(self.path)))

    @property
    def settings(self) -> dict[str, str]:
        """The settings for Spark. Sockets are placed elsewhere if their paths would be too long."""
        with contextlib.suppress(OSError):
            if self.sockets != self.path:
                return {"spark.python.unix.domain.socket.dir": str(self.sockets)}
        return {}
