"""The same calls from ghz, a load generator written in Go, where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from benchmarks.common import Document, say
from benchmarks.load.generator import Target

_PROTOS = Path(__file__).parents[2] / "protos" / "leman.v1.binpb"


def installed() -> str | None:
    """Return the path of ghz; None, and a line that says so: it is not there."""
    found = shutil.which("ghz")
    if found is None:
        say("ghz is left out: `go install github.com/bojand/ghz/cmd/ghz@latest` brings it")
    return found


def run(ghz: str, target: Target, *, callers: int, seconds: float) -> Document:
    """Call in a closed loop from one process of Go, over as many connections as this machine has cores."""
    request = target.requests[0]
    command = [ghz, "--insecure", "--protoset", str(_PROTOS), "--call", target.method.strip("/"), "--format", "json"]
    command += ["--concurrency", str(callers), "--connections", "2", "--duration", f"{seconds:g}s"]
    command += ["--duration-stop", "wait", "--metadata", json.dumps(dict(target.metadata)), "--binary", target.address]
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    spread = {f"p{one['percentage']}": one["latency"] / 1e6 for one in found["latencyDistribution"] or ()}
    return {"calls_per_second": found["rps"], "codes": found["statusCodeDistribution"], "milliseconds": spread}
