"""Refreshes of a view without Python functions over a million rows, half of them kept: nothing to do, after an append,
an update and a delete of 1 %. From CreateJob to DONE.

The other side does with Lance alone, in one process, what has to be done at the least: reads the matching rows of what
was appended and appends them; reads and rewrites the rows that were updated, deletes those that were deleted.
"""

import time
from collections.abc import Callable

import lance
import pyarrow as pa

from benchmarks.common import Document, Options, Target, figures, options_of, report, say, scratch
from benchmarks.leman_side import Caller, running
from benchmarks.practical_limit import even, make_table
from benchmarks.view_side import KEPT, append_rows, refresh

_VIEW = {"x": "x", "y": "x * 2"}


def main() -> None:
    options = options_of(__doc__ or "", rows=1_000_000, repetitions=5)
    with scratch(options) as folder, running(folder / "lake") as caller:
        uri = caller.uri("t")
        make_table(uri, even(options.rows, options.fragments))
        query = caller.sdk.open_table("t").search(None).where(KEPT).select(_VIEW)
        caller.sdk.create_materialized_view("v", query)
        refresh(caller, "v")
        plain = str(folder / "plain.lance")
        lance.write_dataset(
            lance.dataset(uri).scanner(columns=_VIEW, filter=KEPT).to_table(), plain, enable_stable_row_ids=True
        )
        cases = _measure(options, caller, uri, plain)
    targets = [Target("nothing to do ≤ 0.03 s", cases["nothing"]["leman"]["median"], 0.03)]
    targets += [
        Target(f"{name} ≤ 5 × Lance alone", case["leman"]["median"], 5 * case["lance_alone"]["median"])
        for name, case in cases.items()
        if name != "nothing"
    ]
    targets.append(Target("Spark jobs = 0", sum(case["spark_jobs"] for case in cases.values()), 0))
    report("view_changes", options, targets, cases=cases)


def _measure(options: Options, caller: Caller, uri: str, plain: str) -> dict[str, Document]:
    rows = options.rows // 100

    def append(_: int) -> None:
        append_rows(uri, rows)

    def update(repetition: int) -> None:
        low = repetition * rows
        lance.dataset(uri).update({"x": "x + 0"}, where=f"x >= {low} AND x < {low + rows}")

    def delete(repetition: int) -> None:
        low = options.rows // 2 + repetition * rows
        lance.dataset(uri).delete(f"x >= {low} AND x < {low + rows}")

    return {
        "nothing": _case(options, caller, lambda _: None, lambda _: None),
        "append": _case(options, caller, append, lambda _: _append_alone(uri, plain)),
        "update": _case(options, caller, update, lambda r: _update_alone(uri, plain, r * rows, rows)),
        "delete": _case(options, caller, delete, lambda r: _delete_alone(plain, options.rows // 2 + r * rows, rows)),
    }


def _case(options: Options, caller: Caller, change: Callable[[int], None], alone: Callable[[int], None]) -> Document:
    ours: list[float] = []
    theirs: list[float] = []
    jobs = 0
    for repetition in range(options.repetitions + 1):
        change(repetition)
        run = refresh(caller, "v")
        begin = time.perf_counter()
        alone(repetition)
        if repetition:
            ours.append(run.seconds)
            theirs.append(time.perf_counter() - begin)
            jobs += run.job.progress.spark_jobs
        say(f"repetition {repetition}: {run.seconds:.3f} s")
    return {"leman": figures(ours), "lance_alone": figures(theirs), "spark_jobs": jobs}


def _append_alone(uri: str, plain: str) -> None:
    source = lance.dataset(uri)
    last = max(source.get_fragments(), key=lambda f: f.fragment_id)
    lance.write_dataset(last.scanner(columns=_VIEW, filter=KEPT).to_table(), plain, mode="append")


def _update_alone(uri: str, plain: str, low: int, rows: int) -> None:
    wanted = f"{KEPT} AND x >= {low} AND x < {low + rows}"
    changed: pa.Table = lance.dataset(uri).scanner(columns=_VIEW, filter=wanted).to_table()
    lance.dataset(plain).merge_insert("x").when_matched_update_all().execute(changed)


def _delete_alone(plain: str, low: int, rows: int) -> None:
    lance.dataset(plain).delete(f"x >= {low} AND x < {low + rows}")


if __name__ == "__main__":
    main()
