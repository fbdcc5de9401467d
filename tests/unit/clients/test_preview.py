"""Previews as callers see them: what is asked for, what is shown within 80 columns, and what the command says."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import pyarrow as pa
import pytest

import leman
from leman._preview import Preview, PreviewError, PreviewRow
from leman.cli import main
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, jobs_pb2, udf_pb2

LONG = "a text that is far too long for a column " * 4


@leman.udf
def score(text: str) -> int:
    return len(text)


def row(state: str = "computed", text: str = '"one"', output: str = "3", **fields: Any) -> PreviewRow:
    made = PreviewRow(state, {"text": text}, output, 0.0101, None, 0, None, (text, output))
    return dataclasses.replace(made, **fields)


def preview(*rows: PreviewRow, **fields: Any) -> Preview:
    made = Preview(
        table="docs",
        udf_name="score",
        udf_version="1",
        input_columns=("text",),
        data_type=pa.int64(),
        read_version=3,
        where="",
        rows=rows,
        fails=False,
        timed_out=False,
        timeout=30.0,
        rows_to_compute=4000,
        workers=2,
        seconds_per_row=0.35,
        expected_seconds=700.0,
        set_up_seconds=0.01,
        printed="",
        printed_bytes=0,
        columns_left_out=(),
        values=pa.table({}),
    )
    return dataclasses.replace(made, **fields)


def test_values_times_and_the_whole_table_are_shown():
    text = str(preview(row(), row(text='"three"', output="5")))
    assert text.splitlines() == [
        "score(text) -> int64, docs version 3",
        "",
        "  text     -> score  time",
        '  "one"    3         10.1 ms',
        '  "three"  5         10.1 ms',
        "",
        "  about 11 min 40 s for 4,000 rows to compute on 2 cores, at 350.0 ms a row",
        "  nothing was written",
    ]


def test_nothing_is_wider_than_80_columns_but_tracebacks():
    inputs = tuple(f"a_long_name_of_an_input_{n}" for n in range(9))
    wide = row(texts=(*(f'"{LONG}"' for _ in inputs), LONG))
    lines = str(preview(wide, wide, input_columns=inputs)).splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert "…" in lines[3]


def test_a_failed_row_has_its_error_and_its_traceback():
    error = PreviewError("ValueError", "seven\nand more", "Traceback …\n  in score\nValueError: seven", 1)
    made = preview(row(), row("fails", error=error, output=""), fails=True)
    text = str(made)
    assert "ValueError: seven  10.1 ms" in text
    assert "    in score\n  ValueError: seven" in text
    assert "1 of 2 rows failed: a backfill would fail on that" in text
    skipped = preview(row("failed", error=error))
    assert "a backfill would leave them NULL and continue" in str(skipped)


def test_rows_that_fail_alike_show_one_traceback_and_the_whole_advice():
    advice = (
        "(workers do not have your environment: pass the variable with env={'KEY': os.environ['KEY']}, or --env KEY)"
    )
    trace = (
        'Traceback (most recent call last):\n  File "f.py", line 3, in score\n    os.environ["KEY"]\nKeyError: \'KEY\''
    )
    error = PreviewError("KeyError", f"'KEY' {advice}", trace, 1)
    made = preview(*(row("fails", error=error, output="") for _ in range(3)), fails=True)
    text = str(made)
    assert text.count("Traceback") == 1
    assert advice in " ".join(text.split())
    assert "(raised on 3 rows; this is the first)" in text
    assert max(map(len, text.splitlines())) <= 80
    html = made._repr_html_()
    assert html is not None
    assert html.count("<details>") == 1
    assert "(3 rows)" in html


def test_an_error_without_a_traceback_is_shown_whole():
    error = PreviewError(
        "OutputError", "a text is expected: " + "return str(...) " * 10 + "or give another data_type=", "", 1
    )
    assert "or give another data_type=" in str(preview(row("fails", error=error, output="")))


def test_what_is_not_known_is_said():
    late = preview(row(), row("unfinished", output="", seconds=None), timed_out=True, seconds_per_row=None)
    assert "not finished in time" in str(late)
    assert "the timeout was reached before 1 of 2 rows were done" in str(late)
    assert "the time for them is not known" in str(late)
    assert "there are no such rows" in str(preview())
    assert "| hello" in str(preview(row(), printed="hello\n", printed_bytes=6))


def test_a_notebook_shows_it_and_takes_no_value_for_html():
    error = PreviewError("<b>", "<script>", "<i>", 1)
    html = preview(row("failed", error=error, text="<script>"), printed="<script>")._repr_html_()
    assert html is not None
    assert "<script" not in html
    assert "<details>" in html


@pytest.fixture
def table(fake, db):
    schema = pa.schema([("text", pa.string()), ("n", pa.int64()), ("words", pa.int64())])
    fake.scripts["DescribeTable"] = catalog_pb2.DescribeTableResponse(
        uri="docs",
        schema=schema.serialize().to_pybytes(),
        computed_columns=[
            catalog_pb2.ComputedColumn(name="words", udf=udf_pb2.UdfRef(name="f", version="1"), input_columns=["text"])
        ],
    )
    values = pa.RecordBatch.from_pydict({"text": ["one", "two"], "score": [3, None]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, values.schema) as writer:
        writer.write_batch(values)
    answer = jobs_pb2.PreviewFunctionResponse(
        udf=udf_pb2.UdfRef(name="score", version="1"),
        input_columns=["text"],
        read_version=3,
        values=sink.getvalue().to_pybytes(),
        output_schema=pa.schema([("score", pa.int64())]).serialize().to_pybytes(),
    )
    answer.rows.add(state=jobs_pb2.PreviewRow.STATE_COMPUTED, inputs=['"one"'], output="3", row_id=0)
    failed = answer.rows.add(state=jobs_pb2.PreviewRow.STATE_FAILED, inputs=['"two"'], row_address=1)
    failed.error.error_type, failed.error.message = "ValueError", "two"
    answer.projection.rows_to_compute, answer.projection.workers = 4000, 2
    fake.scripts["PreviewFunction"] = answer
    return db.open_table("docs")


def asked(fake: Any) -> jobs_pb2.PreviewFunctionRequest:
    request: jobs_pb2.PreviewFunctionRequest = fake.named("PreviewFunction")[-1]
    return request


def test_a_function_travels_with_its_bundle_and_is_not_registered(table, fake):
    made = table.preview((score, ["text"]), 2, where="n > 1", timeout=5, concurrency=4, read_version="gold")
    request = asked(fake)
    assert request.definition.name == "score"
    assert request.bundle
    assert list(request.input_columns) == ["text"]
    assert (request.rows, request.where, request.concurrency, request.read_tag) == (2, "n > 1", 4, "gold")
    assert request.timeout.seconds == 5
    assert not fake.named("RegisterUdf")
    assert [one.state for one in made.rows] == ["computed", "failed"]
    assert [(one.inputs, one.output) for one in made.rows] == [({"text": "one"}, 3), ({"text": "two"}, None)]
    assert (made.rows[0].row_id, made.rows[1].row_id) == (0, None)
    assert str(made.rows[1].error) == "ValueError: two"


def test_a_text_is_a_computed_column_a_registered_function_or_an_expression(table, fake):
    table.preview("words")
    assert (asked(fake).column, asked(fake).WhichOneof("function")) == ("words", None)
    table.preview("words", udf=score)
    assert (asked(fake).column, asked(fake).definition.name) == ("words", "score")
    table.preview("f@2")
    assert (asked(fake).udf.name, asked(fake).udf.version) == ("f", "2")
    table.preview("n * 2")
    assert asked(fake).sql_expression == "n * 2"
    table.preview(leman.sql("100 / n", error_handling=leman.ErrorHandlingConfig(on_error=[leman.Skip()])))
    assert len(asked(fake).error_policy.rules) == 1


@pytest.mark.parametrize(
    ("timed_out", "said"), [(True, "no row was read within 0.5 s: raise timeout="), (False, "no such rows")]
)
def test_an_answer_without_rows_has_no_columns_and_is_told(table, fake, timed_out, said):
    answer = fake.scripts["PreviewFunction"]
    answer.ClearField("rows")
    answer.values, answer.timed_out = b"", timed_out
    made = table.preview(score, timeout=0.5)
    assert (made.rows, made.values.num_columns) == ((), 0)
    assert said in str(made)


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": True}, {"where": " "}, {"timeout": 0}, {"concurrency": 0}])
def test_what_makes_no_sense_is_refused_here(table, fake, wrong):
    with pytest.raises(InvalidArgument):
        table.preview(score, **wrong)
    assert not fake.named("PreviewFunction")


def test_the_command_tries_a_function_of_a_file(table, fake, tmp_path, monkeypatch, capsys):
    file = tmp_path / "loud_functions.py"
    file.write_text("import leman\n\n@leman.udf\ndef shout(text: str) -> str:\n    return text.upper()\n")

    def run(*arguments: str) -> tuple[Any, str]:
        argv = ["leman", "preview", str(tmp_path), "docs", *arguments, "--endpoint", fake.address]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().out

    code, out = run(f"{file}:shout", "-n", "2")
    assert (code, asked(fake).definition.name) == (3, "shout")
    assert "ValueError: two" in out
    monkeypatch.chdir(tmp_path)
    code, out = run("loud_functions:shout", "--json", "--column", "text")
    assert [one["state"] for one in json.loads(out)["rows"]] == ["computed", "failed"]
    assert run("words")[0] == 3
    assert asked(fake).column == "words"
    assert run("loud_functions:nothing")[0] == 2
