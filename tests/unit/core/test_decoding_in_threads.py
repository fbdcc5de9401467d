"""The first messages and records of a process may come to several threads at once, which msgspec does not bear itself.

What it knows of a type it puts together when it first decodes one, and anyone who comes in between gets half of it: the
process ends with a segmentation fault. So that is to be done when modules are imported.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

CRASHING = """
import sys, threading
from leman_core.model.service_errors import DataLoss
{imports}
assert "__msgspec_cache__" in vars({type}), "the first thread that decodes one has to look at the type"
sys.setswitchinterval(1e-6)
start, ended = threading.Barrier(8), []

def first():
    start.wait()
    try:
        {call}
    except (ValueError, DataLoss) as error:
        ended.append(str(error))

threads = [threading.Thread(target=first) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(ended), ended[0])
"""
LOOP = "from leman_executor.worker import worker_loop"
PLACES = {
    "job history": (
        "from leman_core.storage import stored_jobs",
        "stored_jobs.BackfillSpec",
        "stored_jobs.decode_job('{}')",
        "job_id",
    ),
    "units": (LOOP, "worker_loop.WorkUnit", """worker_loop._units.decode('{"works": [{}]}')""", "task"),
    "contexts": (LOOP, "worker_loop.WorkContext", """worker_loop._contexts.decode('{"udf": {}}')""", "name"),
    "failed rows": (
        "import msgspec; from leman_executor.history import failed_row_pages",
        "failed_row_pages.RowError",
        "msgspec.convert({}, failed_row_pages.RowError)",
        "row_address",
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_several_threads_may_be_the_first(place: str) -> None:
    imports, kind, call, missing = PLACES[place]
    script = CRASHING.format(imports=imports, type=kind, call=call)
    ran = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"8 Object missing required field `{missing}`")
