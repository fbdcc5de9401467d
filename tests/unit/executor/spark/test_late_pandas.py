"""Processes that were started without pandas, in which a function imports it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from leman_core.process.blocked_imports import blocked_imports
with blocked_imports("pandas"):
    import lance, pyarrow, pyarrow.dataset
from leman_executor.spark import daemon_startup
daemon_startup.expect_pandas()
{before}
import pandas
made = pyarrow.array(pandas.Series([1.0, None]))
print(made.null_count, pandas.__spec__.loader is pandas.__loader__, type(pandas.__loader__).__name__)
print(len([finder for finder in sys.meta_path if "daemon_startup" in type(finder).__module__]))
print(lance.write_dataset(pandas.DataFrame({{"x": [1, 2]}}), "memory://").count_rows())
"""


_ASKED = "import importlib.util; assert importlib.util.find_spec('pandas') is not None"
_FAILED = """
sys.modules["numpy.random"] = None
try:
    import pandas
except ImportError:
    del sys.modules["numpy.random"]
else:
    raise AssertionError("pandas can do without numpy.random")
"""


def _printed(program: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("before", ["", _ASKED, _FAILED], ids=["imported", "asked for before", "failed before"])
def test_pyarrow_and_lance_know_a_pandas_that_came_later(before):
    assert _printed(_PROGRAM.format(before=before)) == ["1", "True", "SourceFileLoader", "0", "2"]


def test_pyarrow_would_not_know_it_otherwise():
    assert _printed(_PROGRAM.replace("daemon_startup.expect_pandas()", "").format(before=""))[0] == "0"


def test_a_pandas_that_pyarrow_refuses_can_be_imported():
    imports = _PROGRAM.partition("made =")[0] + "print(pandas.__name__)"
    assert _printed(imports.format(before="sys.modules['pyarrow.pandas_compat'] = None")) == ["pandas"]
