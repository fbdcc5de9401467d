"""Sends bytes to a method over gRPC and over HTTP, and says how the call ended."""

from __future__ import annotations

import http.client
import json
import string
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.rpc import error_details_pb2, status_pb2

from leman_core.server.routes import path_of

#: A call that takes longer hangs.
SECONDS = 60.0
_DETAILS = "grpc-status-details-bin"
_LOST_BY_THE_CLIENT = "Internal error from Core"
_CONNECT_CODES = {"canceled": "CANCELLED"}


@dataclass(frozen=True)
class Outcome:
    """How a call ended: `OK`, or with an error. `reason` and `domain` are empty where the error has no ErrorInfo."""

    code: str
    reason: str = ""
    domain: str = ""
    message: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    #: The field that is wrong, as its BadRequest has it.
    wrong: str = ""
    #: What the status has for a message, where it is another one than gRPC's own.
    differs: str = ""
    #: Of the trailers, as they travel; 0: over HTTP.
    size: int = 0


class GrpcCaller:
    """Calls over one channel, of bytes."""

    def __init__(self, address: str, token: str) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        self._metadata = (("authorization", f"Bearer {token}"),)

    def close(self) -> None:
        self._channel.close()

    def ask(self, method: MethodDescriptor, body: bytes, then: tuple[bytes, ...] = ()) -> Outcome:
        """Send one message, of a stream `then` the others too, and take all answers.

        gRPC's Python client loses the status now and then of a service that answers before all is sent; asked again it
        tells it.
        """
        for _ in range(3):
            outcome = self._ask(method, body, then)
            if outcome.message != _LOST_BY_THE_CLIENT:
                break
        return outcome

    def _ask(self, method: MethodDescriptor, body: bytes, then: tuple[bytes, ...]) -> Outcome:
        sent, answered = (
            "stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming)
        )
        call = getattr(self._channel, f"{sent}_{answered}")(path_of(method))
        given: Any = iter([body, *then]) if method.client_streaming else body
        try:
            answer = call(given, metadata=self._metadata, timeout=SECONDS)
            if method.server_streaming:
                list(answer)
        except grpc.RpcError as error:
            return _outcome_of(error)
        return Outcome("OK")


class HttpCaller:
    """Calls over one connection, of JSON."""

    def __init__(self, address: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=SECONDS)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: MethodDescriptor, body: bytes) -> Outcome:
        """Send one message, and take all answers."""
        more = {"Accept": "application/x-ndjson"} if method.server_streaming else {}
        self._connection.request("POST", path_of(method), body, self._headers | more)
        answer = self._connection.getresponse()
        text = answer.read()
        last = json.loads(text.splitlines()[-1]) if method.server_streaming and answer.status == http.client.OK else {}
        if answer.status == http.client.OK:
            return _outcome_of_json(last["error"]) if "error" in last else Outcome("OK")
        return _outcome_of_json(json.loads(text))


def _outcome_of(error: Any) -> Outcome:
    status, info, bad = status_pb2.Status(), error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    status.ParseFromString(dict(error.trailing_metadata() or ()).get(_DETAILS, b""))
    for detail in status.details:
        for known in (info, bad):
            if detail.Is(known.DESCRIPTOR):
                detail.Unpack(known)
    wrong = "".join(violation.field for violation in bad.field_violations)
    trailers = [(key, value.encode() if isinstance(value, str) else value) for key, value in error.trailing_metadata()]
    size = sum(len(key) + (4 * len(value) // 3 if key.endswith("-bin") else len(value)) for key, value in trailers)
    size += len(urllib.parse.quote(error.details() or "", safe=string.punctuation + " "))
    differs = "" if status.message == (error.details() or "") else status.message
    facts = dict(info.metadata)
    return Outcome(error.code().name, info.reason, info.domain, error.details() or "", facts, wrong, differs, size)


def _outcome_of_json(error: dict[str, Any]) -> Outcome:
    details = {detail["type"]: detail["debug"] for detail in error.get("details", ())}
    info = details.get("google.rpc.ErrorInfo", {})
    violations = details.get("google.rpc.BadRequest", {}).get("fieldViolations", ())
    wrong = "".join(violation.get("field", "") for violation in violations)
    code = _CONNECT_CODES.get(error["code"], error["code"].upper())
    facts = info.get("metadata", {})
    return Outcome(code, info.get("reason", ""), info.get("domain", ""), error.get("message", ""), facts, wrong)
