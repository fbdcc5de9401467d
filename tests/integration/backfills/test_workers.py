"""What every worker process is made of."""

from __future__ import annotations

import pyarrow as pa
import pytest

import leman
from tests.integration.evidence import numbers, values

pytestmark = pytest.mark.spark


@leman.udf(data_type=pa.string(), name="zipped")
def zipped(x: int) -> str:
    """Spark's zips that this process imports from or has imported from."""
    import sys

    files = [str(getattr(module, "__file__", None)) for module in list(sys.modules.values())]
    return " ".join(place for place in (*sys.path, *files) if ".zip" in place and "spark" in place)


def test_a_worker_imports_nothing_from_zips_of_spark(db):
    """They would be compiled at each start, and each worker would read their lists of modules anew."""
    table = db.create_table("t", numbers(8), max_rows_per_file=2)
    table.add_columns({"y": zipped})
    table.backfill("y", progress=False)
    assert values(table, "y") == dict.fromkeys(range(8), "")
