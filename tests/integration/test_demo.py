"""The demo from end to end, on a few small files."""

import textwrap
from functools import partial

import pytest

import leman
from examples.demo import tour
from examples.demo.extract import extract
from examples.demo.main import main
from examples.demo.udfs import complexity

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

    def run(*arguments):
        assert main(arguments) == 0
        shown = capsys.readouterr()
        return shown.out + shown.err

    return run


@pytest.mark.spark
def test_the_demo_computes_answers_and_then_has_nothing_to_do(demo, tmp_path):
    first, second = demo(), demo()

    assert "16 definitions in 13 files" in first
    assert "1 row failed and stays NULL" in first
    for shown in (first, second):
        assert "Rows that have no complexity, because it raised: 1 of 16" in shown
        assert "IndentationError  unexpected indent  tools:Command.usage" in shown
        nearest = shown.partition("Nearest to")[2].splitlines()[2]
        assert nearest.split()[1:] == ["tools:parse_date", "Parse", "a", "date", "string."]
    assert second.count("8 of 8 fragments are current: nothing to do") == 3
    assert "Nothing was computed." in second
    with leman.connect(tmp_path / "leman-demo") as db:
        rows = db.open_table("definitions").to_arrow(["source", "complexity"])
    for row in rows.to_pylist():
        if row["complexity"] is not None:
            assert row["complexity"] == complexity(row["source"])


@pytest.mark.spark
def test_fresh_reads_the_source_anew(demo):
    demo("--rows", "2")

    assert "2 rows in 2 fragments, as they were" in demo("--rows", "5")
    assert "5 rows in 5 fragments\n" in demo("--rows", "5", "--fresh")


def test_a_number_of_rows_that_makes_no_sense_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--rows", "0"])

    assert ended.value.code == 2
    assert "1 or more" in capsys.readouterr().err
