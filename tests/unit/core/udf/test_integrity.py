"""What was changed in the store is not believed: definitions and bundles. And which Python a bundle is of."""

import dataclasses
import hashlib
import json

import cloudpickle
import pyarrow as pa
import pytest

from leman._format import stored_functions
from leman._format.stored_functions import ErrorPolicy, UdfDefinition, UdfKind
from leman_core.functions import function_definitions
from leman_core.functions.function_definitions import PYTHON
from leman_core.model.service_errors import AlreadyExists, DataLoss, FailedPrecondition, Unavailable
from leman_core.model.work import FunctionSpec
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.worker import function_loading
from leman_planner.catalog import table_catalog

OTHER_PYTHON = "2.7"


def double(x):
    return 2 * x


BUNDLE = cloudpickle.dumps(double)


def bundled(bundle=BUNDLE, python=PYTHON, **fields):
    digest = hashlib.sha256(bundle).hexdigest()
    return UdfDefinition(
        "double",
        "1",
        UdfKind.SCALAR,
        ("x",),
        pa.int64(),
        bundle_sha256=digest,
        bundle_python=python,
        bundle_size=len(bundle),
        **fields,
    )


SQL = table_catalog.sql_function_definition("x * 2 + 1", ("x",), pa.int64())
INSTALLED = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="pkg.mod:f")
ALL = pytest.mark.parametrize("udf", [bundled(), SQL, INSTALLED], ids=["bundle", "sql", "entrypoint"])


@pytest.fixture
def registry(tmp_path):
    return UdfRegistry(str(tmp_path))


def put(registry, udf):
    return registry.put(udf, BUNDLE if udf.bundle_sha256 else b"")


def stored(tmp_path, udf):
    return tmp_path / "_leman" / "udfs" / f"{udf.name}@{udf.version}.json"


def ref(registry, udf):
    return FunctionSpec(
        name=udf.name,
        version=udf.version,
        kind=udf.kind,
        input_columns=udf.input_columns,
        bundle_uri=registry.bundle_uri(udf),
        bundle_sha256=udf.bundle_sha256,
        bundle_python=udf.bundle_python,
        entrypoint=udf.entrypoint,
        stateful=udf.stateful,
        batch_size=udf.batch_size,
        error_policy=udf.error_policy,
    )


@ALL
def test_no_flipped_bit_of_a_definition_is_accepted(udf):
    data = stored_functions.encode_definition(udf, 12.5)
    assert function_definitions.decode_definition(data, "f.json") == (udf, 12.5)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(DataLoss) as caught:
                function_definitions.decode_definition(bytes(flipped), "f.json")
            assert caught.value.facts == {"path": "f.json"}


@ALL
@pytest.mark.parametrize("length", [0, 1, -1])
def test_a_definition_that_was_cut_off_or_grew_is_refused(udf, length):
    data = stored_functions.encode_definition(udf, 12.5)
    with pytest.raises(DataLoss):
        function_definitions.decode_definition(data[:length] if length >= 0 else data + b" ", "f.json")


def test_a_definition_without_a_digest_is_refused():
    document = json.loads(stored_functions.encode_definition(SQL, 1.0))
    del document["sha256"]
    with pytest.raises(DataLoss, match="no digest"):
        function_definitions.decode_definition(json.dumps(document, indent=1, sort_keys=True).encode(), "f.json")


def test_a_definition_under_the_name_of_another_is_refused(registry, tmp_path):
    other = dataclasses.replace(INSTALLED, version="2", entrypoint="pkg.mod:g")
    put(registry, INSTALLED)
    put(registry, other)
    stored(tmp_path, INSTALLED).write_bytes(stored(tmp_path, other).read_bytes())
    for use in (lambda: registry.find("f", "1"), lambda: registry.get("f"), registry.list):
        with pytest.raises(DataLoss) as caught:
            use()
        assert caught.value.reason == "UDF_DAMAGED"
    assert registry.get("f", "2") == other


@ALL
def test_a_damaged_definition_is_refused_at_every_use_and_healed_by_registering_it_again(registry, tmp_path, udf):
    put(registry, udf)
    path = stored(tmp_path, udf)
    path.write_bytes(path.read_bytes().replace(b'"x"', b'"z"'))
    uses = (
        lambda: registry.get(udf.name, udf.version),
        lambda: registry.get(udf.name),
        lambda: registry.find(udf.name, udf.version),
        registry.list,
    )
    for use in uses:
        with pytest.raises(DataLoss, match="Register the function again") as caught:
            use()
        assert caught.value.facts["path"] == str(path)
    assert put(registry, udf) is True
    assert registry.get(udf.name, udf.version) == udf
    assert put(registry, udf) is False


def test_a_damaged_definition_does_not_hide_other_functions(registry, tmp_path):
    put(registry, INSTALLED)
    put(registry, SQL)
    stored(tmp_path, INSTALLED).write_bytes(b"")
    assert registry.get(SQL.name) == SQL


@pytest.mark.parametrize("content", [None, b"", b"x" * len(BUNDLE)], ids=["gone", "empty", "changed"])
def test_a_bundle_that_is_gone_or_damaged_is_missed_refused_and_put_again(registry, tmp_path, content):
    udf = bundled()
    put(registry, udf)
    path = tmp_path / "_leman" / "udfs" / f"{udf.bundle_sha256}.bundle"
    assert not registry.needs_bundle(udf)
    assert function_loading.load_function(dataclasses.replace(ref(registry, udf), version="whole"))(3) == 6
    path.unlink() if content is None else path.write_bytes(content)
    assert registry.needs_bundle(udf)
    with pytest.raises(FailedPrecondition, match="Register the function again") as caught:
        function_loading.load_function(dataclasses.replace(ref(registry, udf), version=f"damaged {content!r}"))
    assert (caught.value.reason, caught.value.facts["path"]) == ("UDF_DIGEST_MISMATCH", str(path))
    with pytest.raises(FailedPrecondition) as caught:
        registry.put(udf)
    assert caught.value.reason == "UDF_BUNDLE_MISSING"
    put(registry, udf)
    assert path.read_bytes() == BUNDLE
    assert not registry.needs_bundle(udf)


class _Lacking:
    def __reduce__(self):
        return __import__, ("no_such_module",)


def test_a_bundle_that_workers_could_not_unpickle_gives_way_to_another_of_the_same_version(registry):
    broken = cloudpickle.dumps(_Lacking())
    lacking, mended = bundled(broken), bundled()
    registry.put(lacking, broken)
    assert not registry.needs_bundle(lacking)
    with pytest.raises(AlreadyExists):  # no one has tried it yet
        registry.put(mended, BUNDLE)
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match=r"could not be set up on a worker.*no_such_module"):
            function_loading.load_function(ref(registry, lacking))
        assert registry.needs_bundle(lacking)
        registry.put(lacking, broken)  # what was lacking may have been installed
        assert not registry.needs_bundle(lacking)
    with pytest.raises(FailedPrecondition):
        function_loading.load_function(ref(registry, lacking))
    registry.put(mended, BUNDLE)
    assert registry.get("double", "1") == mended
    assert not registry.needs_bundle(mended)
    assert function_loading.load_function(ref(registry, mended))(4) == 8


def test_a_bundle_that_cannot_be_read_now_is_an_error_of_the_storage(registry, tmp_path):
    udf = bundled()
    put(registry, udf)
    path = tmp_path / "_leman" / "udfs" / f"{udf.bundle_sha256}.bundle"
    path.unlink()
    path.mkdir()
    with pytest.raises(Unavailable, match="The bundle of function double@unreadable cannot be used now") as caught:
        function_loading.load_function(dataclasses.replace(ref(registry, udf), version="unreadable"))
    assert (caught.value.reason, caught.value.facts["uri"]) == ("STORE_UNAVAILABLE", str(path))


def test_a_bundle_of_another_python_is_refused_before_anything_is_stored(registry, tmp_path):
    with pytest.raises(FailedPrecondition, match=f"Python {OTHER_PYTHON}.*Python {PYTHON}") as caught:
        put(registry, bundled(python=OTHER_PYTHON))
    assert caught.value.reason == "UDF_PYTHON_MISMATCH"
    assert caught.value.facts == {"bundle_python": OTHER_PYTHON, "workers_python": PYTHON}
    assert not list(tmp_path.iterdir())
    assert put(registry, bundled())


def test_a_bundle_of_the_workers_python_takes_the_place_of_another(registry, tmp_path):
    """The services ran another Python when the function was registered: what the error says to do does help."""
    old = bundled(cloudpickle.dumps(double, protocol=2), OTHER_PYTHON)
    before = UdfRegistry(str(tmp_path), workers_python=OTHER_PYTHON)
    before.put(old, cloudpickle.dumps(double, protocol=2))
    assert not before.needs_bundle(old)
    assert registry.needs_bundle(old)
    with pytest.raises(FailedPrecondition, match=f"Register the function from Python {PYTHON}, under the same version"):
        function_loading.load_function(ref(registry, old))
    right = bundled(error_policy=ErrorPolicy(max_errors=1))
    assert registry.put(right, BUNDLE) is False
    assert registry.get("double", "1") == right
    assert function_loading.load_function(ref(registry, right))(4) == 8


def test_a_bundle_that_workers_can_load_stays(registry):
    put(registry, bundled())
    other = cloudpickle.dumps(double, protocol=2)
    with pytest.raises(AlreadyExists):
        registry.put(bundled(other), other)
    assert registry.get("double", "1") == bundled()


@pytest.mark.parametrize(
    "change", [{"input_columns": ("y",)}, {"output_type": pa.int32()}, {"stateful": True}], ids=str
)
def test_another_bundle_brings_no_other_definition(registry, tmp_path, change):
    UdfRegistry(str(tmp_path), workers_python=OTHER_PYTHON).put(bundled(python=OTHER_PYTHON), BUNDLE)
    with pytest.raises(AlreadyExists):
        registry.put(dataclasses.replace(bundled(), **change), BUNDLE)
