"""The way from this service to one peer: whether it was ever reached, and what to say where it is not.

gRPC keeps calls waiting for a peer that is away, and then ends them as DEADLINE_EXCEEDED, without a word about whom
they waited for. So the state of the channel is followed: a call that waits in vain ends as PEER_UNAVAILABLE with the
peer's address and the setting that has it, and the log has one line for each time that the peer is away.
"""

from __future__ import annotations

import asyncio
import re
from contextvars import Context
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health_pb2

from leman_core.model.errors import (
    CALL_NOT_OFFERED,
    NEVER_REACHED,
    PEER_UNAVAILABLE,
    FailedPrecondition,
    LemanError,
    Unavailable,
)
from leman_core.server import status
from leman_core.settings import Settings

#: A peer that was not reached since this service started may have another address: calls wait for it no longer.
NEVER_REACHED_SECONDS = 15.0
_PROBE = "/grpc.health.v1.Health/Check"
_PROBE_SECONDS = 2.0
#: What gRPC says of a handshake that failed here, and of a certificate for another name.
_TLS_FAULT = re.compile(r"SSL_ERROR_SSL|CERTIFICATE|Peer name|Hostname verification|Cannot check peer", re.IGNORECASE)
_HANGS_UP = "Socket closed"
_CUT_BY_A_PROXY = "RST_STREAM"
#: What gRPC says where a connection to the peer cannot be made, or breaks.
BROKEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_READY, _FAILING = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE

_log = structlog.get_logger(__name__)


class PeerLink:
    """The way to one peer, for one event loop.

    Args:
        settings: have its address.
        name: of the peer, such as `commit_coordinator`.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self.name = name.replace("_", " ")
        self.address: str = getattr(settings.peers, name)
        self.setting = f"LEMAN_PEERS__{name.upper()}"
        self._channel: grpc.aio.Channel | None = None
        self._is_followed = False
        self._shown = _shown(settings)
        self._trusts = settings.peers.tls_ca
        self._tasks: set[asyncio.Task[None]] = set()
        self._was_reached = asyncio.Event()
        self._is_away = self._refuses = False

    def use(self, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        """Follow this channel from the next call on, and no other one any more; return it."""
        self._channel, self._is_followed = channel, False
        return channel

    async def wait(self, seconds: float | None) -> None:
        """Wait until the peer has been reached once, at most so long.

        Raises:
            AioRpcError: of PEER_UNAVAILABLE.
        """
        self._begin_following()
        if self._was_reached.is_set():
            return
        longest = NEVER_REACHED_SECONDS if seconds is None else min(seconds, NEVER_REACHED_SECONDS)
        try:
            async with asyncio.timeout(longest):
                await self._was_reached.wait()
        except TimeoutError:
            raise as_rpc_error(self._never_reached(await self._fault())) from None

    def reached(self) -> None:
        """Note that the peer answers."""
        self._was_reached.set()
        self._refuses = False
        if self._is_away:
            self._is_away = False
            _log.info("a peer is reached again", peer=self.name, address=self.address)

    async def told(self, error: grpc.aio.AioRpcError, seconds: float | None) -> grpc.aio.AioRpcError:
        """Return what a call failed with that had so long: an error that names the peer where that one said nothing.

        A refusal of this service is an error of its set-up: whoever called it has another token.
        """
        code, said = error.code(), error.details() or ""
        refusal = self._refusal(error)
        if refusal is not None:
            return as_rpc_error(refusal)
        if says_why(error):
            self.reached()
            return error
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            fault = await self._fault()
            return as_rpc_error(self._away(fault, seconds) if fault else self._slow(seconds))
        if code in BROKEN or (code is grpc.StatusCode.INTERNAL and _CUT_BY_A_PROXY in said):
            return as_rpc_error(self.broken(said))
        return error

    def broken(self, said: str, here: str = "") -> LemanError:
        """Return the error of a call whose connection could not be made, or broke; gRPC `said` so of it.

        Args:
            here: the service that calls.
        """
        if _TLS_FAULT.search(said):
            return self._distrusted(said, here)
        self.note_away(said)
        return self._unavailable(
            f"{self._named(here)} cannot be reached, or went away: {said}. Whether it has done what was asked is not "
            "known: send the call again"
        )

    def _begin_following(self) -> None:
        if self._channel is None or self._is_followed:
            return
        self._is_followed = True
        # a context of its own: lines of the log are not about the request that came first
        following = asyncio.create_task(self._follow(self._channel), context=Context())
        self._tasks.add(following)
        following.add_done_callback(self._tasks.discard)

    async def _follow(self, channel: grpc.aio.Channel) -> None:
        """Note how the channel is, until it is closed or another one is used."""
        while channel is self._channel:
            state = channel.get_state(try_to_connect=not self._was_reached.is_set())
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            if state is _READY:
                self.reached()
            elif state is _FAILING and not self._is_away:
                self.note_away(await self._fault())
                continue
            await channel.wait_for_state_change(state)

    def note_away(self, why: str) -> None:
        if not self._is_away:
            self._is_away = True
            _log.warning(
                "a peer cannot be reached", peer=self.name, address=self.address, setting=self.setting, why=why
            )

    async def _fault(self) -> str:
        """Return why the peer cannot be reached, in gRPC's words; empty: it can."""
        if self._channel is None or self._channel.get_state() is _READY:
            return ""
        probe: Any = self._channel.unary_unary(_PROBE)
        try:
            await probe(health_pb2.HealthCheckRequest().SerializeToString(), timeout=_PROBE_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return "it does not answer"
            return error.details() or error.code().name if error.code() is grpc.StatusCode.UNAVAILABLE else ""
        return ""

    def _refusal(self, error: grpc.aio.AioRpcError) -> LemanError | None:
        """Return the error of a call that the peer did not take from this service; None: it failed otherwise."""
        code, said = error.code(), status.error_from_rpc(error)
        unknown = said.reason == CALL_NOT_OFFERED or not says_why(error)
        if code is grpc.StatusCode.UNIMPLEMENTED and unknown:
            why = (
                f"what answers at {self.address} ({self.setting}) does not have the calls of the {self.name}: it is "
                f"another service, or one of another release; set {self.setting} to the {self.name}'s address"
            )
            return self._refused(why, self.setting, "WRONG_PEER")
        of_its_role = said.reason == "ROLE_REQUIRED" or not says_why(error)
        if code is not grpc.StatusCode.UNAUTHENTICATED and not (
            code is grpc.StatusCode.PERMISSION_DENIED and of_its_role
        ):
            return None
        return self._refused(
            f"{self._named()} refuses {self._shown}: {said.message}. Set LEMAN_PEERS__TOKEN here to a token of that "
            "service with the role service",
            "LEMAN_PEERS__TOKEN",
        )

    def _refused(self, why: str, setting: str, reason: str = "PEER_REFUSED") -> LemanError:
        """Return the error of a peer that does not take this service, because of a setting here; note it in the log."""
        about = {"peer": self.name, "address": self.address, "setting": setting}
        if not self._refuses:
            self._refuses = True
            _log.warning("a peer refuses this service", **about, why=why)
        error = FailedPrecondition(reason, why)
        error.facts = about
        return error

    def _never_reached(self, fault: str) -> LemanError:
        if _TLS_FAULT.search(fault):
            return self._distrusted(fault)
        error = self._unavailable(
            f"{self._named()} was not reached since this service started: {fault or 'it answers only now'}"
            f"{self._hint(fault)}. Start it, or correct {self.setting} here, then send the call again"
        )
        error.facts[NEVER_REACHED] = "true"
        return error

    def _away(self, fault: str, seconds: float | None) -> LemanError:
        if _TLS_FAULT.search(fault):
            return self._distrusted(fault)
        return self._unavailable(
            f"{self._named()} cannot be reached, and was not within {_span(seconds)}: {fault}{self._hint(fault)}. "
            "Whether it has done what was asked before it went away is not known: send the call again once it is back"
        )

    def _distrusted(self, fault: str, here: str = "") -> LemanError:
        return self._refused(
            f"{self._named(here)} and this service cannot agree on TLS: {fault}. LEMAN_PEERS__TLS_CA here has to have "
            "the authority of the peer's certificate, which has to be for that host; where the peer speaks no TLS, "
            "leave it empty",
            "LEMAN_PEERS__TLS_CA",
        )

    def _hint(self, fault: str) -> str:
        """Return what a peer may want that takes a connection and closes it."""
        if _HANGS_UP not in fault:
            return ""
        if not self._trusts:
            return " (it hangs up: where it speaks TLS, set LEMAN_PEERS__TLS_CA here)"
        return (
            " (it hangs up: where it asks for a certificate, LEMAN_PEERS__TLS_CERT here has to be one that it believes)"
        )

    def _slow(self, seconds: float | None) -> LemanError:
        return self._unavailable(
            f"{self._named()} has not answered within {_span(seconds)} (LEMAN_PEERS__TIMEOUT_SECONDS); whether it has "
            "done what was asked is not known: send the call again"
        )

    def _unavailable(self, message: str) -> LemanError:
        return Unavailable(PEER_UNAVAILABLE, message, peer=self.name, address=self.address, setting=self.setting)

    def _named(self, here: str = "") -> str:
        return f"the {self.name} at {self.address} ({self.setting}{f' of the {here}' if here else ''})"


def as_rpc_error(error: LemanError) -> grpc.aio.AioRpcError:
    """Return an error of ours as the error of a call to a peer that has ended with it."""
    trailers = grpc.aio.Metadata(*status.trailers_of(error))
    return grpc.aio.AioRpcError(status.code_of(error), grpc.aio.Metadata(), trailers, error.message)


def is_probe(method: str | bytes) -> bool:
    """Tell whether a call only looks how the peer is."""
    return method in (_PROBE, _PROBE.encode())


def says_why(error: grpc.aio.AioRpcError) -> bool:
    """Tell whether it was the peer that ended the call, with an error of ours."""
    return any(key == status.DETAILS_KEY for key, _ in error.trailing_metadata() or ())


def _shown(settings: Settings) -> str:
    """Return by what a peer knows this service."""
    peers = settings.peers
    if peers.token.get_secret_value():
        return "the LEMAN_PEERS__TOKEN of this service"
    if peers.tls_cert:
        return "the LEMAN_PEERS__TLS_CERT of this service"
    return "this service, which shows neither token nor certificate"


def _span(seconds: float | None) -> str:
    return "its deadline" if seconds is None else f"{seconds:g} s"
