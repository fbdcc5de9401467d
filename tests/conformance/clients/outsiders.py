"""What is done to databases without the services: by other programs that write Lance, and by damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa


def lance_write(database: Path, given: dict[str, Any], table_of: Callable[[Any], pa.Table]) -> None:
    """Write to a table as another program does."""
    uri = str(database / f"{given['table']}.lance")
    if "create" in given:
        lance.write_dataset(table_of(given["create"]), uri, **given.get("options", {}))
        return
    dataset = lance.dataset(uri)
    if "tag" in given:
        dataset.tags.create(given["tag"], dataset.version)
    if "append" in given:
        lance.write_dataset(table_of(given["append"]), uri, mode="append")
    if "compact" in given:
        dataset.optimize.compact_files()
    if "update" in given:
        dataset.update(given["update"], where=given.get("where"))
    if "index" in given:
        dataset.create_scalar_index(given["index"], "BTREE")
    if "delete" in given:
        dataset.delete(given["delete"])


def damage(database: Path, given: dict[str, Any]) -> None:
    """Flip a byte in the middle of each file that a pattern names."""
    found = [path for path in database.glob(given["files"]) if path.is_file()]
    assert found, f"no file is like {given['files']}"
    for path in found:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
