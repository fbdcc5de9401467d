"""Settings of the services: one typed object, read from the environment.

Every setting is `LEMAN_<SECTION>__<KEY>`, for example `LEMAN_SERVER__HOST` or
`LEMAN_WRITER__STALL_IDLE_CHECKS=6`. A name that begins like one and is none is refused, so that a misspelt setting
never goes unnoticed. `python -m core.config` lists all of them with value, origin and meaning; secrets are
masked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from core import class_archives
from core.config_sections import Grant, Jwt, Section, Token, Udf
from core.errors import InvalidArgument

PREFIX = "LEMAN_"
#: No settings, although they begin like some: `docker-compose.yml` is told so which cluster to use.
_READ_ELSEWHERE = frozenset({"LEMAN_SPARK_MASTER"})
_MASK = "**********"
_SECRET_NAME = re.compile("secret|password|token|credential|access.?key", re.IGNORECASE)


class Server(Section):
    """The gRPC server of one service."""

    host: str = "127.0.0.1"
    """Address to bind. Any other than loopback needs TLS, or `allow_insecure_bind`."""
    port: int = Field(default=0, ge=0, le=65535)
    """TCP port; 0: any free one, named in the line that the service prints when it is ready. In an embedded
    system it is the planner's."""
    token: Token = SecretStr("")
    """A token for which its bearer may do everything, sent as `authorization: Bearer <token>`, in visible ASCII
    characters; empty: there is none. A server that is bound to more than loopback, or has TLS, refuses to start without
    one of at least 16 characters, a `tokens_file`, an issuer of JWTs or a `tls_client_ca`, unless `allow_anonymous`."""
    tokens_file: str = ""
    """Path of a TOML file with tokens, their names, roles and ends; read anew when it changes."""
    allow_anonymous: bool = False
    """Answer callers who do not say who they are although others than this machine may reach the server. Where
    `anonymous_roles` does not say less they can register functions, and so run code of theirs on the workers."""
    anonymous_roles: tuple[Grant, ...] | None = None
    """What callers may do who do not say who they are, as a JSON list of roles; not given: everything where the server
    asks for no token or certificate, nothing where it does."""
    database_roots: tuple[str, ...] = ()
    """Paths and uris, as a JSON list, below which databases and what views are made from must lie; empty: anywhere."""
    tls_cert: str = ""
    """Path of the server's certificate chain (PEM); with `tls_key` it turns TLS on."""
    tls_key: str = ""
    """Path of the private key (PEM) of `tls_cert`."""
    tls_client_ca: str = ""
    """Path of the CA certificates (PEM) that clients' certificates are checked with (mTLS): who shows none of them is
    not connected, unless `mtls_port` says where to connect with one."""
    tls_client_roles: dict[str, tuple[Grant, ...]] = Field(default_factory=dict)
    """What the bearers of certificates may do: a JSON object of names, such as `CN:etl`, `DNS:etl.example`,
    `URI:spiffe://example/etl` or `EMAIL:etl@example`, with lists of roles."""
    mtls_port: int = Field(default=0, ge=0, le=65535)
    """TCP port on which clients show certificates; on `port` none is asked for then. 0: there is only `port`."""
    allow_insecure_bind: bool = False
    """Bind a non-loopback address without TLS all the same: for networks that are protected otherwise."""
    reuse_port: bool = False
    """Share the port with a process that holds it for this one, as the embedded supervisor does over
    restarts."""
    max_calls: int = Field(default=256, ge=1)
    """Calls of one method that may be at work at once; more are refused with RESOURCE_EXHAUSTED (TOO_MANY_CALLS). A
    method of which every call takes long for a second gets 32 until there are fewer."""
    max_streams: int = Field(default=1024, ge=1)
    """Streams of one method that may be open at once, such as WatchJob; more are refused likewise."""
    stalled_stream_seconds: float = Field(default=60.0, gt=0)
    """Seconds after which a stream ends of which nobody takes a message."""
    max_message_mb: int = Field(default=32, ge=1, le=1024)
    """Largest message that is taken or sent, in MiB."""
    grace_seconds: float = Field(default=10.0, ge=0)
    """Seconds that running calls get to end when the service is asked to stop."""
    reflection: bool = True
    """Serve gRPC reflection, and over HTTP `/openapi.json`, so that tools can list the services."""
    http_port: int = Field(default=-1, ge=-1, le=65535)
    """TCP port of JSON over HTTP, on the same host and with the same TLS; 0: any free one, named in the line that the
    service prints when it is ready; -1: none. In an embedded system it is the planner's."""
    http_origins: str = ""
    """Origins of web pages that may call over HTTP, such as `https://a.example`, between commas; `*`: all; empty:
    none."""


class Peers(Section):
    """How the services reach one another."""

    planner: str = ""
    """host:port of the planner."""
    executor: str = ""
    """host:port of the executor."""
    commit_coordinator: str = ""
    """host:port of the commit coordinator."""
    token: Token = SecretStr("")
    """Token that the peers ask for (their `server.token`)."""
    tls_ca: str = ""
    """Path of the CA certificates (PEM) that the peers' certificates are checked with; empty: no TLS."""
    tls_cert: str = ""
    """Path of the certificate chain (PEM) that this service shows to peers which ask for one (mTLS)."""
    tls_key: str = ""
    """Path of the private key (PEM) of `tls_cert`."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """Deadline in seconds of a call to a peer that names none; a peer that restarts is waited for until
    then."""


class Advertise(Section):
    """Where callers from outside reach the services; what GetInfo answers."""

    planner: str = ""
    """host:port of the planner for callers; empty: its own bound address, or `peers.planner`."""
    executor: str = ""
    """host:port of the executor for callers; empty: its own bound address, or `peers.executor`."""
    commit_coordinator: str = ""
    """host:port of the commit coordinator for callers; empty: its bound address, or
    `peers.commit_coordinator`."""


class Redis(Section):
    """Live state that executors and workers share: leases of jobs, reservations of rows. Losing it costs work, never a
    value."""

    url: SecretStr = SecretStr("")
    """redis://, rediss:// or unix:// url, password included; empty: no sharing between jobs."""
    socket_timeout_ms: int = Field(default=250, ge=1)
    """Longest wait for Redis in milliseconds before it counts as absent."""


class Spark(Section):
    """The Spark session of the executor."""

    master: str = ""
    """Spark master url; empty: local[N,4] with N = max(32, 4 × cores), so that jobs may oversubscribe."""
    driver_host: str = ""
    """Host name or address under which Spark's workers reach the executor; empty: SPARK_LOCAL_IP, else the address that
    this machine has towards the master. Loopback where Spark runs on this machine alone."""
    callback_port: int = Field(default=0, ge=0, le=65533)
    """First of three ports on which Spark's workers call the executor back: the driver, its blocks, Leman's workers; 0:
    any free ones."""
    start_seconds: float = Field(default=60.0, gt=0)
    """How long jobs wait after the start for the first worker of a cluster; then they are refused, and health says
    NOT_SERVING, until one has called back."""
    busy_seconds: float = Field(default=3600.0, gt=0)
    """How long a job waits for a standalone cluster whose cores others have, before it fails with CLUSTER_BUSY."""
    python: str = ""
    """Path of the Python interpreter on Spark's workers, absolute or below their working directory (an archive of
    `leman pack-env`); empty: this one's path."""
    driver_memory: str = "512m"
    """Heap of the Spark driver, in Spark's notation."""
    class_archive: bool = True
    """Keep an archive of Spark's classes (about 170 MB) in the user's cache folder: later starts take half the
    time. It is made when an executor has had nothing to do for half a minute."""
    class_archive_dir: str = ""
    """Folder of these archives; empty: `leman` in the user's cache folder ($XDG_CACHE_HOME, ~/.cache). The three used
    last are kept, for a month. `leman config clean` deletes them all."""
    scratch_dir: str = ""
    """Folder in which each executor has one for the temporary files of Spark, which is removed when it ends, or by the
    next one where it was killed; empty: the system's temporary folder. An absolute path without spaces and commas."""
    python_version: str = Field(default="", pattern=r"^([0-9]+\.[0-9]+)?$")
    """`major.minor` of the Python that runs the workers: the planner takes functions that it pickled, and no others.
    Empty: that of the planner itself."""
    conf: dict[str, str] = Field(default_factory=dict, repr=False)
    """Further Spark settings, as a JSON object of strings."""


class Executor(Section):
    """How jobs are run."""

    slots: int = Field(default=0, ge=0)
    """Units of work at once; 0: one for each core of this machine, or of the Spark cluster."""
    checkpoint_interval_seconds: float = Field(default=5.0, gt=0)
    """Work between two checkpoints of a worker, in seconds of reading inputs and calling the function: at most so much
    is done again after a crash."""
    checkpoint_max_bytes: int = Field(default=128 << 20, ge=1)
    """Largest checkpoint in bytes of values; a worker writes one earlier when it has so many, unless they are in the
    column file and cheap to compute again."""
    commit_interval_seconds: float = Field(default=5.0, gt=0)
    """Seconds between two commits of a job."""
    max_running_jobs: int = Field(default=16, ge=1)
    """Jobs that run at once; more wait for their turn."""
    max_waiting_jobs: int = Field(default=1000, ge=0)
    """Jobs that may wait for their turn; more are refused with RESOURCE_EXHAUSTED."""
    reservation_ttl_seconds: float = Field(default=6.0, gt=0)
    """Seconds after which what a dead worker had reserved is free again."""
    job_attempts_max: int = Field(default=3, ge=1)
    """How often a job is begun at the most, when executors die under it."""
    job_lease_seconds: float = Field(default=10.0, gt=0)
    """Seconds without a word from the executor of a job after which another one takes the job over. All executors of a
    database have the same."""
    compaction_watch_seconds: float = Field(default=3600.0, ge=0)
    """Seconds between two looks at the tables that jobs were about: what a compaction did to computed rows is recorded
    before the table's history is cleaned. 0: only when a job plans."""


class Writer(Section):
    """When something that a job waits for counts as stalled: a unit of work, a commit, a wait for Spark."""

    stall_idle_checks: int = Field(default=6, ge=1)
    """Rounds without a sign of progress after which it is reported, with what it waits for."""
    stall_check_seconds: float = Field(default=5.0, gt=0)
    """Length of such a round in seconds. Workers that are at work say so once in a round; one that says nothing for all
    of them counts as silent, and its unit is given to another one."""


class Commit(Section):
    """The commit coordinator's queues, and the calls that read and write rows."""

    version_conflict_max_retries: int = Field(default=10, ge=0)
    """How often a commit that lost against another writer is checked anew and tried again."""
    max_queued_requests: int = Field(default=256, ge=1)
    """Requests that may wait in the commit queue of one table; more are refused with RESOURCE_EXHAUSTED."""
    max_reads: int = Field(default=32, ge=1)
    """Calls of ReadRows that may run at once, each of which holds some 20 MB where its caller reads nothing; more are
    refused with RESOURCE_EXHAUSTED."""
    max_uploads: int = Field(default=8, ge=1)
    """Calls of AppendRows that may run at once; more are refused with RESOURCE_EXHAUSTED."""
    upload_idle_seconds: float = Field(default=60.0, gt=0)
    """Seconds after which a call of AppendRows is ended that sends nothing."""


class Embedded(Section):
    """All services on one machine, for one local database."""

    database: str = ""
    """Path of the database that the embedded system was started for; empty in services that run on their
    own."""
    idle_seconds: float = Field(default=900.0, ge=0)
    """Seconds without a call and without a running job after which the embedded system ends; 0: never."""


class Log(Section):
    """Structured log lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is written; calls that only read and succeed are logged at `debug`, lines of the event
    `audit` always."""
    json_lines: bool = True
    """One JSON object a line; false: readable text."""
    file_max_mb: int = Field(default=16, ge=1)
    """Size at which the log file of a process of an embedded system is set aside and a new one begun."""
    files_kept: int = Field(default=3, ge=1)
    """Log files that are kept of each process beside the one that is written to."""


class Settings(BaseSettings):
    """All settings. Build it with `load()`; `Settings()` raises pydantic's own errors."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    server: Server = Server()
    jwt: Jwt = Jwt()
    udf: Udf = Udf()
    peers: Peers = Peers()
    advertise: Advertise = Advertise()
    redis: Redis = Redis()
    spark: Spark = Spark()
    executor: Executor = Executor()
    writer: Writer = Writer()
    commit: Commit = Commit()
    embedded: Embedded = Embedded()
    log: Log = Log()


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One setting as `leman config show` prints it. Secrets are masked."""

    key: str
    env: str
    value: object
    #: `default` or `env`.
    origin: str
    description: str


def load() -> Settings:
    """Read the settings from the environment.

    Raises:
        InvalidArgument: BAD_SETTING, which names every variable that is wrong.
    """
    unknown = _unknown(os.environ)
    if unknown:
        raise InvalidArgument("BAD_SETTING", f"unknown setting {', '.join(unknown)}; `leman config show` lists all")
    try:
        return Settings()
    except ValidationError as error:
        wrong = "; ".join(f"{_env_name(e['loc'])}: {e['msg']}" for e in error.errors(include_input=False))
        raise InvalidArgument("BAD_SETTING", wrong) from None
    except SettingsError as error:  # its message does not name the variable, but has no value either
        wrong = ", ".join(_no_json(os.environ)) or str(error)
        text = f"{wrong}: this needs JSON; unset it, or use one of the settings that `leman config show` lists"
        raise InvalidArgument("BAD_SETTING", text) from None


def describe(settings: Settings) -> Iterator[SettingInfo]:
    """Yield every setting, section by section."""
    for section_name in type(settings).model_fields:
        section: BaseModel = getattr(settings, section_name)
        for name, field in type(section).model_fields.items():
            value = getattr(section, name)
            yield SettingInfo(
                key=f"{section_name}.{name}",
                env=_env_name((section_name, name)),
                value=_shown(value),
                origin="env" if name in section.model_fields_set else "default",
                description=" ".join((field.description or "").split()),
            )


def is_secret(key: str) -> bool:
    """Tell whether a setting of Spark holds a secret, by its name."""
    return bool(_SECRET_NAME.search(key))


def _shown(value: object) -> object:
    """Return a value without secrets: a Spark setting counts as one when its name says so."""
    if isinstance(value, SecretStr):
        return _MASK if value.get_secret_value() else ""
    if isinstance(value, dict):
        return {key: _MASK if is_secret(key) else text for key, text in value.items()}
    return value


def _env_name(location: tuple[int | str, ...]) -> str:
    return PREFIX + "__".join(str(part).upper() for part in location[:2])


def _unknown(environ: Mapping[str, str]) -> list[str]:
    """Return variables that look like settings and are none: pydantic-settings ignores them silently.

    So does whatever has two underscores in a row, and what begins with the name of a section: `LEMAN_SERVER_TOKEN`.
    """
    known = {
        _env_name((section, name))
        for section, field in Settings.model_fields.items()
        for name in getattr(field.annotation, "model_fields", {})
    }
    sections = tuple(f"{_env_name((section,))}_" for section in Settings.model_fields)
    ours = (name for name in environ if name.upper().startswith(PREFIX) and name.upper() not in _READ_ELSEWHERE)
    return sorted(n for n in ours if ("__" in n or n.upper().startswith(sections)) and n.upper() not in known)


def _no_json(environ: Mapping[str, str]) -> list[str]:
    """Return variables that stand for a whole section, or for a setting that is an object, and have something else."""
    objects = {_env_name((name,)) for name in Settings.model_fields}
    for section, field in Settings.model_fields.items():
        for name, own in getattr(field.annotation, "model_fields", {}).items():
            if any(origin in (dict, tuple) for origin in _origins(own.annotation)):
                objects.add(_env_name((section, name)))
    return sorted(name for name, text in environ.items() if name.upper() in objects and not _is_json(text))


def _origins(annotation: object) -> tuple[object, ...]:
    """Return what a type is made of, its alternatives apart."""
    parts = get_args(annotation) if get_origin(annotation) is types.UnionType else (annotation,)
    return tuple(get_origin(part) for part in parts)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def main(argv: list[str] | None = None) -> int:
    """Run `python -m core.config [--json]`, which lists all settings."""
    parser = argparse.ArgumentParser(prog="python -m core.config", description="List all settings.")
    parser.add_argument("--json", action="store_true", help="one JSON array instead of lines")
    arguments = parser.parse_args(argv)
    try:
        settings = load()
    except InvalidArgument as error:
        sys.stderr.write(f"{error}\n")
        return 2
    rows = [asdict(info) for info in describe(settings)]
    lines = [f"{row['env']}={row['value']}  ({row['origin']})  {row['description']}" for row in rows]
    sys.stdout.write((json.dumps(rows, indent=2) if arguments.json else "\n".join(lines)) + "\n")
    if not arguments.json:
        sys.stdout.write(f"# {class_archives.summary(class_archives.folder(settings.spark.class_archive_dir))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
