"""Which definition a function's name and version stand for in an object store.

Whoever writes a definition there first makes a table of that name, of which Lance lets one maker succeed (see
`conditional_puts`), and which has the definition in it: of two that come at the same moment one is told that it is
late, and where the first one dies before it has written its definition, the next one writes it.
"""

from __future__ import annotations

import pyarrow as pa

from leman_core.storage.conditional_puts import check_store
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.locations import OWN_FOLDER
from leman_core.storage.opening import open_latest
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.table_creation import create_empty
from leman_core.storage.table_errors import table_error

_DEFINITION = b"definition"


def claim(database: str, name: str, definition: bytes) -> bytes:
    """Return what a name stands for from now on: the given definition, or that of whoever was faster.

    Args:
        database: in an object store.
        name: of the definition's file.
        definition: its content.

    Raises:
        LemanError: what `table_errors.table_error` and `check_store` give.
    """
    uri = f"{database}/{OWN_FOLDER}/udf_claims/{name}.lance"
    check_store(database)
    try:
        with panics_as_errors():
            try:
                create_empty(uri, pa.schema([pa.field("x", pa.int8())], metadata={_DEFINITION: definition}))
            except FileExistsError:
                metadata: dict[bytes, bytes] = open_latest(uri).schema.metadata
                return metadata[_DEFINITION]
    except LANCE_ERRORS as error:
        raise table_error(uri, error) from error
    return definition
