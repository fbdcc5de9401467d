"""Column files of some size in an object store: what of them is read before they are committed."""

from __future__ import annotations

import dataclasses
import gc
import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import xxhash
from opentelemetry.sdk.resources import Resource
from pyarrow.fs import FileType, S3FileSystem

from benchmarks.delaying_proxy import DelayingProxy
from leman_coordinator import convert_commits
from leman_core.model.plan import StagedFile
from leman_core.model.row_states import RowState
from leman_core.model.service_errors import DataLoss, FailedPrecondition, NotFound
from leman_core.settings import Metrics
from leman_core.storage import column_files, filesystems, whole_files
from leman_core.storage import view_data_files as view_files
from leman_core.storage.column_files import ColumnFileWriter, data_folder, data_path
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.lance_files import Deletions
from leman_core.storage.opening import open_latest
from leman_core.storage.table_creation import create_empty
from leman_core.telemetry import instruments
from leman_core.telemetry.exporters import MetricsExport
from leman_core.wire import convert_plans
from leman_internal.v1 import plan_pb2, submission_pb2
from tests.object_store import in_process
from tests.object_store.store_server import BUCKET, StoreServer
from tests.unit.core.observability.page import Page

FIELD = pa.field("v", pa.int64())
#: 4 MB of values: in one request; 24 MB: as they come, in several parts.
AT_ONCE, IN_PARTS = 500_000, 3_000_000
#: What is read of a file at the most that is known by its end.
END_BYTES = 200_000


@pytest.fixture
def proxy(store: StoreServer) -> Iterator[DelayingProxy]:
    with in_process.reached(store) as running:
        yield running


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/large/{uuid.uuid4().hex}.lance"


def values(rows: int) -> pa.Array:
    return pa.array(np.random.default_rng(rows).integers(0, 1 << 62, rows))


def written(uri: str, rows: int, *, partial: bool = False, deletions: Deletions | None = None) -> StagedFile:
    writer = ColumnFileWriter(uri, FIELD)
    name = f"{uuid.uuid4().hex}.lance"
    writer.open(name)
    for start in range(0, rows, 500_000):
        writer.write(values(rows).slice(start, 500_000))
    states = np.tile(np.array([RowState.COMPUTED, RowState.FAILED], np.uint8), rows // 2) if partial else None
    return writer.close(states, frozenset(), name, deletions)


def read_of(proxy: DelayingProxy, file: str, before: int) -> tuple[int, int]:
    """How many requests read a file since, and how many bytes."""
    reads = [r for r in proxy.log[before : proxy.answered()] if r.method in ("GET", "HEAD") and r.path.endswith(file)]
    return len(reads), sum(r.answered_bytes for r in reads)


@pytest.mark.parametrize("rows", [AT_ONCE, IN_PARTS])
def test_of_a_file_that_its_writer_has_digested_the_end_is_read(proxy, uri, rows):
    staged = written(uri, rows)
    assert staged.etag
    assert read_of(proxy, staged.file, 0)[0] == (0 if rows == AT_ONCE else 1), "in parts: once, for its digest"
    before = proxy.answered()
    assert column_files.verify_column_file(uri, staged, FIELD) == column_files.Verified("v", (2, 2), None)
    requests, read = read_of(proxy, staged.file, before)
    assert requests == 1
    assert read < END_BYTES < staged.size_bytes


@pytest.mark.parametrize("rows", [AT_ONCE, IN_PARTS])
def test_its_end_tells_as_much_as_all_of_it(proxy, uri, rows):
    deleted = np.zeros(rows, bool)
    deleted[::3] = True
    staged = written(uri, rows, partial=True, deletions=Deletions("1-2.arrow", deleted))
    by_end = column_files.verify_column_file(uri, staged, FIELD)
    assert by_end.deletions is not None
    assert by_end.deletions.mask.tolist() == deleted.tolist()
    whole = column_files.verify_column_file(uri, dataclasses.replace(staged, etag=""), FIELD)
    assert whole.deletions is not None
    assert whole.deletions.mask.tolist() == deleted.tolist()
    with pytest.raises(FailedPrecondition, match="announced"):
        column_files.verify_column_file(uri, dataclasses.replace(staged, physical_rows=rows - 1), FIELD)
    with pytest.raises(FailedPrecondition, match="Type mismatch"):
        column_files.verify_column_file(uri, staged, pa.field("v", pa.string()))


@pytest.mark.parametrize("rows", [AT_ONCE, IN_PARTS])
def test_a_file_that_changed_is_read_and_refused(proxy, uri, rows):
    staged = written(uri, rows)
    filesystem, path = filesystem_of(data_path(uri, staged.file))
    with filesystem.open_input_file(path) as file:
        content = bytearray(file.read())
    content[len(content) // 2] ^= 1  # among the values: its size and its end are as before
    with filesystem.open_output_stream(path) as out:
        out.write(bytes(content))
    with pytest.raises(DataLoss, match="changed after it was written"):
        column_files.verify_column_file(uri, staged, FIELD)
    content[len(content) // 2] ^= 1  # the same bytes again, as another object
    with filesystem.open_output_stream(path) as out:
        out.write(bytes(content))
    column_files.verify_column_file(uri, staged, FIELD)
    with filesystem.open_output_stream(path) as out:
        out.write(bytes(content[: len(content) // 2]))
    with pytest.raises(DataLoss, match="changed after it was written"):
        column_files.verify_column_file(uri, staged, FIELD)
    filesystem.delete_file(path)
    with pytest.raises(NotFound, match="is not in the table"):
        column_files.verify_column_file(uri, staged, FIELD)


def test_without_an_etag_or_with_another_one_all_of_it_is_read(proxy, uri):
    staged = written(uri, AT_ONCE)
    for etag in ("", '"another"'):
        before = proxy.answered()
        column_files.verify_column_file(uri, dataclasses.replace(staged, etag=etag), FIELD)
        assert read_of(proxy, staged.file, before)[1] >= staged.size_bytes


def test_a_store_that_does_not_answer_such_requests_is_left_alone(proxy, uri, monkeypatch):
    monkeypatch.setattr(whole_files, "_left", {data_folder(uri): float("inf")})
    staged = written(uri, IN_PARTS)
    assert not staged.etag
    column_files.verify_column_file(uri, staged, FIELD)
    refused = f"s3://{BUCKET}-that-is-not-there/t.lance/data"
    assert whole_files.tagged_digest(refused, "f.lance") is None


def test_a_file_of_a_view_is_known_by_its_end_too(proxy, uri):
    rows = pa.table({"v": values(IN_PARTS)})
    staged = view_files.stage_append(uri, rows.schema, rows.to_batches(), "2.2")
    before = proxy.answered()
    content = column_files.read_verified(uri, staged)
    assert content.schema.names == ["v"]
    requests, read = read_of(proxy, staged.file, before)
    assert requests == 1
    assert read < END_BYTES


def test_the_etag_goes_with_the_request_unless_all_is_to_be_read(proxy, uri):
    staged = written(uri, AT_ONCE)
    assert staged.digest == xxhash.xxh3_128_hexdigest(_content(uri, staged))
    sent = convert_plans.staged_to_proto(staged)
    assert convert_plans.staged_from_proto(sent) == staged
    assert convert_plans.staged_from_proto(plan_pb2.StagedFile()).etag == "", "an earlier release says none"
    asked = submission_pb2.SubmitCommitRequest(
        replace_column=submission_pb2.ReplaceColumn(fragments=[submission_pb2.FragmentReplacement(file=sent)])
    )
    convert_commits.forget_etags(asked)
    assert convert_plans.staged_from_proto(asked.replace_column.fragments[0].file) == dataclasses.replace(
        staged, etag=""
    )
    assert pc.sum(values(4)).as_py(), "values are not all zero"


def _content(uri: str, staged: StagedFile) -> bytes:
    filesystem, path = filesystem_of(data_path(uri, staged.file))
    with filesystem.open_input_file(path) as file:
        return bytes(file.read())


@pytest.fixture
def page() -> Iterator[Page]:
    """The measures of this process, its requests among them."""
    export = MetricsExport(Metrics(port=0), None, Resource.get_empty())
    filesystems.show_request_counts()
    yield Page(export.port)
    export.stop()
    instruments.STORE_REQUESTS.show(None)


def test_requests_are_counted_by_the_library_that_sends_them(proxy, page):
    """As many of tables as the store is asked, whether the table is open or not any more; of files each call."""
    uri = f"s3://{BUCKET}/counted/{uuid.uuid4().hex}.lance"

    def counted(library: str, operation: str = "") -> float:
        labels = {"leman_library": library} | ({"leman_store_operation": operation} if operation else {})
        return page.value("leman_store_requests_total", leman_store="s3", **labels) or 0.0

    create_empty(uri, pa.schema([FIELD]))
    assert counted("lance", "write") >= 1
    known, sent = counted("lance"), proxy.answered()
    table = open_latest(uri)
    assert table.count_rows() == 0
    assert counted("lance") - known == proxy.answered() - sent > 0, "it is still open"
    del table
    gc.collect()
    assert counted("lance") - known == proxy.answered() - sent
    filesystem, folder = filesystem_of(uri)
    with filesystem.open_output_stream(f"{folder}/_leman_counted") as stream:
        stream.write(b"x")
    filesystem.delete_file(f"{folder}/_leman_counted")
    assert counted("pyarrow", "write") == 2
    assert filesystem.get_file_info(f"{folder}/_leman_counted").type == FileType.NotFound
    assert counted("pyarrow", "read") == 1
    assert whole_files.put_object(uri, "x", b"y") is not None
    assert counted("obstore", "write") == 1


def test_nothing_is_counted_where_nobody_reads_the_measures(proxy):
    filesystem, _ = filesystem_of(f"s3://{BUCKET}/counted")
    assert isinstance(filesystem, S3FileSystem)
