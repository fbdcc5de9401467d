"""Print the configuration of an Envoy in front of the services.

Usage: `python -m leman_core.server.front --listen IP:PORT`

Envoy refuses a call for a sixth of what the services need for it, and outside of their processes, so that they keep
working under any load. It has a budget for each method, routes by service, and refuses calls with the status, details
and trailers that the services use.
"""

from __future__ import annotations

import argparse
import base64
import ipaddress
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.descriptor import MethodDescriptor

from leman_core import settings as config
from leman_core.model.service_errors import InvalidArgument, LemanError, ResourceExhausted, Unavailable, Unimplemented
from leman_core.process.addresses import host_and_port
from leman_core.server import status
from leman_core.server.callers import FORWARDED_BY, FORWARDED_FOR, FRONT, KEYS, requirement_from_options
from leman_core.server.channels import check_peer_files
from leman_core.server.request_messages import TRANSPORT_FACTOR
from leman_core.server.routes import EVERYWHERE, SERVED_BY, callers_services, path_of
from leman_core.server.server import check_bind
from leman_core.settings import Settings

Json: TypeAlias = dict[str, Any]

#: The service that answers what every service answers: health, reflection, GetInfo.
_FOR_ALL = "planner"
_UNBOUNDED = 1 << 30
_RETRY_SECONDS = 1.0
#: Callers are pinged as often as the services ping them.
_PING_SECONDS = 30
#: A service that does not answer a ping counts as gone. Services treat pings more often than every 5 s as abuse.
_PEER_PING_SECONDS, _PEER_PONG_SECONDS = 10, 5
#: Headers of a call, as many as fit into the metadata that the services accept.
_MOST_HEADERS = 1000
_CONNECT_SECONDS = 5
_TYPES = "type.googleapis.com/envoy.extensions"
#: Envoy's response flags for the errors that it answers itself.
_TOO_MANY = ("UO",)
_NO_ROUTE = ("NR",)
_UNREACHABLE = ("UF", "UH", "UC", "LR", "UR", "UPE", "DF")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits:
    """Concurrent calls of one method; further ones are refused within milliseconds."""

    #: Of a method that only reads. This many are answered within 0.1 s, at 2 to 3 ms each.
    reads: int = 32
    #: Of a method that changes something.
    changes: int = 64
    #: Open streams.
    streams: int = 1024

    def of(self, method: MethodDescriptor) -> int:
        """Return the budget of a method."""
        required = requirement_from_options(method)
        return self.streams if required.stays_open else self.reads if required.reads else self.changes


def bootstrap(settings: Settings, host: str, port: int, limits: FrontLimits) -> Json:
    """Return the bootstrap configuration for `envoy -c`.

    Args:
        settings: `peers` has the services' addresses and the CA of their certificates; the certificate of `server` is
            the front's.
    """
    peers = {peer: getattr(settings.peers, peer) for peer in sorted(set(SERVED_BY.values()))}
    methods = [
        (SERVED_BY[name], method)
        for name, service in sorted(callers_services().items())
        if name != EVERYWHERE and peers[SERVED_BY[name]]
        for method in service.methods
    ]
    clusters = [_cluster(settings, method.full_name, peers[peer], limits.of(method)) for peer, method in methods]
    routes = [_route({"path": path_of(method)}, method.full_name) for _, method in methods]
    if peers[_FOR_ALL]:
        clusters.append(_cluster(settings, _FOR_ALL, peers[_FOR_ALL], _UNBOUNDED))
        shared = (f"/{EVERYWHERE}/", "/grpc.health.v1.Health/", "/grpc.reflection.")
        routes += [_route({"prefix": prefix}, _FOR_ALL) for prefix in shared]
    listener = {
        "name": "front",
        "address": _address(host, port),
        "filter_chains": [{"filters": [_http(routes)], **_own_certificate(settings)}],
    }
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}


def _http(routes: list[Json]) -> Json:
    manager = {
        **_typed("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "front",
        "codec_type": "HTTP2",
        "http2_protocol_options": {
            **_keepalive(_PING_SECONDS, 10),
            "override_stream_error_on_invalid_http_message": True,
        },
        "common_http_protocol_options": {"max_headers_count": _MOST_HEADERS},
        "stream_idle_timeout": "0s",  # a watch may be silent for long, and the services end stalled streams
        "generate_request_id": False,
        "local_reply_config": {"mappers": list(_replies())},
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}], **_identity()},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {**_typed("filters.http.router.v3.Router"), "suppress_envoy_headers": True},
            }
        ],
    }
    return {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}


def _identity() -> Json:
    """Return the handling of the headers with which services name callers to one another.

    Callers' own headers with these keys are dropped. The services learn that a call came through a front, so that they
    do not take the front's certificate for the caller's, and the caller's address.
    """
    said = {FORWARDED_BY: FRONT, FORWARDED_FOR: "%DOWNSTREAM_REMOTE_ADDRESS%"}
    return {
        "request_headers_to_remove": [FORWARDED_BY, *KEYS],
        "request_headers_to_add": [
            {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for key, value in said.items()
        ],
    }


def _route(match: Json, cluster: str) -> Json:
    """Route gRPC calls without a timeout of Envoy's: the service keeps the deadline."""
    return {"match": {**match, "grpc": {}}, "route": {"cluster": cluster, "timeout": "0s"}}


def _replies() -> Iterator[Json]:
    yield _reply(
        _TOO_MANY,
        429,
        ResourceExhausted(
            "TOO_MANY_CALLS",
            "as many calls of this method are at work as may be: send the call again after the delay in RetryInfo",
            retry_after_seconds=_RETRY_SECONDS,
        ),
    )
    yield _reply(
        _NO_ROUTE,
        404,
        Unimplemented(
            "NOT_SERVED_HERE",
            "this address does not serve the method, or this is no gRPC call: look for the method in the protos, or "
            "call the service itself",
        ),
    )
    yield _reply(
        _UNREACHABLE,
        503,
        Unavailable(
            "PEER_UNAVAILABLE",
            "the service cannot be reached from its front, and may or may not have done the work: send the call again",
            retry_after_seconds=_RETRY_SECONDS,
        ),
    )


def _reply(flags: tuple[str, ...], http_status: int, error: LemanError) -> Json:
    """Return an answer of Envoy's own. Its log shows the HTTP status; gRPC callers receive the gRPC status."""
    trailers = {"grpc-status": str(status.code_of(error).value[0])}
    for key, value in status.trailers_of(error):
        trailers[key] = base64.b64encode(value).decode().rstrip("=") if isinstance(value, bytes) else value
    return {
        "filter": {"response_flag_filter": {"flags": list(flags)}},
        "status_code": http_status,
        "body": {"inline_string": error.message},
        "headers_to_add": [
            {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for key, value in trailers.items()
        ],
    }


def _cluster(settings: Settings, name: str, address: str, at_once: int) -> Json:
    host, port = host_and_port(address)
    options = {
        "explicit_http_config": {"http2_protocol_options": _keepalive(_PEER_PING_SECONDS, _PEER_PONG_SECONDS)},
        "common_http_protocol_options": {"max_headers_count": _MOST_HEADERS},
    }
    bounds = {"max_requests": at_once, "max_pending_requests": at_once, "max_connections": _UNBOUNDED}
    endpoint = {"endpoint": {"address": _address(host, port)}}
    return {
        "name": name,
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_PREFERRED",
        "connect_timeout": f"{_CONNECT_SECONDS}s",
        "per_connection_buffer_limit_bytes": TRANSPORT_FACTOR << 20,
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                **_typed("upstreams.http.v3.HttpProtocolOptions"),
                **options,
            }
        },
        "circuit_breakers": {"thresholds": [bounds]},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        **_services_certificate(settings, host),
    }


def _keepalive(ping_seconds: int, pong_seconds: int) -> Json:
    return {"connection_keepalive": {"interval": f"{ping_seconds}s", "timeout": f"{pong_seconds}s"}}


def _address(host: str, port: int) -> Json:
    return {"socket_address": {"address": host.strip("[]"), "port_value": port}}


def _own_certificate(settings: Settings) -> Json:
    if not settings.server.tls_cert:
        return {}
    chain = {"certificate_chain": {"filename": settings.server.tls_cert}}
    key = {"private_key": {"filename": settings.server.tls_key}}
    context = {"common_tls_context": {"tls_certificates": [{**chain, **key}], "alpn_protocols": ["h2"]}}
    return _transport("DownstreamTlsContext", context)


def _services_certificate(settings: Settings, host: str) -> Json:
    peers = settings.peers
    if not peers.tls_ca:
        return {}
    sans = [{"san_type": kind, "matcher": {"exact": host.strip("[]")}} for kind in ("DNS", "IP_ADDRESS")]
    trusted = {"trusted_ca": {"filename": peers.tls_ca}, "match_typed_subject_alt_names": sans}
    own: Json = {}
    if peers.tls_cert:
        files = {"certificate_chain": {"filename": peers.tls_cert}, "private_key": {"filename": peers.tls_key}}
        own = {"tls_certificates": [files]}
    common = {"validation_context": trusted, "alpn_protocols": ["h2"], **own}
    return _transport("UpstreamTlsContext", {"common_tls_context": common, "sni": host.strip("[]")})


def _transport(kind: str, context: Json) -> Json:
    config = {**_typed(f"transport_sockets.tls.v3.{kind}"), **context}
    return {"transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": config}}


def _typed(kind: str) -> Json:
    return {"@type": f"{_TYPES}.{kind}"}


_LARGEST_BUDGET = 1 << 20
_ADVERTISE = (
    "Clients that use GetInfo call the services' own addresses and bypass the front. To prevent that, set "
    "LEMAN_ADVERTISE__PLANNER, LEMAN_ADVERTISE__EXECUTOR and LEMAN_ADVERTISE__COMMIT_COORDINATOR of the planner to the "
    "front's address.\n"
)


def main(argv: list[str] | None = None) -> int:
    """Print the configuration and return 0; 2: settings or arguments lack an address, or are unsafe."""
    usual = FrontLimits()
    parser = argparse.ArgumentParser(prog="python -m leman_core.server.front", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="IP:PORT", help="where the front takes calls")
    parser.add_argument("--reads", type=_budget, default=usual.reads, help="calls at work of a method that only reads")
    parser.add_argument("--changes", type=_budget, default=usual.changes, help="… of one that changes something")
    given = parser.parse_args(argv)
    try:
        settings = config.load()
        host, port = _listened(given.listen)
        if not (settings.peers.planner and settings.peers.executor and settings.peers.commit_coordinator):
            raise InvalidArgument(
                "BAD_SETTING",
                "the services' addresses are unknown: set LEMAN_PEERS__PLANNER, LEMAN_PEERS__EXECUTOR and "
                "LEMAN_PEERS__COMMIT_COORDINATOR",
            )
        check_peer_files(settings.peers)
        # Services on loopback may accept everyone: a front that others reach would expose them.
        check_bind(settings.model_copy(update={"server": settings.server.model_copy(update={"host": host})}))
    except InvalidArgument as error:
        sys.stderr.write(f"{error}\n")
        return 2
    limits = FrontLimits(reads=given.reads, changes=given.changes, streams=settings.server.max_streams)
    sys.stdout.write(json.dumps(bootstrap(settings, host, port, limits), indent=1) + "\n")
    sys.stderr.write(_ADVERTISE)
    return 0


def _listened(listen: str) -> tuple[str, int]:
    try:
        host, port = host_and_port(listen)
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise InvalidArgument(
            "BAD_SETTING", f"--listen is {listen!r}: write IP:PORT, such as 0.0.0.0:7000 or [::]:7000"
        ) from None
    return host, port


def _budget(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _LARGEST_BUDGET):
        raise argparse.ArgumentTypeError(f"a number of calls between 1 and {_LARGEST_BUDGET}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
