"""The sections of the settings. The texts below the fields are what `leman config show` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from leman_core.process.addresses import host_and_port, parse_pattern


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)


def _sendable(token: SecretStr) -> SecretStr:
    """Return a token that a header can carry. The error for any other token must not contain the token."""
    if not all("!" <= character <= "~" for character in token.get_secret_value()):
        raise ValueError("a token consists of visible ASCII characters, without spaces")
    return token


def _pattern(text: str) -> str:
    parse_pattern(text)
    return text


def _host_and_port(text: str) -> str:
    if text:
        host_and_port(text)
    return text


#: The text of the error for a value that is not a list.
NO_LIST = "this takes a list"


def _items(value: Any) -> Any:
    """Return the items of a list that is written as JSON or separated by commas.

    Raises:
        ValueError: NO_LIST. It also refuses an empty text, which could mean no item or no setting.
    """
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = value
    if isinstance(found, list):
        return found
    items = [item for part in value.split(",") if (item := part.strip())]
    if not items or value.lstrip()[:1] in '["{':
        raise ValueError(NO_LIST)
    return items


def _some_items(value: Any) -> Any:
    """Return what `_items` does, and no items for an empty text."""
    return () if value == "" else _items(value)


def _items_or_null(value: Any) -> Any:
    """Return what `_items` does, and None for `null`."""
    return None if value == "null" else _items(value)


_Item = TypeVar("_Item")
#: A list, in JSON or separated by commas.
Listed = Annotated[tuple[_Item, ...], NoDecode, BeforeValidator(_items)]
#: host:port of a service; empty: not set.
ServiceAddress = Annotated[str, AfterValidator(_host_and_port)]
#: A pattern of addresses of function servers.
AddressPattern = Annotated[str, AfterValidator(_pattern)]
Token = Annotated[SecretStr, AfterValidator(_sendable)]
#: A role, or the right to send code. Each role includes the roles before it.
Grant: TypeAlias = Literal["reader", "runner", "editor", "admin", "service", "code"]
#: Signature algorithms of JWTs. All use a private key that only the issuer has, not the service.
Algorithm: TypeAlias = Literal[
    "ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"
]  # fmt: skip
#: Kinds of functions, and the sources of Python functions' code.
FunctionKind: TypeAlias = Literal["scalar", "array", "record_batch", "sql", "remote", "pickled", "entrypoint"]


_AMOUNT = re.compile(r"([0-9]+)(?:(b)|([kmgtp])b?)?")
#: Spark passes the heap of its driver to the JVM unchanged.
_HEAP = re.compile(r"[0-9]+[kmgt]", re.IGNORECASE)


def mebibytes(text: str) -> int:
    """Return an amount of memory in Spark's notation as MiB; plain numbers are MiB."""
    found = _AMOUNT.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"'{text}' is not an amount of memory in Spark's notation, such as 512m or 2g")
    if found[2]:
        return int(found[1]) >> 20
    return int(found[1]) << (10 * "kmgtp".index(found[3] or "m")) >> 10


def heap(text: str) -> str:
    """Return the heap of a driver unchanged; raise ValueError if a JVM would not accept it."""
    if not _HEAP.fullmatch(text):
        raise ValueError(f"'{text}' is not a JVM heap: write a whole number with k, m, g or t, such as 512m or 2g")
    return text


def check(conf: Mapping[str, str]) -> None:
    """Check the Spark settings that Leman reads or passes on. Raise ValueError with the name of the first wrong one."""
    for key, read in _READ.items():
        if key in conf:
            try:
                read(conf[key])
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text.strip()):
        raise ValueError(f"'{text}' is not a whole number")
    return int(text)


def _count(text: str) -> int:
    number = _whole(text)
    if not number:
        raise ValueError("it is at least 1")
    return number


_READ: Mapping[str, Callable[[str], object]] = {
    "spark.driver.memory": heap,
    "spark.executor.memory": mebibytes,
    "spark.executor.memoryOverhead": mebibytes,
    "spark.executor.pyspark.memory": mebibytes,
    "spark.cores.max": _count,
    "spark.executor.cores": _count,
    "spark.task.cpus": _count,
    "spark.executor.resource.gpu.amount": _whole,
}


class Server(Section):
    """The gRPC server of one service."""

    host: str = "127.0.0.1"
    """Address to bind. Any other than loopback needs TLS, or `allow_insecure_bind`."""
    port: int = Field(default=0, ge=0, le=65535)
    """TCP port; 0: any free one, which the service prints when it is ready. In an embedded system it is the
    planner's."""
    token: Token = SecretStr("")
    """A token whose bearer may do everything, sent as `authorization: Bearer <token>`, in visible ASCII characters;
    empty: none. A server that is bound to more than loopback, or has TLS, refuses to start without a token of at least
    16 characters, a `tokens_file`, an issuer of JWTs or a `tls_client_ca`, unless `allow_anonymous` is set."""
    tokens_file: str = ""
    """Path of a TOML file with tokens, their names, roles and expiry; reread when it changes."""
    allow_anonymous: bool = False
    """Answer anonymous callers even if other machines can reach the server. Unless `anonymous_roles` restricts them,
    they can register functions, and so run their code on the workers."""
    anonymous_roles: Annotated[tuple[Grant, ...] | None, NoDecode, BeforeValidator(_items_or_null)] = Field(
        default=None, examples=[["reader"]]
    )
    """Roles of anonymous callers, as a list. Not set: all if the server authenticates no callers, else none."""
    database_roots: Listed[str] = Field(default=(), examples=[["/data", "s3://bucket/lakes"]])
    """Paths and URIs, as a list, below which databases and the sources of views must lie; empty: anywhere."""
    registry: str = ""
    """Path or URI of the folder with the names of databases, the same for all services; empty: databases have no
    names."""
    registry_seconds: float = Field(default=5.0, ge=0, le=3600)
    """Seconds for which a service trusts what it has read there. It looks up an unknown name at once."""
    registered_databases_only: bool = False
    """Accept only registered databases, by name or by root."""
    tls_cert: str = ""
    """Path of the server's certificate chain (PEM); with `tls_key` it turns TLS on."""
    tls_key: str = ""
    """Path of the private key (PEM) of `tls_cert`."""
    tls_client_ca: str = ""
    """Path of the CA certificates (PEM) for clients' certificates (mTLS). Clients without such a certificate cannot
    connect, unless `mtls_port` separates those that have one."""
    tls_client_roles: dict[str, tuple[Grant, ...]] = Field(default_factory=dict, examples=[{"CN:etl": ["runner"]}])
    """Roles by certificate: a JSON object of names, such as `CN:etl`, `DNS:etl.example`, `URI:spiffe://example/etl` or
    `EMAIL:etl@example`, with lists of roles."""
    mtls_port: int = Field(default=0, ge=0, le=65535)
    """TCP port for clients with certificates; `port` then asks for none. 0: there is only `port`."""
    allow_insecure_bind: bool = False
    """Allow to bind a non-loopback address without TLS, and to send tokens to peers there: for networks that are
    protected in another way."""
    reuse_port: bool = False
    """Share the port with a process that reserves it, as the embedded supervisor does during restarts."""
    max_calls: int = Field(default=256, ge=1)
    """Concurrent calls of one method; more are refused with RESOURCE_EXHAUSTED (TOO_MANY_CALLS). If every call of a
    method takes long for a second, it gets 32 until fewer calls come."""
    max_streams: int = Field(default=1024, ge=1)
    """Concurrent streams of one method, such as WatchJob; more are refused likewise."""
    caller_calls_per_second: float = Field(default=0.0, ge=0)
    """Calls that one caller may make in a second, and in one burst; more are refused with RESOURCE_EXHAUSTED
    (CALLER_RATE). 0: no limit. Each service counts the calls that it serves. All anonymous callers count as one;
    callers with the role `service` have no limit."""
    caller_streams: int = Field(default=0, ge=0)
    """Concurrent streams of one caller; more are refused likewise (CALLER_STREAMS). 0: no limit. Each service counts
    the streams that it serves."""
    stalled_stream_seconds: float = Field(default=60.0, gt=0)
    """Seconds after which a stream ends if its caller takes no message."""
    max_message_mb: int = Field(default=32, ge=1, le=1024)
    """Largest message in MiB, in either direction."""
    grace_seconds: float = Field(default=10.0, ge=0)
    """Seconds that running calls have to end when the service stops."""
    reflection: bool = True
    """Serve gRPC reflection, and `/openapi.json` over HTTP, so that tools can list the services."""
    http_port: int = Field(default=-1, ge=-1, le=65535)
    """TCP port of JSON over HTTP, on the same host and with the same TLS; 0: any free one, which the service prints
    when it is ready; -1: none. In an embedded system it is the planner's."""
    http_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_some_items)] = Field(
        default=(), examples=[["https://a.example", "https://b.example:8443"]]
    )
    """Origins of web pages that may call over HTTP, as a list; empty: none. `*`: all, if the service answers no
    anonymous callers."""
    http_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_some_items)] = Field(
        default=(), examples=[["leman.example"]]
    )
    """Host names, as a list, of a service that answers anonymous callers over HTTP. Loopback names are always
    accepted, and so are IP addresses if the service is bound to more than loopback."""


class Jwt(Section):
    """JSON Web Tokens of an OpenID Connect issuer, as callers' tokens."""

    issuer: str = ""
    """URL of the issuer, as in the claim `iss`: https, or http on loopback. Empty: JWTs are not accepted."""
    audience: str = ""
    """Required value of the claim `aud`."""
    jwks: str = ""
    """URL or path of the issuer's public keys (a JWK set); empty: where the issuer's discovery document says."""
    tls_ca: str = ""
    """Path of the CA certificates (PEM) for the issuer's certificate; empty: the system's."""
    algorithms: Listed[Algorithm] = Field(
        default=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
        min_length=1,
        examples=[["RS256", "ES256"]],
    )
    """Accepted signatures."""
    name_claim: str = "sub"
    """Claim with the caller's name."""
    roles_claim: str = "roles"
    """Claim with the caller's roles, as a list or as words separated by spaces; dots lead into objects
    (`realm_access.roles`)."""
    roles: dict[str, tuple[Grant, ...]] = Field(default_factory=dict, examples=[{"analysts": ["reader"]}])
    """Roles by the words in that claim, as a JSON object of lists. Empty: the words are roles, and others are
    ignored."""
    leeway_seconds: float = Field(default=30.0, ge=0, le=300)
    """Allowed difference between the clocks of the issuer and of this service, in seconds."""
    refresh_seconds: float = Field(default=3600.0, gt=0)
    """Seconds after which the public keys are reread. A token with an unknown key has them reread at once, but at most
    twice a minute."""
    timeout_seconds: float = Field(default=5.0, gt=0)
    """Longest wait for an answer of the issuer, in seconds."""


class Udf(Section):
    """Which functions may be registered and run."""

    allow: Listed[FunctionKind] = Field(
        default=("scalar", "array", "record_batch", "sql", "remote", "pickled", "entrypoint"),
        examples=[["scalar", "sql", "entrypoint"]],
    )
    """Allowed kinds of functions, and sources of Python code. A function needs its kind to be listed and, unless it is
    SQL or remote, also `pickled` or `entrypoint`."""
    entrypoints: Listed[str] = Field(default=(), examples=[["features.*:*"]])
    """Allowed entrypoints, as patterns of `package.module:name` in which `*` stands for any module or any public name.
    Empty: everything that is installed on the workers; registering an entrypoint then needs the right `code`."""
    env_names: Listed[str] = Field(default=(), examples=[["*_API_KEY"]])
    """Environment variables that callers may set for the functions of a job, as patterns of names such as `*_API_KEY`.
    Empty: all; because some of them make programs run other code, setting one then needs the right `code`."""
    remote_addresses: Listed[AddressPattern] = Field(default=(), examples=[["grpc+tls://*.features.internal:7443"]])
    """Allowed addresses of remote functions, as patterns such as `grpc+tls://*.features.internal:7443`: `*` stands for
    any characters of a host, or any port. Empty: only loopback; because anything may listen there, registering such a
    function then needs the right `code`."""
    remote_credentials: str = ""
    """Path of a TOML file with the tokens and certificates for servers of remote functions. The planner and the
    executor read it; workers receive what they need of it."""
    remote_patience_seconds: float = Field(default=60.0, ge=0, le=86_400)
    """Seconds for which a worker waits if no server of a remote function can be reached. Then the job fails
    (FUNCTION_UNAVAILABLE), unless servers answered other workers meanwhile."""
    remote_answer_seconds: float = Field(default=600.0, ge=0, le=86_400)
    """Seconds that a server may take for a batch of a remote function without a timeout of its own. If a server is
    silent for longer, and then another one or the same one again, the job fails (FUNCTION_UNAVAILABLE). 0: no limit."""
    max_bundle_mb: int = Field(default=256, ge=1, le=16384)
    """Largest bundle in MiB: the pickled code of a function with the objects that it refers to. A bundle that does not
    fit into a message (`LEMAN_SERVER__MAX_MESSAGE_MB`) is sent with `UploadBundle`."""
    max_uploads: int = Field(default=4, ge=1)
    """Concurrent calls of UploadBundle; more are refused with RESOURCE_EXHAUSTED."""
    upload_idle_seconds: float = Field(default=60.0, gt=0)
    """Seconds after which a call of UploadBundle ends if nothing arrives."""


class Peers(Section):
    """How the services reach one another."""

    planner: ServiceAddress = ""
    """host:port of the planner."""
    executor: ServiceAddress = ""
    """host:port of the executor."""
    commit_coordinator: ServiceAddress = ""
    """host:port of the commit coordinator."""
    token: Token = SecretStr("")
    """Token for the peers (their `server.token`)."""
    tls_ca: str = ""
    """Path of the CA certificates (PEM) for the peers' certificates; empty: no TLS. A service that would then send
    tokens to other machines starts only with `server.allow_insecure_bind`."""
    tls_cert: str = ""
    """Path of the certificate chain (PEM) that this service shows to peers that ask for one (mTLS)."""
    tls_key: str = ""
    """Path of the private key (PEM) of `tls_cert`."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """Deadline in seconds of calls to peers that name none. Calls wait that long for a peer that restarts, and at most
    15 s for one that was never reached since this service started."""


class Advertise(Section):
    """The addresses of the services for outside callers, as GetInfo returns them."""

    planner: ServiceAddress = ""
    """host:port of the planner for callers; empty: its own bound address, or `peers.planner`."""
    executor: ServiceAddress = ""
    """host:port of the executor for callers; empty: its own bound address, or `peers.executor`."""
    commit_coordinator: ServiceAddress = ""
    """host:port of the commit coordinator for callers; empty: its own bound address, or
    `peers.commit_coordinator`."""


_REDIS_URL = re.compile(
    r"rediss?://([^/?#@\[\]]*@)?([^/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/[0-9]*)?(\?[^#]*)?"
    r"|unix://([^/?#@]*@)?/[^?#]+(\?[^#]*)?"
)


class Redis(Section):
    """Leases of jobs and reservations of rows, which executors and workers share. Losing them costs work, no values."""

    url: SecretStr = SecretStr("")
    """redis://, rediss:// or unix:// URL with its password; empty: jobs share nothing."""
    workers_url: SecretStr = SecretStr("")
    """URL with which workers reserve rows, for a Redis user that may only access reservations (docs/security.md), as
    functions run in the workers' processes. Empty: `url`."""
    socket_timeout_ms: int = Field(default=250, ge=1)
    """Longest wait for Redis in milliseconds before it counts as unavailable."""

    @field_validator("url", "workers_url")
    @classmethod
    def _whole(cls, url: SecretStr) -> SecretStr:
        """Check the URL here. Otherwise the traceback of a later error would show a password with a slash."""
        if url.get_secret_value() and not _REDIS_URL.fullmatch(url.get_secret_value()):
            raise ValueError(
                "a Redis URL is redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://… or unix:///PATH; in a user or "
                "password write %2F for / , %23 for #, %3F for ?, %40 for @ and %3A for :"
            )
        return url


class Storage(Section):
    """How object stores are reached."""

    options_file: str = ""
    """Path of a TOML file with endpoints, regions and references to credentials by roots of databases
    (docs/object_stores.md), the same for all services; workers receive what they need of it. Empty: each process uses
    its environment."""


def _checked(conf: dict[str, str]) -> dict[str, str]:
    check(conf)
    return conf


def _with_home(folder: str) -> str:
    try:
        Path(folder).expanduser()
    except RuntimeError as error:
        raise ValueError(f"'{folder}': {error}") from None
    return folder


class Spark(Section):
    """Spark, as the executor runs it."""

    master: str = ""
    """Spark master URL; empty: local[N,4] with N = max(32, 4 × cores), so that jobs can oversubscribe."""
    driver_host: str = ""
    """Host name or address under which Spark's workers reach the executor; empty: SPARK_LOCAL_IP, else this machine's
    address towards the master, or loopback if Spark runs only on this machine."""
    callback_port: int = Field(default=0, ge=0, le=65533)
    """First of three ports on which Spark's workers call back the executor: the driver, its blocks, Leman's workers; 0:
    any free ones."""
    start_seconds: float = Field(default=60.0, gt=0)
    """Seconds that jobs wait after the start for the first worker of a cluster. Then they are refused, and health says
    NOT_SERVING, until a worker calls back. Also the time that a job waits for an executor that is large enough for its
    function, and for a worker of a standalone cluster with `spark.executor.cores` and `spark.executor.memory`."""
    driver_start_seconds: float = Field(default=180.0, gt=0)
    """Seconds that Spark's driver may take to start. A slower JVM is killed, and the next job starts another one. Raise
    it if a cluster manager queues applications."""
    busy_seconds: float = Field(default=3600.0, gt=0)
    """Seconds that a job waits for a standalone cluster whose cores are in use, before it fails with CLUSTER_BUSY."""
    resource_seconds: float = Field(default=900.0, gt=0)
    """Seconds that a job waits for executors with the resources of its function, before it fails with
    RESOURCES_NOT_AVAILABLE. On a standalone cluster it is `start_seconds` if no worker is large enough, and
    `busy_seconds` if the resources are in use."""
    python: str = ""
    """Path of the Python interpreter on Spark's workers, absolute or below their working directory (an archive of
    `leman pack-env`); empty: the path of this one."""
    pass_env: Listed[Annotated[str, Field(pattern=r"^[A-Za-z0-9_*]+$")]] = Field(default=(), examples=[["MODEL_*"]])
    """Further environment variables that functions see besides those that their processes need (docs/security.md), as
    patterns of names; `*`: all except Leman's settings. They come from the executor's environment, on a cluster from
    that of Spark's workers. The default of an embedded system is `*`."""
    on_demand: bool = False
    """Start Spark with the first job that needs it instead of with the executor, if it runs only on this machine. The
    embedded system that a user's databases share does so."""
    driver_memory: Annotated[str, AfterValidator(heap)] = "512m"
    """Heap of the Spark driver: a whole number with k, m, g or t."""
    class_archive: bool = True
    """Keep an archive of Spark's classes (about 80 MB) in the user's cache folder, which halves the time of later
    starts. An executor makes it after half a minute without work."""
    class_archive_dir: Annotated[str, AfterValidator(_with_home)] = ""
    """Folder of these archives; empty: `leman` in the user's cache folder ($XDG_CACHE_HOME, ~/.cache). The three most
    recently used ones are kept for a month. `leman config clean` deletes all."""
    scratch_dir: str = ""
    """Folder for the temporary folders of executors, which hold Spark's files and are removed when an executor ends, or
    by the next one if it was killed; empty: the system's temporary folder. An absolute path without spaces and
    commas."""
    python_version: str = Field(default="", pattern=r"^([0-9]+\.[0-9]+)?$")
    """`major.minor` of the workers' Python: the planner only accepts functions that it pickled. Empty: that of the
    planner itself."""
    conf: Annotated[dict[str, str], AfterValidator(_checked)] = Field(
        default_factory=dict, repr=False, examples=[{"spark.cores.max": "2"}]
    )
    """Further Spark settings, as a JSON object of strings."""

    def of_own_user(self) -> Self:
        """Return these settings for an embedded system, whose default of `pass_env` is all variables."""
        return self if "pass_env" in self.model_fields_set else self.model_copy(update={"pass_env": ("*",)})

    @model_validator(mode="after")
    def _some_executor(self) -> Self:
        """Refuse limits under which a standalone cluster starts no executor.

        Clusters of other kinds ignore `spark.cores.max`. With dynamic allocation, a function can get executors that
        are smaller than `spark.executor.cores`.
        """
        most, each = (int(self.conf.get(key, "0")) for key in ("spark.cores.max", "spark.executor.cores"))
        dynamic = self.conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
        if 0 < most < each and self.master.startswith("spark://") and not dynamic:
            raise ValueError(
                f"spark.cores.max={most} in LEMAN_SPARK__CONF allows no executor of spark.executor.cores={each}; raise "
                "the first, or lower the second"
            )
        return self


class Executor(Section):
    """How jobs are run."""

    address: ServiceAddress = ""
    """host:port under which the other executors of its databases reach this one, to forward calls about its jobs.
    Empty: the address that it is bound to, with the machine's name if that stands for all addresses of the machine, and
    with `server.mtls_port` if services show certificates there."""
    slots: int = Field(default=0, ge=0)
    """Concurrent units of work; 0: one for each core of this machine, or of the Spark cluster."""
    checkpoint_interval_seconds: float = Field(default=5.0, gt=0)
    """Seconds of reading inputs and calling the function between two checkpoints of a worker: at most this much work is
    repeated after a crash."""
    checkpoint_max_bytes: int = Field(default=128 << 20, ge=1)
    """Largest checkpoint in bytes of values. A worker with this many values writes a checkpoint early, unless they are
    in the column file and cheap to recompute."""
    commit_interval_seconds: float = Field(default=5.0, gt=0)
    """Seconds that a finished column file waits for others to be committed with. In tables of very many fragments it is
    longer, see `commit_interval_max_seconds`."""
    commit_interval_max_seconds: float = Field(default=120.0, gt=0)
    """Longest time in seconds between two commits of a job in a table with very many fragments. A manifest takes 6 µs
    for each fragment to write, and up to this limit commits are spaced so that at most a tenth of a job's time goes
    into manifests."""
    partial_commit_seconds: float = Field(default=10.0, ge=0)
    """Seconds without a commit after which a job commits the stored rows of unfinished fragments; they double each
    time. 0: all rows of a fragment become visible together."""
    max_running_jobs: int = Field(default=16, ge=1)
    """Concurrent jobs; more wait for their turn."""
    max_waiting_jobs: int = Field(default=1000, ge=0)
    """Jobs that may wait for their turn; more are refused with RESOURCE_EXHAUSTED (TOO_MANY_JOBS)."""
    max_running_jobs_per_database: int = Field(default=0, ge=0)
    """Concurrent jobs of one database; more wait, and jobs of other databases go first. 0: no such limit."""
    max_running_jobs_per_caller: int = Field(default=0, ge=0)
    """Concurrent jobs of one caller in all databases; more wait likewise. All anonymous callers count as one. 0: no
    such limit."""
    max_waiting_jobs_per_caller: int = Field(default=0, ge=0)
    """Jobs of one caller that may wait for their turn; more are refused with RESOURCE_EXHAUSTED
    (TOO_MANY_WAITING_JOBS). Resumed jobs are not, as they were accepted before. 0: no such limit."""
    env_folder: str = ""
    """Absolute path of a folder on this machine that keeps the values of jobs' environment variables until their jobs
    end, so that these jobs continue after all services were stopped. They are encrypted with a key in that folder that
    only the services' user can read (docs/security.md). Empty: they are only in memory and in Redis."""

    @field_validator("env_folder")
    @classmethod
    def _absolute(cls, folder: str) -> str:
        if folder and not Path(folder).is_absolute():
            raise ValueError(f"'{folder}' is not an absolute path")
        return folder

    reservation_ttl_seconds: float = Field(default=6.0, gt=0)
    """Seconds after which the reservations of a dead worker expire."""
    job_attempts_max: int = Field(default=3, ge=1)
    """How often a job is started at most, if its executors die."""
    job_lease_seconds: float = Field(default=10.0, gt=0)
    """Seconds without a sign of life from a job's executor after which another one takes the job over. All executors of
    a database need the same value."""
    takeover_look_seconds: float = Field(default=2.0, ge=0)
    """Seconds between two searches for jobs without an executor: in Redis, which knows the open jobs, and once a minute
    in the histories of registered databases. 0: such a job is found when a caller asks for jobs of its database. An
    embedded system finds the jobs of its databases by itself."""
    compaction_watch_seconds: float = Field(default=3600.0, ge=0)
    """Seconds between two checks of the tables of jobs, which record what compactions did to computed rows before the
    table's history is cleaned. 0: only when a job plans."""


class Writer(Section):
    """When a unit of work, a commit or a wait for Spark counts as stalled."""

    stall_idle_checks: int = Field(default=6, ge=1)
    """Rounds without progress after which a stall is reported, with what it waits for."""
    stall_check_seconds: float = Field(default=5.0, gt=0)
    """Length of such a round in seconds. Busy workers report once in a round. The unit of a worker that is silent for
    all rounds goes to another worker."""


class Commit(Section):
    """The commit coordinator's queues, and the calls that read and write rows."""

    alone: bool = True
    """Whether no other commit coordinator serves the same tables. Otherwise set it to false for all of them: garbage
    collections then keep data files and unfinished files that are younger than a day, at any requested age, because
    another coordinator may be about to commit them."""
    read_whole_files: bool = False
    """Whether to compare every byte of a file with its digest before it is committed. False: size, ETag and end are
    enough for a file of more than 1 MiB in an object store that returns the ETag under which its writer took the
    digest. Other files are always read."""
    version_conflict_max_retries: int = Field(default=10, ge=0)
    """How often a commit that lost against another writer is checked and tried again."""
    max_queued_requests: int = Field(default=256, ge=1)
    """Requests that may wait in the commit queue of one table; more are refused with RESOURCE_EXHAUSTED."""
    max_reads: int = Field(default=32, ge=1)
    """Concurrent calls of ReadRows and of Flight's DoGet; more are refused with RESOURCE_EXHAUSTED. Each holds about 20
    or 30 MB while its caller does not read."""
    max_uploads: int = Field(default=8, ge=1)
    """Concurrent calls of AppendRows, MergeRows and of Flight's DoPut; more are refused with RESOURCE_EXHAUSTED."""
    upload_idle_seconds: float = Field(default=60.0, gt=0)
    """Seconds after which a call of AppendRows, MergeRows or DoPut ends if nothing arrives."""
    max_merge_bytes: int = Field(default=1 << 30, ge=1)
    """Bytes of rows that one call of MergeRows may send. They are stored in the machine's temporary folder, and are in
    memory while they are merged with the table's rows."""


class Embedded(Section):
    """All services on one machine, for local databases."""

    database: str = ""
    """Path of the only database of an embedded system; empty if databases share it, and in standalone services."""
    databases_file: str = ""
    """Path of the file with the databases of a shared embedded system; empty if `database` names one, and in standalone
    services."""
    idle_seconds: float = Field(default=900.0, ge=0)
    """Seconds without a call or a running job after which the embedded system ends; 0: never."""


class Metrics(Section):
    """Metrics of the services for Prometheus (docs/observability.md). OpenTelemetry's own variables configure OTLP."""

    port: int = Field(default=-1, ge=-1, le=65535)
    """TCP port of a service's page `/metrics`, which needs no token; 0: any free one, which the service prints when it
    is ready; -1: none. In an embedded system it is the planner's; the executor has the next one, and the commit
    coordinator the one after."""
    host: str = "127.0.0.1"
    """Address to bind for the page."""


class Lineage(Section):
    """OpenLineage events of jobs (docs/observability.md), which executors send."""

    url: str = Field(default="", pattern=r"^(https?://.+)?$")
    """URL to which events are posted, such as `https://lineage.example/api/v1/lineage`; empty: none."""
    api_key: Token = SecretStr("")
    """Sent as `authorization: Bearer <key>`; empty: no header."""
    file: str = ""
    """Path of a file to which events are appended as lines of JSON, instead of a URL; empty: none."""
    namespace: str = Field(default="leman", min_length=1)
    """Namespace of the jobs' names."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.url and self.file:
            raise ValueError("set LEMAN_LINEAGE__URL or LEMAN_LINEAGE__FILE, not both")
        return self


class Log(Section):
    """Structured log lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written. Successful calls that only read are logged at `debug`; `audit` lines are always
    written."""
    json_lines: bool = True
    """One JSON object per line; false: readable text."""
    file_max_mb: int = Field(default=16, ge=1)
    """Size in MB at which an embedded system rotates the log file of a process."""
    files_kept: int = Field(default=3, ge=1)
    """Rotated log files that are kept of each process."""
    core_dumps: bool = False
    """Allow core dumps of services and of functions' processes on this machine, and debuggers and profilers of the same
    user, which includes functions: memory contains secrets (docs/security.md). Root can always read it."""
