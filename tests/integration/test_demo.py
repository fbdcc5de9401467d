"""The demo from end to end, on a few small files."""

import textwrap
from functools import partial

import pytest

import leman
from examples.demo import tour, training
from examples.demo.extract import extract
from examples.demo.main import main
from examples.demo.udfs import complexity, signature

MODULE = textwrap.dedent('''\
    def parse_date(text):
        """Parse a date string."""
        return text if text else None

    def remove_tree(path):
        """Remove a directory and all below."""
        for name in path:
            if name:
                pass

    class Command:
        def usage(self):
            return """
    usage: command
    """

    def list_tree(
        path,
        deep=False,
    ):
        """List a directory."""

    def copy_tree(path):
        """Copy a directory and all below."""
''')


@pytest.fixture
def demo(system, tmp_path, monkeypatch, capsys):
    """Runs the demo over its own little source folder, and returns what it printed."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "tools.py").write_text(MODULE)
    for number in range(12):
        (source / f"filler{number:02}.py").write_text(f"def filler{number}(): pass\n")
    at = {"endpoint": system.service["executor"], "token": system.service["token"]}
    monkeypatch.setattr(leman, "connect", partial(leman.connect, **at))
    monkeypatch.setattr(tour, "extract", lambda rows: extract(rows, [source], processes=1))
    monkeypatch.chdir(tmp_path)

    def run(*arguments, ends=0):
        assert main(arguments) == ends
        shown = capsys.readouterr()
        return shown.out + shown.err

    return run


@pytest.mark.spark
@pytest.mark.long
def test_the_demo_computes_answers_and_then_has_nothing_to_do(demo, tmp_path):
    first, second = demo(), demo()

    assert "18 definitions in 13 files" in first
    assert "1 row failed and stays NULL" in first
    for shown in (first, second):
        assert "Rows that have no complexity, because it raised: 1 of 17" in shown
        assert "IndentationError  unexpected indent  tools:Command.usage" in shown
        nearest = shown.partition("Nearest to")[2].splitlines()[2]
        assert nearest.split()[1:] == ["tools:parse_date", "Parse", "a", "date", "string."]
    assert second.count("10 of 10 fragments are current: nothing to do") == 3
    assert "REUSED: computed by version " + complexity.version in second
    assert "Nothing was computed." in second
    assert "The table changes" not in second
    with leman.connect(tmp_path / "leman-demo") as db:
        rows = db.open_table("definitions").to_arrow(["source", "complexity"])
    for row in rows.to_pylist():
        if row["complexity"] is not None:
            assert row["complexity"] == complexity(row["source"])


@pytest.mark.spark
@pytest.mark.long
def test_fresh_reads_the_source_anew(demo):
    demo("--rows", "2")

    assert "2 rows in 2 fragments, as they were" in demo("--rows", "5")
    fresh = demo("--rows", "16", "--fresh")
    assert "15 rows in 8 fragments\n" in fresh
    assert "training: full (first fill): 2 rows added" in fresh


@pytest.mark.spark
@pytest.mark.long
def test_the_view_reuses_what_the_changes_left(demo, tmp_path):
    shown = demo()

    assert "The table changes: 1 to add, 1 to edit, 1 to remove" in shown
    _, first, then = shown.partition("What the view reused")[2].splitlines()[1:4]
    assert first.split()[:7] == ["first", "full", "3", "0", "0", "0", "3"]
    assert then.split()[:9] == ["after", "the", "changes", "incremental", "1", "1", "1", "1", "2"]
    with leman.connect(tmp_path / "leman-demo") as db:
        rows = {row["qualified_name"]: row for row in db.open_view(training.NAME).to_arrow().to_pylist()}
        source = (
            db.open_table("definitions").to_arrow(["qualified_name", "docstring", "embedding", "source"]).to_pylist()
        )
    assert sorted(rows) == ["copy_tree", "parse_date", "remove_tree"]
    assert rows["remove_tree"]["docstring"].endswith("Reviewed.")
    for row in source:
        if row["docstring"]:
            found = rows[row["qualified_name"]]
            assert (found["docstring"], found["embedding"]) == (row["docstring"], row["embedding"])
            assert found["signature"] == signature(row["source"])


@pytest.mark.spark
@pytest.mark.long
def test_a_demo_that_was_interrupted_goes_on(demo, monkeypatch):
    refresh = training.refresh

    def interrupted(view, when):
        if when == "after the changes":
            raise KeyboardInterrupt
        return refresh(view, when)

    with monkeypatch.context() as patch:
        patch.setattr(training, "refresh", interrupted)
        assert "continues from here" in demo(ends=130)

    assert "incremental (source changed): 1 row added, 1 row updated, 1 row evicted, 1 row reused" in demo()


def test_a_number_of_rows_that_makes_no_sense_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--rows", "0"])

    assert ended.value.code == 2
    assert "1 or more" in capsys.readouterr().err
