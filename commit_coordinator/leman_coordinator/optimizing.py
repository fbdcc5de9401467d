"""The update of indexes, beside the commit queues: it takes long, and Lance sees to it that nothing is lost.

A commit that comes in between takes its fragments out of the new index too, or makes Lance refuse the index as a
conflict; then the update is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from leman_coordinator.lance_io import index_optimization
from leman_coordinator.lance_io.commit_outcomes import CommitConflict, CommitUnclear
from leman_core.model.errors import Aborted, Unavailable
from leman_core.model.table import IndexCoverage

_TRIES = 5


def optimize(uri: str, columns: Sequence[str], names: Sequence[str]) -> tuple[int, list[IndexCoverage]]:
    """Bring indexes up to date, see `CommitService.OptimizeIndices` (protos/leman/v1/commit.proto).

    Raises:
        Aborted: CONFLICT – other writers came first each time.
        Unavailable: COMMIT_UNKNOWN – it is not known whether the indexes are up to date.
        LemanError: what `index_optimization.optimize` raises.
    """
    trying = Retrying(
        retry=retry_if_exception_type((CommitConflict, CommitUnclear)),
        stop=stop_after_attempt(_TRIES),
        wait=wait_random_exponential(multiplier=0.05, max=2),
        reraise=True,
    )
    try:
        return trying(index_optimization.optimize, uri, columns, names)
    except CommitConflict as conflict:
        raise Aborted("CONFLICT", f"Other writers of the table came first each time: {conflict}", uri=uri) from None
    except CommitUnclear as unclear:
        raise Unavailable(
            "COMMIT_UNKNOWN", f"It is not known whether the indexes are up to date: {unclear}. Ask again.", uri=uri
        ) from None
