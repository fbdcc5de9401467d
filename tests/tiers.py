"""Which tests run when: three tiers, by what a test costs and not by its kind.

`./leman test fast` runs the fast tier, `./leman test` also that of services, `./leman test --full` all three. A test
that is named on the command line runs whatever its tier.

`durations.json` lists the seconds that test functions took in the last full run; a function that it lacks counts as
quick. `python -m tests.tiers JUNIT.xml` writes it from the report of a run (`--junitxml`).
"""

from __future__ import annotations

import argparse
import collections
import enum
import fnmatch
import functools
import json
import xml.etree.ElementTree as ET
from pathlib import Path

DURATIONS = Path(__file__).with_name("durations.json")
#: Names the tier in the environment; `leman` sets it.
VARIABLE = "LEMAN_TIER"
#: Functions below this many seconds are not listed.
LISTED_SECONDS = 0.3


class Tier(enum.IntEnum):
    """Each includes those before it."""

    FAST = 0
    SERVICES = 1
    FULL = 2


#: The seconds that a tier allows a test, and a test function with all of its cases.
LIMITS = {Tier.FAST: (0.3, 1.0), Tier.SERVICES: (1.5, 5.0)}
#: Where no test starts a process, unless `durations.json` shows that it takes as long as if it did.
WITHOUT_PROCESSES = "tests/unit/"
#: Kinds that always belong to the full tier: what starts much before its first test.
FULL_ONLY = (
    "tests/cluster/*",
    "tests/faults/*",
    "tests/object_store/*",
    "tests/conformance/clients/test_cases.py::*",
    "tests/conformance/clients/test_stock_clients.py::*",
    "tests/conformance/function_servers/*[[]typescript*",
    "tests/integration/backfills/test_confined_functions.py::*",
    "tests/integration/clients/test_typescript.py::*",
    "tests/integration/installed/*",
    "tests/integration/test_notebook.py::*",
)
#: One test of each kind that costs more than its tier allows and runs with each change all the same.
WITH_EACH_CHANGE = (
    "tests/faults/test_killed_processes.py::test_of_the_executor",
    "tests/integration/backfills/test_alter_columns.py::test_altered_is_stale_and_computed_once",
    "tests/integration/backfills/test_checkpoint_migration.py::test_compacted_in_the_middle_of_a_job",
    "tests/integration/backfills/test_jobs.py::test_cancel_stops_calls_in_the_middle",
    "tests/integration/backfills/test_pipeline_backfill.py::test_cancel_stops_the_work_and_keeps_what_is_done",
    "tests/integration/backfills/test_retry.py::test_a_fix_that_fixes_only_some",
    "tests/integration/bad_requests/test_bad_requests.py::test_bad_json_gets_typed_errors",
    "tests/integration/bad_requests/test_bad_requests.py::test_bad_messages_get_typed_errors",
    "tests/integration/bad_requests/test_bad_requests.py::test_no_process_has_died",
    "tests/integration/commits/test_commit_conflicts.py::test_commit_beside",
    "tests/integration/embedded/test_embedded_supervisor.py::test_killed_it_leaves_no_orphan_and_the_next_one_starts_at_once",
    "tests/integration/remote_functions/test_remote_functions.py::test_a_backfill_has_its_values_computed_by_a_server",
    "tests/integration/stateful/test_chains.py::test_histories_of_chains_call_for_changed_rows_alone",
    "tests/integration/stateful/test_machine.py::test_histories_agree_with_the_oracle",
    "tests/integration/types/test_types.py::test_round_trip",
    "tests/integration/upgrades/test_release_before.py::test_a_database_of_the_release_before_goes_on",
    "tests/integration/views/test_view_changes.py::test_a_view_follows_any_history",
    "tests/integration/views/test_views_through_sdk.py::test_what_was_computed_before_is_not_computed_again",
    "tests/unit/core/test_type_matrix.py::test_a_type_is_refused_or_kept",
    "tests/unit/deployment/test_error_reasons.py::test_what_is_raised_is_published_and_what_is_published_is_raised",
    "tests/unit/deployment/test_words_of_errors.py::test_no_text_of_a_service_names_what_only_the_python_sdk_has",
)


def function_of(nodeid: str) -> str:
    """Return a test's function, without the case."""
    return nodeid.partition("[")[0]


@functools.cache
def durations() -> dict[str, tuple[float, float]]:
    """Return, for each slow test function, the seconds of its slowest case and of all of them."""
    listed = json.loads(DURATIONS.read_text())
    return {name: (longest, total) for name, (longest, total) in listed.items()}


def tier_of(nodeid: str) -> Tier:
    """Return the first tier that runs a test."""
    function = function_of(nodeid)
    longest, total = durations().get(function, (0.0, 0.0))
    allowed = (tier for tier, (one, all_cases) in LIMITS.items() if longest < one and total < all_cases)
    tier = next(allowed, Tier.FULL)
    if function in WITH_EACH_CHANGE:
        tier = Tier.SERVICES
    elif any(fnmatch.fnmatchcase(nodeid, pattern) for pattern in FULL_ONLY):
        tier = Tier.FULL
    return tier if nodeid.startswith(WITHOUT_PROCESSES) else max(tier, Tier.SERVICES)


def measured(report: Path) -> dict[str, tuple[float, float]]:
    """Return what the test functions of a report took, as `durations` does. Skipped tests are left out."""
    seconds: dict[str, list[float]] = collections.defaultdict(list)
    for case in ET.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is None:
            file = case.get("classname", "").replace(".", "/") + ".py"
            seconds[function_of(f"{file}::{case.get('name')}")].append(float(case.get("time", 0)))
    slow = {name: (max(each), sum(each)) for name, each in seconds.items() if sum(each) >= LISTED_SECONDS}
    return {name: (round(longest, 1), round(total, 1)) for name, (longest, total) in sorted(slow.items())}


def main() -> None:
    """Write `durations.json` from a report. Functions that it lacks keep their line, unless their file is gone."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("report", type=Path)
    known = durations() | measured(parser.parse_args().report)
    kept = [name for name in sorted(known) if Path(name.partition("::")[0]).is_file()]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(known[name])}" for name in kept)
    DURATIONS.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
