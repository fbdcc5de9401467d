"""Settings of how the services are reached, by whom, and of what they may be asked."""

from __future__ import annotations

from pydantic import Field, SecretStr

from leman_core.settings.section import AddressPattern, Algorithm, FunctionKind, Grant, Section, ServiceAddress, Token


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
    0: no limit. Each service counts the calls that it serves. Callers without a name are one; services, and whoever has
    their role, have no limit."""
    caller_streams: int = Field(default=0, ge=0)
    """Streams that one caller may have open at once; more are refused likewise (CALLER_STREAMS). 0: no limit.
    Each service counts those that it serves."""
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
    """Origins of web pages that may call over HTTP, such as `https://a.example`, between commas; empty: none. `*`: all,
    which only a service may have that answers nobody without a token."""
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
    """Seconds after which the public keys are read anew; a token with a key that is not known has them read at once,
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
