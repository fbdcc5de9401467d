"""The first fill of a view: each fragment of placeholders is installed as soon as its values are there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Sequence

from core.crash import crash_point
from core.domain.view import AskedCommit, RefreshPlan, RefreshResult, ResolvedFunction
from core.errors import Aborted, Internal
from core.lance_io.views import files as view_files
from core.lance_io.views.stage import Stage
from executor.jobs.waiting import patiently
from executor.refresh import layout
from executor.refresh.layout import Ints
from executor.refresh.rows import Staged
from executor.refresh.tries import in_thread
from executor.refresh.work import FileWork, RefreshWork


class FirstFill:
    """Gives values to placeholders, at the source version that they were laid for."""

    def __init__(self, work: RefreshWork) -> None:
        self._work = work

    async def run(self, plan: RefreshPlan) -> None:
        """Returns when every placeholder is filled. Raises Aborted where the view moved on, Cancelled, and the error
        that ended a backfill of the stage."""
        version = plan.definition.base_version
        of = layout.digest(plan, version, plan.functions, [])
        rows: dict[int, Ints] = {}
        for fragment in plan.unset:
            rows[fragment.fragment_id] = await in_thread(
                view_files.source_row_ids, plan.uri, plan.version, fragment.fragment_id
            )
        self._work.tally.expect(sum(map(len, rows.values())), len(plan.functions))
        stage = await self._work.stage(plan, plan.functions, version, of, rows)
        places = _places(rows, stage)
        missing = dict.fromkeys(rows)

        async def install() -> None:
            done = await self._complete(stage, plan.functions, missing)
            await self._install(plan, version, stage, [(i, Staged(rows[i], places[i])) for i in done])
            for fragment_id in done:
                del missing[fragment_id]

        if stage is not None:
            await self._work.fill(stage, plan.functions, install)
        await install()
        if missing:
            raise Internal("STAGE_INCOMPLETE", f"{len(missing)} fragments of the stage were not computed")
        await self._work.drop_stage()

    async def _complete(
        self, stage: Stage | None, functions: Sequence[ResolvedFunction], missing: dict[int, None]
    ) -> list[int]:
        if stage is None:
            return list(missing)
        done = await in_thread(stage.complete, [f.column.name for f in functions])
        return [stage.targets[at] for at in done if stage.targets[at] in missing]

    async def _install(
        self, plan: RefreshPlan, version: int, stage: Stage | None, parts: Sequence[tuple[int, Staged]]
    ) -> None:
        """Writes the files of complete fragments and has them committed, a few at a time."""
        names = [f.column.name for f in plan.functions]
        for at in range(0, len(parts), 4 * self._work.services.lanes):
            self._work.check()
            some = parts[at : at + 4 * self._work.services.lanes]
            files = await self._work.write(
                plan, version, stage, names, [_filling(fragment_id, rows) for fragment_id, rows in some]
            )
            asked = AskedCommit(
                plan.uri,
                uuid.uuid4().hex,
                plan.version,
                RefreshResult(source_version=version),
                {fragment_id: len(rows.ids) for fragment_id, rows in some},
            )
            await self._work.ledger.asking(asked)
            begin = time.monotonic()
            made, verdicts = await patiently(
                self._work.services.commits.fill_placeholders,
                plan,
                [(i, file) for (i, _), file in zip(some, files, strict=True)],
                job_id=self._work.board.job.job_id,
                request_id=asked.request_id,
            )
            crash_point("executor.fill_answered")
            self._work.tally.commit_seconds += time.monotonic() - begin
            self._note(asked, made, [v.fragment_id for v in verdicts if v.committed])
            refused = [v for v in verdicts if not v.committed]
            if refused:
                raise Aborted(refused[0].reason, refused[0].message)

    def _note(self, asked: AskedCommit, made: int, installed: Collection[int]) -> None:
        work, before = self._work, self._work.ledger.result.rows_added
        if not installed:
            return
        work.ledger.landed(asked, made, installed)
        rows = work.ledger.result.rows_added - before
        work.tally.rows_committed += rows
        work.tally.commits += 1
        work.board.note("commit", f"{rows:,} rows of {len(installed):,} fragments are in version {made}")


def _places(rows: dict[int, Ints], stage: Stage | None) -> dict[int, int]:
    """Position of each fragment's first row in the stage, which may hold fragments that are filled by now."""
    if stage is None:
        return dict.fromkeys(rows, 0)
    places, at = {}, 0
    for target, count in zip(stage.targets, stage.rows, strict=True):
        places[target] = at
        at += count
    return places


def _filling(fragment_id: int, rows: Staged) -> FileWork:
    return lambda writer: writer.fill(fragment_id, rows)
