"""Formats of what is stored: one that another release wrote is refused as that, and damage stays damage."""

from __future__ import annotations

import json
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format import column_bindings, stored_documents, stored_functions, view_definitions
from leman._format.column_bindings import ColumnBinding, InputNames
from leman._format.stored_documents import StoredFormat
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions import binding, function_definitions
from leman_core.model import row_states, view_metadata
from leman_core.model.databases import Registrations
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import DataLoss, UnknownFormat, check_format
from leman_core.model.table import TableSnapshot
from leman_core.storage import database_registry, stored_jobs, view_side_files
from leman_core.storage.append_log import AppendLog
from leman_core.storage.checkpoint_store import LanceCheckpointStore
from leman_core.storage.stored_jobs import HistoryTail
from leman_executor.history.job_history import JobHistory
from tests.unit.core.lance_io.small_store import known_store
from tests.unit.core.views.test_metadata import DEFINITION, SCHEMA

JOB = Job("job-1", "request-1", JobState.DONE, BackfillSpec("/lake", "t", "y"), 1.0, 2.0)
UDF = UdfDefinition("double", "1", UdfKind.SCALAR, ("x",), pa.int64(), (pa.int64(),), entrypoint="m:double")
BOUND = column_bindings.bind(pa.field("y", pa.int64()), ColumnBinding("c", "double", "1", ()))


def refused(reason: str) -> pytest.RaisesExc[UnknownFormat]:
    return pytest.raises(UnknownFormat, check=lambda error: error.reason == reason and "is whole" in error.message)


@pytest.mark.parametrize(
    ("stated", "reason"), [(None, "FORMAT_TOO_OLD"), (1, "FORMAT_TOO_OLD"), ("4", "FORMAT_TOO_NEW"), (2, ""), ("3", "")]
)
def test_a_format_is_read_from_the_oldest_to_the_one_that_is_written(stated, reason):
    known = StoredFormat("things", 3, 2)
    if not reason:
        check_format(known, stated, "It")
        return
    with refused(reason):
        check_format(known, stated, "It")


def test_what_is_no_number_is_damage():
    with pytest.raises(ValueError, match="invalid literal"):
        check_format(stored_documents.JOB, "x", "It")


def with_metadata(**entries: str | None) -> pa.Field:
    stored = {**BOUND.metadata, **{f"leman::{key}".encode(): (v or "").encode() for key, v in entries.items()}}
    return BOUND.with_metadata({key: value for key, value in stored.items() if value})


def test_a_binding_of_another_release_is_not_damaged():
    assert BOUND.metadata[column_bindings.FORMAT] == b"1"
    assert binding.read(with_metadata(format=None)) == binding.read(BOUND)
    with refused("FORMAT_TOO_NEW"):
        binding.read(with_metadata(format="3", digest="of more keys"))
    with refused("FORMAT_TOO_OLD"):  # before there was a digest
        binding.read(with_metadata(format=None, digest=None))
    with pytest.raises(DataLoss):
        binding.read(with_metadata(digest="wrong"))


def test_a_binding_says_the_later_format_where_it_has_names():
    bound = ColumnBinding("c", "double", "1", (), input_names=InputNames(((1, "a"), (2, "b")), "since"))
    field = column_bindings.bind(BOUND, bound)
    assert field.metadata[column_bindings.FORMAT] == b"2"
    assert binding.read(field) == bound
    assert column_bindings.bind(field, binding.read(BOUND)) == BOUND


def definition(**changes: object) -> bytes:
    document = stored_documents.unseal(stored_functions.encode_definition(UDF, 1.0))
    return stored_documents.seal({**document, **changes})


def test_a_function_of_another_release_is_not_damaged():
    assert function_definitions.decode_definition(definition(), "f")[0] == UDF
    with refused("FORMAT_TOO_NEW"):
        function_definitions.decode_definition(definition(format=3), "f")
    with refused("FORMAT_TOO_OLD"):
        function_definitions.decode_definition(definition(format=1), "f")
    unsealed = {key: value for key, value in json.loads(definition(format=1)).items() if key != "sha256"}
    with refused("FORMAT_TOO_OLD"):  # as it was before there was a digest
        function_definitions.decode_definition(json.dumps(unsealed).encode(), "f")
    with pytest.raises(DataLoss):
        function_definitions.decode_definition(definition()[:-9], "f")


def test_a_view_of_another_release_is_not_damaged():
    metadata = dict(view_definitions.write(SCHEMA, DEFINITION).metadata)
    for number, reason in ((b"3", "FORMAT_TOO_NEW"), (b"0", "FORMAT_TOO_OLD")):
        with refused(reason):
            view_metadata.from_metadata({**metadata, view_definitions.FORMAT.encode(): number})


def record(**changes: object) -> str:
    text = json.loads(stored_documents.unseal_text(stored_jobs.encode_job(JOB)))
    stored = {key: value for key, value in {**text, **changes}.items() if value is not None}
    return stored_documents.seal_text(json.dumps(stored))


def test_a_job_record_of_another_release_is_not_damaged():
    assert stored_jobs.decode_job(record()) == stored_jobs.decode_job(record(format=None)) == JOB
    for read in (stored_jobs.decode_job, stored_jobs.job_head):
        with refused("FORMAT_TOO_NEW"):
            read(record(format=2, state="A_LATER_STATE"))
        with pytest.raises(DataLoss):
            read(record(state="A_LATER_STATE"))


def test_a_history_with_a_record_of_a_later_release_is_left_as_it_is(tmp_path):
    history = JobHistory(str(tmp_path))
    history.prepare()
    history.save(JOB)
    uri = f"{tmp_path}/_leman/jobs.lance"
    row = {**lance.dataset(uri).to_table().to_pylist()[0], "job_id": "job-2", "record": record(format=2)}
    lance.write_dataset(pa.Table.from_pylist([row], lance.dataset(uri).schema), uri, mode="append")
    with refused("FORMAT_TOO_NEW"):
        JobHistory(str(tmp_path)).load()
    assert lance.dataset(uri).count_rows() == 2
    assert not (tmp_path / "_leman/damaged").exists()


def test_a_log_of_a_later_release_is_left_as_it_is(tmp_path):
    schema = pa.schema([("a", pa.string())])
    uri = f"{tmp_path}/log.lance"
    log = AppendLog(uri, schema, repairs=True)
    log.create()
    log.append([{"a": "x"}])
    assert lance.dataset(uri).schema.metadata == {b"leman.format": b"1"}
    lance.dataset(uri).update_schema_metadata({"leman.format": "2"})
    with refused("FORMAT_TOO_NEW"):
        AppendLog(uri, schema, repairs=True).read()
    assert not (tmp_path / "damaged").exists()


def test_a_registration_of_a_later_release_is_no_damage_and_concerns_its_name_alone():
    document = {"format": 2, "name": "later"}
    config = {"database.later": stored_documents.seal(document).decode(), "database.torn": "{"}
    found = database_registry._registrations(config)
    assert found.damaged == {"torn"}
    with refused("FORMAT_TOO_NEW"):
        found.get("later")
    assert isinstance(found, Registrations)


def test_a_checkpoint_of_a_later_release_is_neither_used_nor_set_aside(tmp_path, monkeypatch):
    store = LanceCheckpointStore(str(tmp_path))
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    with monkeypatch.context() as later:
        later.setattr(stored_documents, "CHECKPOINT", replace(stored_documents.CHECKPOINT, current=2))
        store["key"] = batch
        assert store["key"] == batch
    with refused("FORMAT_TOO_NEW"):
        LanceCheckpointStore(str(tmp_path))["key"]
    assert [path.name for path in tmp_path.rglob("*.damaged")] == []


def test_row_states_of_a_later_release_are_not_damaged(monkeypatch):
    states = np.array([1, 0, 2], np.uint8)
    assert row_states.decode_states(row_states.encode_states(states, frozenset())).tolist() == [1, 0, 2]
    monkeypatch.setattr(stored_documents, "ROW_STATES", replace(stored_documents.ROW_STATES, current=2))
    later = row_states.encode_states(states, frozenset())
    monkeypatch.undo()
    with refused("FORMAT_TOO_NEW"):
        row_states.decode_state_summary(later)


def test_a_list_of_null_rows_of_a_later_release_is_not_damaged(monkeypatch):
    nulls = np.array([True, False, True])
    assert row_states.decode_nulls(row_states.encode_nulls(nulls)).tolist() == [0, 2]
    monkeypatch.setattr(stored_documents, "NULL_ROWS", replace(stored_documents.NULL_ROWS, current=2))
    later = row_states.encode_nulls(nulls)
    monkeypatch.undo()
    with refused("FORMAT_TOO_NEW"):
        row_states.decode_nulls(later)


def test_a_tail_of_a_later_release_is_refused_and_not_taken_for_damage(monkeypatch):
    with known_store():
        tail = HistoryTail("s3://lake/db")
        tail.put(1, ["a record"])
        assert [entry.records for entry in tail.since()] == [("a record",)]
        with monkeypatch.context() as later:
            later.setattr(stored_documents, "TAIL", replace(stored_documents.TAIL, current=2))
            tail.put(2, ["a record of another form"])
        with refused("FORMAT_TOO_NEW"):
            tail.since()


def test_a_source_record_of_a_later_release_is_not_damaged(monkeypatch):
    snapshot = TableSnapshot(uri="/t.lance", version=3, incarnation="i", fields=(), fragments=(), stable_row_ids=True)
    stored = view_side_files.encode_source_record(snapshot, frozenset(), [])
    assert view_side_files.decode_source_record("/t.lance", stored).snapshot.version == 3
    monkeypatch.setattr(stored_documents, "SOURCE_RECORD", replace(stored_documents.SOURCE_RECORD, current=2))
    later = view_side_files.encode_source_record(snapshot, frozenset(), [])
    monkeypatch.undo()
    with refused("FORMAT_TOO_NEW"):
        view_side_files.decode_source_record("/t.lance", later)
