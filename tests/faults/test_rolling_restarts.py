"""Two planners, two executors and two commit coordinators, restarted one after the other while callers work on."""

from __future__ import annotations

import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from leman_executor.history.job_history import JobHistory
from tests.conftest import ROOT
from tests.faults.earlier_release import REVISION, unpacked
from tests.faults.fleet import running
from tests.faults.rolling_load import Functions, Program, Writer, goes_on, refreshes, sql_backfills
from tests.shares import LONG

pytestmark = pytest.mark.faults

SECONDS = 600.0 if LONG else 0.0
#: Far more than the wait for a dead executor's lease, or for a service that starts.
NEXT_ROUND_SECONDS = 300.0
SOON = {
    "LEMAN_EXECUTOR__JOB_LEASE_SECONDS": "3",
    "LEMAN_EXECUTOR__TAKEOVER_LOOK_SECONDS": "1",
    "LEMAN_EXECUTOR__RESERVATION_TTL_SECONDS": "2",
    "LEMAN_EXECUTOR__SLOTS": "2",
    "LEMAN_SERVER__GRACE_SECONDS": "5",
    "LEMAN_SPARK__ON_DEMAND": str(not LONG).lower(),
}


def test_no_call_fails_and_no_value_is_lost_while_each_is_restarted(tmp_path: Path):
    """One of each, by SIGTERM and SIGKILL in turn; with LEMAN_LONG=1 all of them for ten minutes, and with functions in
    Python, too."""
    lake, logs = tmp_path / "lake", tmp_path / "logs"
    lake.mkdir()
    logs.mkdir()
    with running(logs, **SOON) as fleet:
        functions = Functions(tmp_path, partial(fleet.connect, lake))
        turns = [sql_backfills, refreshes, Writer().writes, *([functions.led_jobs] if LONG else [])]
        ends, restarts = time.monotonic() + SECONDS, 0
        programs = [Program(fleet.connect(lake), turn) for turn in turns]
        goes_on(programs, NEXT_ROUND_SECONDS)
        while not restarts or time.monotonic() < ends:
            for member in fleet.members if LONG else fleet.members[::2]:
                member.end((signal.SIGTERM, signal.SIGKILL)[restarts % 2])
                member.start()
                goes_on(programs, NEXT_ROUND_SECONDS)
                member.serve()
                restarts += 1
            fleet.members.append(fleet.members.pop(0))  # the next time the other signal
        for program in programs:
            program.end(NEXT_ROUND_SECONDS)
    functions.check_led()
    told = (f"{program.name} {program.rounds} rounds, the longest {program.longest:.1f} s" for program in programs)
    sys.stdout.write(f"{restarts} restarts: {'; '.join(told)}\n")
    all_ended(lake)


@pytest.mark.skipif(not REVISION, reason="needs an earlier release in the repository's history: LEMAN_EARLIER names it")
def test_an_earlier_release_is_replaced_service_by_service(tmp_path: Path):
    """In an order that has each kind beside both releases of the others; one coordinator, as most have."""
    lake, logs = tmp_path / "lake", tmp_path / "logs"
    lake.mkdir()
    logs.mkdir()
    settings = SOON | {"LEMAN_SPARK__ON_DEMAND": "false"}
    with running(logs, tree=unpacked(tmp_path), coordinators=1, **settings) as fleet:
        functions = Functions(tmp_path, partial(fleet.connect, lake))
        turns = [sql_backfills, refreshes, Writer().writes, functions.backfills]
        programs = [Program(fleet.connect(lake), turn) for turn in turns]
        goes_on(programs, NEXT_ROUND_SECONDS)
        for member in [*fleet.members[::2], *fleet.members[1::2]]:
            member.end(signal.SIGTERM)
            member.tree = ROOT
            member.start()
            member.serve()
            goes_on(programs, NEXT_ROUND_SECONDS)
        for program in programs:
            program.end(NEXT_ROUND_SECONDS)
    told = (f"{program.name} {program.rounds} rounds, the longest {program.longest:.1f} s" for program in programs)
    sys.stdout.write(f"from {REVISION}: {'; '.join(told)}\n")
    all_ended(lake)


def all_ended(lake: Path) -> None:
    """No job is open or has failed."""
    jobs = JobHistory(str(lake)).load().values()
    assert [job for job in jobs if not job.state.terminal] == []
    assert {job.state.name for job in jobs} <= {"DONE", "CANCELLED"}
