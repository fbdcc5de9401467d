"""Registering functions: who may, and what the servers of remote ones say of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from leman_core.functions.definition_checks import check_remote
from leman_core.functions.function_policy import FunctionPolicy
from leman_core.functions.remote import servers
from leman_core.functions.remote.credentials import access_to
from leman_core.functions.remote.protocol import FunctionDescription
from leman_core.model.errors import LemanError, Unavailable
from leman_core.model.udf import RemoteFunction, UdfDefinition
from leman_core.model.work import ServerAccess
from leman_core.server.auth.requirements import check_code
from leman_core.storage.udf_registry import UdfRegistry

#: Servers that are asked at once.
_ASKED_AT_ONCE = 16


class Registrations:
    """Registers functions. It holds no state: any number of threads may use one.

    Args:
        registry: returns the functions of a database.
        policy: says which functions may be registered.
        credentials: Path of the file with the credentials for function servers; empty: there is none.
    """

    def __init__(self, registry: Callable[[str], UdfRegistry], policy: FunctionPolicy, credentials: str = "") -> None:
        self._registry = registry
        self._policy = policy
        self._credentials = credentials

    def described(self, remote: RemoteFunction) -> tuple[FunctionDescription, list[str]]:
        """Ask the servers of a remote function what it is, once the caller may have them asked.

        Returns:
            What they say, and why others are left out with which TLS fails.

        Raises:
            LemanError: what `CatalogService.RegisterUdf` (protos/leman/v1/catalog.proto) names.
        """
        check_remote(remote)
        self._policy.check_remote(remote)
        for address in remote.addresses:
            if not self._policy.lists_address(address):  # anything may listen on this machine
                check_code(f"Registering what is served at {address}")
        accesses = access_to(remote.addresses, self._credentials)
        with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="describe") as pool:
            answers = list(pool.map(lambda access: _asked(access, remote.function), accesses))
        return _agreed(remote, answers)

    def put(self, database: str, udf: UdfDefinition, bundle: bytes) -> bool:
        """Store a function; False: the same one was there already.

        Raises:
            LemanError: what `UdfRegistry.put` raises.
            PermissionDenied: ROLE_REQUIRED, for an entrypoint that is not listed.
        """
        if udf.entrypoint and not self._policy.lists(udf.entrypoint):  # it may be anything that is installed
            check_code(f"Registering the entrypoint {udf.entrypoint}")
        return self._registry(database).put(udf, bundle)


def _asked(access: ServerAccess, function: str) -> FunctionDescription | LemanError:
    try:
        with servers.connect(access) as client:
            return servers.describe(client, access, function)
    except LemanError as error:
        return error


def _agreed(
    remote: RemoteFunction, answers: list[FunctionDescription | LemanError]
) -> tuple[FunctionDescription, list[str]]:
    """Return what all servers say that can be reached, and why TLS keeps others from that.

    Raises:
        LemanError: the first refusal; or they say different things; or none can be reached.
    """
    described: list[tuple[str, FunctionDescription]] = []
    away: list[Unavailable] = []
    without_tls: list[LemanError] = []
    for address, answer in zip(remote.addresses, answers, strict=True):
        if isinstance(answer, Unavailable):
            away.append(answer)
        elif isinstance(answer, LemanError) and answer.reason == servers.TLS_FAILED:
            without_tls.append(answer)
        elif isinstance(answer, LemanError):
            raise answer
        else:
            described.append((address, answer))
    if not described:
        if without_tls:
            raise without_tls[0]
        told = " ".join(f"{error.message}." for error in away[:3])
        raise servers.unavailable(
            f"No server of function '{remote.function}' answers. {told} Start one, then send the call again"
        )
    _, first = described[0]
    for address, other in described[1:]:
        servers.check_version(address, other, first.version)
        servers.check_signature(address, other, first.input_types, first.output)
    return first, [f"{error.message}. The other servers are used" for error in without_tls]
