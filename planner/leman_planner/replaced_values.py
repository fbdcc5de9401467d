"""Name the functions whose values a backfill replaces.

Pure.

The name of a column file has a digest of the function that it was computed by: of those that are registered it is known
which one that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from leman_core.model import keys
from leman_core.model.plan import KeptRows, Reason
from leman_core.model.udf import FunctionVersion
from leman_planner.resolved_request import ResolvedRequest
from leman_planner.statuses import CODE, Statuses


def replaced_values(
    resolved: ResolvedRequest, statuses: Statuses, registered: Callable[[], Iterable[FunctionVersion]]
) -> tuple[KeptRows, ...]:
    """Return the functions that other values are of, those with the most rows first; with a filter, rows at the most.

    Args:
        registered: asked where there are such values.
    """
    if resolved.failed_only:
        return ()
    rows: Counter[str] = Counter()
    places = np.flatnonzero(statuses.reasons == CODE[Reason.UDF_CHANGED])
    live = statuses.fragments.live_rows[places].tolist()
    for file, count in zip(statuses.current_files(places), live, strict=True):
        if (name := keys.parse_column_file_name(file)) is not None:
            rows[name.function_part] += count
    if not rows:
        return ()
    ids = dict.fromkeys((resolved.output.column_id, resolved.values_id or resolved.output.column_id))
    made = {keys.function_part(f.name, f.version, i): f for f in registered() for i in ids}
    return tuple(KeptRows(made[part], count) for part, count in rows.most_common() if part in made)
