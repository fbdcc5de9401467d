"""Supervise the processes of a local system: run Redis, planner, commit coordinator and executor, and restart them.

Each service runs in its own process. If a service is killed, it is restarted on the same port. When all services are
up, the service file is written. The supervisor ends when it is asked to, or if no service was needed for the idle time.
It leaves no process behind. Services are forked from a warm process, which is replaced if it ends.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import itertools
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from leman_core.model.service_errors import InvalidArgument, LemanError
from leman_core.process.addresses import is_loopback
from leman_core.process.environment import is_plain
from leman_core.process.memory import release_free_memory
from leman_core.process.release import MODULES, release_version
from leman_core.settings import Settings
from leman_local import service_process
from leman_local.local_databases import Announcement, Control, ServedDatabases
from leman_local.redis_server import RedisServer
from leman_local.service_file import Home
from leman_local.service_process import Running, Spec
from leman_local.tcp_ports import HOST, HeldPort
from leman_local.warm_parent import WarmParent, reap_orphan

#: Maximum number of warm processes of one system, one after another. After that, services are started as new processes.
_MOST = 5

log = structlog.get_logger(__name__)


class WarmParents:
    """The warm processes of one system. At most one of them runs at a time.

    Args:
        folder: The folder of the system's files.
        first: A warm process that already runs.
    """

    def __init__(self, folder: Path, first: WarmParent | None) -> None:
        self._folder = folder
        self._places = iter(range(_MOST))
        self._there = first
        if first is not None:
            next(self._places)

    @property
    def pids(self) -> set[int]:
        """The ids of the running warm process and its own children."""
        return self._there.pids if self._there is not None else set()

    def get(self) -> WarmParent | None:
        """Return the running warm process. Start one if needed. Return None if services must start as new processes."""
        if self._there is not None:
            self._there.look()
        self.look()
        if self._there is None:
            for place in itertools.islice(self._places, 1):
                self._there = WarmParent.begin(self._folder, with_jvm=False, place=place)
        return self._there

    def look(self) -> None:
        """Drop the warm process if it has ended."""
        if self._there is not None and self._there.is_gone:
            log.warning("the warm process has ended", why=self._there.last_words.strip())
            self._there = None

    async def end(self) -> None:
        if self._there is not None:
            await self._there.end()


REDIS = "redis"
#: The command of each service; tests replace them.
COMMANDS: Mapping[str, list[str]] = {name: service_process.module_command(module) for name, module in MODULES.items()}
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_SETTLED_SECONDS = 30.0
_LOOK_SECONDS = 1.0
#: Seconds without a call or a job after which a system of another release may be replaced.
_QUIET_SECONDS = 5.0
#: Seconds that services get to end in addition to their own grace period.
_EXTRA_GRACE_SECONDS = 3.0
#: The services' share of the time for ending. The remaining time is for killing processes that services leave behind.
_SERVICES_PART = 0.7


class Supervisor:
    """One local system. The caller holds the lock of the system's folder.

    `database` is the only database of the system. If it is None, databases are added later, and Spark starts with the
    first job that needs it. `on_ready` is called with the service file's content once everything is up. `warm` is a
    warm process that already runs.
    """

    def __init__(
        self,
        home: Home,
        settings: Settings,
        *,
        idle_seconds: float,
        on_ready: Callable[[dict[str, Any]], None],
        database: Path | None = None,
        commands: Mapping[str, list[str]] = COMMANDS,
        warm: WarmParent | None = None,
    ) -> None:
        _check(settings)
        self._home = home
        self._warm = WarmParents(home.folder, warm)
        self._announcement = Announcement(home)
        self._database = database
        self.databases = ServedDatabases(home)
        self._control = Control(self.databases, self.stop, self._is_idle)
        self._within: float | None = None
        self._settings = settings
        self._idle_limit = idle_seconds
        self._on_ready = on_ready
        self._commands = commands
        self._token = settings.server.token.get_secret_value() or secrets.token_urlsafe(24)
        self._started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._stopping = asyncio.Event()
        self._ports: dict[str, HeldPort] = {}
        self._http: HeldPort | None = None
        self._redis: RedisServer | None = None
        self._running: dict[str, Running] = {}
        self._up: set[str] = set()
        self._idle: dict[str, float] = {}
        self._expected = 0
        self._announced = False

    def stop(self, within: float | None = None) -> None:
        """Ask the system to end, within `within` seconds if given. A second request ends it at once."""
        self._within = within
        if self._stopping.is_set():
            for running in self._running.values():
                running.kill()
        self._stopping.set()

    async def run(self) -> None:
        """Run until the system is asked to end, is idle, or its database is deleted.

        Raises:
            LemanError: A process cannot be started at all.
        """
        try:
            self._warm.get()
            await self._control.start()
            specs = self._specs()
            self._expected = len(specs)
            tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._keep(spec)) for spec in specs]
            tasks.append(asyncio.ensure_future(self._stopping.wait()))
            tasks.append(asyncio.ensure_future(self._home_gone()))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._control.close()
            self._announcement.remove()
            await self._end_all()
            self.databases.release()

    # ---------------------------------------------------------------------------- what is run

    def _specs(self) -> list[Spec]:
        fixed = {"planner": self._settings.server.port}  # the only address that callers must know
        for name in self._commands:
            self._ports[name] = HeldPort(fixed.get(name, 0))
        if self._settings.server.http_port >= 0:
            self._http = HeldPort(self._settings.server.http_port)
        specs = []
        if not self._settings.redis.url.get_secret_value():
            self._redis = RedisServer.prepare(self._home.redis)
            specs.append(self._redis_spec(self._redis))
        for name, command in self._commands.items():
            specs.append(
                self._logging(
                    Spec(name=name, command=command, environment=self._environment(name), log=self._home.log(name))
                )
            )
        return specs

    def _redis_spec(self, redis: RedisServer) -> Spec:
        command = service_process.program_command(*redis.command)
        spec = Spec(
            name=REDIS,
            command=command,
            environment={name: value for name, value in os.environ.items() if is_plain(name)},
            log=self._home.log(REDIS),
            ready_seconds=30.0,
            probe=redis.answers,
        )
        return self._logging(spec)

    def _logging(self, spec: Spec) -> Spec:
        """Add the settings for log files to a spec."""
        log = self._settings.log
        return replace(spec, log_bytes=log.file_max_mb << 20, logs_kept=log.files_kept)

    def _environment(self, name: str) -> dict[str, str]:
        """Return the environment of a process. It has the secrets, because all users can read command lines."""
        redis_url = self._redis.url if self._redis else self._settings.redis.url.get_secret_value()
        ours = {
            "LEMAN_SERVER__HOST": HOST,
            "LEMAN_SERVER__PORT": str(self._ports[name].port),
            "LEMAN_SERVER__REUSE_PORT": "true",
            "LEMAN_SERVER__HTTP_PORT": str(self._http.port if self._http and name == "planner" else -1),
            "LEMAN_METRICS__PORT": str(self._metrics_port(name)),
            "LEMAN_SERVER__TOKEN": self._token,
            "LEMAN_PEERS__TOKEN": self._token,
            "LEMAN_REDIS__URL": redis_url,
            **({"LEMAN_REDIS__WORKERS_URL": ""} if self._redis else {}),  # the setting is for another Redis
            "LEMAN_SPARK__PASS_ENV": json.dumps(self._settings.spark.of_own_user().pass_env),
            "LEMAN_EMBEDDED__DATABASE": str(self._database or ""),
            "LEMAN_EMBEDDED__DATABASES_FILE": "" if self._database else str(self.databases.file),
            "LEMAN_EMBEDDED__IDLE_SECONDS": str(self._idle_limit),
        }
        if self._database is None:
            ours.setdefault("LEMAN_SPARK__ON_DEMAND", os.environ.get("LEMAN_SPARK__ON_DEMAND", "true"))
        ours |= {f"LEMAN_PEERS__{other.upper()}": held.address for other, held in self._ports.items()}
        return {**os.environ, **ours}

    def _metrics_port(self, name: str) -> int:
        first = self._settings.metrics.port
        return first + list(self._commands).index(name) if first > 0 else first

    # ------------------------------------------------------------------------------ keeping up

    async def _keep(self, spec: Spec) -> None:
        """Start a process, and restart it whenever it ends.

        If the process fails before it was ever ready, raise its error.
        """
        failures = 0
        while True:
            begun = time.monotonic()
            running = await self._start(spec)
            try:
                await running.wait_ready()
                self._is_up(spec.name, running, seconds=time.monotonic() - begun)
                how = await running.wait()
                log.warning("ended", process=spec.name, pid=running.pid, how=how)
            except LemanError as error:
                if not self._mend(spec.name) and not self._announced:
                    raise
                log.warning("a process could not be started", process=spec.name, message=error.message)
                await running.stop(0)
            await running.clean_up()
            failures = 0 if time.monotonic() - begun > _SETTLED_SECONDS else failures + 1
            pause = _FIRST_PAUSE_SECONDS * 2 ** (failures - 1) if failures > 1 else 0.0
            await asyncio.sleep(min(pause, _LONGEST_PAUSE_SECONDS))

    async def _start(self, spec: Spec) -> Running:
        running = await service_process.start_process(
            spec, functools.partial(self._on_line, spec.name), self._warm.get()
        )
        self._running[spec.name] = running
        self._warm.look()
        log.info("started", process=spec.name, pid=running.pid)
        return running

    def _mend(self, name: str) -> bool:
        """If Redis cannot load its data, let it start without the data. Return whether that was done.

        Work may then be repeated, but no value is lost.
        """
        return name == REDIS and self._redis is not None and self._redis.set_data_aside()

    def _is_up(self, name: str, running: Running, seconds: float) -> None:
        log.info("up", process=name, pid=running.pid, seconds=round(seconds, 3))
        self._up.add(name)
        if len(self._up) < self._expected:
            return
        self._announcement.write(content := self._content())
        self.databases.announce(content)
        if not self._announced:
            self._announced = True
            self._on_ready(content)
            release_free_memory()  # free the memory that the start used

    def _content(self) -> dict[str, Any]:
        pids = {name: running.pid for name, running in self._running.items()}
        return {
            "pid": os.getpid(),
            "token": self._token,
            **{name: held.address for name, held in self._ports.items()},
            "http": self._http.address if self._http else None,
            "redis_pid": pids.get(REDIS),
            "pids": pids,
            "started_at": self._started_at,
            "version": release_version(),
            "database": str(self._database or ""),
            "home": str(self._home.folder),
            "python": sys.executable,
            "control": self._control.address,
            "control_token": self._control.token,
        }

    # ---------------------------------------------------------------------------------- ending

    async def _home_gone(self) -> None:
        """Wait until the system's folder is deleted. Until then, repair the service files if they are damaged."""
        while self._home.lock_file.exists():
            self._announcement.mend()
            self.databases.look()
            while reap_orphan(self._children()):
                pass
            await asyncio.sleep(_LOOK_SECONDS)
        log.warning("the system's folder was deleted", folder=str(self._home.folder))

    def _children(self) -> set[int]:
        return self._warm.pids | {running.pid for running in self._running.values()}

    def _is_idle(self) -> bool:
        """Return whether all services last reported that they have had no calls for a while."""
        return len(self._idle) == len(self._commands) and min(self._idle.values()) >= _QUIET_SECONDS

    def _on_line(self, name: str, line: dict[str, Any]) -> None:
        if "idle_seconds" not in line or not self._idle_limit:
            return
        self._idle[name] = float(line["idle_seconds"])
        if len(self._idle) == len(self._commands) and min(self._idle.values()) >= self._idle_limit:
            log.info("idle", seconds=self._idle_limit)
            self.stop()

    async def _end_all(self) -> None:
        """End all processes, starting with the executor, which still calls the others.

        Redis is killed, which loses nothing, because its log has every change that it has confirmed. If Redis were
        asked to end, it would delete its socket file, which may already belong to a successor.
        """
        log.info("stopping")
        grace = self._settings.server.grace_seconds + _EXTRA_GRACE_SECONDS
        if self._within is not None:
            grace = self._within * _SERVICES_PART
        executor, redis = self._running.get("executor"), self._running.get(REDIS)
        others = [running for running in self._running.values() if running not in (executor, redis)]
        if executor is not None and self._within is None:
            await executor.stop(grace)
        elif executor is not None:
            others.append(executor)
        await asyncio.gather(*(running.stop(grace) for running in others))
        if redis is not None:
            redis.kill()
            await redis.stop(grace)
            if self._redis is not None and self._home.lock_file.exists():  # else the socket may be a successor's
                self._redis.remove_socket()
        await self._warm.end()
        for held in (*self._ports.values(), *((self._http,) if self._http else ())):
            held.close()
        log.info("stopped")


def _check(settings: Settings) -> None:
    if not is_loopback(settings.server.host) or settings.server.tls_cert or settings.peers.tls_ca:
        raise InvalidArgument(
            "BAD_SETTING",
            "an embedded system serves this machine only: unset LEMAN_SERVER__HOST and the TLS settings, or run "
            "planner, executor and commit_coordinator as separate services",
        )
