"""Launch the JVM of Spark's driver: check Java, and choose settings and environment.

Imports no pyspark, so that the JVM can start before pyspark is imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from leman_core import settings as config
from leman_core.model.service_errors import Unavailable
from leman_core.process import environment
from leman_core.settings import Spark
from leman_executor.spark import daemon_startup, spark_conf
from leman_executor.spark.class_archive import ClassArchive
from leman_executor.spark.spark_conf import LOOPBACK, callback_address, is_local
from leman_executor.spark.temp_folder import TempFolder

_LEAST = 17
#: Spark needs this module, which some small runtimes lack.
_MODULE = "jdk.incubator.vector"
_INSTALL = (
    "install one (apt-get install openjdk-17-jre-headless, dnf install java-17-openjdk-headless,"
    " brew install openjdk@17, or adoptium.net), or set JAVA_HOME"
)


def check_java() -> None:
    """Check that there is a Java on which Spark can run, from Java's own `release` file.

    Raises:
        Unavailable: SPARK_NOT_STARTED, if there is none; the message says what to install.
    """
    home = os.environ.get("JAVA_HOME", "")
    program = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if program is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH, and JAVA_HOME is not set"
        raise Unavailable("SPARK_NOT_STARTED", f"Spark needs Java {_LEAST} or newer, and {where}: {_INSTALL}")
    version, modules = _described(Path(program).resolve().parent.parent)
    if version and version < _LEAST:
        raise Unavailable(
            "SPARK_NOT_STARTED", f"Spark needs Java {_LEAST} or newer, and {program} is Java {version}: {_INSTALL}"
        )
    if modules and _MODULE not in modules:
        raise Unavailable("SPARK_NOT_STARTED", f"Spark needs Java with {_MODULE}, which {program} lacks: {_INSTALL}")


def _described(home: Path) -> tuple[int, set[str]]:
    """Return the version and the modules in a Java's `release` file; 0 and none if it does not say."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return 0, set()
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return int(version[1]) if version else 0, set(modules[1].split()) if modules else set()


_POLL_SECONDS = 0.02
_WORDS_SECONDS = 30.0
#: Seconds between the closing of a JVM's sockets and its death.
_DIES_SECONDS = 0.5
#: The most characters of a JVM's output in a message.
_MOST_LINES, _MOST_CHARACTERS = 3, 500
#: Unrelated lines of a JVM's output, and stack frames.
_NOISE = re.compile(r"at \S+\(|WARNING: |Picked up |Using |Setting |To adjust |\S+ (\S+ )?WARN |OpenJDK .* warning: ")
#: Settings of Spark's Python processes.
_VARIABLES = "spark.executorEnv."
_CPUS = "spark.task.cpus"
#: Settings under which Spark's daemon would differ from a fork.
_OF_DAEMON = (_VARIABLES, "spark.python.daemon.", _CPUS)


def python_of(settings: Spark) -> str:
    """Return the interpreter of the workers."""
    return settings.python or sys.executable


def prepare_environment(settings: Spark) -> None:
    """Set the variables that the JVM and the workers inherit."""
    os.environ["PYSPARK_PYTHON"] = python_of(settings)
    if is_local(settings):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning")
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # glibc otherwise keeps more arenas for the JVM's many threads
    if python_of(settings) != sys.executable or any(key.startswith(_OF_DAEMON) for key in settings.conf):
        os.environ.pop(
            daemon_startup.WARM_PROCESS_VARIABLE, None
        )  # a fork would have another interpreter, or other variables


def passed_variables(settings: Spark) -> tuple[str, ...]:
    """Return name patterns of further variables that functions get, including those that Spark sets there."""
    return (*settings.pass_env, *(key.removeprefix(_VARIABLES) for key in settings.conf if key.startswith(_VARIABLES)))


def worker_variables(settings: Spark) -> dict[str, str]:
    """Return the variables that Spark sets for its Python workers, for processes that imitate them.

    As in pyspark, the hash seed is that of this process, whatever a setting says.
    """
    given = {key.removeprefix(_VARIABLES): value for key, value in settings.conf.items() if key.startswith(_VARIABLES)}
    threads = {"OMP_NUM_THREADS": settings.conf.get(_CPUS, "1")}
    return {**threads, **given, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}


def spark_home() -> Path:
    """Return Spark's folder: the configured one, else that of the installed pyspark.

    Raises:
        ModuleNotFoundError: There is none.
    """
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("pyspark is not installed", name="pyspark")
    return Path(found.submodule_search_locations[0])


def archive_of(settings: Spark) -> ClassArchive | None:
    """Return the archive of classes for the JVM, whether it exists or not; None if it is to use none."""
    if not settings.class_archive or spark_conf.JVM_OPTIONS_KEY in settings.conf:
        return None
    return ClassArchive.of(spark_home(), spark_conf.JVM_OPTIONS, settings.class_archive_dir)


def context_settings(settings: Spark, shared: list[str], folder: TempFolder | None) -> dict[str, str]:
    """Return the settings of the context.

    Args:
        settings: The operator's settings, which win over those chosen here.
        shared: JVM options for sharing an archive of classes.
        folder: For the JVM's temporary files; None if it already has one.
    """
    address = callback_address(settings)
    ours = {**spark_conf.context(settings, shared, python_of(settings)), **address.spark_settings()}
    first = {"spark.app.name": "leman", "spark.master": spark_conf.master(settings)}
    told = {
        environment.PASSED: ",".join(passed_variables(settings)),
        environment.CORE_DUMPS: os.environ.get(environment.CORE_DUMPS, ""),
    }
    of_workers = {f"{_VARIABLES}{name}": value for name, value in told.items() if value}
    chosen = {**first, **ours, **of_workers, **settings.conf}
    if folder is not None:
        chosen = {**folder.settings, **chosen}
        own = " ".join(folder.jvm_options)
        chosen[spark_conf.JVM_OPTIONS_KEY] = f"{own} {chosen[spark_conf.JVM_OPTIONS_KEY]}"
    return chosen


def without_secrets(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the settings without secrets, because every user can read the JVM's command line."""
    return {key: value for key, value in chosen.items() if not config.is_secret(key)}


def startup_error(chosen: Mapping[str, str]) -> str:
    """Start a JVM that failed to start again, and return its output about the failure; empty if there is none.

    If it comes up after all it ends at once, because its standard input is closed. Blocks for seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            process = subprocess.Popen(
                _command(chosen),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # where a JVM reports a failed start
                stderr=subprocess.STDOUT,
                env=_environment(chosen, Path(folder, "connection")),
            )
        except OSError:
            return ""
        with process:
            try:
                said = process.communicate(timeout=_WORDS_SECONDS)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                _kill_tree(process)
                return ""
    if not process.returncode:
        return ""
    lines = (line.strip() for line in said.partition("\nUsage: ")[0].splitlines())
    return "; ".join([line for line in lines if line and not _NOISE.match(line)][:_MOST_LINES])[:_MOST_CHARACTERS]


def _command(chosen: Mapping[str, str]) -> list[str]:
    command = [str(spark_home() / "bin" / "spark-submit")]
    for key, value in without_secrets(chosen).items():
        command += ["--conf", f"{key}={value}"]
    return command + shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))


def _environment(chosen: Mapping[str, str], info: Path) -> dict[str, str]:
    """Return the environment of a JVM that writes its address to the file `info`."""
    passed = chosen.get(f"{_VARIABLES}{environment.PASSED}", "").split(",")
    inherited = environment.for_spark(os.environ, passed)
    return {**inherited, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)}


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a JVM, and the processes that spark-submit runs before it becomes the JVM, even if they are stopped."""
    try:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    except psutil.Error:
        children = []
    process.kill()
    for child in children:
        with suppress(psutil.Error):
            child.kill()
    process.wait()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Protect processes started in this block from Ctrl-C; only the main thread can do so."""
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, ignored)


def _launch(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    if threading.current_thread() is threading.main_thread():
        with _interrupts_ignored():
            return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, preexec_fn=_ignore_interrupts)  # noqa: PLW1509


@dataclass(frozen=True, slots=True)
class LaunchedJvm:
    """A JVM started as pyspark does it; it writes its address to the file `info`."""

    process: subprocess.Popen[bytes]
    info: Path
    archive: ClassArchive | None
    folder: TempFolder | None
    chosen: dict[str, str]
    #: Whether it was killed because it took too long to start.
    overran: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def begin(cls, settings: Spark, *, archived: bool = True) -> LaunchedJvm:
        """Start a JVM without waiting for it.

        Args:
            archived: Whether to use the archive of classes, if it exists.

        Raises:
            OSError: It cannot be started.
            LemanError: A setting is wrong.
        """
        prepare_environment(settings)
        archive, folder = archive_of(settings), TempFolder.make(settings.scratch_dir)
        try:
            chosen = context_settings(settings, archive.use() if archive is not None and archived else [], folder)
            info = Path(tempfile.mkdtemp(dir=folder.path if folder is not None else None)) / "connection"
            process = _launch(_command(chosen), _environment(chosen, info))
        except BaseException:
            if folder is not None:
                folder.remove()
            raise
        return cls(process, info, archive, folder, chosen)

    @contextmanager
    def limited_to(self, seconds: float) -> Iterator[None]:
        """Kill the JVM if the block takes longer, so that calls waiting for it fail."""
        timer = threading.Timer(seconds, self._overrun)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _overrun(self) -> None:
        self.overran.set()
        self.kill()

    def kill(self) -> None:
        """Kill it, from any thread; a waiting start fails and cleans up."""
        _kill_tree(self.process)

    def lives(self) -> bool:
        """Return whether the process is alive and not about to end: its sockets close before it is dead."""
        try:
            self.process.wait(_DIES_SECONDS)
        except subprocess.TimeoutExpired:
            return True
        return False

    def address(self) -> tuple[int, str] | None:
        """Wait for its port and secret, and return them; None if it ended instead."""
        while not self.info.is_file():
            if self.process.poll() is not None:
                self._tidy()
                return None
            time.sleep(_POLL_SECONDS)
        data = self.info.read_bytes()
        port, length = struct.unpack_from(">ii", data)
        secret = data[8 : 8 + length].decode()
        self._tidy()
        return port, secret

    def forget(self) -> None:
        """Drop it in a process forked from its owner."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.returncode = 0
        if self.folder is not None:
            self.folder.forget()

    def end(self) -> None:
        """End it at once."""
        _kill_tree(self.process)
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        self._tidy()
        if self.folder is not None:
            self.folder.remove()

    def _tidy(self) -> None:
        shutil.rmtree(self.info.parent, ignore_errors=True)
