"""The notebook of the examples, run by a kernel of its own: what its cells show, as HTML and as text."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

from tests.conftest import ROOT

pytestmark = [
    pytest.mark.spark,
    # of jupyter_client and its event loop, in this process
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def outputs(system, tmp_path_factory):
    """What each cell of code gave, by its place."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "lake" / "_leman").mkdir(parents=True)
    (folder / "lake" / "_leman" / "service.json").write_text(json.dumps(system.service))
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    nbformat.write(notebook, folder / "executed.ipynb")
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def shown(outputs, kind: str = "text/html") -> str:
    return "\n".join(one.data[kind] for one in outputs if "data" in one and kind in one.data)


def bare(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_each_object_shows_itself(outputs):
    database, plan, before, _, after, errors, function, view, _ = (bare(shown(one)) for one in outputs)
    assert re.search(r"table rows version computed columns docs 2,000 2 ", database)
    assert "Plan of docs.words" in plan
    assert "■ to compute 2,000" in plan
    assert "MISSING 1 2,000 never computed" in plan
    assert "words int64 words(text) @" in before
    assert "■ to compute 2,000" in before
    assert "■ computed 1,500 ■ failed 500" in after
    assert errors.startswith(" 500 failed rows ")
    assert "ValueError no text in this row" in errors
    assert "and 480 more" in errors
    assert "raise ValueError(&quot;no text in this row&quot;)" in function
    assert "View long" in view
    assert "500 rows" in view


def test_a_job_shows_its_end_where_its_progress_was(outputs):
    job = outputs[3]
    assert all(one.output_type in ("display_data", "execute_result") for one in job), "nothing on stderr"
    assert "docs.words: 1,500 rows computed" in bare(shown(job))
    assert "■ committed 2,000" in bare(shown(job))
    assert "docs.words: 1,500 rows computed" in shown(job, "text/plain")


def test_an_error_is_a_few_lines_that_say_what_to_do(outputs):
    (error,) = outputs[-1]
    assert error.output_type == "error"
    lines = error.traceback
    assert len("\n".join(lines).splitlines()) <= 15
    assert lines[0].startswith("ColumnNot")
    assert "wrods" in lines[0]
    assert '  cell, line 1: table.backfill("wrods")' in lines


def test_the_notebook_is_kept_without_what_it_gave():
    cells = json.loads(Path(ROOT / "examples" / "notebook.ipynb").read_text())["cells"]
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


_CELL = """
import leman, pyarrow as pa, time

@leman.udf(checkpoint_size=10)
def slow(n: int) -> int:
    time.sleep(0.02)
    with open({calls!r}, "a") as log:
        log.write(f"{{n}}\\n")
    return n * n

db = leman.connect("lake")
table = db.create_table("restarted", pa.table({{"n": range({rows})}}), exist_ok=True, max_rows_per_file={rows} // 3)
table.add_columns({{"square": slow}})
table.backfill("square")
sum(table.to_arrow(["square"])["square"].to_pylist())
"""


def test_a_kernel_that_restarts_amid_a_job_goes_on_with_the_same_cell(system, tmp_path):
    """The job continues without it, and the cell that is run again waits for that one: no row is computed twice."""
    (tmp_path / "lake" / "_leman").mkdir(parents=True)
    (tmp_path / "lake" / "_leman" / "service.json").write_text(json.dumps(system.service))
    calls, rows = tmp_path / "calls", 300
    calls.touch()
    cell = _CELL.format(calls=str(calls), rows=rows)
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    try:
        client.execute(cell)
        until = time.monotonic() + 120
        while len(calls.read_text().splitlines()) < rows // 10:
            assert time.monotonic() < until, "the job does not begin"
            time.sleep(0.02)
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=60)
        shown: list[dict[str, Any]] = []
        reply = client.execute_interactive(
            cell, timeout=120, output_hook=lambda message: shown.append(message["content"])
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert reply["content"]["status"] == "ok", shown
    texts = [content["data"]["text/plain"] for content in shown if "data" in content]
    assert texts[-1] == str(sum(n * n for n in range(rows)))
    assert sorted(map(int, calls.read_text().splitlines())) == list(range(rows))
