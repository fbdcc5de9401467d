"""A database that is not there: reading makes nothing, starts nothing, and says so at once."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

import leman
from leman import _locations
from leman.errors import InvalidArgument, NotFound, TableNotFound

#: What takes longest to import, and no command needs to say that there is no database.
SLOW = ("grpc", "pyarrow", "numpy", "google.protobuf", "rich.console", "lance")


@pytest.fixture
def typo(tmp_path, monkeypatch):
    """A path next to a database with a similar name; to start anything would fail the test."""
    (tmp_path / "texts" / "docs.lance").mkdir(parents=True)
    (tmp_path / "tests").mkdir()

    def start(*arguments, **options):
        raise AssertionError(arguments)

    monkeypatch.setattr(subprocess, "Popen", start)
    return tmp_path / "textz"


READS = {
    "views": lambda db: db.views(),
    "udfs": lambda db: db.udfs(),
    "jobs": lambda db: db.jobs(),
    "job": lambda db: db.job("job-1"),
    "watch": lambda db: db.job_future("job-1").result(),
    "errors": lambda db: db.get_errors("job-1"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reads_say_that_there_is_none_and_what_may_be_meant(typo, read):
    with (
        leman.connect(typo) as db,
        pytest.raises(NotFound, match=r"no database at .*textz; did you mean .*texts\?") as it,
    ):
        read(db)
    assert (it.value.reason, it.value.facts) == ("DATABASE_NOT_FOUND", {"database": str(typo)})
    assert not typo.exists()


def test_a_table_of_no_database_is_not_found(typo):
    with leman.connect(typo) as db:
        assert db.table_names() == []
        for opened in (db.open_table, db.open_view):
            with pytest.raises(NotFound, match="no database at"):
                opened("docs")
        with pytest.raises(TableNotFound):
            db.open_table("docs")
    assert not typo.exists()


def test_an_empty_folder_is_no_database_and_stays_empty(typo):
    typo.mkdir()
    with leman.connect(typo) as db, pytest.raises(NotFound, match="the folder has no table"):
        db.views()
    assert list(typo.iterdir()) == []


def test_it_is_made_with_its_first_table(typo):
    with leman.connect(typo) as db:
        db.create_table("docs", {"x": [1]}, exist_ok=True)  # although it looks first whether the table is there
        assert _locations.database_exists(str(typo))
        assert db._table("docs").to_arrow().num_rows == 1
    assert [entry.name for entry in typo.iterdir()] == ["docs.lance"]


@pytest.mark.parametrize("below", ["", "/below", "/far/below"])
def test_a_file_is_no_database_and_none_is_below_it(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="file is not a folder"):
        leman.connect(f"{tmp_path}/file{below}")


def run(*arguments):
    """A command in a process of its own: exit code, what it said, and what of the slow modules it imported."""
    program = f"""
        import atexit, json, sys
        sys.argv = ["leman", *{arguments!r}]
        atexit.register(lambda: print(json.dumps([name for name in {SLOW!r} if name in sys.modules])))
        from leman.cli import main
        main()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, json.loads(done.stdout.splitlines()[-1]), done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "tables ls {}",
        "tables show {} t",
        "jobs ls {}",
        "views ls {}",
        "udfs ls {}",
        "errors {} j",
        "checkpoints ls {} t",
    ],
)
def test_commands_say_so_before_they_import_anything_slow(tmp_path, command):
    code, told, imported, _ = run(*command.format(tmp_path / "typo").split())
    assert (code, imported) == (1, [])
    assert f"no database at {tmp_path}/typo" in told
    assert "[DATABASE_NOT_FOUND]" in told
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_told(tmp_path):
    code, _, imported, out = run("--version")
    assert (code, imported) == (0, [])
    assert out.splitlines()[0] == f"leman {leman.__version__}"


def test_shells_complete_commands():
    command = [sys.executable, "-m", "leman.cli"]
    asked = {"_LEMAN_COMPLETE": "complete_bash", "COMP_WORDS": "leman tab", "COMP_CWORD": "1"}
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=False)
    assert "tables" in done.stdout.split()


def test_the_package_has_what_it_names():
    assert all(getattr(leman, name) is not None for name in leman.__all__)
    placed = [name for names in leman._PLACES.values() for name in names.split()]
    assert sorted(placed) == sorted(set(leman.__all__) - {"__version__"})
    assert set(leman.__all__) <= set(dir(leman))
    assert not hasattr(leman, "nothing")
