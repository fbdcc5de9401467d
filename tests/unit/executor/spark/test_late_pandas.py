"""Processes that were started without pandas, in which a function imports it."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from core.absent_modules import without
with without("pandas"):
    import lance, pyarrow, pyarrow.dataset
from executor.spark import late_pandas
{expect}
import pandas
made = pyarrow.array(pandas.Series([1.0, None]))
print(made.null_count, pandas.__spec__.loader is pandas.__loader__, type(pandas.__loader__).__name__)
print(lance.write_dataset(pandas.DataFrame({{"x": [1, 2]}}), "memory://").count_rows())
"""


def _printed(expect: str) -> list[str]:
    program = _PROGRAM.format(expect=expect)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_pyarrow_and_lance_know_a_pandas_that_came_later():
    assert _printed("late_pandas.expect()") == ["1", "True", "SourceFileLoader", "2"]


def test_pyarrow_would_not_know_it_otherwise():
    assert _printed("")[0] == "0"
