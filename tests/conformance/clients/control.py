"""The address that runners ask for their steps."""

from __future__ import annotations

import json
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.conformance.clients.case_files import Case
from tests.conformance.clients.services import Services
from tests.conformance.clients.story import Story


class Control:
    """Serves one runner at a time: `POST /next`. `run`: the name of its run, which no other one has at that time."""

    def __init__(self, cases: dict[str, Case], services: Services, run: str) -> None:
        self._cases = cases
        self._services = services
        self._run = run
        self._proxy = services.new_proxy()
        self._stories: dict[str, Story] = {}
        self._turn: Case | None = None
        control = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps(control.answer(asked)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing: a failed case says what it has to say."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Its url."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
        self._end_turn()
        self._proxy.close()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The next step of a case, or its outcome."""
        name = asked["case"]
        try:
            if "result" not in asked:
                self._begin_turn(self._cases[name])
                self._stories[name] = Story(self._cases[name], self._services, self._run, self._proxy)
            told = self._stories[name].go_on(asked.get("result"))
        except Exception:  # noqa: BLE001 - a bug of the harness fails the case, no matter who runs it
            told = {"outcome": "failed", "detail": traceback.format_exc()}
        if "step" not in told:
            self._end_turn()
        return told

    def _begin_turn(self, case: Case) -> None:
        self._end_turn()  # that of a case at which a runner ended
        self._services.turns.take(case.kills)
        self._turn = case

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._services.end_turn(self._turn)
            self._turn = None
