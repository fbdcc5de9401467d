"""Minutes of everything at once: does anything grow?"""

from __future__ import annotations

from pathlib import Path

from benchmarks.common import Document, say
from benchmarks.leman_side import Caller
from benchmarks.load.generator import Generator, Load
from benchmarks.load.sampling import Row, Sampler
from benchmarks.load.subjects import Subject

#: Calls a second of each RPC: far from what they can, so that what grows does not grow by waiting.
_RATES = {
    "GetJob": 100.0,
    "GetJob, unknown": 20.0,
    "ListJobs, page of 1": 10.0,
    "ListJobs, page of 100": 5.0,
    "ListJobs of a table": 5.0,
    "ListJobErrors": 2.0,
    "ExplainPlan": 5.0,
    "CreateJob, nothing to do": 5.0,
}
_LOOK_SECONDS = 2.0


def soak(caller: Caller, subjects: list[Subject], minutes: float) -> Document:
    """Call everything at an easy rate, and look at the processes meanwhile."""
    seconds = minutes * 60
    with (
        Generator(len(subjects)) as generator,
        Sampler(caller.processes(), Path(caller.database), _LOOK_SECONDS) as sampler,
    ):
        endings = [
            generator.begin_each([subject.target], Load(seconds, rate=_RATES[subject.name])) for subject in subjects
        ]
        answers = {
            subject.name: ending()[0].document(subject.target)
            for subject, ending in zip(subjects, endings, strict=True)
        }
    growth = {name: _growth(rows) for name, rows in sampler.rows.items()}
    shares = {name: {kind: round(one["share"], 3) for kind, one in kinds.items()} for name, kinds in growth.items()}
    say(f"soak of {minutes:g} minutes, last quarter to second: {shares}")
    return {"minutes": minutes, "answers": answers, "growth": growth, "samples": sampler.rows}


def _growth(rows: list[Row]) -> Document:
    """Return the means of the second quarter and of the last one: the first quarter fills caches and pools."""
    quarter = max(1, len(rows) // 4)
    early, late = rows[quarter : 2 * quarter] or rows, rows[-quarter:]
    found = {}
    for name in (name for name in rows[0] if name != "at"):
        second, last = (sum(row[name] for row in part) / len(part) for part in (early, late))
        found[name] = {"second_quarter": second, "last_quarter": last, "share": last / second}
    return found
