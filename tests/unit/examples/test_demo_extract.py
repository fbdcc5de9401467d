"""The demo's rows: what is taken from source files, and how it looks."""

import textwrap
from pathlib import Path

import pytest

from examples.demo.extract import Row, definitions, extract, source_roots

SOURCE = textwrap.dedent('''\
    import os

    @decorate(
        1)
    def outer(a):
        """Says what it does.

        And more.
        """
        def inner():
            return a
        return inner

    class Box:
        size = 1

        if os.name:
            async def open(self): ...

            class Lid:
                "A part."
    try:
        pass
    except ValueError:
        def late(): pass
    match 1:
        case 1:
            def chosen(): pass
''')


@pytest.fixture
def rows() -> dict[str, Row]:
    return {row.qualified_name: row for row in definitions(SOURCE.encode(), Path("pkg/sub/mod.py"))}


def test_every_definition_has_a_row_with_its_kind(rows):
    assert {name: row.kind for name, row in rows.items()} == {
        "outer": "function",
        "outer.<locals>.inner": "function",
        "Box": "class",
        "Box.open": "method",
        "Box.Lid": "class",
        "late": "function",
        "chosen": "function",
    }


def test_the_source_is_the_text_in_the_file_with_decorators_and_indentation(rows):
    assert rows["outer"].source.startswith("@decorate(\n    1)\ndef outer(a):")
    assert rows["outer"].source.endswith("    return inner\n")
    assert rows["Box.open"].source == "        async def open(self): ...\n"


def test_place_and_docstring(rows):
    assert {(row.module, row.path) for row in rows.values()} == {("pkg.sub.mod", "pkg/sub/mod.py")}
    assert rows["outer"].line == 5
    assert rows["outer"].docstring == "Says what it does.\n\nAnd more."
    assert rows["late"].docstring is None


def test_a_package_is_called_like_its_folder():
    assert definitions(b"def f(): pass", Path("pkg/__init__.py"))[0].module == "pkg"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"def f():\r\n    'caf\xc3\xa9'\r\n    x = 1\r\n\r\ny = 2\r\n", id="carriage returns"),
        pytest.param(b"\xef\xbb\xbfdef f():\n    'caf\xc3\xa9'\n    x = 1\n", id="byte order mark"),
        pytest.param("# coding: latin-1\ndef f():\n    'café'\n    x = 1\n".encode("latin-1"), id="latin-1"),
        pytest.param(b"def f():\n    'caf\xc3\xa9'\n    x = 1", id="no newline at the end"),
    ],
)
def test_files_of_any_encoding_read_alike(content):
    (row,) = definitions(content, Path("m.py"))

    assert row.source == "def f():\n    'café'\n    x = 1\n"


def test_a_form_feed_is_no_end_of_a_line():
    (row,) = definitions(b"x = 1\n\x0c\ndef f():\n    return 1\n", Path("m.py"))

    assert row.source == "def f():\n    return 1\n"


@pytest.fixture
def roots(tmp_path) -> list[Path]:
    for file, names in {"b/two.py": "pq", "b/one.py": "ab", "b/tests/x.py": "t", "a.py": "z"}.items():
        path = tmp_path / "first" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"def {name}(): pass\n" for name in names))
    (tmp_path / "first" / "b" / "wrong.py").write_text("def (:\n")
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "c.py").write_text("def c(): pass\n")
    return [tmp_path / "first", tmp_path / "second"]


def test_files_come_in_order_without_tests_and_unreadable_ones(roots):
    found = extract(100, roots, processes=2)

    assert [row.qualified_name for row in found.rows] == ["z", "a", "b", "p", "q", "c"]
    assert (found.files, found.unreadable) == (5, 1)


def test_the_limit_cuts_exactly(roots):
    assert [row.qualified_name for row in extract(3, roots, processes=1).rows] == ["z", "a", "b"]


def test_the_running_interpreter_has_source():
    stdlib = source_roots()[0]

    names = [row.qualified_name for row in definitions((stdlib / "textwrap.py").read_bytes(), Path("textwrap.py"))]

    assert {"TextWrapper", "TextWrapper.fill", "dedent"} <= set(names)


def test_warnings_about_other_peoples_code_are_kept_to_ourselves():
    (row,) = definitions(b"PATTERN = '\\d'\ndef f(): pass\n", Path("m.py"))

    assert row.qualified_name == "f"
