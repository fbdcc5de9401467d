"""The first fill of a view: each fragment of placeholders is installed as soon as its values are there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from core.crash import crash_point
from core.domain.view import RefreshPlan, ResolvedFunction
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
            begin = time.monotonic()
            made, verdicts = await patiently(
                self._work.services.commits.fill_placeholders,
                plan,
                [(i, file) for (i, _), file in zip(some, files, strict=True)],
                job_id=self._work.board.job.job_id,
                request_id=uuid.uuid4().hex,
            )
            crash_point("executor.fill_answered")
            self._work.tally.commit_seconds += time.monotonic() - begin
            refused = [v for v in verdicts if not v.committed]
            if refused:
                raise Aborted(refused[0].reason, refused[0].message)
            self._note(version, made, [staged for _, staged in some])

    def _note(self, version: int, made: int, installed: Sequence[Staged]) -> None:
        work, rows = self._work, sum(len(staged.ids) for staged in installed)
        work.tally.rows_committed += rows
        work.tally.commits += 1
        work.say(rows_added=work.result.rows_added + rows, source_version=version, view_version=made)
        work.board.update(table_version=made)
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
