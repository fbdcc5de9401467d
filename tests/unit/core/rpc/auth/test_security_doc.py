"""The table of docs/security.md is that of the protos."""

from __future__ import annotations

from tests.unit.core.rpc.auth import security_doc


def test_the_table_is_current():
    assert security_doc.written() == security_doc.table(), "run `python -m tests.unit.core.rpc.auth.security_doc`"
