"""The TypeScript client: its own tests, its examples against real services, and what checks its code."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.certificates import Authority, Files
from tests.conftest import ROOT, System
from tests.integration.clients.conftest import first_program, large_value

CLIENT = ROOT / "clients" / "typescript"
SERVED = "length_function"
FIRST = "first"
EXAMPLES = sorted(path.stem for path in (CLIENT / "examples").glob("*.ts") if path.stem not in (FIRST, SERVED))
MISSING = [program for program in ("node", "npm") if shutil.which(program) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)} here"),
    pytest.mark.timeout(300),  # the first test may have to download the packages
]


def run(*command: str, folder: Path = CLIENT, **environment: str) -> str:
    """Run a program, in the client's folder or another one, and give what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEMAN_")}
    ended = subprocess.run(
        command,
        cwd=folder,
        env=kept | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def built() -> None:
    run(str(ROOT / "scripts" / "npm-install"), "build")


@pytest.mark.usefixtures("built")
def test_the_client_with_services_of_its_own_process():
    told = run("npm", "test")

    assert re.search(r"^ℹ fail 0$", told, re.MULTILINE)
    assert re.search(r"^ℹ skipped 0$", told, re.MULTILINE)


@pytest.mark.lint
@pytest.mark.usefixtures("built")
def test_the_code_is_linted_and_formatted():
    run("npm", "run", "lint")


@pytest.mark.usefixtures("built")
@pytest.mark.spark
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_says(system: System, tmp_path: Path, name: str):
    told = run(
        "node",
        f"build/examples/{name}.js",
        str(system.service["executor"]),
        str(tmp_path / "a lake, né 1"),
        LEMAN_TOKEN=str(system.service["token"]),
    )

    comment = (CLIENT / "examples" / f"{name}.ts").read_text().partition("*/")[0]
    promised = textwrap.dedent(comment.partition("Prints:\n")[2].replace(" *", "")).strip()
    assert promised
    assert fnmatch.fnmatchcase(textwrap.dedent(told).strip(), promised)


LARGE = """
import { connect } from "leman";
const [endpoint, lake, name] = process.argv.slice(1);
const client = await connect(endpoint, { token: process.env.LEMAN_TOKEN });
const sizes = [];
for await (const batch of client.database(lake).table(name).read()) {
  for (const value of batch.getChildAt(0)) {
    sizes.push(value.length, value.every((byte) => byte === 120));
  }
}
client.close();
console.log(JSON.stringify(sizes));
"""


@pytest.mark.usefixtures("built")
def test_a_value_that_is_larger_than_any_message_is_read_whole(system: System, tmp_path: Path):
    endpoint, name = str(system.service["executor"]), large_value(tmp_path)
    told = run(
        *("node", "--input-type=module", "--eval", LARGE, endpoint, str(tmp_path), name),
        LEMAN_TOKEN=str(system.service["token"]),
    )
    assert json.loads(told) == [300_000_000, True, 1, True]


@pytest.mark.usefixtures("built")
def test_the_first_program_prints_what_its_page_says(beside_lake: Path):
    told = run("node", str(CLIENT / "build" / "examples" / f"{FIRST}.js"), folder=beside_lake)

    assert told == first_program(CLIENT / "README.md", "ts")[1]


@pytest.mark.usefixtures("built")
def test_the_function_of_the_first_page_is_served_until_it_is_asked_to_end():
    process = subprocess.Popen(
        ("node", f"build/examples/{SERVED}.js"),
        cwd=CLIENT,
        env={**os.environ, "PORT": "0", "FUNCTION_TOKEN": "one-for-the-example"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = re.fullmatch(r"length@([0-9a-f]{12}) at port (\d+)\n", process.stdout.readline())
        assert said is not None
        options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer one-for-the-example")])
        with flight.connect(f"grpc://127.0.0.1:{said[2]}") as client:
            command = {"protocol": "leman.function.v1", "function": "length", "version": said[1]}
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(json.dumps(command)), options)
            rows = pa.record_batch({"line": ["to be", None, "né 🦁"]})
            writer.begin(rows.schema)
            writer.write_batch(rows)
            answer = reader.read_chunk().data
            writer.done_writing()
            assert answer.to_pydict() == {"value": [5, None, 4]}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.usefixtures("built")
def test_functions_are_served_to_who_shows_a_certificate(tmp_path_factory: pytest.TempPathFactory):
    ours, theirs = Authority(tmp_path_factory.mktemp("ours")), Authority(tmp_path_factory.mktemp("theirs"))
    shown, client, stranger = ours.server(), ours.issue("etl"), theirs.issue("etl")
    options = ("--port", "0", "--cert", shown.cert, "--key", shown.key, "--client-ca", ours.ca)
    command = ("node", "build/conformance/function_server.js", *options)
    with subprocess.Popen(command, cwd=CLIENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            uri = f"grpc+tls://localhost:{json.loads(process.stdout.readline())['port']}"

            def actions(**certificate: str) -> list[str]:
                with flight.connect(uri, tls_root_certs=Path(ours.ca).read_bytes(), **certificate) as caller:
                    return [action.type for action in caller.list_actions()]

            def shows(files: Files) -> dict[str, str]:
                return {"cert_chain": Path(files.cert).read_text(), "private_key": Path(files.key).read_text()}

            assert actions(**shows(client)) == ["leman.function.v1.describe"]
            for certificate in ({}, shows(stranger)):
                with pytest.raises(flight.FlightUnavailableError):
                    actions(**certificate)
        finally:
            process.kill()


@pytest.mark.usefixtures("built")
def test_certificates_are_renewed_in_place(tmp_path_factory: pytest.TempPathFactory):
    folders = [tmp_path_factory.mktemp("authority") for _ in range(3)]
    for authority in map(Authority, folders):
        authority.server()
        authority.issue("etl")

    assert run("node", "build/test/renewing.js", *map(str, folders)) == "renewed\n" * 2


def test_the_first_page_shows_examples():
    programs = re.findall(r"```ts\n(import .*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)

    sources = ((CLIENT / "examples" / f"{name}.ts").read_text() for name in (FIRST, SERVED))
    assert programs == [source.partition("*/\n")[2] for source in sources]


def test_the_lock_names_no_host_and_has_a_digest_of_each_package():
    lock = (CLIENT / "package-lock.json").read_text()

    assert "http" not in re.sub(r'"(url|license|funding)": .*', "", lock)
    assert lock.count('"integrity": "sha512-') == lock.count('"node_modules/')
