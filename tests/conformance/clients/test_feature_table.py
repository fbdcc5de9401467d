"""What docs/clients.md says that each client has is there under that name."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

#: Where the sources of a client lie, and what they end with.
SOURCES = {
    "Go": ("clients/go", "*.go"),
    "Java": ("clients/java/src/main", "*.java"),
    "Python": ("clients/python/leman", "*.py"),
    "TypeScript": ("clients/typescript/src", "*.ts"),
}
_GENERATED = {"gen", "generated", "v1"}


def table() -> list[list[str]]:
    text = (ROOT / "docs" / "clients.md").read_text().partition("## What each has")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


@pytest.mark.parametrize("language", SOURCES)
def test_each_name_is_one_of_the_client(language):
    header, _, *rows = table()
    assert len(rows) > 20
    column = header.index(language)
    folder, ending = SOURCES[language]
    files = [path for path in (ROOT / folder).rglob(ending) if not _GENERATED & set(path.parts)]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in files if "node_modules" not in path.parts)))
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row[column])}
    assert names, rows
    assert not names - words
    assert all(re.search(r"`\w+`", row[column]) for row in rows), "each client has everything"
