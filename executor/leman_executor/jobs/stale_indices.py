"""The indexes on what a job wrote: they are updated where the job asks for it, else looked at.

So the job can say what a fast search misses.
"""

from __future__ import annotations

from collections.abc import Sequence

from leman_core.model.errors import LemanError
from leman_core.server.blocking import in_job_thread
from leman_core.storage import indices
from leman_executor.jobs.async_helpers import patiently
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_status import JobStatus


async def see_to(
    status: JobStatus, services: JobEnvironment, uri: str, columns: Sequence[str], *, optimize: bool
) -> None:
    """Update or look at indexes, and note on the status which of them leave rows out.

    Args:
        columns: The columns whose indexes are meant; empty: any.
        optimize: Have the coordinator update the indexes.

    Raises:
        LemanError: what the coordinator says where it cannot update them.
    """
    if optimize:
        found = await patiently(services.commits.optimize_indices, uri, columns)
    else:
        try:
            _, found = await in_job_thread(indices.coverage, uri, columns)
        except LemanError as error:  # what was asked for is done
            status.note("index", f"the indexes of the table cannot be looked at: {error.message}")
            return
    stale = tuple(index for index in found if index.is_stale)
    status.update(stale_indices=stale)
    for index in stale:
        status.note("index", f"index {index.name} leaves {index.rows_left_out} rows out: a fast search misses them")
