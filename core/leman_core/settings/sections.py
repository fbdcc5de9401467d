"""The sections of the settings.

What every section of the settings is made of.

Values among Spark's own settings that are known to be amounts of memory or whole numbers.

Settings of how the services are reached, by whom, and of what they may be asked.

Settings of how the services work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from leman_core.process.addresses import host_and_port, parse_pattern


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)


def _sendable(token: SecretStr) -> SecretStr:
    """Return a token that a header can carry. The message must not tell it."""
    if not all("!" <= character <= "~" for character in token.get_secret_value()):
        raise ValueError("a token is made of visible ASCII characters, without blanks")
    return token


def _pattern(text: str) -> str:
    parse_pattern(text)
    return text


def _host_and_port(text: str) -> str:
    if text:
        host_and_port(text)
    return text


#: host:port of a service; empty: not given.
ServiceAddress = Annotated[str, AfterValidator(_host_and_port)]
#: A pattern of addresses of function servers.
AddressPattern = Annotated[str, AfterValidator(_pattern)]
Token = Annotated[SecretStr, AfterValidator(_sendable)]
#: What a caller can be allowed: a role, each of which includes those before it, or the right to send code.
Grant: TypeAlias = Literal["reader", "runner", "editor", "admin", "service", "code"]
#: How a JWT may be signed: with a private key that the service does not have.
Algorithm: TypeAlias = Literal[
    "ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"
]  # fmt: skip
#: Kinds of functions, and where the code of those in Python is.
FunctionKind: TypeAlias = Literal["scalar", "array", "record_batch", "sql", "remote", "pickled", "entrypoint"]


_AMOUNT = re.compile(r"([0-9]+)(?:(b)|([kmgtp])b?)?")
#: Spark gives the heap of its driver to the JVM as it stands.
_HEAP = re.compile(r"[0-9]+[kmgt]", re.IGNORECASE)


def mebibytes(text: str) -> int:
    """Return an amount of memory in Spark's notation as MiB; plain numbers are MiB.

    Raises:
        ValueError: The text is not in Spark's notation.
    """
    found = _AMOUNT.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"'{text}' is no amount of memory in Spark's notation, such as 512m or 2g")
    if found[2]:
        return int(found[1]) >> 20
    return int(found[1]) << (10 * "kmgtp".index(found[3] or "m")) >> 10


def heap(text: str) -> str:
    """Return the heap of a driver as it is.

    Raises:
        ValueError: It is none that a JVM can be given.
    """
    if not _HEAP.fullmatch(text):
        raise ValueError(f"'{text}' is no heap of a JVM: a whole number with k, m, g or t, such as 512m or 2g")
    return text


def check(conf: Mapping[str, str]) -> None:
    """Check the settings whose values Leman reads, or passes on as they are.

    Raises:
        ValueError: One is wrong; the message names it.
    """
    for key, read in _READ.items():
        if key in conf:
            try:
                read(conf[key])
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text.strip()):
        raise ValueError(f"'{text}' is no whole number")
    return int(text)


def _count(text: str) -> int:
    number = _whole(text)
    if not number:
        raise ValueError("it is 1 at the least")
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
    """TCP port; 0: any free one, named in the line that the service prints when it is ready. In an embedded
    system it is the planner's."""
    token: Token = SecretStr("")
    """A token for which its bearer may do everything, sent as `authorization: Bearer <token>`, in visible ASCII
    characters; empty: there is none. A server that is bound to more than loopback, or has TLS, refuses to start without
    one of at least 16 characters, a `tokens_file`, an issuer of JWTs or a `tls_client_ca`, unless `allow_anonymous`."""
    tokens_file: str = ""
    """Path of a TOML file with tokens, their names, roles and ends; reread when it changes."""
    allow_anonymous: bool = False
    """Answer callers who do not say who they are although others than this machine may reach the server. Where
    `anonymous_roles` does not say less they can register functions, and so run code of theirs on the workers."""
    anonymous_roles: tuple[Grant, ...] | None = Field(default=None, examples=[["reader"]])
    """What callers may do who do not say who they are, as a JSON list of roles; not given: everything where the server
    asks for no token or certificate, nothing where it does."""
    database_roots: tuple[str, ...] = Field(default=(), examples=[["/data", "s3://bucket/lakes"]])
    """Paths and uris, as a JSON list, below which databases and what views are made from must lie; empty: anywhere."""
    registry: str = ""
    """Path or uri of the folder in which names of databases are kept, the same for all services; empty: databases have
    no names."""
    registry_seconds: float = Field(default=5.0, ge=0, le=3600)
    """Seconds for which a service goes by what it has read there. A name that it does not know it looks for at once."""
    registered_databases_only: bool = False
    """Take no other databases than registered ones, named by name or by root."""
    tls_cert: str = ""
    """Path of the server's certificate chain (PEM); with `tls_key` it turns TLS on."""
    tls_key: str = ""
    """Path of the private key (PEM) of `tls_cert`."""
    tls_client_ca: str = ""
    """Path of the CA certificates (PEM) that clients' certificates are checked with (mTLS): who shows none of them is
    not connected, unless `mtls_port` says where to connect with one."""
    tls_client_roles: dict[str, tuple[Grant, ...]] = Field(default_factory=dict, examples=[{"CN:etl": ["runner"]}])
    """What the bearers of certificates may do: a JSON object of names, such as `CN:etl`, `DNS:etl.example`,
    `URI:spiffe://example/etl` or `EMAIL:etl@example`, with lists of roles."""
    mtls_port: int = Field(default=0, ge=0, le=65535)
    """TCP port on which clients show certificates; on `port` none is asked for then. 0: there is only `port`."""
    allow_insecure_bind: bool = False
    """Bind a non-loopback address without TLS all the same, and send tokens to peers at one: for networks that are
    protected otherwise."""
    reuse_port: bool = False
    """Share the port with a process that holds it for this one, as the embedded supervisor does over
    restarts."""
    max_calls: int = Field(default=256, ge=1)
    """Calls of one method that may be at work at once; more are refused with RESOURCE_EXHAUSTED (TOO_MANY_CALLS). A
    method of which every call takes long for a second gets 32 until there are fewer."""
    max_streams: int = Field(default=1024, ge=1)
    """Streams of one method that may be open at once, such as WatchJob; more are refused likewise."""
    caller_calls_per_second: float = Field(default=0.0, ge=0)
    """Calls that one caller may make in a second, and at once; more are refused with RESOURCE_EXHAUSTED (CALLER_RATE).
    0: no limit. Each service counts the calls that it serves. Callers without a name are one; services, and anyone who
    has their role, have no limit."""
    caller_streams: int = Field(default=0, ge=0)
    """Streams that one caller may have open at once; more are refused likewise (CALLER_STREAMS). 0: no limit.
    Each service counts those that it serves."""
    stalled_stream_seconds: float = Field(default=60.0, gt=0)
    """Seconds after which a stream ends of which no one takes a message."""
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
    """Origins of web pages that may call over HTTP, such as `https://a.example`, between commas; empty: none. `*`: all,
    which only a service may have that answers no one without a token."""
    http_hosts: str = ""
    """Host names, between commas, by which callers reach a service over HTTP that answers them without a token.
    Loopback names hold anyway, and addresses where it is bound to more than loopback."""


class Jwt(Section):
    """JSON Web Tokens of an OpenID Connect issuer, as callers' tokens."""

    issuer: str = ""
    """Url of the issuer, as in the claim `iss`; with it JWTs are taken. https, or http on loopback."""
    audience: str = ""
    """What has to stand in the claim `aud`."""
    jwks: str = ""
    """Url or path of the issuer's public keys (a JWK set); empty: where the issuer's discovery document says."""
    tls_ca: str = ""
    """Path of the CA certificates (PEM) that the issuer's certificate is checked with; empty: the system's."""
    algorithms: tuple[Algorithm, ...] = Field(
        default=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
        min_length=1,
        examples=[["RS256", "ES256"]],
    )
    """Signatures that are taken."""
    name_claim: str = "sub"
    """Claim with the caller's name."""
    roles_claim: str = "roles"
    """Claim with the caller's roles, as a list or as words between blanks; dots lead into objects
    (`realm_access.roles`)."""
    roles: dict[str, tuple[Grant, ...]] = Field(default_factory=dict, examples=[{"analysts": ["reader"]}])
    """What the words in that claim mean, as a JSON object of lists of roles. Empty: the words are roles; others are
    left out."""
    leeway_seconds: float = Field(default=30.0, ge=0, le=300)
    """By how much the clocks of the issuer and of this service may differ."""
    refresh_seconds: float = Field(default=3600.0, gt=0)
    """Seconds after which the public keys are reread; a token with a key that is not known has them read at once,
    but not twice within half a minute."""
    timeout_seconds: float = Field(default=5.0, gt=0)
    """Longest wait for an answer of the issuer in seconds."""


class Udf(Section):
    """Which functions may be registered and run."""

    allow: tuple[FunctionKind, ...] = Field(
        default=("scalar", "array", "record_batch", "sql", "remote", "pickled", "entrypoint"),
        examples=[["scalar", "sql", "entrypoint"]],
    )
    """Kinds of functions, and where the code of Python functions may come from. A function needs its kind to stand here
    and, unless it is SQL or remote, `pickled` or `entrypoint` too."""
    entrypoints: tuple[str, ...] = Field(default=(), examples=[["features.*:*"]])
    """Entrypoints that may be named, as patterns of `package.module:name` in which `*` stands for any module, or any
    public name of one. Empty: all; as that is whatever is installed on the workers, registering one takes the right
    `code` then."""
    env_names: tuple[str, ...] = Field(default=(), examples=[["*_API_KEY"]])
    """Environment variables that callers may give the functions of a job, as patterns of names in which `*` stands for
    any letters, such as `*_API_KEY`. Empty: all; as some of them have programs run other code, giving one takes the
    right `code` then."""
    remote_addresses: tuple[AddressPattern, ...] = Field(default=(), examples=[["grpc+tls://*.features.internal:7443"]])
    """Addresses at which remote functions may be served, as patterns such as `grpc+tls://*.features.internal:7443`:
    `*` stands for any letters of a host, and for any port. Empty: those of this machine alone (loopback); as
    anything may listen there, registering one takes the right `code` then."""
    remote_credentials: str = ""
    """Path of a TOML file with the tokens and certificates for servers of remote functions, which the planner and the
    executor read; workers are given what they need of it."""
    remote_patience_seconds: float = Field(default=60.0, ge=0, le=86_400)
    """Seconds for which a worker waits for a server of a remote function while none can be reached; then the job fails
    (FUNCTION_UNAVAILABLE), unless servers answered other workers meanwhile."""
    remote_answer_seconds: float = Field(default=600.0, ge=0, le=86_400)
    """Seconds for which a server may have a batch at work of a remote function that has no timeout of its own; one that
    is silent for longer, and then another one, or the same again, end the job (FUNCTION_UNAVAILABLE). 0: no bound."""
    max_bundle_mb: int = Field(default=256, ge=1, le=16384)
    """Largest bundle that is taken, in MiB: the pickled code of a function with what it holds. What does not fit into a
    message of `LEMAN_SERVER__MAX_MESSAGE_MB` comes by `UploadBundle`."""
    max_uploads: int = Field(default=4, ge=1)
    """Calls of UploadBundle that may run at once; more are refused with RESOURCE_EXHAUSTED."""
    upload_idle_seconds: float = Field(default=60.0, gt=0)
    """Seconds after which a call of UploadBundle is ended that sends nothing."""


class Peers(Section):
    """How the services reach one another."""

    planner: ServiceAddress = ""
    """host:port of the planner."""
    executor: ServiceAddress = ""
    """host:port of the executor."""
    commit_coordinator: ServiceAddress = ""
    """host:port of the commit coordinator."""
    token: Token = SecretStr("")
    """Token that the peers ask for (their `server.token`)."""
    tls_ca: str = ""
    """Path of the CA certificates (PEM) that the peers' certificates are checked with; empty: no TLS, and a service
    that would send tokens to peers on other machines starts with `server.allow_insecure_bind` alone."""
    tls_cert: str = ""
    """Path of the certificate chain (PEM) that this service shows to peers which ask for one (mTLS)."""
    tls_key: str = ""
    """Path of the private key (PEM) of `tls_cert`."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """Deadline in seconds of a call to a peer that names none; a peer that restarts is waited for until
    then, one that was never reached since this service started for 15 s at the most."""


class Advertise(Section):
    """Where callers from outside reach the services; what GetInfo answers."""

    planner: ServiceAddress = ""
    """host:port of the planner for callers; empty: its own bound address, or `peers.planner`."""
    executor: ServiceAddress = ""
    """host:port of the executor for callers; empty: its own bound address, or `peers.executor`."""
    commit_coordinator: ServiceAddress = ""
    """host:port of the commit coordinator for callers; empty: its bound address, or
    `peers.commit_coordinator`."""


_REDIS_URL = re.compile(
    r"rediss?://([^/?#@\[\]]*@)?([^/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/[0-9]*)?(\?[^#]*)?"
    r"|unix://([^/?#@]*@)?/[^?#]+(\?[^#]*)?"
)


class Redis(Section):
    """Live state that executors and workers share: leases of jobs, reservations of rows. Losing it costs work, never a
    value."""

    url: SecretStr = SecretStr("")
    """redis://, rediss:// or unix:// url, password included; empty: no sharing between jobs."""
    workers_url: SecretStr = SecretStr("")
    """What workers reserve rows with, in place of `url`: a user of Redis that may touch reservations alone
    (docs/security.md). Functions run in the workers' processes. Empty: `url`."""
    socket_timeout_ms: int = Field(default=250, ge=1)
    """Longest wait for Redis in milliseconds before it counts as absent."""

    @field_validator("url", "workers_url")
    @classmethod
    def _whole(cls, url: SecretStr) -> SecretStr:
        """Its parts are told apart here: a password with a slash in it would end as a part of a traceback."""
        if url.get_secret_value() and not _REDIS_URL.fullmatch(url.get_secret_value()):
            raise ValueError(
                "a url of Redis is redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://… or unix:///PATH; in a user or "
                "password write %2F for / , %23 for #, %3F for ?, %40 for @ and %3A for :"
            )
        return url


class Storage(Section):
    """How object stores are reached."""

    options_file: str = ""
    """Path of a TOML file with endpoints, regions and where credentials stand, by roots of databases
    (docs/object_stores.md), the same for all services; workers are given what they need of it. Empty: the
    environment of each process says it."""


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
    """Spark master url; empty: local[N,4] with N = max(32, 4 × cores), so that jobs may oversubscribe."""
    driver_host: str = ""
    """Host name or address under which Spark's workers reach the executor; empty: SPARK_LOCAL_IP, else the address that
    this machine has towards the master. Loopback where Spark runs on this machine alone."""
    callback_port: int = Field(default=0, ge=0, le=65533)
    """First of three ports on which Spark's workers call the executor back: the driver, its blocks, Leman's workers; 0:
    any free ones."""
    start_seconds: float = Field(default=60.0, gt=0)
    """How long jobs wait after the start for the first worker of a cluster; then they are refused, and health says
    NOT_SERVING, until one has called back. Also how long a job waits for an executor that is large enough, where all
    that have registered are too small for its function, and for a worker that is as large as `spark.executor.cores` and
    `spark.executor.memory` say, where no live one of a standalone cluster is."""
    driver_start_seconds: float = Field(default=180.0, gt=0)
    """How long Spark's driver may take to start. A JVM that takes longer is ended, and the start fails; the next job
    starts another one. Raise it where a cluster manager lets applications wait in a queue."""
    busy_seconds: float = Field(default=3600.0, gt=0)
    """How long a job waits for a standalone cluster whose cores others have, before it fails with CLUSTER_BUSY."""
    resource_seconds: float = Field(default=900.0, gt=0)
    """How long a job waits for Spark to start executors with what its function asks for, where a cluster does not tell
    whether it ever can; then it fails with RESOURCES_NOT_AVAILABLE. A standalone cluster tells: there it is
    `start_seconds` where no worker is large enough, and `busy_seconds` where others have the room."""
    python: str = ""
    """Path of the Python interpreter on Spark's workers, absolute or below their working directory (an archive of
    `leman pack-env`); empty: this one's path."""
    pass_env: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_*]+$")], ...] = Field(default=(), examples=[["MODEL_*"]])
    """Variables of the executor's environment that functions have beside those that their processes need
    (docs/security.md), as patterns of names in which `*` stands for any letters; `*` alone: all, but for Leman's
    settings. On a cluster: of the environment of Spark's workers. An embedded system has `*` where nothing is said."""
    on_demand: bool = False
    """Start Spark with the first job that needs it, and not with the executor, where it runs on this machine alone. So
    does the embedded system that the databases of a user share."""
    driver_memory: Annotated[str, AfterValidator(heap)] = "512m"
    """Heap of the Spark driver: a whole number with k, m, g or t."""
    class_archive: bool = True
    """Keep an archive of Spark's classes (about 80 MB) in the user's cache folder: later starts take half the
    time. It is made when an executor has had nothing to do for half a minute."""
    class_archive_dir: Annotated[str, AfterValidator(_with_home)] = ""
    """Folder of these archives; empty: `leman` in the user's cache folder ($XDG_CACHE_HOME, ~/.cache). The three used
    last are kept, for a month. `leman config clean` deletes them all."""
    scratch_dir: str = ""
    """Folder in which each executor has one for the temporary files of Spark, which is removed when it ends, or by the
    next one where it was killed; empty: the system's temporary folder. An absolute path without spaces and commas."""
    python_version: str = Field(default="", pattern=r"^([0-9]+\.[0-9]+)?$")
    """`major.minor` of the Python that runs the workers: the planner takes functions that it pickled, and no others.
    Empty: that of the planner itself."""
    conf: Annotated[dict[str, str], AfterValidator(_checked)] = Field(
        default_factory=dict, repr=False, examples=[{"spark.cores.max": "2"}]
    )
    """Further Spark settings, as a JSON object of strings."""

    def of_own_user(self) -> Self:
        """Return these settings for an embedded system: where nothing is said of `pass_env`, functions have all."""
        return self if "pass_env" in self.model_fields_set else self.model_copy(update={"pass_env": ("*",)})

    @model_validator(mode="after")
    def _some_executor(self) -> Self:
        """Refuse limits under which a standalone cluster starts no executor at all.

        Others do not read the first, and with dynamic allocation a function may ask for smaller ones.
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
    """host:port under which other executors of its databases reach this one: calls about a job of this one that reach
    them are passed on to it. Empty: the address that it is bound to, with the machine's name where that stands for all
    addresses of the machine, and with `server.mtls_port` where services show certificates there."""
    slots: int = Field(default=0, ge=0)
    """Units of work at once; 0: one for each core of this machine, or of the Spark cluster."""
    checkpoint_interval_seconds: float = Field(default=5.0, gt=0)
    """Work between two checkpoints of a worker, in seconds of reading inputs and calling the function: at most so much
    is done again after a crash."""
    checkpoint_max_bytes: int = Field(default=128 << 20, ge=1)
    """Largest checkpoint in bytes of values; a worker writes one earlier when it has so many, unless they are in the
    column file and cheap to compute again."""
    commit_interval_seconds: float = Field(default=5.0, gt=0)
    """Seconds that a finished column file of a job waits for others, to be committed with them. In tables of very many
    fragments it is longer: see `commit_interval_max_seconds`."""
    commit_interval_max_seconds: float = Field(default=120.0, gt=0)
    """The most seconds between two commits of a job for the manifest's sake: a tenth of a job's time at the most goes
    into writing manifests, which takes 6 µs for each fragment of the table, unless files became visible later than
    this."""
    partial_commit_seconds: float = Field(default=10.0, ge=0)
    """Seconds without a commit of a job after which it commits the stored rows of fragments that are still being
    computed; each time it does so, they double. 0: rows become visible with all others of their fragment."""
    max_running_jobs: int = Field(default=16, ge=1)
    """Jobs that run at once; more wait for their turn."""
    max_waiting_jobs: int = Field(default=1000, ge=0)
    """Jobs that may wait for their turn; more are refused with RESOURCE_EXHAUSTED (TOO_MANY_JOBS)."""
    max_running_jobs_per_database: int = Field(default=0, ge=0)
    """Jobs of one database that run at once; more wait, and let those of others go first. 0: no limit of its own."""
    max_running_jobs_per_caller: int = Field(default=0, ge=0)
    """Jobs of one caller, in all databases, that run at once; more wait likewise. Callers without a name are one. 0: no
    limit of its own."""
    max_waiting_jobs_per_caller: int = Field(default=0, ge=0)
    """Jobs of one caller that may wait for their turn; more are refused with RESOURCE_EXHAUSTED
    (TOO_MANY_WAITING_JOBS), but not jobs that are resumed: those were accepted before. 0: no limit of its own."""
    env_folder: str = ""
    """Absolute path of a folder on this machine in which values of jobs' environment variables are kept, sealed with a
    key that stands there too and that only the services' user may read, until their job ends: such a job goes on by
    itself after all services were stopped (docs/security.md). Empty: they are in memory and in Redis alone."""

    @field_validator("env_folder")
    @classmethod
    def _absolute(cls, folder: str) -> str:
        if folder and not Path(folder).is_absolute():
            raise ValueError(f"it is an absolute path, not {folder}")
        return folder

    reservation_ttl_seconds: float = Field(default=6.0, gt=0)
    """Seconds after which what a dead worker had reserved is free again."""
    job_attempts_max: int = Field(default=3, ge=1)
    """How often a job is begun at the most, when executors die under it."""
    job_lease_seconds: float = Field(default=10.0, gt=0)
    """Seconds without a word from the executor of a job after which another one takes the job over. All executors of a
    database have the same."""
    takeover_look_seconds: float = Field(default=2.0, ge=0)
    """Seconds between two looks for jobs that no executor has: in Redis, which knows the jobs that are open, and once a
    minute in the histories of registered databases. 0: such a job is found when someone asks for jobs of its
    database. An embedded system finds the jobs of its databases by itself."""
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

    alone: bool = True
    """Whether no other commit coordinator serves the same tables. Where others do, set it to false for each of them:
    a garbage collection then never removes data files and unfinished files that are younger than a day, whatever age it
    is asked for, as another one may be about to commit them."""
    read_whole_files: bool = False
    """Whether every byte of a file is read and compared with its digest before it is committed, also of one of more
    than 1 MiB in an object store that tells the ETag under which its writer took the digest. False: the size, the ETag
    and the end of such a file are enough. Others are always read."""
    version_conflict_max_retries: int = Field(default=10, ge=0)
    """How often a commit that lost against another writer is checked again and tried again."""
    max_queued_requests: int = Field(default=256, ge=1)
    """Requests that may wait in the commit queue of one table; more are refused with RESOURCE_EXHAUSTED."""
    max_reads: int = Field(default=32, ge=1)
    """Calls of ReadRows, and of Flight's DoGet, that may run at once, each of which holds some 20 and 30 MB where its
    caller reads nothing; more are refused with RESOURCE_EXHAUSTED."""
    max_uploads: int = Field(default=8, ge=1)
    """Calls of AppendRows, MergeRows, and of Flight's DoPut, that may run at once; more are refused with
    RESOURCE_EXHAUSTED."""
    upload_idle_seconds: float = Field(default=60.0, gt=0)
    """Seconds after which a call of AppendRows, MergeRows or DoPut is ended that sends nothing."""
    max_merge_bytes: int = Field(default=1 << 30, ge=1)
    """Bytes of rows that one call of MergeRows may send: they are set aside in the temporary folder of the machine, and
    are in memory while they are brought together with the table's."""


class Embedded(Section):
    """All services on one machine, for local databases."""

    database: str = ""
    """Path of the database that the embedded system was started for alone; empty in one that databases share, and in
    services that run on their own."""
    databases_file: str = ""
    """Path of the file in which the embedded system says which databases it serves; empty where `database` names one,
    and in services that run on their own."""
    idle_seconds: float = Field(default=900.0, ge=0)
    """Seconds without a call and without a running job after which the embedded system ends; 0: never."""


class Metrics(Section):
    """Measures of the services for Prometheus (docs/observability.md). OTLP is set by OpenTelemetry's own variables."""

    port: int = Field(default=-1, ge=-1, le=65535)
    """TCP port of a page with a service's measures, `/metrics`, for anyone who reaches it, without a token; 0: any free
    one, named in the line that the service prints when it is ready; -1: none. In an embedded system it is the
    planner's; the executor has the next one, and the commit coordinator the one after."""
    host: str = "127.0.0.1"
    """Address that the page is bound to."""


class Lineage(Section):
    """Events of jobs as OpenLineage has them (docs/observability.md): what was made of what. Executors send them."""

    url: str = Field(default="", pattern=r"^(https?://.+)?$")
    """Url that events are posted to, such as `https://lineage.example/api/v1/lineage`; empty: none."""
    api_key: Token = SecretStr("")
    """Sent there as `authorization: Bearer <key>`; empty: nothing is."""
    file: str = ""
    """Path of a file that events are appended to, a line of JSON each, in place of a url; empty: none."""
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
    """Least severe level that is written; calls that only read and succeed are logged at `debug`, lines of the event
    `audit` always."""
    json_lines: bool = True
    """One JSON object a line; false: readable text."""
    file_max_mb: int = Field(default=16, ge=1)
    """Size at which the log file of a process of an embedded system is set aside and a new one begun."""
    files_kept: int = Field(default=3, ge=1)
    """Log files that are kept of each process beside the one that is written to."""
    core_dumps: bool = False
    """Let services, and the processes of functions on this machine, leave core dumps, and be looked into by debuggers
    and profilers of their user, functions among them: memory has secrets (docs/security.md). Root may always look."""
