"""Services of one's own, which end with the program: for tests, and for what is tried."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from leman import _local_database, _systems, local
from leman._channel import Services
from leman._database import Database
from leman._embedded import Embedded
from leman._names import database_uri
from leman._service_file import ServiceFile, children
from leman._tracebacks import boundary
from leman.errors import InvalidArgument

_PREFIX = "leman-session-"
#: A file in a session's folder that its program has locked until it ends, however it does.
_LOCK = "program"


class Session:
    """Made by `leman.session`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._opened: list[Database] = []

    @boundary
    def connect(self, path: str | os.PathLike[str], *, direct: bool | None = None) -> Database:
        """Open a local database, which this session's services then serve, as `leman.connect` does; it is closed with
        the session. Raises InvalidArgument, StartFailed where other services serve it."""
        uri = database_uri(path)
        if "://" in uri:
            raise InvalidArgument(f"{uri} is not a local folder: leman.connect() takes endpoint='host:port'")
        _local_database.check_possible(uri)
        by_itself = local.is_available() if direct is None else direct
        services = Services(Embedded(uri, home=self._home, lifeline=True, direct=by_itself), direct=by_itself)
        self._opened.append(Database(uri, services))
        return self._opened[-1]

    def _close(self) -> None:
        for database in self._opened:
            database.close()
        said = ServiceFile(self._home).running()
        if said is not None:
            _systems.System(self._home, said).down()
        for child in list(children.values()):
            if child.stdin is not None and str(self._home) in str(child.args):
                child.stdin.close()  # where it was still starting, it ends by that
                child.wait()
                del children[child.pid]


@contextlib.contextmanager
def session() -> Iterator[Session]:
    """Services for this block alone, in processes of their own, whatever else runs on this machine:

        with leman.session() as session:
            db = session.connect(tmp_path)

    They start with the first call that needs them. They end in three seconds at the end of the block, and with this
    process however that ends, and leave nothing but the databases; the folder of a program that was killed goes with
    the next session. For tests, as a fixture of the whole run:

        @pytest.fixture(scope="session")
        def leman_session():
            with leman.session() as session:
                yield session
    """
    folder = Path(tempfile.gettempdir()).resolve()
    _sweep(folder)
    home, lock = _own_folder(folder)
    made = Session(home)
    try:
        yield made
    finally:
        made._close()
        shutil.rmtree(home, ignore_errors=True)
        os.close(lock)


def _own_folder(folder: Path) -> tuple[Path, int]:
    """Make a session's folder; the file that is open in it is locked until it is closed."""
    while True:
        home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        _take(lock)
        if (home / _LOCK).exists():  # else another program took it for one that was left
            return home, lock
        os.close(lock)


def _sweep(folder: Path) -> None:
    """Remove the folders of sessions whose programs and services have ended."""
    for home in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(home / _LOCK, os.O_RDWR)
            try:
                if _take(lock, wait=False) and not ServiceFile(home).is_held():
                    shutil.rmtree(home, ignore_errors=True)
            finally:
                os.close(lock)


def _take(lock: int, *, wait: bool = True) -> bool:
    """Lock a file that is open, and tell whether that was done. Raises BlockingIOError where another program has it."""
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        return False
    fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True
