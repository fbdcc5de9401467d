"""What notebooks show: text is never taken for HTML, what cannot be asked is shown as an error, errors are short."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

import leman
from leman import _notebook
from leman._job_model import Jobs, RefreshResult
from leman._table_model import (
    ComputedColumn,
    KeptRows,
    RowError,
    RowErrorGroup,
    RowErrorGroups,
    RowErrors,
    RowStates,
    TableInfo,
    UdfInfo,
)
from leman._wire import conversions
from leman.errors import LemanError, Unavailable
from tests.unit.clients.fake_services import make_job, status

EVIL = "<script>alert('a & b')</script>"


def test_text_is_escaped_wherever_it_comes_from():
    info = TableInfo(
        EVIL, EVIL, 1, 5, 1, pa.schema({EVIL: pa.int32()}), (ComputedColumn(EVIL, EVIL, EVIL, (EVIL,), (EVIL,)),), True
    )
    states = RowStates(1, 3, 0, 1, 1, (KeptRows(EVIL, EVIL, 1),))
    error = RowError("job", EVIL, 7, None, EVIL, EVIL, EVIL, 1, EVIL)
    shown = [
        _notebook.table_html(info, {EVIL: states}),
        _notebook.udf_html(UdfInfo(EVIL, EVIL, EVIL, (EVIL,), pa.int32(), stateful=False, source=EVIL)),
        _notebook.row_errors_html(RowErrors([error])),
        _notebook.row_error_groups_html(RowErrorGroups([RowErrorGroup(EVIL, EVIL, 1, (error,))], total=1, rows=1)),
        _notebook.error_html(LemanError(EVIL, reason=EVIL, facts={EVIL: EVIL})),
        _notebook.html_panel(EVIL, _notebook.html_note(EVIL), _notebook.html_bar([(EVIL, 1, "red")])),
    ]
    for html in shown:
        assert "<script" not in html
        assert "&lt;script&gt;" in html


def test_states_have_the_width_of_their_share():
    html = _notebook.row_states_html(RowStates(1, 60, 5, 10, 30, (KeptRows("f", "1", 20),)))
    widths = {"computed: 40": "40.000", "kept of earlier versions: 20": "20.000", "failed: 10": "10.000"}
    for label, width in (widths | {"to compute: 30": "30.000"}).items():
        assert f'title="{label}" style="width:{width}%' in html
    html = _notebook.row_states_html(RowStates(1, 60, 5, 10, 30, (), checkpointed=18, ready=4))
    assert all(text in html for text in ("checkpointed 18", "ready to commit 4", "to compute 8")), "they are paid for"
    assert "width:0" not in _notebook.row_states_html(RowStates(1, 0, 0, 0, 0, ()))


def test_what_cannot_be_asked_is_shown_as_the_error_that_it_is(monkeypatch):
    def unreachable(_):
        raise Unavailable("no one answers at 127.0.0.1:9")

    monkeypatch.setattr(leman.Database, "views", unreachable)
    database = leman.Database("/lake", cast("Any", None))
    assert "no one answers at 127.0.0.1:9" in str(database._repr_html_())
    assert _notebook.show(object()) is None


def job_of(number, error=None):
    more = {} if error is None else {"error": error}
    return conversions.job(
        make_job(f"job-{number}", "FAILED" if more else "DONE", progress={"rows_committed": 1200}, **more)
    )


def test_jobs_are_shown_as_a_table_of_the_first_ones():
    failed = job_of(0, status("FAILED_PRECONDITION", "UDF_FAILED", f"ValueError: {EVIL}"))
    html = str(Jobs([failed, *(job_of(number) for number in range(1, 25))])._repr_html_())
    for told in ("25 jobs", "job-19", "1,200", "failed", "ValueError", "and 5 more"):
        assert told in html
    assert "job-20" not in html
    assert "<script" not in html
    assert Jobs([failed]) == [failed], "a list as before"


def test_jobs_are_lines_of_a_terminal():
    text = repr(Jobs(job_of(number) for number in range(1, 25)))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert (len(lines), lines[-1]) == (22, "and 4 more")
    assert lines[1].split()[0] == "job-1"
    assert str(Jobs()) == "no jobs"


def test_as_code_a_result_shows_what_it_says_alone():
    assert repr(RefreshResult("no_op", "up_to_date", source_version=3)) == (
        "RefreshResult(mode='no_op', reason='up_to_date', source_version=3)"
    )
    assert "commits" not in repr(job_of(1))


def test_a_job_is_shown_in_a_line_that_names_it_its_target_and_its_state():
    job = job_of(1)
    for shown in (repr(job), str(job)):
        assert len(shown.splitlines()) == 1
        assert all(part in shown for part in (job.job_id, job.target, str(job.state)))
        assert len(shown) < 200


def test_a_refresh_warns_of_lost_records():
    done = RefreshResult("incremental", "source_changed", warnings=("v.lance/_refresh/x is damaged",))
    assert str(done).splitlines()[-1] == "warning: v.lance/_refresh/x is damaged"
    assert "warning: v.lance" in str(done._repr_html_())


def test_a_refresh_is_shown_as_its_sentence():
    done = RefreshResult(
        "incremental", "source_changed", rows_added=12, source_version=7, rows_failed=2, job_id="job-1"
    )
    html = str(done._repr_html_())
    assert "12 rows added" in html
    assert "2 rows failed" in html
    assert "source_version_before" not in html


@leman.udf
def shout(text: str) -> str:
    return text.upper()


def test_a_function_shows_what_a_registered_one_does():
    html = str(shout._repr_html_())
    for told in (f"shout@{shout.version}", "text", "string", "return text.upper()"):
        assert told in html


def test_a_long_error_is_cut_to_fifteen_lines_and_says_where_the_rest_is():
    def ask():
        raise LemanError("\n".join(f"line {n} {'x' * 200}" for n in range(40)), reason="MANY")

    try:
        ask()
    except LemanError as error:
        lines = error._render_traceback_()
    assert len(lines) == 15
    assert lines[0].startswith("LemanError: line 0")
    assert any(line.startswith("… and ") and line.endswith("print(str(error)) shows them") for line in lines)
    assert any('raise LemanError("' in line for line in lines), "where it was raised"
    assert max(map(len, lines)) <= 110
