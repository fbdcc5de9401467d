"""`python -m conformance FILE`: does the cases of a run; see tests/conformance/cases/README.md."""

from __future__ import annotations

import faulthandler
import http.client
import json
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import leman
from conformance.operations import OPERATIONS

_SECONDS = 300.0


class Connections:
    """The databases of one case, by the name of the connection and their own."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], leman.Database] = {}

    def database(self, step: dict[str, Any]) -> leman.Database:
        """What a step is about, opened when it is needed first."""
        told, name = step["connection"], step["database"]
        key = (told["name"], name)
        if key not in self._open:
            named = {"database": name} if "/" not in name else {}
            place = (told["endpoint"],) if named else (name, told["endpoint"])
            self._open[key] = leman.connect(
                *place,
                token=_token(told),
                plaintext=told.get("plaintext", False),
                tls_ca=told.get("ca"),
                tls_cert=told.get("cert"),
                tls_key=told.get("key"),
                direct=False,
                **named,
            )
        return self._open[key]

    def close(self) -> None:
        """Close all of them."""
        for database in self._open.values():
            database.close()


def _token(told: dict[str, Any]) -> Any:
    if "tokens" not in told:
        return told.get("token")
    left: Iterator[str] = iter(told["tokens"])
    last = told["tokens"][-1]
    return lambda: next(left, last)


def _do(step: dict[str, Any], connections: Connections) -> dict[str, Any]:
    """The result of a step."""
    try:
        database = connections.database(step)
        given = step["with"] | {"timeout": step.get("timeout")}
        return {"value": OPERATIONS[step["do"]](database, given)}
    except leman.LemanError as error:
        return {"error": _told(error)}
    except Exception:  # noqa: BLE001 - any error fails the case
        return {"crash": traceback.format_exc()}


def _told(error: leman.LemanError) -> dict[str, Any]:
    return {
        "code": error.code,
        "reason": error.reason,
        "message": error.message,
        "metadata": error.facts,
        "fields": [{"field": item.field, "description": item.description} for item in error.fields],
        "retry_delay": error.retry_after,
        "job": getattr(error, "job_id", None),
    }


class Control:
    """Asks for steps, over one connection."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_SECONDS)

    def next(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The next step, or the outcome."""
        self._connection.request("POST", "/next", json.dumps(asked), {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(self._connection.getresponse().read())
        return answer


def _run(case: str, control: Control) -> dict[str, Any]:
    connections = Connections()
    try:
        answer = control.next({"case": case})
        while "step" in answer:
            answer = control.next({"case": case, "result": _do(answer["step"], connections)})
    finally:
        connections.close()
    return {"case": case, "outcome": answer["outcome"], "detail": answer.get("detail", "")}


def main(path: str) -> int:
    """Do all cases of the file."""
    faulthandler.register(signal.SIGQUIT)
    warnings.simplefilter("ignore", UserWarning)  # what people should know of damaged rows and the like
    told = json.loads(Path(path).read_text())
    control = Control(told["control"])
    for case in told["cases"]:
        sys.stdout.write(json.dumps(_run(case, control)) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
