"""Definitions of views in schema metadata."""

import dataclasses
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman._format import stored_documents, view_definitions
from leman._format.view_definitions import (
    DIGEST,
    FILLED,
    FORMAT,
    EarlierState,
    ViewColumn,
    ViewDefinition,
    ViewFormat,
    ViewFunction,
    ViewQuery,
)
from leman_core.model import view_metadata
from leman_core.model.service_errors import DataLoss
from leman_core.model.table import DataFile, Fragment, TableSnapshot, outlives_versions

OWN = view_definitions.IN_OWN_DATABASE.encode()
SCHEMA = pa.schema([pa.field("a", pa.int64(), metadata={"k": "v"})], {"mine": "stays"})
QUERY = ViewQuery(
    database="/data",
    table="users",
    columns=(ViewColumn("name", "`name`", "name"), ViewColumn("old", "age > 60")),
    functions=(ViewFunction("emb", "embed", "1", ("name",)),),
    where="age > 21",
    shuffle=True,
    seed=42,
    limit=100,
    offset=5,
)
DEFINITION = ViewDefinition(
    query=QUERY,
    source_uri="/data/users.lance",
    base_version=7,
    base_incarnation="inc",
    format=ViewFormat.STABLE_ROW_IDS,
    filled={"emb": "embed@1"},
)

text = st.text(max_size=8)
name = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=8)
queries = st.builds(
    ViewQuery,
    name.map(lambda n: f"/{n}"),
    name,
    st.lists(st.builds(ViewColumn, text, text, text), max_size=3).map(tuple),
    st.lists(st.builds(ViewFunction, text, text, text, st.lists(text, max_size=3).map(tuple)), max_size=3).map(tuple),
    text,
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
)


def definition_of(query):
    return ViewDefinition(
        query=query,
        source_uri=f"{query.database}/{query.table}.lance",
        base_version=3,
        base_incarnation="x",
        format=ViewFormat.ADDRESSES,
        filled={"a": "b@1"},
    )


@given(queries)
def test_what_was_written_is_read(query):
    definition = definition_of(query)
    assert view_metadata.read(view_definitions.write(SCHEMA, definition)) == definition


def test_keys_are_those_that_are_documented():
    metadata = view_definitions.write(SCHEMA, DEFINITION).metadata
    assert metadata[b"leman::view::base_table"] == b"users"
    assert metadata[b"leman::view::base_table_db_uri"] == b"/data"
    assert metadata[b"leman::view::base_table_version"] == b"7"
    assert metadata[b"leman::view::version"] == b"2"
    assert metadata[b"leman::view::base_table_incarnation"] == b"inc"
    assert json.loads(metadata[b"leman::view::filled"]) == {"emb": "embed@1"}
    assert json.loads(metadata[b"leman::view::query"]) == {
        "database": "/data",
        "table": "users",
        "columns": [
            {"name": "name", "expression": "`name`", "source_column": "name"},
            {"name": "old", "expression": "age > 60", "source_column": ""},
        ],
        "functions": [{"name": "emb", "udf_name": "embed", "udf_version": "1", "inputs": ["name"]}],
        "where": "age > 21",
        "shuffle": True,
        "shuffle_seed": 42,
        "limit": 100,
        "offset": 5,
    }


def test_a_source_in_the_views_own_database_is_where_the_view_is():
    own = dataclasses.replace(DEFINITION, in_own_database=True)
    written = view_definitions.write(SCHEMA, own)
    moved = view_metadata.read(written, "/elsewhere/v.lance")
    assert moved.source_uri == "/elsewhere/users.lance"
    assert moved.query.database == "/elsewhere"
    assert view_metadata.read(written, "/data/v.lance") == own
    again = view_definitions.write(written, moved)  # as a refresh there does
    assert view_metadata.read(again, "/third/v.lance").source_uri == "/third/users.lance"


def test_a_view_that_says_nothing_of_its_database_has_a_source_of_its_own_where_it_names_that():
    """Views of earlier releases do not say it."""
    stored = {k: v for k, v in view_definitions.write(SCHEMA, DEFINITION).metadata.items() if k != OWN}
    own = view_metadata.from_metadata(stored, "/data/v.lance")
    assert own == dataclasses.replace(DEFINITION, in_own_database=True)
    assert view_metadata.from_metadata(stored, "/elsewhere/v.lance") == DEFINITION
    assert view_metadata.from_metadata(stored) == DEFINITION


def test_a_source_is_where_it_lay_where_it_is_not_known_where_the_view_lies():
    own = dataclasses.replace(DEFINITION, in_own_database=True)
    assert view_metadata.read(view_definitions.write(SCHEMA, own)) == own


def test_a_source_in_another_database_stays_there():
    other = view_metadata.read(view_definitions.write(SCHEMA, DEFINITION), "/elsewhere/v.lance")
    assert other == DEFINITION
    assert not other.in_own_database


def test_a_place_that_is_neither_own_nor_other_is_damage():
    written = view_definitions.write(SCHEMA, DEFINITION)
    damaged = {**written.metadata, view_definitions.IN_OWN_DATABASE.encode(): b"tsue"}
    with pytest.raises(DataLoss):
        view_metadata.from_metadata(damaged)


def test_other_metadata_stays():
    written = view_definitions.write(SCHEMA, DEFINITION)
    assert written.metadata[b"mine"] == b"stays"
    assert written.field("a").metadata == {b"k": b"v"}
    assert view_metadata.from_metadata({**written.metadata, b"mine": b"\xff"}) == DEFINITION
    assert view_definitions.write(SCHEMA.remove_metadata(), DEFINITION).metadata


def test_a_table_is_no_view():
    assert view_metadata.read(SCHEMA) is None
    assert view_metadata.read(pa.schema([])) is None


def test_updates_are_all_that_a_refresh_changes():
    later = dataclasses.replace(DEFINITION, base_version=9, base_incarnation="other", filled={"emb": "embed@2"})
    metadata = dict(view_definitions.write(SCHEMA, DEFINITION).metadata)
    metadata.update({key.encode(): value.encode() for key, value in view_definitions.updates(later).items()})
    assert view_metadata.from_metadata(metadata) == later


def state(view_version, source_version, by="embed@1(name)"):
    return EarlierState(view_version=view_version, source_version=source_version, computed={"emb": by}, last_fragment=3)


def test_a_view_remembers_each_state_once_and_not_what_it_is(monkeypatch):
    assert state(1, 7).computed == DEFINITION.computed
    monkeypatch.setattr(view_definitions, "MOST_EARLIER", 3)
    known = dataclasses.replace(DEFINITION, earlier=(state(5, 6), state(4, 7), state(3, 5), state(2, 4)))
    seen = view_definitions.remembering(known, state(6, 5)).earlier
    assert seen == (state(6, 5), state(5, 6), state(2, 4))  # 7 is what it is now
    assert view_definitions.remembering(known, None).earlier == (state(5, 6), state(3, 5), state(2, 4))
    assert view_definitions.remembering(known, state(6, 7)).earlier == (state(5, 6), state(3, 5), state(2, 4))
    other = view_definitions.remembering(known, state(6, 6, "embed@2(name)")).earlier
    assert other == (state(6, 6, "embed@2(name)"), state(5, 6), state(3, 5))
    assert view_metadata.read(view_definitions.write(SCHEMA, known)) == known


def test_a_view_of_an_earlier_release_remembers_nothing():
    written = {k.decode(): v.decode() for k, v in view_definitions.write(SCHEMA, DEFINITION).metadata.items()}
    ours = {k: v for k, v in written.items() if k.startswith(view_definitions.PREFIX)}
    later = (view_definitions.EARLIER, view_definitions.IN_OWN_DATABASE, view_definitions.DIGEST)
    old = {k: v for k, v in ours.items() if k not in later}
    old[view_definitions.DIGEST] = stored_documents.digest_of(old)
    stored = {k.encode(): v.encode() for k, v in old.items()}
    assert view_metadata.from_metadata(stored) == DEFINITION
    stored |= {k.encode(): v.encode() for k, v in view_definitions.with_query(DEFINITION).items()}
    assert view_metadata.from_metadata(stored) == DEFINITION
    forgotten = {k: v for k, v in ours.items() if k != view_definitions.EARLIER}
    with pytest.raises(DataLoss):
        view_metadata.from_metadata({k.encode(): v.encode() for k, v in forgotten.items()})


def test_a_later_definition_takes_the_place_of_the_one_before():
    later = dataclasses.replace(DEFINITION, base_version=9)
    assert view_metadata.read(view_definitions.write(view_definitions.write(SCHEMA, DEFINITION), later)) == later


@pytest.mark.parametrize("key", [view_definitions.QUERY, DIGEST, FORMAT, FILLED])
def test_a_missing_key_is_damage(key):
    metadata = {k: v for k, v in view_definitions.write(SCHEMA, DEFINITION).metadata.items() if k != key.encode()}
    with pytest.raises(DataLoss) as caught:
        view_metadata.from_metadata(metadata)
    assert caught.value.reason == "VIEW_DAMAGED"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (view_definitions.QUERY, "{"),
        (view_definitions.QUERY, "[]"),
        (view_definitions.QUERY, '{"database": "d"}'),
        (view_definitions.BASE_VERSION, "seven"),
        (view_definitions.FORMAT, "two"),
        (view_definitions.FILLED, "[]"),
    ],
)
def test_a_wrong_value_is_damage(key, value):
    metadata = {**view_definitions.write(SCHEMA, DEFINITION).metadata, key.encode(): value.encode()}
    with pytest.raises(DataLoss):
        view_metadata.from_metadata(metadata)


def snapshot(incarnation, *files):
    fragments = tuple(Fragment(i, 1, 0, (DataFile(file, (0,)),)) for i, file in enumerate(files))
    return TableSnapshot(uri="/t", version=1, incarnation=incarnation, fields=(), fragments=fragments)


def test_identity_of_a_table_that_leman_never_wrote_to_follows_from_its_files():
    assert snapshot("inc", "a").identity == "inc"
    assert snapshot("", "a", "b").identity == snapshot("", "b", "a").identity != snapshot("", "a", "c").identity
    assert not outlives_versions(snapshot("", "a").identity)
    assert outlives_versions("inc")


def test_the_last_alterations_are_remembered_by_their_requests():
    metadata: dict[bytes, bytes] = {}
    for number in range(20):
        noted = view_metadata.with_alteration(metadata, f"id {number}", f"body {number}")
        metadata |= {key.encode(): value.encode() for key, value in noted.items()}
    assert view_metadata.alterations(metadata) == {f"id {n}": f"body {n}" for n in range(4, 20)}
    written = view_definitions.write(SCHEMA, DEFINITION).metadata | metadata
    assert view_metadata.from_metadata(written) == DEFINITION


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["a"]]', "{}"])
def test_alterations_that_cannot_be_read_are_not_remembered(text):
    metadata = {view_metadata.ALTERED_BY.encode(): text.encode()}
    assert view_metadata.alterations(metadata) == {}
    (value,) = view_metadata.with_alteration(metadata, "new", "body").values()
    assert json.loads(value) == [["body", "new"]]


def test_a_column_is_stale_until_what_the_query_says_has_computed_it():
    assert DEFINITION.stale == ()
    assert dataclasses.replace(DEFINITION, filled={"emb": "embed@0"}).stale == ("emb",)
    assert dataclasses.replace(DEFINITION, filled={}).stale == ("emb",)


def test_requests_are_the_same_by_their_ids_whatever_they_ask_for():
    made = view_metadata.request("r", QUERY, 0)
    assert view_metadata.same_id(made, view_metadata.request("r", QUERY, 7))
    assert not view_metadata.same_id(made, view_metadata.request("s", QUERY, 0))
    without = view_metadata.request("", QUERY, 0)
    assert without == ""
    for noted, other in [(without, without), (made, without), (without, made)]:
        assert not view_metadata.same_id(noted, other)
