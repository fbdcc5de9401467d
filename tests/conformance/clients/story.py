"""One case while it runs: gives out its steps, does those that are the harness's, and judges results."""

from __future__ import annotations

import re
import sys
import threading
import time
import uuid
from itertools import pairwise
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from leman_core.server.routes import public_services
from tests.conformance.clients import rows
from tests.conformance.clients.case_files import OWN, Case, Step
from tests.conformance.clients.matching import mismatch
from tests.conformance.clients.outsiders import damage, lance_write
from tests.conformance.clients.proxy import Book, Fault, Proxy
from tests.conformance.clients.services import Services

METHODS: dict[str, MethodDescriptor] = {
    f"{service.name}/{method.name}": method for service in public_services().values() for method in service.methods
}
_PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")
#: Seconds in which the proxy notices the end of a call that its caller left.
_CALLS_SECONDS = 10.0
#: Seconds in which a step has to be as expected that need not be so at once.
_EVENTUALLY_SECONDS = 30.0


class Wrong(Exception):
    """The case is not as it should be; says why."""


class Story:
    """A case from its first step to its outcome."""

    def __init__(self, case: Case, services: Services, run: str, proxy: Proxy) -> None:
        self._case = case
        self._services = services
        self._proxy = proxy
        self._left = list(case.steps)
        self._step: Step | None = None
        self._number = 0
        self._begun = 0.0
        self._saved: dict[str, Any] = {"run": run}
        self._data = {name: rows.table_of(described) for name, described in case.data.items()}
        self._folder = services.folder / "databases" / f"{case.id.replace('/', '-')}-{uuid.uuid4().hex[:6]}"
        self._folder.mkdir(parents=True)
        proxy.book = Book()

    def go_on(self, result: dict[str, Any] | None) -> dict[str, Any]:
        """Judge the result of the step before (None: there is none), and answer with what is next."""
        try:
            if self._step is not None:
                again = self._judged(self._step, result or {})
                if again:
                    return again
            while self._left:
                self._step = self._left.pop(0)
                self._number += 1
                self._begun = time.monotonic()
                if self._step.do not in OWN:
                    return {"step": self._for_runner(self._step)}
                self._do(self._step)
        except Wrong as wrong:
            return {"outcome": "failed", "detail": f"{self._place()}: {wrong}"}
        return {"outcome": "passed", "detail": ""}

    def _place(self) -> str:
        return f"step {self._number}" + (f" ({self._step.do})" if self._step is not None else "")

    # ------------------------------------------------------------------------------------- for the runner

    def _for_runner(self, step: Step) -> dict[str, Any]:
        given = self._filled(step.given)
        given = self._request(given) if step.do == "rpc" else self._with_rows(given)
        told = {"do": step.do, "with": given, "connection": self._connection(step.options.get("as", "admin"))}
        told["database"] = self._filled(step.options.get("database", "${db}"))
        if "timeout" in step.options:
            told["timeout"] = step.options["timeout"]
        return told

    def _request(self, given: dict[str, Any]) -> dict[str, Any]:
        """A request in the form that every parser of protobuf's JSON takes."""
        kind = GetMessageClass(METHODS[given["method"]].input_type)

        def plain(request: dict[str, Any]) -> dict[str, Any]:
            return json_format.MessageToDict(json_format.ParseDict(request, kind()))

        if "requests" in given:
            return given | {"requests": [plain(request) for request in given["requests"]]}
        return given | {"request": plain(given.get("request") or {})}

    def _with_rows(self, given: dict[str, Any]) -> dict[str, Any]:
        told = dict(given)
        if "rows" in told:
            told["arrow"] = rows.encoded(self._table(told.pop("rows")))
        return told

    def _table(self, named: Any) -> pa.Table:
        """Rows by the name of the case's data, several one after the other, or as they are described here."""
        if isinstance(named, dict):
            return rows.table_of(named)
        names = [named] if isinstance(named, str) else named
        return pa.concat_tables([self._data[name] for name in names])

    def _connection(self, name: str) -> dict[str, Any]:
        told = dict(self._case.connections.get(name, {} if name == "nobody" else {"token": name}))
        place = told.pop("endpoint", "executor")
        tls = self._services.tls
        at = tls[place] if place in tls else self._address(place)
        if "token" in told:
            told["token"] = self._services.tokens[told["token"]]
        if "tokens" in told:
            told["tokens"] = [self._services.tokens[token] for token in told["tokens"]]
        files = {key: tls[told[key]] for key in ("ca", "cert", "key") if key in told}
        return {"name": name, "endpoint": at} | told | files

    def _address(self, place: str) -> str:
        """Where a service is, behind the proxy; `elsewhere` is the executor at an address that is not of this machine
        alone, though it leads here from most languages."""
        if place != "elsewhere":
            return self._proxy.address(place)
        return f"0.0.0.0:{self._proxy.address('executor').rpartition(':')[2]}"

    # --------------------------------------------------------------------------------------- placeholders

    def _filled(self, value: Any) -> Any:
        """A value with its placeholders filled in; one that is all of a text may become anything."""
        if isinstance(value, dict):
            return {self._filled(key): self._filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner) for inner in value]
        if not isinstance(value, str):
            return value
        whole = _PLACEHOLDER.fullmatch(value)
        if whole:
            return self._meaning(whole[1])
        return _PLACEHOLDER.sub(lambda match: str(self._meaning(match[1])), value)

    def _meaning(self, text: str) -> Any:
        word, _, name = text.partition(":")
        if text in self._saved:
            return self._saved[text]
        if word == "db":
            return str(self._folder / name) if name else str(self._folder)
        if word == "table":
            return {"database": str(self._folder), "table": name}
        if word == "id":
            return self._saved.setdefault(text, uuid.uuid4().hex) if name else uuid.uuid4().hex
        if word == "schema":
            return rows.encoded_schema(self._data[name])
        if word == "ipc":
            return rows.encoded(self._data[name])
        if word == "python":
            return "{}.{}".format(*sys.version_info[:2])
        if word == "text":
            return "x" * int(name)
        raise Wrong(f"${{{text}}} means nothing")

    # -------------------------------------------------------------------------------------------- judging

    def _judged(self, step: Step, result: dict[str, Any]) -> dict[str, Any] | None:
        """None: go on; or what is next instead: the same step, where it may take a while until it is as expected."""
        try:
            return self._judge(step, result)
        except Wrong:
            if not step.options.get("eventually") or time.monotonic() > self._begun + _EVENTUALLY_SECONDS:
                raise
        threading.Event().wait(0.1)
        return {"step": self._for_runner(step)}

    def _judge(self, step: Step, result: dict[str, Any]) -> dict[str, Any] | None:
        if "skip" in result:
            return {"outcome": "skipped", "detail": str(result["skip"])}
        if "crash" in result:
            raise Wrong(f"the client failed: {result['crash']}")
        if "error" in result or "error" in step.options:
            self._judge_error(step, result)
            return None
        value = result.get("value") or {}
        if step.do == "rpc":
            value = self._answers(step, value)
        if "rows" in step.options:
            found = rows.decoded(value["arrow"])
            wrong = rows.difference(found, self._table(self._filled(step.options["rows"])))
            if wrong:
                raise Wrong(wrong)
        if step.do == "watch" and not _each_once(value.get("events") or []):
            raise Wrong(f"events are told twice, or out of their order: {value['events']}")
        wrong = mismatch(value, self._filled(step.options.get("expect", {})))
        if wrong:
            raise Wrong(wrong)
        for name, path in step.options.get("save", {}).items():
            self._saved[name] = _at(value, path)
        return None

    def _answers(self, step: Step, value: dict[str, Any]) -> Any:
        """What a raw call answered, with all fields: one message, or `{"responses": [...]}` of a stream."""
        method = METHODS[step.given["method"]]
        kind = GetMessageClass(method.output_type)
        messages = [
            json_format.MessageToDict(json_format.ParseDict(item, kind()), always_print_fields_with_no_presence=True)
            for item in value.get("responses") or []
        ]
        if method.server_streaming:
            return {"responses": messages}
        if len(messages) != 1:
            raise Wrong(f"{len(messages)} answers of a call that has one")
        return messages[0]

    def _judge_error(self, step: Step, result: dict[str, Any]) -> None:
        if "error" not in step.options:
            error = result["error"]
            raise Wrong(f"{error.get('code')} {error.get('reason')}: {error.get('message')}")
        if "error" not in result:
            raise Wrong(f"no error, where {step.options['error']} is expected, but {str(result.get('value'))[:500]}")
        wanted = step.options["error"]
        if isinstance(wanted, str):
            code, reason, field = (*wanted.split(), "", "")[:3]
            wanted = {"code": code}
            wanted |= {"reason": reason} if reason else {}
            wanted |= {"fields": {"$has": [{"field": field}]}} if field else {}
        wrong = mismatch(result["error"], self._filled(wanted), "error")
        if wrong:
            raise Wrong(f"{wrong} ({result['error'].get('message')})")

    # --------------------------------------------------------------------------------- the harness's own

    def _do(self, step: Step) -> None:
        given = self._filled(step.given)
        book = self._proxy.book
        if step.do == "fault":
            book.faults.append(Fault(**given))
        elif step.do == "forget":
            book.calls.clear()
        elif step.do == "calls":
            self._check_calls(given)
        elif step.do == "away":
            self._proxy.go_away(given["service"], given["seconds"])
        elif step.do == "kill":
            pid = self._services.pid(given["service"])
            self._services.kill(given["service"])
            if given.get("wait"):
                self._services.wait_for_another(given["service"], pid)
        elif step.do == "lance":
            lance_write(self._folder, given, self._table)
        else:
            damage(self._folder, given)

    def _check_calls(self, expected: dict[str, Any]) -> None:
        """Methods, and how often each was called, or with which codes its calls ended."""
        deadline, pause = time.monotonic() + _CALLS_SECONDS, threading.Event()
        while True:
            calls = list(self._proxy.book.calls)
            codes = {name: [call.code for call in calls if call.method == name] for name in expected}
            found = {name: len(codes[name]) if isinstance(expected[name], int) else codes[name] for name in expected}
            wrong = mismatch(found, expected, "calls")
            if not wrong:
                return
            if time.monotonic() > deadline:
                raise Wrong(wrong)
            pause.wait(0.05)


def _each_once(events: list[dict[str, Any]]) -> bool:
    numbers = [int(event["sequence"]) for event in events]
    return all(a < b for a, b in pairwise(numbers))


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value.get(part)
    return value
