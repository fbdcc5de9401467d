"""Functions of a database as files."""

import dataclasses
import hashlib
import json
import math
import threading
from unittest.mock import Mock

import pyarrow as pa
import pytest

from leman._format import stored_functions
from leman._format.stored_functions import (
    CheckpointBounds,
    ErrorAction,
    ErrorPolicy,
    ErrorRule,
    Resources,
    UdfDefinition,
    UdfKind,
)
from leman_core.functions import function_definitions
from leman_core.functions.function_definitions import PYTHON, FunctionPolicy
from leman_core.model.service_errors import AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument, NotFound
from leman_core.storage import udf_registry
from leman_core.storage.documents import DocumentFolder
from leman_core.storage.udf_registry import UdfRegistry
from tests.unit.core.lance_io.small_store import known_store

BUNDLE = b"not really a pickle"
UDF = UdfDefinition(
    name="embed",
    version="3f2a",
    kind=UdfKind.ARRAY,
    input_columns=("body", "title"),
    output_type=pa.list_(pa.float32(), 384),
    input_types=(pa.string(), None),
    bundle_sha256=hashlib.sha256(BUNDLE).hexdigest(),
    bundle_python=PYTHON,
    bundle_size=len(BUNDLE),
    stateful=True,
    checkpoint=CheckpointBounds(100, 1, 200),
    error_policy=ErrorPolicy(
        (ErrorRule(ErrorAction.RETRY, ("ValueError",), "busy", 3, 0.5, 9.0), ErrorRule(ErrorAction.SKIP)),
        max_errors=7,
        max_error_fraction=0.25,
        store_errors=False,
    ),
    batch_size=32,
)
INSTALLED = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="pkg.mod:f")


@pytest.fixture
def registry(tmp_path):
    return UdfRegistry(str(tmp_path))


@pytest.mark.parametrize("udf", [UDF, INSTALLED], ids=["bundle", "entrypoint"])
def test_a_definition_survives_its_json(udf):
    assert function_definitions.decode_definition(stored_functions.encode_definition(udf, 12.5), "x.json") == (
        udf,
        12.5,
    )


def test_what_is_put_is_found_again(registry, tmp_path):
    assert registry.put(UDF, BUNDLE) is True
    assert registry.get("embed", "3f2a") == UDF
    assert registry.get("embed") == UDF
    assert registry.find("embed", "other") is None
    folder = tmp_path / "_leman" / "udfs"
    assert sorted(p.name for p in folder.iterdir()) == [f"{UDF.bundle_sha256}.bundle", "embed@3f2a.json"]
    assert registry.bundle_uri(UDF) == str(folder / f"{UDF.bundle_sha256}.bundle")
    assert registry.bundle_uri(INSTALLED) == ""


def test_the_same_again_is_no_news(registry):
    registry.put(UDF, BUNDLE)
    assert registry.put(UDF, BUNDLE) is False
    assert registry.put(UDF) is False


def test_options_may_change_under_the_same_version(registry):
    registry.put(UDF, BUNDLE)
    changed = dataclasses.replace(
        UDF,
        batch_size=64,
        timeout_seconds=1.5,
        checkpoint=CheckpointBounds(),
        error_policy=ErrorPolicy(),
        resources=Resources(2, 0.5, 1 << 30),
    )
    assert registry.put(changed) is False
    assert registry.get("embed", "3f2a") == changed
    with pytest.raises(AlreadyExists):
        registry.put(dataclasses.replace(changed, stateful=False))
    assert registry.get("embed", "3f2a") == changed


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("resources", {"resources": Resources(num_cpus=-1)}),
        ("resources", {"resources": Resources(memory_bytes=-1)}),
        ("resources.num_gpus", {"resources": Resources(num_gpus=-1.0)}),
        ("resources.num_gpus", {"resources": Resources(num_gpus=0.7)}),
        ("resources.num_gpus", {"resources": Resources(num_gpus=float("nan"))}),
        ("output_schema", {"blob": True, "output_type": pa.binary()}),
    ],
)
def test_refused_resources_and_blobs(registry, field, change):
    with pytest.raises(InvalidArgument) as caught:
        registry.put(dataclasses.replace(INSTALLED, **change))
    assert caught.value.field == f"definition.{field}"


def test_the_first_source_under_a_version_stays_and_one_that_comes_late_changes_no_order(registry, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("leman_core.storage.udf_registry.time.time", lambda: next(clock))
    newer = dataclasses.replace(INSTALLED, version="2")
    registry.put(INSTALLED)
    registry.put(newer)
    assert registry.put(dataclasses.replace(INSTALLED, source="def f(x): ...")) is False
    assert registry.get("f", "1").source == "def f(x): ..."
    assert registry.get("f").version == "2"
    registry.put(dataclasses.replace(INSTALLED, source="another", batch_size=3))
    assert (registry.get("f", "1").source, registry.get("f", "1").batch_size) == ("def f(x): ...", 3)


def test_a_source_lies_where_earlier_releases_look_over_it():
    plain, told = (
        json.loads(stored_functions.encode_definition(udf, 1.0))
        for udf in (INSTALLED, dataclasses.replace(INSTALLED, source="s"))
    )
    assert told["definition"] == plain["definition"]
    assert (told["source"], "source" in plain) == ("s", False)


def test_a_source_that_is_too_long_is_refused(registry):
    with pytest.raises(InvalidArgument, match="65,536 bytes") as caught:
        registry.put(dataclasses.replace(INSTALLED, source="é" * 40_000))
    assert caught.value.reason == "BAD_UDF"


def test_other_content_under_the_same_name_and_version_is_refused(registry):
    registry.put(INSTALLED)
    with pytest.raises(AlreadyExists) as caught:
        registry.put(dataclasses.replace(INSTALLED, output_type=pa.int32()))
    assert caught.value.reason == "UDF_EXISTS"
    assert registry.get("f") == INSTALLED


def test_the_latest_version_is_the_one_registered_last(registry, monkeypatch):
    for moment, version in enumerate(["9", "1", "5"]):
        monkeypatch.setattr("leman_core.storage.udf_registry.time.time", lambda moment=moment: float(moment))
        registry.put(dataclasses.replace(INSTALLED, version=version))
    registry.put(dataclasses.replace(INSTALLED, name="a"))
    assert registry.get("f").version == "5"
    listed = [(entry.udf.name, entry.udf.version) for entry in registry.list()]
    assert listed == [("a", "1"), ("f", "5"), ("f", "1"), ("f", "9")]


def test_a_bundle_with_another_digest_is_refused_and_not_stored(registry, tmp_path):
    with pytest.raises(FailedPrecondition) as caught:
        registry.put(UDF, BUNDLE + b"!")
    assert caught.value.reason == "UDF_DIGEST_MISMATCH"
    assert not list(tmp_path.rglob("*.*"))


def test_a_bundle_in_pieces_is_refused_as_soon_as_it_is_larger_than_allowed_or_announced(tmp_path):
    bounded = UdfRegistry(str(tmp_path), policy=FunctionPolicy(max_bundle_bytes=len(BUNDLE)))
    with pytest.raises(InvalidArgument) as caught:
        bounded.bundles.begin("0" * 64, len(BUNDLE) + 1)
    assert caught.value.reason == "BUNDLE_TOO_LARGE"
    incoming = bounded.bundles.begin(UDF.bundle_sha256, len(BUNDLE))
    incoming.write(BUNDLE)
    with pytest.raises(FailedPrecondition) as late:
        incoming.write(b"!")
    assert late.value.reason == "UDF_DIGEST_MISMATCH"
    incoming.discard()
    assert not list(tmp_path.rglob("*.*"))


def test_a_bundle_may_be_left_out_only_where_it_is_stored(registry):
    with pytest.raises(FailedPrecondition) as caught:
        registry.put(UDF)
    assert caught.value.reason == "UDF_BUNDLE_MISSING"
    registry.put(UDF, BUNDLE)
    assert registry.put(dataclasses.replace(UDF, version="2")) is True


def test_a_damaged_bundle_is_healed_by_registering_again(registry):
    registry.put(UDF, BUNDLE)
    path = registry.bundle_uri(UDF)
    with open(path, "wb") as stream:  # noqa: PTH123
        stream.write(b"x" * len(BUNDLE))
    registry.put(UDF, BUNDLE)
    with open(path, "rb") as stream:  # noqa: PTH123
        assert stream.read() == BUNDLE


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "-x", "a b", "é", "a" * 129, "a@b", "x_ver-1"])
def test_names_that_are_no_file_names_are_refused(registry, name):
    for udf in (dataclasses.replace(INSTALLED, name=name), dataclasses.replace(INSTALLED, version=name)):
        with pytest.raises(InvalidArgument) as caught:
            registry.put(udf)
        assert caught.value.reason == "BAD_UDF"
    with pytest.raises(InvalidArgument):
        registry.get(name)


@pytest.mark.parametrize(
    "change",
    [
        {"entrypoint": ""},
        {"bundle_sha256": "0" * 64, "bundle_python": PYTHON},
        {"entrypoint": "pkg.mod"},
        {"input_columns": ()},
        {"input_types": (pa.int64(), pa.int64())},
    ],
)
def test_a_definition_that_contradicts_itself_is_refused(registry, change):
    with pytest.raises(InvalidArgument) as caught:
        registry.put(dataclasses.replace(INSTALLED, **change))
    assert caught.value.reason == "BAD_UDF"


RETRY = ErrorRule(ErrorAction.RETRY, max_attempts=3, initial_backoff_seconds=1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": -1},
        {"checkpoint": CheckpointBounds(checkpoint_size=-1)},
        {"checkpoint": CheckpointBounds(min_checkpoint_size=9, max_checkpoint_size=2)},
        {"error_policy": ErrorPolicy(max_errors=-1)},
        {"error_policy": ErrorPolicy(max_error_fraction=2.0)},
        {"error_policy": ErrorPolicy(max_error_fraction=math.nan)},
        {"error_policy": ErrorPolicy((ErrorRule(ErrorAction.SKIP, message_pattern="("),))},
        {"error_policy": ErrorPolicy((dataclasses.replace(RETRY, max_attempts=1),))},
        {"error_policy": ErrorPolicy((dataclasses.replace(RETRY, initial_backoff_seconds=-5.0),))},
        {"error_policy": ErrorPolicy((dataclasses.replace(RETRY, initial_backoff_seconds=math.nan),))},
        {"error_policy": ErrorPolicy((dataclasses.replace(RETRY, initial_backoff_seconds=61.0),))},
    ],
    ids=str,
)
@pytest.mark.parametrize("udf", [INSTALLED, UDF], ids=["entrypoint", "bundle"])
def test_options_that_a_worker_could_not_follow_are_refused(registry, udf, change):
    registry.put(dataclasses.replace(udf, error_policy=ErrorPolicy((RETRY,))), BUNDLE if udf is UDF else b"")
    with pytest.raises(InvalidArgument) as caught:
        registry.put(dataclasses.replace(udf, **change), BUNDLE if udf is UDF else b"")
    assert caught.value.reason == "BAD_UDF"
    assert "needs" in caught.value.message or "has a" in caught.value.message


def test_what_is_not_there_is_not_found(registry):
    for version in ("", "1"):
        with pytest.raises(NotFound) as caught:
            registry.get("nobody", version)
        assert caught.value.reason == "UDF_NOT_FOUND"
    assert registry.list() == []


def installed(number):
    return dataclasses.replace(INSTALLED, entrypoint=f"pkg.mod:f{number}")


def check_one_wins(database):
    barrier = threading.Barrier(8)
    answers = []

    def write(number):
        barrier.wait()
        try:
            answers.append((number, UdfRegistry(database).put(installed(number))))
        except AlreadyExists as error:
            answers.append((number, error.reason))

    threads = [threading.Thread(target=write, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number, answer in answers if answer is True]
    assert len(winners) == 1
    assert sorted(str(answer) for _, answer in answers) == ["True"] + ["UDF_EXISTS"] * 7
    assert UdfRegistry(database).get("f") == installed(winners[0])


def test_of_many_writers_of_one_name_one_wins_and_the_others_hear_it(tmp_path):
    check_one_wins(str(tmp_path))
    assert [p.name for p in (tmp_path / "_leman" / "udfs").iterdir()] == ["f@1.json"]


def test_another_definition_that_is_written_between_a_look_and_a_write_is_no_success(tmp_path, monkeypatch):
    registry = UdfRegistry(str(tmp_path))
    registry.put(installed(1))
    real, blind = UdfRegistry.find, [True, True]

    def find(self, name, version):
        return None if blind and blind.pop() else real(self, name, version)

    monkeypatch.setattr(UdfRegistry, "find", find)
    with pytest.raises(AlreadyExists, match="another definition"):
        registry.put(installed(2))
    assert not registry.put(installed(1))
    assert not blind
    assert registry.get("f", "1") == installed(1)


def test_in_an_object_store_too():
    with known_store():
        check_one_wins("s3://lake/texts")


@pytest.fixture
def claimed(monkeypatch):
    """One in an object store, whose writer ended when it had claimed a function, before it wrote it."""
    with known_store():
        registry = UdfRegistry("s3://lake/texts")
        with monkeypatch.context() as patched:
            patched.setattr(DocumentFolder, "put", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                registry.put(installed(1))
        yield registry


def test_what_a_writer_claimed_in_an_object_store_and_did_not_write_is_written_by_the_next_one(claimed):
    assert claimed.find("f", "1") is None
    with pytest.raises(AlreadyExists):
        claimed.put(installed(2))
    assert claimed.get("f", "1") == installed(1)
    assert not claimed.put(installed(1))


def test_who_claimed_it_may_register_it_again(claimed):
    claimed.put(installed(1))
    assert claimed.get("f", "1") == installed(1)


def test_a_database_named_by_uri_works_like_one_named_by_path(tmp_path):
    registry = UdfRegistry(tmp_path.as_uri())
    registry.put(UDF, BUNDLE)
    assert registry.bundle_uri(UDF).startswith("file://")
    assert UdfRegistry(str(tmp_path)).get("embed") == UDF


@pytest.mark.parametrize("small", [True, False])
def test_a_definition_in_an_object_store_is_read_in_one_request(monkeypatch, small):
    if not small:
        monkeypatch.setattr(udf_registry, "_SMALL_BYTES", 10)
    with known_store() as store:
        registry = UdfRegistry("s3://lake/texts")
        registry.put(UDF, BUNDLE)
        before = store.requests
        assert registry.get("embed", "3f2a") == UDF
        assert (store.requests == before + 1) is small
        with pytest.raises(NotFound) as missing:
            registry.get("embed", "none")
        assert missing.value.reason == "UDF_NOT_FOUND"
        store.objects["texts/_leman/udfs/embed@cut.json"] = store.objects["texts/_leman/udfs/embed@3f2a.json"][:9]
        with pytest.raises(DataLoss) as damaged:
            registry.get("embed", "cut")
        assert damaged.value.reason == "UDF_DAMAGED"


def test_a_definition_that_went_while_one_looked_is_told(registry):
    with pytest.raises(NotFound, match=r"embed@3f2a\.json is gone") as refused:
        registry.check("embed@3f2a.json")
    assert refused.value.reason == "FILE_MISSING"
