"""Services at an endpoint that the user names: asked who they are, and where the others are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

import grpc

from leman import _status
from leman._addresses import addresses
from leman._channel import Endpoints, metadata, open_channel
from leman._patience import Patience
from leman._token import Token
from leman.errors import InvalidArgument, LemanError, NotSupported, Unavailable
from leman.v1 import info_pb2, info_pb2_grpc

FIRST_CONTACT = 2.0
"""Seconds in which an endpoint given by the user must answer for the first time."""

_TRY_SECONDS = 1.0  # in which a named address must answer to be called instead of the endpoint


class Remote:
    """Locator for `endpoint`, the address of any one service, or of several such as two executors.

    That one answers for all of them, and names the others: those that answer from here are called themselves, which is
    shorter. Of several one is asked until it does not answer, then the first that does.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str],
        token: Token,
        tls_ca: str,
        tls_cert: str = "",
        tls_key: str = "",
        *,
        plaintext: bool = False,
    ) -> None:
        """Raises InvalidArgument, whose `reason` is PLAINTEXT_TOKEN where a token would be sent in the clear."""
        self._endpoints = addresses(endpoint)
        self._endpoint = self._endpoints[0]
        if bool(tls_cert) != bool(tls_key) or (tls_cert and not tls_ca):
            raise InvalidArgument("tls_cert and tls_key go together, and with tls_ca")
        if plaintext and tls_ca:
            raise InvalidArgument("plaintext and tls_ca contradict each other: leave one of them out")
        self._token = token
        self._given = Endpoints(
            "", "", "", token=token, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, plaintext=plaintext
        )
        for address in self._endpoints:
            if self._given.exposes(address):
                raise _in_the_clear(address)
        self._known: Endpoints | None = None

    def check(self, *, reads: bool) -> None:
        """Every call may be made, and nothing is elsewhere."""

    def expect_writes(self) -> None:
        """Nothing is to be started."""

    def would_start(self) -> bool:
        """Never: they run elsewhere."""
        return False

    def locate_first(self) -> Endpoints:
        """As `locate`."""
        return self.locate()

    def find_restarted(self) -> Endpoints:
        """As `locate`: whoever runs them starts them again."""
        return self.locate()

    def locate(self) -> Endpoints:
        """Ask the endpoint, and try what it names; when it does not answer, what it said before still holds."""
        seconds = 1.0 if self._known else FIRST_CONTACT
        self._endpoint = self._answering_endpoint()
        info = ask(self._endpoint, self._given, timeout=seconds)
        if self._known is None and _is_refused(info) and self._token.renew():
            info = ask(self._endpoint, self._given, timeout=seconds)
        if isinstance(info, grpc.RpcError):
            if self._known is None:
                raise _no_contact(info, self._endpoints, tls=bool(self._given.tls_ca)) from None
            return self._known
        found = {
            "planner": info.planner_address,
            "executor": info.executor_address,
            "commit_coordinator": info.commit_coordinator_address,
        }
        if info.service in found:
            found[info.service] = self._endpoint  # the way we came works, whatever it calls itself
        named = {place for place in found.values() if place and not self._given.exposes(place)}
        answering = {self._endpoint, *self._answering(named - {self._endpoint})}
        planner, executor, coordinator = (place if place in answering else self._endpoint for place in found.values())
        self._known = replace(self._given, planner=planner, executor=executor, commit_coordinator=coordinator)
        return self._known

    def _answering_endpoint(self) -> str:
        """Give the endpoint that was asked last, if it answers or is the only one, else the first that answers."""
        if len(self._endpoints) == 1:
            return self._endpoint
        answering = self._answering({*self._endpoints})
        return next((one for one in (self._endpoint, *self._endpoints) if one in answering), self._endpoint)

    def _answering(self, places: set[str]) -> list[str]:
        """Give those of these places that answer from here at once; they are asked side by side."""
        with contextlib.ExitStack() as channels:
            asked = {}
            for address in places:
                stub = info_pb2_grpc.InfoServiceStub(channels.enter_context(open_channel(address, self._given)))
                carried = metadata(self._given.token)
                asked[address] = stub.GetInfo.future(info_pb2.GetInfoRequest(), timeout=_TRY_SECONDS, metadata=carried)
            return [address for address, answer in asked.items() if answer.exception() is None]


def ask(address: str, endpoints: Endpoints, *, timeout: float) -> info_pb2.GetInfoResponse | grpc.RpcError:
    """GetInfo of the service at `address`, waiting for it up to `timeout` seconds; or the error."""
    end = time.monotonic() + timeout
    with open_channel(address, endpoints) as channel:
        stub = info_pb2_grpc.InfoServiceStub(channel)
        patience = Patience(timeout)
        while True:
            left = max(0.1, end - time.monotonic())
            try:
                return stub.GetInfo(info_pb2.GetInfoRequest(), timeout=left, metadata=metadata(endpoints.token))
            except grpc.RpcError as error:
                failure = error
            unavailable = _status.code_of(failure) is grpc.StatusCode.UNAVAILABLE
            if not unavailable or _status.tls_failure(failure) or not patience.pause():
                return failure


def _in_the_clear(address: str) -> InvalidArgument:
    return InvalidArgument(
        f"{address} is another machine, and without TLS whoever is on the way reads the token: give tls_ca=, or"
        " plaintext=True (on the command line LEMAN_PLAINTEXT=true) where the network is protected",
        reason="PLAINTEXT_TOKEN",
    )


def _no_contact(error: grpc.RpcError, endpoints: Sequence[str], *, tls: bool) -> LemanError:
    """The error for endpoints that did not answer: where they were looked for, how, and what came back."""
    address = " or ".join(endpoints)
    told = _status.from_rpc(error, service="endpoint", address=address)
    if _status.code_of(error) is grpc.StatusCode.UNIMPLEMENTED:
        what = f"what answers at {address} is no service of Leman, or of another release: check the address"
        return NotSupported(f"{what}, and whether a proxy stands before it")
    if _status.code_of(error) not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return told
    if _status.tls_failure(error):
        return told
    details = (error.details() or "").rpartition("last error: ")[2].strip()
    way = "with TLS" if tls else "without TLS (tls_ca= turns it on)"
    tried = f"cannot reach the endpoint at {address}: tried for {FIRST_CONTACT:g} s {way}"
    return Unavailable(f"{tried}; {details or 'no answer'}. Is it host:port of a service that runs?")


def _is_refused(info: info_pb2.GetInfoResponse | grpc.RpcError) -> bool:
    return isinstance(info, grpc.RpcError) and info.code() is grpc.StatusCode.UNAUTHENTICATED
