"""A soak: one embedded system whose services are killed one after the other, while a program of each client runs."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import lance
import pyarrow as pa

from leman_core.process.release import SERVICES
from tests.conformance.clients import languages, restarts
from tests.conformance.clients.languages import Language
from tests.conformance.clients.soak import judgment
from tests.conformance.clients.soak.programs import Program
from tests.conftest import ROOT, System, start_system, stop_system

#: Rows that each round appends where no one says otherwise, and those of the table whose jobs are cancelled.
ROWS, ENDLESS_ROWS = 20, 200_000
#: Rounds before anything is killed: one over each service.
WARM_UP_ROUNDS = len(SERVICES)
#: Seconds that a service may be away; how long it was away is printed.
_PATIENCE = 240.0
_FUNCTIONS = "tests.conformance.clients.soak.functions"
_SETTINGS = {
    "LEMAN_UDF__ENTRYPOINTS": json.dumps([f"{_FUNCTIONS}:*"]),
    "LEMAN_EXECUTOR__JOB_LEASE_SECONDS": "3",
    "LEMAN_EXECUTOR__SLOTS": "8",
    "PYTHONPATH": str(ROOT),
}
#: How much more of something there may be at the end than after the warm-up. The threads of the Java client's pools end
#: after a minute without work, and are as many as there were callbacks at once; Python's gRPC keeps descriptors for
#: its pollers, of which it has as many as it has had calls at once.
LEEWAY = {"java": {"pooled": 12}, "python": {"handles": 4}}


@dataclass
class Outcome:
    """What became of a language's program. `faults`: what was wrong; none: all was right."""

    rounds: int = 0
    jobs: int = 0
    taken_over: int = 0
    events: int = 0
    warm: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    memory_mb: tuple[int, int] = (0, 0)
    faults: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What became of a soak. `killed`: how often each service was, and the longest it was away, in seconds."""

    outcomes: dict[str, Outcome]
    killed: dict[str, int]
    away: dict[str, float]

    def text(self) -> str:
        """For a person."""
        kills = ", ".join(
            f"{name} {count} times (away for {self.away[name]:.1f} s at most)" for name, count in self.killed.items()
        )
        lines = [f"killed: {kills}"]
        for name, told in self.outcomes.items():
            lines.append(
                f"{name}: {told.rounds} rounds, {told.jobs} jobs, {told.taken_over} of them taken over, {told.events} "
                f"events; after the warm-up {told.warm}, at the end {told.last}; memory {told.memory_mb[0]} MB, then "
                f"{told.memory_mb[1]} MB; {'all right' if not told.faults else f'{len(told.faults)} faults'}"
            )
            lines += [f"  {fault}" for fault in told.faults]
        return "\n".join(lines)


def run(used: Sequence[Language], folder: Path, count: int, every: float, rows: int = ROWS) -> Report:
    """Soak clients while services are killed a number of times, with a pause from one kill to the next.

    `rows`: so many each round appends, and has computed one after the other; the more, the fewer rounds.
    """
    commands = {language.name: languages.prepare(language, folder) for language in used}
    with contextlib.ExitStack() as open_things:
        system = start_system(folder / "system", **_SETTINGS)
        open_things.callback(stop_system, system)
        programs = []
        for language in used:
            told = _told(system, folder / "databases" / language.name, rows)
            programs.append(Program(language, commands[language.name], told, folder))
            open_things.callback(programs[-1].kill)
        outcomes = {program.name: Outcome() for program in programs}
        for program in programs:
            program.work()
        for program in programs:
            program.wait_for_rounds(WARM_UP_ROUNDS)
        for program in programs:
            outcome = outcomes[program.name]
            outcome.warm, outcome.memory_mb = program.rest(), (program.memory_mb(), 0)
        for program in programs:
            program.work()
        killed, away = _restart_services(system, programs, count, every)
        for program in programs:
            _finish(program, outcomes[program.name], system, folder / "databases" / program.name, rows)
        return Report(outcomes, killed, away)


def _told(system: System, path: Path, rows: int) -> dict[str, object]:
    """Make the tables of a program, and give what its file says."""
    path.mkdir(parents=True)
    with system.connect(path) as database:
        database.register_entrypoint(
            f"{_FUNCTIONS}:slowly_negated", name="slow", version="1", input_columns=["id"], data_type=pa.int64()
        )
        lines = database.create_table("lines", pa.schema([("id", pa.int64())]))
        lines.add_columns({"a": "id * 3", "b": ("slow@1", ["id"])})
        endless = database.create_table("endless", {"id": list(range(ENDLESS_ROWS))})
        endless.add_columns({"c": ("slow@1", ["id"])})
    endpoints = [system.service[name] for name in SERVICES]
    return {"endpoints": endpoints, "token": system.service["token"], "database": str(path), "rows": rows}


def _restart_services(
    system: System, programs: Sequence[Program], count: int, every: float
) -> tuple[dict[str, int], dict[str, float]]:
    """Kill one service after the other, so often in all; give how often each was killed, and how long it was away at
    the most."""
    killed, away = dict.fromkeys(SERVICES, 0), dict.fromkeys(SERVICES, 0.0)
    for name in itertools.islice(itertools.cycle(SERVICES), count):
        begun, before = time.monotonic(), restarts.pid(system, name)
        restarts.kill(system, name)
        restarts.wait_for_another(system, str(system.service["token"]), name, before, _PATIENCE)
        killed[name] += 1
        away[name] = max(away[name], time.monotonic() - begun)
        threading.Event().wait(max(0.0, begun + every - time.monotonic()))
        for program in programs:
            program.hear_all()
    return killed, away


def _finish(program: Program, outcome: Outcome, system: System, path: Path, rows: int) -> None:
    """Have a program end, and judge all that it saw and left."""
    outcome.last = program.rest(_most(program.name, outcome.warm))
    outcome.memory_mb = (outcome.memory_mb[0], program.memory_mb())
    left = program.end()
    outcome.faults += _faults(program, outcome, system, path, rows)
    outcome.faults += [f"{count} {what} are left of its closed clients" for what, count in left.items() if count > 0]
    outcome.rounds = len(program.rounds)
    jobs = [job for seen in program.rounds for job in seen["jobs"]]
    outcome.jobs, outcome.taken_over = len(jobs), sum(job["attempt"] > 1 for job in jobs)
    outcome.events = sum(len(job["first"]["events"]) for job in jobs)


def _most(name: str, warm: dict[str, int]) -> dict[str, int]:
    return {what: count + LEEWAY.get(name, {}).get(what, 0) for what, count in warm.items()}


def _faults(program: Program, outcome: Outcome, system: System, path: Path, added: int) -> Iterator[str]:
    for seen in program.rounds:
        yield from (f"round {seen['number']}: {fault}" for fault in judgment.faults_of_round(seen, added))
    with system.connect(path) as database:
        jobs = list(database.jobs(limit=None))
    listed = [job.job_id for job in jobs]
    yield from (f"job {job.job_id} failed: {job.error.message}" for job in jobs if job.state == "FAILED" and job.error)
    yield from judgment.faults_of_all(program.rounds, listed)
    rows = lance.dataset(path / "lines.lance").to_table(columns=["id", "a", "b"]).to_pylist()
    yield from judgment.faults_of_rows(rows, added * len(program.rounds))
    yield from judgment.leaks(outcome.warm, outcome.last, LEEWAY.get(program.name, {}))
