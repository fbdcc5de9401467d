"""Views and refreshes on the wire: what one side writes, the other one reads."""

from dataclasses import fields

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import (
    EarlierState,
    ViewColumn,
    ViewDefinition,
    ViewFormat,
    ViewFunction,
    ViewQuery,
    write,
)
from leman._wire import conversions
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2
from leman_core.model.service_errors import Internal, InvalidArgument
from leman_core.model.view import (
    ChangeKind,
    EarlierValues,
    MaterializedView,
    RefreshMode,
    RefreshPlan,
    RefreshPolicy,
    RefreshReason,
    RefreshResult,
    RefreshSpec,
    ResolvedFunction,
    SourceChange,
    UnsetFragment,
)
from leman_core.wire import convert_views
from leman_internal.v1 import planning_pb2

UDF = UdfDefinition("embed", "1", UdfKind.ARRAY, ("name",), pa.list_(pa.float32()), entrypoint="m:embed")
QUERY = ViewQuery(
    "/data",
    "users",
    (ViewColumn("name", "`name`", "name"), ViewColumn("who", "`name`", "name"), ViewColumn("old", "age > 60")),
    (ViewFunction("emb", "embed", "1", ("name",)),),
    "age > 21",
    shuffle=True,
    seed=-3,
    limit=0,
    offset=5,
)
DEFINITION = ViewDefinition(
    query=QUERY,
    source_uri="/data/users.lance",
    base_version=7,
    base_incarnation="inc",
    format=ViewFormat.STABLE_ROW_IDS,
    filled={"emb": "embed@1"},
    in_own_database=True,
)
SCHEMA = pa.schema([("__source_row_id", pa.int64()), ("__is_set", pa.bool_()), ("name", pa.string())])

number = st.integers(0, (1 << 31) - 1)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.none() | number)
def test_queries(source_column, limit):
    quoted = convert_views.quoted_column(source_column)
    columns = (ViewColumn(source_column, quoted, source_column), ViewColumn("other", quoted, source_column))
    query = ViewQuery("/d", "t", columns, limit=limit)
    assert convert_views.query_from_proto(convert_views.query_to_proto(query)) == query


def test_a_full_query():
    assert convert_views.query_from_proto(convert_views.query_to_proto(QUERY)) == QUERY


def test_a_column_without_expression_is_the_sources():
    message = catalog_pb2.ViewQuery(columns=[catalog_pb2.ViewColumn(name="a b")])
    assert convert_views.query_from_proto(message).columns == (ViewColumn("a b", "`a b`", "a b"),)


@given(
    st.builds(
        RefreshSpec,
        st.just("/d"),
        st.just("v"),
        number,
        number,
        st.sampled_from(RefreshPolicy),
        st.integers(0, 10_000),
    )
)
def test_specs(spec):
    assert convert_views.refresh_spec_from_proto(convert_views.refresh_spec_to_proto(spec)) == spec


def test_no_policy_is_auto():
    assert convert_views.refresh_spec_from_proto(planner_pb2.RefreshSpec()).policy is RefreshPolicy.AUTO


def test_a_policy_of_a_later_release_is_refused():
    with pytest.raises(InvalidArgument, match="policy is 9") as caught:
        convert_views.refresh_spec_from_proto(planner_pb2.RefreshSpec(policy=9))
    assert caught.value.reason == "UNKNOWN_VALUE"


@given(
    st.builds(
        RefreshResult,
        st.sampled_from(RefreshMode),
        st.sampled_from(RefreshReason),
        *[number] * 10,
    )
)
def test_results(result):
    job = jobs_pb2.Job(state=jobs_pb2.Job.STATE_DONE, refresh_result=convert_views.refresh_result_to_proto(result))
    seen = conversions.refresh_result(job)
    assert (seen.mode, seen.reason) == (result.mode.value, result.reason.value)
    numbers = {f.name: getattr(result, f.name) for f in fields(result)[2:]}
    assert {name: getattr(seen, name) for name in numbers} == numbers


STATE = EarlierState(view_version=4, source_version=7, computed={"emb": "embed@1(name)"}, last_fragment=11)


def plan_of(mode: RefreshMode = RefreshMode.INCREMENTAL) -> RefreshPlan:
    return RefreshPlan(
        uri="/data/v.lance",
        version=4,
        incarnation="i",
        definition=DEFINITION,
        schema=write(SCHEMA, DEFINITION),
        functions=(ResolvedFunction(QUERY.functions[0], UDF, "/data/bundle"),),
        target_version=9,
        target_incarnation="inc",
        mode=mode,
        reason=RefreshReason.SOURCE_CHANGED,
        message="because",
        unset=(UnsetFragment(3, 10, 2),),
        create_placeholders_again=True,
        changes=tuple(SourceChange(i, kind) for i, kind in enumerate(ChangeKind)),
        stale=("emb",),
        rows=12,
        state=STATE,
        earlier=(
            EarlierValues(
                view_version=2, definition=DEFINITION, columns=("emb",), changes=(SourceChange(7, ChangeKind.GONE),)
            ),
        ),
    )


@pytest.mark.parametrize("mode", RefreshMode)
def test_plans(mode):
    plan = plan_of(mode)
    assert convert_views.refresh_plan_from_proto(convert_views.refresh_plan_to_proto(plan)) == plan


def test_a_plan_without_a_definition_is_a_bug():
    bare = SCHEMA.serialize().to_pybytes()
    with pytest.raises(Internal) as caught:
        convert_views.refresh_plan_from_proto(planning_pb2.PlanRefreshResponse(schema=bare))
    assert caught.value.reason == "PLAN_WITHOUT_DEFINITION"
    message = convert_views.refresh_plan_to_proto(plan_of())
    message.earlier.add(definition=bare)
    with pytest.raises(Internal, match="sent an earlier version without") as caught:
        convert_views.refresh_plan_from_proto(message)
    assert caught.value.reason == "PLAN_WITHOUT_DEFINITION"


@pytest.mark.parametrize("number", [0, 99])
def test_unknown_words_are_refused(number):
    for read in (convert_views.refresh_mode_from_proto, convert_views.refresh_reason_from_proto):
        with pytest.raises(InvalidArgument) as caught:
            read(number)
        assert caught.value.reason == "UNKNOWN_VALUE"


def test_a_view_shows_its_own_columns_only():
    view = MaterializedView(
        uri="/data/v.lance",
        name="v",
        version=4,
        definition=DEFINITION,
        schema=write(SCHEMA, DEFINITION),
        row_count=10,
        rows_set=7,
    )
    message = convert_views.view_to_proto(view)
    assert pa.ipc.read_schema(pa.py_buffer(message.schema)) == pa.schema([("name", pa.string())])
    assert (message.row_count, message.rows_set, message.source_version) == (10, 7, 7)
    assert message.row_reference == catalog_pb2.ROW_REFERENCE_STABLE_ROW_ID
    assert convert_views.query_from_proto(message.query) == QUERY
