"""Domain values survive the wire; what this release does not know is refused."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman._format.column_bindings import FunctionVersion
from leman._format.stored_functions import (
    CheckpointBounds,
    ErrorAction,
    ErrorPolicy,
    ErrorRule,
    Resources,
    UdfDefinition,
    UdfKind,
)
from leman.v1 import jobs_pb2, planner_pb2, udf_pb2
from leman_core.model.plan import (
    BackfillSpec,
    CheckpointRef,
    FragmentTask,
    KeptRows,
    MigratedRows,
    OnStaleInput,
    OutputField,
    PlanHeader,
    Reason,
    ReasonCount,
    StagedFile,
    StaleInput,
    TracedFile,
)
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import InvalidArgument
from leman_core.model.table import TableField
from leman_core.wire import convert_plans, convert_udfs, convert_values
from leman_internal.v1 import plan_pb2

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
COUNT = st.integers(0, 2**62)
SMALL = st.integers(0, 2**31 - 1)
#: Durations on the wire are of microseconds.
SECONDS = st.integers(0, 10**12).map(lambda number: number / 10**6)
TYPES = st.sampled_from(
    [pa.int32(), pa.string(), pa.list_(pa.float32(), 384), pa.struct([("a", pa.list_(pa.timestamp("us", "UTC")))])]
)
RANGES = st.tuples(COUNT, COUNT).map(lambda pair: RowRange(min(pair), max(pair)))
BOUNDS = st.builds(CheckpointBounds, COUNT, COUNT, COUNT)
RULES = st.builds(
    ErrorRule,
    st.sampled_from(ErrorAction),
    TEXTS,
    TEXT,
    st.integers(1, 100),
    SECONDS,
    SECONDS.filter(bool),
)
POLICIES = st.builds(ErrorPolicy, st.lists(RULES, max_size=3).map(tuple), COUNT, SECONDS, st.booleans())
STAGED = st.builds(
    StagedFile,
    file=TEXT,
    size_bytes=COUNT,
    digest=TEXT,
    physical_rows=COUNT,
    rows_computed=COUNT,
    rows_failed=COUNT,
)


@st.composite
def udfs(draw):
    columns = draw(TEXTS)
    types = draw(st.lists(st.none() | TYPES, min_size=len(columns), max_size=len(columns)))
    bundle = draw(st.booleans())
    return UdfDefinition(
        name=draw(TEXT),
        version=draw(TEXT),
        kind=draw(st.sampled_from(UdfKind)),
        input_columns=columns,
        output_type=draw(TYPES),
        input_types=tuple(types),
        bundle_sha256="ab" * 32 if bundle else "",
        bundle_python="3.11" if bundle else "",
        bundle_size=draw(COUNT) if bundle else 0,
        entrypoint="" if bundle else "package.module:name",
        stateful=draw(st.booleans()),
        checkpoint=draw(BOUNDS),
        error_policy=draw(POLICIES),
        batch_size=draw(COUNT),
        timeout_seconds=draw(SECONDS),
        blob=draw(st.booleans()),
        resources=draw(
            st.builds(Resources, st.integers(0, 64), st.sampled_from([0.0, 0.25, 3.0]), st.integers(0, 1 << 40))
        ),
    )


OUTPUTS = st.builds(
    lambda name, type_, ids, column_id: OutputField(
        TableField(pa.field(name, type_, metadata={"leman::column_id": column_id}), tuple(ids)), column_id
    ),
    TEXT,
    TYPES,
    st.lists(SMALL, min_size=1, max_size=4),
    TEXT,
)
KEPT = st.lists(st.builds(KeptRows, st.builds(FunctionVersion, TEXT, TEXT), COUNT), max_size=2).map(tuple)
HEADERS = st.builds(
    PlanHeader,
    uri=TEXT,
    read_version=COUNT,
    inputs_version=COUNT,
    incarnation=TEXT,
    output=OUTPUTS,
    input_columns=TEXTS,
    udf=udfs(),
    bundle_uri=TEXT,
    where=TEXT,
    reasons=st.lists(st.builds(ReasonCount, st.sampled_from(Reason), SMALL, COUNT), max_size=3).map(tuple),
    rows_total=COUNT,
    rows_reused=COUNT,
    rows_to_compute=COUNT,
    rows_failed_before=COUNT,
    kept=KEPT,
    failed_only=st.booleans(),
    rows_not_computed=COUNT,
    stale_inputs=st.lists(st.builds(StaleInput, TEXT, COUNT), max_size=2).map(tuple),
    replaced=KEPT,
    versions=TEXTS,
    kept_functions=st.lists(st.builds(FunctionVersion, TEXT, TEXT), max_size=2).map(tuple),
)
TASKS = st.builds(
    FragmentTask,
    fragment_id=COUNT,
    physical_rows=COUNT,
    deleted_rows=COUNT,
    reason=st.sampled_from(Reason),
    fingerprint=TEXT,
    checkpoint_prefix=TEXT,
    input_files=TEXTS,
    current_file=TEXT,
    extend_current=st.booleans(),
    missing=st.lists(RANGES, max_size=3).map(tuple),
    checkpoints=st.lists(st.builds(CheckpointRef, TEXT, RANGES, st.booleans(), st.integers(0, 60)), max_size=3).map(
        tuple
    ),
    staged=st.none() | STAGED,
    row_states=st.binary(max_size=40),
    rows_failed_before=COUNT,
)
TRACED = st.builds(
    TracedFile,
    fragment_id=COUNT,
    file=TEXT,
    physical_rows=COUNT,
    fingerprint=TEXT,
    input_files=TEXTS,
    row_states=st.binary(max_size=40),
    rows_computed=COUNT,
    rows_failed=COUNT,
    column_id=TEXT,
    output_field_ids=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3).map(tuple),
)
SPECS = st.builds(
    BackfillSpec,
    database=TEXT,
    table=TEXT,
    column=TEXT,
    udf_name=TEXT,
    udf_version=TEXT,
    where=TEXT,
    concurrency=st.integers(0, 10_000),
    checkpoint=BOUNDS,
    task_size=COUNT,
    commit_granularity=SMALL,
    commit_rows=COUNT,
    num_frags=SMALL,
    intra_applier_concurrency=st.integers(0, 1_000),
    task_shuffle_diversity=SMALL,
    failed_only=st.booleans(),
    optimize_indices=st.booleans(),
    on_stale_input=st.sampled_from(OnStaleInput),
).flatmap(
    lambda spec: st.one_of(
        COUNT.map(lambda version: dataclasses.replace(spec, read_version=version)),
        TEXT.filter(str.strip).map(lambda tag: dataclasses.replace(spec, read_tag=tag)),
    )
)


@pytest.mark.parametrize(("field", "most"), [("concurrency", 10_000), ("intra_applier_concurrency", 1_000)])
def test_a_number_of_workers_or_threads_that_no_machine_has_is_refused(field, most):
    message = planner_pb2.BackfillSpec(table={"database": "/lake", "table": "t"}, column="y", **{field: most})
    assert getattr(convert_plans.spec_from_proto(message), field) == most
    setattr(message, field, most + 1)
    with pytest.raises(InvalidArgument, match=f"{field} is {most + 1}: set {most:,} or less") as refused:
        convert_plans.spec_from_proto(message)
    assert refused.value.reason == "BAD_NUMBER"


REF = {"database": "/lake", "table": "t"}


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({"columns": ["y"], "column": "y"}, "columns", "several columns takes neither column, udf nor failed_only"),
        ({"columns": ["y"], "udf": {"name": "f"}}, "columns", "several columns takes neither column, udf"),
        ({"columns": ["y"], "failed_only": True}, "columns", "several columns takes neither column, udf"),
        ({"columns": ["y", "z", "y"]}, "columns", "a column is named more than once"),
        ({"column": "y", "read_tag": " "}, "read_tag", "read_tag is empty: give a tag's name"),
    ],
)
def test_a_backfill_that_makes_no_sense_is_refused(fields, field, told):
    message = planner_pb2.BackfillSpec(table=REF, **fields)
    with pytest.raises(InvalidArgument, match=told) as refused:
        convert_plans.spec_from_proto(message)
    assert (refused.value.reason, refused.value.field) == ("BAD_REQUEST", field)


@pytest.mark.parametrize(
    ("fields", "reason", "field", "told"),
    [
        ({}, "BAD_REQUEST", "column", "name a column or a function to preview"),
        ({"column": "y", "udf": {"version": "1"}}, "BAD_REQUEST", "udf", "a version of a function needs its name"),
        ({"column": "y", "udf": {}}, "BAD_REQUEST", "function", "the given function is empty"),
        (
            {"sql_expression": "x", "input_columns": ["x"]},
            "BAD_REQUEST",
            "input_columns",
            "a SQL expression names its columns itself",
        ),
        ({"column": "y", "input_columns": ["x"]}, "BAD_REQUEST", "input_columns", "a column has its own inputs"),
        ({"udf": {"name": "f"}, "error_policy": {}}, "BAD_REQUEST", "error_policy", "leave out the error policy"),
        ({"column": "y", "read_version": 0}, "BAD_NUMBER", "read_version", "read_version is 1 or more"),
        ({"column": "y", "read_tag": ""}, "BAD_REQUEST", "read_tag", "read_tag is empty"),
    ],
)
def test_a_preview_that_makes_no_sense_is_refused(fields, reason, field, told):
    message = jobs_pb2.PreviewFunctionRequest(table=REF, **fields)
    with pytest.raises(InvalidArgument, match=told) as refused:
        convert_udfs.preview_from_proto(message)
    assert (refused.value.reason, refused.value.field) == (reason, field)


def test_a_share_of_rows_that_may_fail_is_above_zero_or_left_out():
    assert convert_udfs.error_policy_from_proto(udf_pb2.ErrorPolicy()).max_error_fraction == 0
    with pytest.raises(InvalidArgument, match="set a number above it, or leave it out") as refused:
        convert_udfs.error_policy_from_proto(udf_pb2.ErrorPolicy(max_error_fraction=0))
    assert refused.value.reason == "BAD_NUMBER"


@given(udfs())
def test_functions_survive(udf):
    raw = convert_udfs.udf_to_proto(udf).SerializeToString()
    assert convert_udfs.udf_from_proto(udf_pb2.UdfDefinition.FromString(raw)) == udf


@given(HEADERS)
def test_headers_survive(header):
    raw = convert_plans.header_to_proto(header).SerializeToString()
    back = convert_plans.header_from_proto(plan_pb2.PlanHeader.FromString(raw))
    assert back == header
    assert back.output.field.arrow.equals(header.output.field.arrow, check_metadata=True)


@given(st.lists(TASKS, max_size=5))
def test_tasks_survive_in_order(tasks):
    made = plan_pb2.FragmentTaskBatch()
    for task in tasks:
        convert_plans.add_task(made, task)
    raw = made.SerializeToString()
    batch = plan_pb2.FragmentTaskBatch.FromString(raw)
    assert [convert_plans.task_from_proto(message) for message in batch.tasks] == tasks


@given(st.lists(TASKS, max_size=5, unique_by=lambda task: task.fragment_id))
def test_tasks_survive_as_record_batches(tasks):
    batches = planned_tasks(tasks).batches
    back = convert_plans.tasks_from_bytes(map(convert_plans.tasks_to_bytes, batches))
    assert list(back) == sorted(tasks, key=lambda task: task.fragment_id)
    assert [back.of_fragment(task.fragment_id) for task in tasks] == tasks
    assert back.without_staged() == tuple(task for task in back if task.staged is None)
    assert back.staged == tuple(task for task in back if task.staged is not None)
    assert back.from_checkpoints == sum(bool(task.checkpoints) and task.staged is None for task in back)


@given(TRACED)
def test_traced_files_survive(traced):
    raw = convert_plans.traced_to_proto(traced).SerializeToString()
    assert convert_plans.traced_from_proto(plan_pb2.TracedFile.FromString(raw)) == traced


@given(SPECS)
def test_specs_survive(spec):
    raw = convert_plans.spec_to_proto(spec).SerializeToString()
    assert convert_plans.spec_from_proto(planner_pb2.BackfillSpec.FromString(raw)) == spec


def test_every_enum_value_of_the_protos_is_known():
    assert len({convert_plans.value_state_from_proto(state) for state in planner_pb2.RowState.values()}) == 5
    for reason in planner_pb2.Reason.values()[1:]:
        convert_plans.reason_count_from_proto(planner_pb2.ReasonCount(reason=reason))
    for kind in udf_pb2.UdfDefinition.Kind.values()[1:]:
        schema = convert_values.schema_to_bytes(pa.schema([pa.field("x", pa.int32())]))
        convert_udfs.udf_from_proto(udf_pb2.UdfDefinition(kind=kind, output_schema=schema))
    for action in udf_pb2.ErrorRule.Action.values()[1:]:
        convert_udfs.error_policy_from_proto(udf_pb2.ErrorPolicy(rules=[udf_pb2.ErrorRule(action=action)]))


@pytest.mark.parametrize("number", [0, 99])
def test_unknown_enum_values_are_refused(number):
    schema = convert_values.schema_to_bytes(pa.schema([pa.field("x", pa.int32())]))
    for refused in (
        lambda: convert_plans.reason_count_from_proto(planner_pb2.ReasonCount(reason=number)),
        lambda: convert_plans.task_from_proto(plan_pb2.FragmentTask(reason=number)),
        lambda: convert_plans.value_state_from_proto(99),
        lambda: convert_udfs.udf_from_proto(udf_pb2.UdfDefinition(kind=number, output_schema=schema)),
        lambda: convert_udfs.error_policy_from_proto(udf_pb2.ErrorPolicy(rules=[udf_pb2.ErrorRule(action=number)])),
    ):
        with pytest.raises(InvalidArgument) as caught:
            refused()
        assert caught.value.reason == "UNKNOWN_VALUE"


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema({"zzzz": pa.int64()}),
        pa.schema({"a": pa.struct({"zzzz": pa.int64()})}),
        pa.schema({"a": pa.list_(pa.field("zzzz", pa.int64()))}),
        pa.schema({"a": pa.timestamp("us", "zzzz")}),
        pa.schema({"a": pa.dictionary(pa.int8(), pa.timestamp("us", "zzzz"))}),
        pa.schema([pa.field("a", pa.int64(), metadata={"zzzz": ""})]),
        pa.schema({"a": pa.int64()}, metadata={"k": "zzzz"}),
        pa.schema([pa.field("a", pa.binary(), metadata={"ARROW:extension:name": "zzzz"})]),
    ],
    ids=["name", "struct", "list", "zone", "dictionary", "metadata", "of the schema", "extension"],
)
def test_text_in_a_schema_is_utf8(schema):
    raw = schema.serialize().to_pybytes()
    assert convert_values.schema_from_bytes(raw, "schema") == schema
    with pytest.raises(InvalidArgument, match="not UTF-8") as caught:
        convert_values.schema_from_bytes(raw.replace(b"zzzz", b"z\xc4zz"), "schema")
    assert (caught.value.reason, caught.value.field) == ("BAD_SCHEMA", "schema")


def test_a_timeout_of_a_call_is_no_shorter_than_its_answers_say():
    known = UdfDefinition("f", "1", UdfKind.SCALAR, ("a",), pa.int32(), entrypoint="m:f", timeout_seconds=1e-6)
    message = convert_udfs.udf_to_proto(known)
    assert convert_udfs.udf_from_proto(message).timeout_seconds == 1e-6
    message.call_timeout.nanos = 999
    with pytest.raises(InvalidArgument) as caught:
        convert_udfs.udf_from_proto(message)
    assert (caught.value.reason, caught.value.field) == ("BAD_NUMBER", "definition.call_timeout")


@pytest.mark.parametrize(
    "raw", [b"", b"no schema", b"\xff\xff\xff\xff\x10\x00\x00\x00", convert_values.schema_to_bytes(pa.schema([]))]
)
def test_bytes_that_are_no_schema_are_refused(raw):
    kind = udf_pb2.UdfDefinition.KIND_SCALAR
    with pytest.raises(InvalidArgument) as caught:
        convert_udfs.udf_from_proto(udf_pb2.UdfDefinition(kind=kind, output_schema=raw))
    assert (caught.value.reason, caught.value.field) == ("BAD_SCHEMA", "output_schema")


def test_what_a_caller_leaves_out_of_an_error_policy_means_the_defaults():
    message = udf_pb2.UdfDefinition(
        kind=udf_pb2.UdfDefinition.KIND_SCALAR,
        output_schema=convert_values.schema_to_bytes(pa.schema([pa.field("x", pa.int32())])),
    )
    assert convert_udfs.udf_from_proto(message).error_policy == ErrorPolicy()
    message.error_policy.rules.add(action=udf_pb2.ErrorRule.ACTION_RETRY)
    message.error_policy.rules.add(action=udf_pb2.ErrorRule.ACTION_SKIP)
    retry, skip = convert_udfs.udf_from_proto(message).error_policy.rules
    contract = ErrorRule(ErrorAction.RETRY, max_attempts=3, initial_backoff_seconds=0.5, max_backoff_seconds=60)
    assert (retry, skip) == (contract, ErrorRule(ErrorAction.SKIP))


@given(
    st.builds(
        MigratedRows,
        fragment_id=COUNT,
        key=TEXT,
        covered=RANGES,
        source=TEXT,
        from_fragment=COUNT,
        from_rows=RANGES,
        at=st.integers(-(2**62), 2**62),
        before=COUNT,
        left_out=st.binary(max_size=4),
    )
)
def test_migrated_rows_survive_the_wire(migrated):
    assert convert_plans.migrated_from_proto(convert_plans.migrated_to_proto(migrated)) == migrated


@pytest.mark.parametrize(
    "around",
    [
        lambda field: field,
        lambda field: pa.field("c", pa.struct([field])),
        lambda field: pa.field("c", pa.list_(field)),
        lambda field: pa.field("c", pa.large_list(field)),
        lambda field: pa.field("c", pa.list_(field, 2)),
        lambda field: pa.field("c", pa.map_(field.with_name("key").with_nullable(False), field.with_name("value"))),
        lambda field: pa.field("c", pa.list_(pa.field("item", pa.struct([field])))),
    ],
)
def test_equal_schemas_are_the_same_bytes(around):
    """Bodies of requests are distinguished by their bytes, and Lance has metadata in another order at each opening."""
    said = {"b": "1", "a": "2", "c": "3"}
    ways = [
        pa.schema([around(pa.field("x", pa.int32(), metadata=order)).with_metadata(order)], metadata=order)
        for order in (said, dict(sorted(said.items())), dict(reversed(said.items())))
    ]
    assert len({convert_values.schema_to_bytes(way) for way in ways}) == 1
    kept = convert_values.schema_from_bytes(convert_values.schema_to_bytes(ways[0]), "schema")
    assert kept.equals(ways[0], check_metadata=True)
