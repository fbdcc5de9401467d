"""Launch the JVM of Spark's driver: check Java, and choose the JVM's settings and environment.

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
#: A Java module that Spark needs and that some small runtimes lack.
_MODULE = "jdk.incubator.vector"
_INSTALL = (
    "install one (apt-get install openjdk-17-jre-headless, dnf install java-17-openjdk-headless,"
    " brew install openjdk@17, or adoptium.net), or set JAVA_HOME"
)


def check_java() -> None:
    """Check, in Java's own `release` file, that Spark can run on the installed Java.

    Raises:
        Unavailable: SPARK_NOT_STARTED, if Spark cannot run on it or there is no Java. The message says what to install.
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
    """Return the version and the modules in the `release` file of a Java; 0 and none if it does not list them."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return 0, set()
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return int(version[1]) if version else 0, set(modules[1].split()) if modules else set()


_POLL_SECONDS = 0.02
_WORDS_SECONDS = 30.0
#: Seconds between the end of a JVM's sockets and the end of its process.
_DIES_SECONDS = 0.5
#: Maximum number of lines and characters of a JVM's output in a message.
_MOST_LINES, _MOST_CHARACTERS = 3, 500
#: Lines of a JVM's output that do not explain a failure, and stack frames.
_NOISE = re.compile(r"at \S+\(|WARNING: |Picked up |Using |Setting |To adjust |\S+ (\S+ )?WARN |OpenJDK .* warning: ")
#: The prefix of Spark settings that set environment variables of its Python processes.
_VARIABLES = "spark.executorEnv."
_CPUS = "spark.task.cpus"
#: Settings that a daemon forked by the warm process would not follow.
_OF_DAEMON = (_VARIABLES, "spark.python.daemon.", _CPUS)


def python_of(settings: Spark) -> str:
    """Return the interpreter of the workers."""
    return settings.python or sys.executable


def prepare_environment(settings: Spark) -> None:
    """Set the environment variables that the JVM and the workers inherit."""
    os.environ["PYSPARK_PYTHON"] = python_of(settings)
    if is_local(settings):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning")
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # glibc otherwise keeps more arenas for the JVM's many threads
    if python_of(settings) != sys.executable or any(key.startswith(_OF_DAEMON) for key in settings.conf):
        os.environ.pop(
            daemon_startup.WARM_PROCESS_VARIABLE, None
        )  # a forked daemon would have another interpreter or other variables


def passed_variables(settings: Spark) -> tuple[str, ...]:
    """Return patterns for the names of additional environment variables that functions get, including those
    that Spark sets.
    """
    return (*settings.pass_env, *(key.removeprefix(_VARIABLES) for key in settings.conf if key.startswith(_VARIABLES)))


def worker_variables(settings: Spark) -> dict[str, str]:
    """Return the environment variables that Spark sets for its Python workers, for processes that imitate workers.

    As in pyspark, the hash seed is that of this process, even if a setting has a different seed.
    """
    given = {key.removeprefix(_VARIABLES): value for key, value in settings.conf.items() if key.startswith(_VARIABLES)}
    threads = {"OMP_NUM_THREADS": settings.conf.get(_CPUS, "1")}
    return {**threads, **given, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}


def spark_home() -> Path:
    """Return Spark's folder: the configured one or, by default, that of the installed pyspark.

    Raises:
        ModuleNotFoundError: No folder is configured, and pyspark is not installed.
    """
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("pyspark is not installed", name="pyspark")
    return Path(found.submodule_search_locations[0])


def archive_of(settings: Spark) -> ClassArchive | None:
    """Return the class archive for the JVM, whether or not it exists. Return None if the JVM is to use none."""
    if not settings.class_archive or spark_conf.JVM_OPTIONS_KEY in settings.conf:
        return None
    return ClassArchive.of(spark_home(), spark_conf.JVM_OPTIONS, settings.class_archive_dir)


def context_settings(settings: Spark, shared: list[str], folder: TempFolder | None) -> dict[str, str]:
    """Return the settings of the Spark context.

    Args:
        settings: The operator's settings, which take precedence over those chosen here.
        shared: JVM options for using a class archive.
        folder: The folder for the JVM's temporary files. None if the JVM already has one.
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
    """Return the settings without secrets, because every user of the machine can read the JVM's command line."""
    return {key: value for key, value in chosen.items() if not config.is_secret(key)}


def startup_error(chosen: Mapping[str, str]) -> str:
    """Repeat the start of a JVM that failed to start. Return its output about the failure, or "" if there is none.

    If the JVM starts this time, it ends at once, because its standard input is closed. Blocks for seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            process = subprocess.Popen(
                _command(chosen),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # a JVM reports a failed start here
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
    """Kill a JVM, even if it is suspended, and the processes that spark-submit runs before it becomes the JVM."""
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
    """Protect processes that start in this block from Ctrl-C. This has an effect only in the main thread."""
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
    """A JVM that was started as pyspark starts it. It writes its address to the file `info`."""

    process: subprocess.Popen[bytes]
    info: Path
    archive: ClassArchive | None
    folder: TempFolder | None
    chosen: dict[str, str]
    #: Whether the JVM was killed because its start took too long.
    overran: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def begin(cls, settings: Spark, *, archived: bool = True) -> LaunchedJvm:
        """Start a JVM without waiting for it.

        Args:
            archived: Whether to use the class archive, if it exists.

        Raises:
            OSError: The JVM cannot be started.
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
        """Kill the JVM if the block takes longer than `seconds`, so that calls that wait for the JVM fail."""
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
        """Kill the JVM. Callable from any thread. A start that waits for the JVM then fails and cleans up."""
        _kill_tree(self.process)

    def lives(self) -> bool:
        """Return whether the process is alive and not about to end. A JVM's sockets close before its process ends."""
        try:
            self.process.wait(_DIES_SECONDS)
        except subprocess.TimeoutExpired:
            return True
        return False

    def address(self) -> tuple[int, str] | None:
        """Wait for the JVM's port and secret, and return them. Return None if the JVM has ended instead."""
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
        """Forget the JVM in a process that was forked from the JVM's owner."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.returncode = 0
        if self.folder is not None:
            self.folder.forget()

    def end(self) -> None:
        """End the JVM at once."""
        _kill_tree(self.process)
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        self._tidy()
        if self.folder is not None:
            self.folder.remove()

    def _tidy(self) -> None:
        shutil.rmtree(self.info.parent, ignore_errors=True)
