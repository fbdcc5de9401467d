"""The tables of docs/types.md are those of the tests."""

from __future__ import annotations

from tests.integration.types import types_doc


def test_the_tables_are_current():
    assert types_doc.written() == types_doc.tables(), "run `python -m tests.integration.types.types_doc`"
