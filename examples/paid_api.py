"""A paid service that fails now and then: each answer is paid for once, even if calls are retried.

The service is a small web server of this program. It refuses every seventh call (busy, which a retry fixes), and some
texts for good; it counts what it answered.

Prints:
    first run: 370 answers, 30 rows failed
    paid for: 370
    the same again: nothing is called
    too long for the service: 30 rows, such as *
    with shorter texts: 400 answers, paid for: 400
"""

import json
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import leman

HERE = Path(sys.argv[1]).absolute()
ADDRESS = HERE.parent / "service.address"  # where workers find the service of this run


class Service(BaseHTTPRequestHandler):
    """Tells the mood of a text, for money."""

    calls = paid = 0
    lock = threading.Lock()

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with Service.lock:
            Service.calls += 1
            code = 413 if len(text) > 100 else 503 if Service.calls % 7 == 0 else 200
            Service.paid += code == 200
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps({"mood": "loud" if "!" in text else "calm"}).encode())

    def log_message(self, *_: object) -> None:
        """Keep the terminal for the program."""


def ask(text: str) -> str:
    request = urllib.request.Request(f"http://{ADDRESS.read_text()}", text.encode())
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["mood"])
    except urllib.error.HTTPError as error:
        if error.code == 503:
            raise ConnectionError("the service is busy") from None
        raise ValueError(f"the service refuses the text: {error.code}") from None


policy = leman.ErrorHandlingConfig(
    on_error=[leman.Retry(ConnectionError, max_attempts=8, initial_backoff_seconds=0.01), leman.Skip(ValueError)]
)


@leman.udf(name="mood", error_handling=policy)
def mood(text: str) -> str:
    return ask(text)


@leman.udf(name="mood", error_handling=policy)
def mood_of_the_beginning(text: str) -> str:
    return ask(text[:100])


server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
ADDRESS.write_text("{}:{}".format(*server.server_address))

texts = [f"message {i}{'!' * (i % 3)}" + " and so on" * (12 if i % 40 < 3 else 0) for i in range(400)]
db = leman.connect(str(HERE))
table = db.create_table("messages", {"text": texts}, mode="overwrite")
table.add_columns({"mood": mood})
job_id = table.backfill("mood")
states = table.row_states("mood")
print(f"first run: {states.computed} answers, {states.failed} rows failed")
print(f"paid for: {Service.paid}")

before = Service.calls
table.backfill("mood")  # rows that failed are left alone, too: a refusal is an answer
print("the same again:", "nothing is called" if Service.calls == before else "that was paid twice")
errors = table.get_errors(job_id=job_id)
print(f"too long for the service: {len(errors)} rows, such as {errors[0]}")

db.retry_job(job_id, udf=mood_of_the_beginning, keep_others=True)
print(f"with shorter texts: {table.row_states('mood').computed} answers, paid for: {Service.paid}")
server.shutdown()
