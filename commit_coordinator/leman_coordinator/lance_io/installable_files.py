"""Staged files that may be installed: checked, and laid out as a manifest names them."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from lance.fragment import DataFile as LanceDataFile
from lance.fragment import FragmentMetadata

from leman_core.model.errors import FailedPrecondition
from leman_core.model.plan import OutputField, StagedFile
from leman_core.storage import column_file_checks, column_file_writer
from leman_core.storage.column_file_checks import Verified
from leman_core.storage.deletions import Deletions
from leman_core.storage.tables import open_table

#: Lance's mark for a field of a file that another file replaces.
_REPLACED = -2


@dataclass(frozen=True, slots=True)
class InstallableFile:
    """A staged file that passed all checks of its content."""

    name: str
    #: The file as a manifest names it.
    data_file: LanceDataFile = field(repr=False)
    #: Rows that the file lacks because they were deleted when it was written.
    deletions: Deletions | None = field(default=None, repr=False)


class StagedFiles:
    """The check of staged files of one table, for many threads at once."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._layouts: dict[tuple[Hashable, ...], LanceDataFile] = {}
        self._finding = threading.Lock()

    def prepare(self, staged: StagedFile, output: OutputField) -> InstallableFile:
        """Check the content of a staged file and return it as an installable one.

        Raises:
            NotFound: TABLE_NOT_FOUND – there is no such table.
            FailedPrecondition: TYPE_MISMATCH – the column is not the table's.
            LemanError: what `column_file_checks.verify` raises.
        """
        verified = column_file_checks.verify(self._uri, staged, output.field.arrow)
        key = (output.name, output.field.field_ids, str(output.field.arrow.type), verified.column, verified.format)
        with self._finding:  # by one of many threads: it opens the table
            layout = self._layouts.get(key)
            if layout is None:
                layout = self._layouts[key] = self._layout_of(staged, verified, output)
        return InstallableFile(
            staged.file,
            with_layout_of(layout, staged),
            verified.deletions,
        )

    def _layout_of(self, staged: StagedFile, verified: Verified, output: OutputField) -> LanceDataFile:
        with contextlib.ExitStack() as stack:
            name = staged.file
            if verified.column != output.name:  # Lance would look for its column by the name in the file
                like = column_file_writer.empty_copy(self._uri, staged, output.field.arrow, verified.format)
                name = stack.enter_context(like)
            return self._layout(name, output)

    def _layout(self, name: str, output: OutputField) -> LanceDataFile:
        """Return which field is in which column of the file.

        It is the same for all files of one column and format version.
        """
        try:
            layout = LanceDataFile.create(open_table(self._uri), name)
        except (OSError, ValueError):
            layout = None
        if layout is None or not layout.fields or not set(layout.fields) <= set(output.field.field_ids):
            raise FailedPrecondition(
                "TYPE_MISMATCH",
                f"Type mismatch for column {output.name}: {name} does not hold the column that this table has",
            )
        return layout


def with_files(fragment: FragmentMetadata, new: Iterable[LanceDataFile]) -> FragmentMetadata:
    """Return a fragment with other files for the fields that these hold. A file that no field is left in is dropped."""
    added = list(new)
    replaced = {field_id for file in added for field_id in file.fields}
    files = []
    for file in fragment.files:
        fields = [_REPLACED if field_id in replaced else field_id for field_id in file.fields]
        if fields == list(file.fields):
            files.append(file)
        elif any(field_id != _REPLACED for field_id in fields):
            sizes = file.file_major_version, file.file_minor_version, file.file_size_bytes
            files.append(LanceDataFile(str(file.path), fields, file.column_indices, *sizes, file.base_id))
    return dataclasses.replace(fragment, files=[*files, *added])


def with_layout_of(layout: LanceDataFile, staged: StagedFile) -> LanceDataFile:
    """Return a staged file as a manifest names it, with the columns of another one."""
    return LanceDataFile(
        staged.file,
        layout.fields,
        layout.column_indices,
        layout.file_major_version,
        layout.file_minor_version,
        staged.size_bytes,
    )
