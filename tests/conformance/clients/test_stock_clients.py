"""Programs that no one here wrote call the services as they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from leman_core.server.routes import public_services
from tests.conftest import ROOT

#: Programs in Go, at versions that are known to work; the checksum database says what their code is.
GRPCURL = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"
GHZ = "github.com/bojand/ghz/cmd/ghz@v0.121.0"
_BUILD_SECONDS = 600
GO = ROOT / "clients" / "go"
JAVA = ROOT / "clients" / "java"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Finds a program, or with LEMAN_LONG=1 installs it; the build cache makes that quick the second time."""
    folder = tmp_path_factory.mktemp("go-programs")

    def install(module: str) -> str:
        program = folder / module.partition("@")[0].rpartition("/")[2]
        there = shutil.which(program.name)
        if there is not None:
            return there
        if not program.exists():
            if shutil.which("go") is None:
                pytest.skip(f"{program.name}: no go on this machine")
            if not os.environ.get("LEMAN_LONG"):
                pytest.skip(f"{program.name}: takes minutes to build; LEMAN_LONG=1 does")
            ended = subprocess.run(
                ["go", "install", module],
                env=_environment(folder),
                capture_output=True,
                timeout=_BUILD_SECONDS,
                check=False,
            )
            assert ended.returncode == 0, ended.stderr.decode()
        return str(program)

    return install


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-trimpath"}


def run(*command: str) -> str:
    ended = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout.decode() + ended.stderr.decode()
    return ended.stdout.decode()


@pytest.fixture
def address(system):
    return str(system.service["planner"])


@pytest.fixture
def token(system):
    return f"authorization: Bearer {system.service['token']}"


@pytest.mark.timeout(700)
def test_grpcurl_lists_describes_and_calls(tmp_path, installed, address, token):
    grpcurl = (installed(GRPCURL), "-plaintext", "-H", token)

    assert set(public_services()) <= set(run(*grpcurl, address, "list").split())

    told = run(*grpcurl, address, "describe", "leman.v1.JobService.WatchJob")
    assert "returns ( stream .leman.v1.WatchJobResponse )" in told

    answer = json.loads(run(*grpcurl, address, "leman.v1.InfoService/GetInfo"))
    assert answer["service"] == "planner"
    asked = json.dumps({"database": str(tmp_path)})
    assert json.loads(run(*grpcurl, "-d", asked, address, "leman.v1.CatalogService/ListTables")) == {}


@pytest.mark.timeout(700)
def test_grpcurl_is_told_why_a_call_is_refused(installed, address):
    refused = subprocess.run(
        [installed(GRPCURL), "-plaintext", address, "leman.v1.InfoService/GetInfo"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode != 0
    assert "Unauthenticated" in refused.stderr.decode()
    assert "TOKEN_REQUIRED" in refused.stderr.decode()


@pytest.mark.timeout(700)
def test_ghz_calls_many_times(tmp_path, installed, address, token):
    asked = json.dumps({"database": str(tmp_path)})
    metadata = json.dumps({"authorization": token.partition(": ")[2]})
    told = run(
        *(installed(GHZ), "--insecure", "--call", "leman.v1.CatalogService/ListTables", "--metadata", metadata),
        *("-d", asked, "-n", "200", "-c", "8", "--format", "json", address),
    )
    assert json.loads(told)["statusCodeDistribution"] == {"OK": 200}


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("go") is None, reason="no go on this machine")
def test_the_flight_client_of_arrow_go_reads_and_writes(tmp_path, system, address):
    rows = pa.table({"id": pa.array(range(10_000)), "text": [None, "ü", "x" * 99, "", "\n"] * 2_000})
    lance.write_dataset(rows, tmp_path / "docs.lance", max_rows_per_file=3_000)
    (tmp_path / "built").mkdir()
    program = tmp_path / "built" / "stockflight"
    subprocess.run(["go", "build", "-o", program, "./conformance/stockflight"], cwd=GO, check=True, timeout=250)

    told = json.loads(run(str(program), address, str(system.service["token"]), str(tmp_path), "docs", "copy"))

    put = told.pop("put")
    assert told == {"flights": ["docs"], "schema": ["id int64", "text utf8"], "promised": 10_000, "rows": 10_000}
    assert put["rowsAdded"] == "10000"
    assert lance.dataset(tmp_path / "copy.lance").to_table() == rows


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(not (shutil.which("java") and shutil.which("mvn")), reason="no java or no mvn on this machine")
def test_the_flight_client_of_arrow_java_reads_and_writes(tmp_path, system, address):
    rows = pa.table({"id": pa.array(range(10_000)), "text": [None, "ü", "x" * 99, "", "\n"] * 2_000})
    table = lance.write_dataset(rows.slice(0, 4_000), tmp_path / "docs.lance")
    table.insert(rows.slice(4_000))
    program = (str(JAVA / "build"), "-f", "stockflight", "compile")
    subprocess.run(program, check=True, timeout=250, stdin=subprocess.DEVNULL)
    classpath = f"{JAVA}/stockflight/target/classes:{(JAVA / 'stockflight/target/classpath').read_text()}"
    host, _, port = address.rpartition(":")
    command = ("java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", classpath, "StockFlight")

    told = json.loads(run(*command, host, port, str(system.service["token"]), str(tmp_path), "docs", "copy"))

    assert told["flights"] == ["docs"]
    assert told["schema"] == ["id: Int(64, true)", "text: Utf8"]
    assert (told["promised"], told["put"]["rowsAdded"]) == (10_000, "10000")
    assert lance.dataset(tmp_path / "copy.lance").to_table() == rows
    assert (told["queried"], told["older"]) == ([0, 2_500, 5_000, 7_500], 4_000)
    refused = {name: told[name]["status"] for name in ("stranger", "missing", "wrong")}
    assert refused == {"stranger": "UNAUTHENTICATED", "missing": "NOT_FOUND", "wrong": "INVALID_ARGUMENT"}
    assert "no table" in told["missing"]["message"]


def test_buf_curl_lists_and_calls(tmp_path, address, token):
    buf = (
        str(Path(sys.executable).parent / "buf"),
        "curl",
        "--protocol",
        "grpc",
        "--http2-prior-knowledge",
        "-H",
        token,
    )
    listed = run(*buf, "--list-services", f"http://{address}")
    assert set(public_services()) <= set(listed.split())

    asked = json.dumps({"database": str(tmp_path)})
    answer = run(*buf, "-d", asked, f"http://{address}/leman.v1.CatalogService/ListTables")
    assert json.loads(answer) == {}
