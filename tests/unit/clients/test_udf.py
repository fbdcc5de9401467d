"""The udf decorator: kinds, types, columns, options, bundles."""

from __future__ import annotations

import datetime
import enum
import functools
import pickle
import subprocess
import sys
import textwrap
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NotRequired, Optional, TypedDict

import attrs
import cloudpickle
import msgspec
import numpy as np
import pyarrow as pa
import pydantic
import pytest

import leman
from leman._functions.bundle import make_bundle
from leman._functions.version_digest import derive_version
from leman.errors import TypeMismatch, UdfDefinitionError
from leman.v1 import udf_pb2
from leman_executor.worker.value_conversion import to_array

Definition = udf_pb2.UdfDefinition


def schema(data):
    return pa.ipc.read_schema(pa.py_buffer(data))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, pa.int64()),
        (float, pa.float64()),
        (str, pa.string()),
        (bool, pa.bool_()),
        (bytes, pa.binary()),
        (list[float], pa.list_(pa.float64())),
        (list[list[int]], pa.list_(pa.list_(pa.int64()))),
        (Optional[int], pa.int64()),  # noqa: UP045 - the older way to write it
        (str | None, pa.string()),
        (datetime.datetime, pa.timestamp("us")),
        (datetime.date, pa.date32()),
        *((getattr(np, str(t)), t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())),
        (np.float16, pa.float16()),
        (np.float32, pa.float32()),
        (np.float64, pa.float64()),
        (np.bool_, pa.bool_()),
        (np.str_, pa.string()),
        (list[np.float32], pa.list_(pa.float32())),
        (np.int16 | None, pa.int16()),
    ],
)
def test_type_from_the_return_annotation(annotation, expected):
    def f(x):
        return x

    f.__annotations__["return"] = annotation
    made = leman.udf(f)
    assert made.data_type == expected
    assert made.kind == "scalar"


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (dict, r"return dict, .*pa\.struct"),
        (list, r"return list, .*pa\.list_"),
        (dict[str, int], r"return dict\[str, int\], .*pa\.map_"),
        (np.longdouble, r"return numpy\.\w+, "),
        (np.floating, r"return numpy\.floating, "),
        (threading.Thread, r"return threading\.Thread, "),
        (int | str, r"return int \| str, "),
        (None, "return None, "),
    ],
    ids=str,
)
def test_an_annotation_of_which_no_type_follows_is_named_with_what_is_possible(annotation, shown):
    def f(x):
        return x

    f.__annotations__["return"] = annotation
    with pytest.raises(UdfDefinitionError, match=rf"is annotated to {shown}.*, or annotate it with bool, int"):
        leman.udf(f)


def test_data_type_wins_over_the_annotation():
    @leman.udf(data_type=pa.float32())
    def f(x: int) -> float:
        return x

    assert f.data_type == pa.float32()
    assert schema(f.describe().output_schema).field(0).type == pa.float32()


def test_decorated_function_is_still_a_function():
    @leman.udf
    def f(x: int, y: int = 2) -> int:
        """Adds."""
        return x + y

    assert f(1) == 3
    assert f(1, y=5) == 6
    assert (f.__name__, f.__doc__, f.name) == ("f", "Adds.", "f")


def test_array_kind():
    @leman.udf
    def f(a: pa.Int32Array, b: pa.Array) -> pa.DoubleArray:
        return a

    definition = f.describe()
    assert definition.kind == Definition.KIND_ARRAY
    assert list(definition.input_columns) == ["a", "b"]
    assert schema(definition.input_schema).types == [pa.int32(), pa.null()]
    assert f.data_type == pa.float64()


def test_record_batch_kind():
    @leman.udf(data_type=pa.int64(), input_columns=["a", "b"])
    def f(batch: pa.RecordBatch) -> pa.Array:
        return batch.column(0)

    assert f.kind == "record_batch"
    assert f.input_columns == ("a", "b")
    assert f(pa.record_batch({"a": [1], "b": [2]})).to_pylist() == [1]


def test_class_is_bound_to_its_arguments():
    @leman.udf(data_type=pa.list_(pa.float32(), 4))
    class Embed:
        SIZE = 4

        def __init__(self, dim: int = 384) -> None:
            self.dim = dim

        def __call__(self, text: str) -> list[float]:
            return [0.0] * self.dim

    assert Embed.stateful
    assert Embed.input_columns == ("text",)
    assert Embed.SIZE == 4
    small = Embed(dim=2)
    assert isinstance(small, leman.UDF)
    assert small("x") == [0.0, 0.0]
    assert cloudpickle.loads(small.bundle()[1])()("x") == [0.0, 0.0]
    assert cloudpickle.loads(Embed.bundle()[1])().dim == 384
    with pytest.raises(UdfDefinitionError, match="unexpected keyword"):
        Embed(size=3)


def test_class_that_needs_arguments_is_not_usable_without():
    @leman.udf
    class Add:
        def __init__(self, n):
            self.n = n

        def __call__(self, x: int) -> int:
            return x + self.n

    with pytest.raises(UdfDefinitionError, match="missing a required argument: 'n'"):
        Add.bundle()
    assert Add(1).bundle()


def test_parameters_with_a_default_are_no_columns_unless_named():
    def f(a: int, b: int = 2) -> int:
        return a + b

    assert leman.udf(f).input_columns == ("a",)
    assert leman.udf(input_columns=["x", "y"])(f).input_columns == ("x", "y")


def test_generic_array_needs_a_type():
    def f(x: pa.Array) -> pa.Array:
        return x

    with pytest.raises(ValueError, match=r"Cannot validate generic pa\.Array type.*data_type=") as caught:
        leman.udf(f)
    assert isinstance(caught.value, TypeError)
    assert leman.udf(data_type=pa.int8())(f).data_type == pa.int8()


def test_any_number_of_arrays_needs_names():
    def f(*columns: pa.Array) -> pa.Int64Array:
        return columns[0]

    with pytest.raises(UdfDefinitionError, match=r"Cannot validate generic pa\.Array type.*input_columns="):
        leman.udf(f)
    assert leman.udf(input_columns=["a", "b", "c"])(f).input_columns == ("a", "b", "c")


def mixed(a: pa.Array, b: int) -> pa.Int64Array: ...
def two_batches(a: pa.RecordBatch, b: pa.RecordBatch) -> pa.Int64Array: ...
def no_result(a: int): ...
def no_input() -> int: ...
def keyword(a: int, *, b) -> int: ...
def chunked(a: pa.ChunkedArray) -> pa.Int64Array: ...
def batch(a: pa.RecordBatch) -> pa.Int64Array: ...
def plain(a: int) -> int: ...
def unknown(a: Nowhere) -> int: ...  # noqa: F821
async def waiting(a: int) -> int: ...
def several(a: int) -> int:
    yield a


async def streaming(a: int) -> int:
    yield a


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (mixed, {}, "mixed"),
        (two_batches, {"input_columns": ["a"]}, "no other parameter"),
        (no_result, {}, "does not say what it returns"),
        (no_input, {}, "reads no column"),
        (keyword, {}, "'b' needs a default"),
        (chunked, {}, "ChunkedArray is not supported"),
        (batch, {}, "input_columns"),
        (unknown, {}, "Nowhere"),
        (waiting, {}, "coroutine"),
        (several, {}, "generator"),
        (streaming, {}, "generator.*plain def"),
        (plain, {"input_columns": ["a", "b"]}, "takes 1 columns"),
        (plain, {"input_columns": "a"}, "list of column names"),
        (batch, {"input_columns": ["a", "a"]}, "more than once"),
        (plain, {"data_type": "int32"}, "pyarrow type"),
        (plain, {"name": "a b"}, "name="),
        (plain, {"name": "x_ver-1"}, "name="),
        (plain, {"version": ""}, "version="),
        (plain, {"batch_size": 0}, "batch_size"),
        (plain, {"timeout": 0}, "timeout"),
        (plain, {"timeout": "1 s"}, "timeout"),
        (plain, {"checkpoint_size": True}, "checkpoint_size"),
        (plain, {"min_checkpoint_size": 5, "max_checkpoint_size": 4}, "above"),
        (plain, {"error_handling": "skip"}, "ErrorHandlingConfig"),
    ],
)
def test_refused_definitions(function, options, message):
    with pytest.raises(UdfDefinitionError, match=message) as caught:
        leman.udf(**options)(function)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("target", [3, len, leman.udf(plain), type("NoCall", (), {})])
def test_refused_targets(target):
    with pytest.raises(UdfDefinitionError):
        leman.udf(target)


def test_resources_on_the_wire():
    made = leman.udf(num_cpus=2, num_gpus=0.5, memory="1.5 GiB")(plain).describe().resources
    assert (made.num_cpus, made.num_gpus, made.memory_bytes) == (2, 0.5, 3 << 29)
    assert not leman.udf(plain).describe().HasField("resources")
    for memory, asked in [(1000, 1000), ("512m", 512 << 20), ("2G", 2 << 30), ("10 kB", 10240), ("7", 7)]:
        assert leman.udf(memory=memory)(plain).describe().resources.memory_bytes == asked


@pytest.mark.parametrize(
    "options",
    [
        *({"num_cpus": n} for n in (0, -1, 1.5, True, "2", 2**31)),
        *({"num_gpus": n} for n in (0, -1, 0.7, 1.5, float("nan"), float("inf"), True, "1")),
        *({"memory": n} for n in (0, -5, 1.5, "", "2 apples", True, 2**63, "9" * 400)),
    ],
    ids=str,
)
def test_refused_resources(options):
    with pytest.raises(UdfDefinitionError, match=next(iter(options))):
        leman.udf(**options)


def test_resources_leave_the_version_alone():
    assert leman.udf(num_cpus=4, memory="1g")(plain).version == leman.udf(plain).version


def test_blob_output():
    def letters(x):
        return b"x" * x

    made = leman.udf(blob=True, name="b")(letters)
    field = pa.ipc.read_schema(pa.py_buffer(made.describe().output_schema)).field(0)
    assert field.type == made.data_type == pa.large_binary()
    assert field.metadata == {b"lance-encoding:blob": b"true"}
    other = leman.udf(data_type=pa.large_binary(), name="b")(letters)
    assert other.version != made.version
    assert not pa.ipc.read_schema(pa.py_buffer(other.describe().output_schema)).field(0).metadata
    with pytest.raises(UdfDefinitionError, match="a blob is bytes"):
        leman.udf(blob=True, data_type=pa.int64())(letters)


def test_lambda_needs_a_name():
    with pytest.raises(UdfDefinitionError, match=r"leman.udf\(name='score', data_type="):
        leman.udf(data_type=pa.int64())(lambda x: x)
    assert leman.udf(name="f", data_type=pa.int64())(lambda x: x).name == "f"


def test_options_on_the_wire():
    policy = leman.ErrorHandlingConfig(
        on_error=[
            leman.Retry(ConnectionError, max_attempts=4, match="reset"),
            leman.Skip([ValueError, "pkg.Odd"]),
            leman.Fail(),
        ],
        max_errors=0.25,
    )
    made = leman.udf(
        batch_size=10,
        timeout=2.5,
        checkpoint_size=20,
        min_checkpoint_size=5,
        max_checkpoint_size=30,
        error_handling=policy,
    )(plain)
    definition = made.describe()
    assert definition.batch_size == 10
    assert definition.call_timeout.ToTimedelta().total_seconds() == 2.5
    bounds = definition.checkpoint
    assert (bounds.checkpoint_size, bounds.min_checkpoint_size, bounds.max_checkpoint_size) == (20, 5, 30)
    retry, skip, fail = definition.error_policy.rules
    assert (retry.action, retry.max_attempts, retry.message_pattern) == (udf_pb2.ErrorRule.ACTION_RETRY, 4, "reset")
    assert (retry.initial_backoff.ToMilliseconds(), retry.max_backoff.ToMilliseconds()) == (500, 60_000)
    assert list(retry.exception_types) == ["ConnectionError"]
    assert list(skip.exception_types) == ["ValueError", "pkg.Odd"]
    assert (fail.action, list(fail.exception_types)) == (udf_pb2.ErrorRule.ACTION_FAIL, [])
    assert definition.error_policy.max_error_fraction == 0.25
    assert not definition.error_policy.HasField("max_errors")
    assert definition.error_policy.store_errors


def test_max_errors_as_a_count():
    policy = leman.ErrorHandlingConfig(max_errors=1, store_errors=False).proto()
    assert (policy.max_errors, policy.max_error_fraction, policy.store_errors) == (1, 0.0, False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: leman.ErrorHandlingConfig(max_errors=0),
        lambda: leman.ErrorHandlingConfig(max_errors=1.5),
        lambda: leman.ErrorHandlingConfig(max_errors=True),
        lambda: leman.ErrorHandlingConfig(on_error=[ValueError]),
        lambda: leman.Skip(3),
        lambda: leman.Skip(match="("),
        lambda: leman.Retry(max_attempts=1),
        lambda: leman.Retry(initial_backoff_seconds=2, max_backoff_seconds=1),
        lambda: leman.Retry(initial_backoff_seconds="1"),
        lambda: leman.Retry(max_backoff_seconds=float("inf")),
        lambda: leman.Retry(max_attempts="3"),
        lambda: leman.Retry(max_attempts=2.5),
        lambda: leman.Retry(max_attempts=1 << 40),
        lambda: leman.Skip(match=5),
    ],
)
def test_refused_policies(make):
    with pytest.raises(UdfDefinitionError):
        make()


TABLE = pa.schema(
    [
        ("text", pa.large_string()),
        ("word", pa.dictionary(pa.int8(), pa.string())),
        ("small", pa.int8()),
        ("ratio", pa.float32()),
        ("vector", pa.list_(pa.float32(), 3)),
        ("raw", pa.binary()),
        ("at", pa.timestamp("ns", "UTC")),
    ]
)


@pytest.mark.parametrize(
    ("annotation", "fitting"),
    [
        (str, {"text", "word"}),
        (int, {"small"}),
        (float, {"small", "ratio"}),
        (float | None, {"small", "ratio"}),
        (list[float], {"vector"}),
        (list, {"vector"}),
        (bytes, {"raw"}),
        (datetime.datetime, {"at"}),
        (object, set(TABLE.names)),
    ],
)
def test_scalar_annotations_and_columns(annotation, fitting):
    def f(x) -> int:
        return 0

    f.__annotations__["x"] = annotation
    made = leman.udf(f)
    for name in fitting:
        made.check_inputs(TABLE, [name])
    for name in set(TABLE.names) - fitting:
        with pytest.raises(TypeMismatch, match=f"Type mismatch for column {name}"):
            made.check_inputs(TABLE, [name])


# bundles


def in_fresh_process(folder, code):
    """Runs code in a Python that has none of the user's modules."""
    command = [sys.executable, "-P", "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def user_code(tmp_path, monkeypatch):
    """A package of the user's own: decorated functions that use helpers of other modules."""
    package = tmp_path / "src" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("import json\nK = 3\ndef deep(x):\n    return json.loads(str(x)) * K\n")
    (package / "helpers.py").write_text("from mine.deep import deep\ndef helper(x):\n    return deep(x) + 1\n")
    (package / "udfs.py").write_text(
        "import leman\nfrom mine import helpers\nfrom mine.deep import deep\n"
        "@leman.udf\ndef f(x: int) -> int:\n    return helpers.helper(x) + deep(x) + (f(x - 1) if x > 1 else 0)\n"
        "@leman.udf\nclass C:\n"
        "    def __init__(self, n=0):\n        self.n = n\n"
        "    def __call__(self, x: int) -> int:\n        return helpers.helper(x) + self.n\n"
        "@leman.udf\ndef lazy(x: int) -> int:\n    from mine.deep import deep\n    return deep(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    yield __import__("mine.udfs").udfs
    for name in [name for name in sys.modules if name == "mine" or name.startswith("mine.")]:
        del sys.modules[name]


def test_bundle_runs_without_the_users_modules(user_code, tmp_path):
    (tmp_path / "f").write_bytes(user_code.f.bundle()[1])
    (tmp_path / "c").write_bytes(user_code.C(10).bundle()[1])
    code = """
        import cloudpickle, pathlib
        f, c = (cloudpickle.loads(pathlib.Path(p).read_bytes()) for p in "fc")
        print(f(2), c()(2))
    """
    assert in_fresh_process(tmp_path, code) == f"{user_code.f(2)} {user_code.C(10)(2)}"
    assert user_code.f(2) == 20


def test_bundle_leaves_no_trace(user_code):
    before = cloudpickle.list_registry_pickle_by_value()
    user_code.f.bundle()
    assert cloudpickle.list_registry_pickle_by_value() == before


def test_bundle_is_described(user_code):
    described, data = user_code.f.bundle()
    assert described.size_bytes == len(data)
    assert described.python_version == "{}.{}".format(*sys.version_info[:2])
    assert len(described.sha256) == 64


def test_import_that_workers_could_not_follow(user_code):
    with pytest.raises(UdfDefinitionError, match=r"lazy\(\) imports mine\.deep .* top of the file"):
        user_code.lazy.bundle()


class Written:
    """What another thread writes to whenever it is pickled, up to now and then."""

    def __init__(self, times: int, said: str) -> None:
        self.times = times
        self.said = said

    def __reduce__(self) -> tuple[object, ...]:
        if self.times:
            self.times -= 1
            raise RuntimeError(self.said)
        return int, (7,)


class Writes:
    """A key at whose look another thread writes to what holds it: adds an entry, or takes one away."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __reduce__(self) -> tuple[object, ...]:
        self.act()
        return int, (7,)

    def __repr__(self) -> str:
        self.act()
        return "Writes"


@pytest.mark.parametrize("kind", [dict, Counter, OrderedDict, set])
@pytest.mark.parametrize("more", [True, False])
def test_what_another_thread_writes_to_has_a_version_all_the_same(kind, more):
    held: Any = kind()

    def act() -> None:
        if more:
            held.update({len(held)} if kind is set else {len(held): 1})
        else:
            held.clear()

    key = Writes(act)
    held.update({key, "a"} if kind is set else {key: 1, "a": 2})
    assert derive_version(lambda: held)


@pytest.mark.parametrize(
    "said", ["dictionary changed size during iteration", "dictionary keys changed during iteration"]
)
def test_what_another_thread_writes_to_while_it_is_pickled_is_pickled_anew(said):
    written = Written(3, said)
    assert pickle.loads(make_bundle(lambda: written).data)() == 7
    with pytest.raises(UdfDefinitionError, match=said):
        make_bundle(functools.partial(int, Written(1000, said)))


def test_what_cannot_be_pickled_is_named():
    lock = threading.Lock()

    @leman.udf(version="1")
    def f(x: int) -> bool:
        return lock.locked()

    with pytest.raises(UdfDefinitionError, match=r"cannot be sent to workers: .*lock"):
        f.bundle()


def test_udf_survives_pickling_by_reference_of_leman():
    made = leman.udf(plain)
    copy = pickle.loads(cloudpickle.dumps(made))
    assert (copy.name, copy.version, copy.data_type) == (made.name, made.version, made.data_type)


@pytest.mark.parametrize(
    ("returned", "data_type"),
    [
        (str, pa.int32()),
        (int, pa.string()),
        (float, pa.decimal128(5, 2)),
        (list[str], pa.list_(pa.float32())),
        (list[float], pa.float32()),
        (bytes, pa.string()),
        (datetime.date, pa.timestamp("us")),
        (str | None, pa.bool_()),
        (int, pa.uuid()),
    ],
)
def test_data_type_that_contradicts_the_annotation(returned, data_type):
    def f(x):
        return x

    f.__annotations__["return"] = returned
    with pytest.raises(UdfDefinitionError, match=r"Type mismatch: UDF 'f' is annotated to return"):
        leman.udf(data_type=data_type)(f)


@pytest.mark.parametrize(
    ("returned", "data_type"),
    [
        (int, pa.int8()),
        (int, pa.float32()),
        (int, pa.decimal128(5, 2)),
        (float, pa.float16()),
        (str, pa.large_string()),
        (str, pa.dictionary(pa.int8(), pa.string())),
        (str | None, pa.json_()),
        (bytes, pa.uuid()),
        (uuid.UUID, pa.uuid()),
        (bool, pa.bool8()),
        (list[float], pa.list_(pa.float32(), 4)),
        (list[float], pa.fixed_shape_tensor(pa.float32(), [2, 2])),
        (dict, pa.struct([("a", pa.int32())])),
        (object, pa.int32()),
        (datetime.datetime, pa.timestamp("ns", "UTC")),
    ],
)
def test_data_type_that_fits_the_annotation(returned, data_type):
    def f(x):
        return x

    f.__annotations__["return"] = returned
    assert leman.udf(data_type=data_type)(f).data_type == data_type


@pytest.mark.parametrize("kind", [pa.uuid(), pa.bool8(), pa.json_(), pa.list_(pa.uuid())], ids=str)
@pytest.mark.parametrize("annotations", [{}, {"x": Any, "return": Any}, {"x": object, "return": object}], ids=str)
def test_extension_types_without_an_annotation_that_says_something(annotations, kind):
    def f(x):
        return x

    f.__annotations__.update(annotations)
    made = leman.udf(data_type=kind)(f)
    assert made.data_type == kind
    made.check_inputs(pa.schema([("u", kind)]), ["u"])


def test_a_uuid_may_be_none_and_is_no_number():
    def fitting(x: uuid.UUID | None) -> uuid.UUID | None:
        return x

    def other(x: int | None) -> int:
        return 0

    column = pa.schema([("u", pa.uuid())])
    leman.udf(data_type=pa.uuid())(fitting).check_inputs(column, ["u"])
    with pytest.raises(TypeMismatch, match=r"declares int \| None"):
        leman.udf(other).check_inputs(column, ["u"])


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (tuple[str, float], ("x", 1.5)),
        (tuple[int, bytes, bool], (1, b"x", True)),
        (tuple[float, ...], (1.5, 2.5)),
        (list, [1.5]),
        (list[Any], [1.5]),
    ],
)
def test_the_type_that_is_advised_for_what_is_returned_can_be_used_and_holds_it(annotation: Any, value: Any) -> None:
    def f(x: int):
        return value

    f.__annotations__["return"] = annotation
    with pytest.raises(UdfDefinitionError, match="data_type=") as refused:
        leman.udf(version="1")(f)
    advice = str(refused.value).partition("@leman.udf(data_type=")[2].partition("), or annotate")[0]
    made = leman.udf(version="1", data_type=eval(advice, {"pa": pa}))(f)
    found = pa.array([value], made.data_type)[0].as_py()
    assert list(found.values() if isinstance(found, dict) else found) == list(value)


def test_a_set_is_advised_to_be_sorted() -> None:
    def f(x: int) -> set[str]:
        return {"a"}

    with pytest.raises(UdfDefinitionError, match=r"no order: return sorted\(...\), with data_type=pa.list_\(pa.string"):
        leman.udf(version="1")(f)


class Tone(enum.StrEnum):
    GOOD = "good"


class Part(pydantic.BaseModel):
    x: int
    at: datetime.datetime | None = None


class Answer(pydantic.BaseModel):
    tags: list[str]
    n: int | None
    score: Annotated[float, pydantic.Field(ge=0, le=1)]
    part: Part
    parts: list[Part] = []
    counts: dict[str, int]
    tone: Tone = Tone.GOOD
    word: Literal["a", "b"] = "a"
    hidden: int = pydantic.Field(0, exclude=True)

    @pydantic.computed_field
    def total(self) -> int:
        return 3


PART = pa.struct([("x", pa.int64()), ("at", pa.timestamp("us"))])
ANSWER = pa.struct(
    [
        ("tags", pa.list_(pa.string())),
        ("n", pa.int64()),
        ("score", pa.float64()),
        ("part", PART),
        ("parts", pa.list_(PART)),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("tone", pa.string()),
        ("word", pa.string()),
        ("total", pa.int64()),
    ]
)


class Names(pydantic.RootModel[list[str]]):
    pass


@dataclass
class Verdict:
    score: float
    why: list[str]
    kind: ClassVar[str] = "v"


class Typed(TypedDict):
    score: float
    ids: NotRequired[list[uuid.UUID]]


class Named(NamedTuple):
    score: float
    verdict: Verdict | None


@attrs.define
class Defined:
    score: float
    weight: np.float32


class Packed(msgspec.Struct, rename="camel"):
    is_good: bool
    raw: bytes


def advised(annotation: Any) -> str:
    def f(x: int):
        return None

    f.__annotations__["return"] = annotation
    with pytest.raises(UdfDefinitionError) as refused:
        leman.udf(version="1")(f)
    return str(refused.value)


VERDICT = pa.struct([("score", pa.float64()), ("why", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    ("annotation", "kind", "how"),
    [
        (Answer, ANSWER, "Return value.model_dump()"),
        (Answer | None, ANSWER, "Return value.model_dump()"),
        (list[Part], pa.list_(PART), "Return value.model_dump() of each"),
        (Names, pa.list_(pa.string()), ""),
        (Verdict, VERDICT, "Return dataclasses.asdict(value)"),
        (Typed, pa.struct([("score", pa.float64()), ("ids", pa.list_(pa.uuid()))]), ""),
        (Named, pa.struct([("score", pa.float64()), ("verdict", VERDICT)]), ""),
        (Defined, pa.struct([("score", pa.float64()), ("weight", pa.float32())]), "Return attrs.asdict(value)"),
        (Packed, pa.struct([("isGood", pa.bool_()), ("raw", pa.string())]), "Return msgspec.to_builtins(value)"),
        (dict[str, list[float]], pa.map_(pa.string(), pa.list_(pa.float64())), ""),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_advised_type_of_a_class_is_that_of_its_fields_at_any_depth(annotation: Any, kind: pa.DataType, how: str):
    told = advised(annotation)
    code = told.partition("here @leman.udf(data_type=")[2]
    code = next(code[:end] for end in range(len(code)) if code[:end].count("(") == code[:end].count(")") > 0)
    assert eval(code, {"pa": pa}) == kind
    assert how in told
    assert ("Return" in told) == bool(how)


def test_a_value_of_a_model_fits_the_advised_type() -> None:
    value = Answer(tags=["a"], n=None, score=0.5, part=Part(x=1), counts={"a": 1}).model_dump()
    assert to_array([value], ANSWER).to_pylist()[0]["counts"] == [("a", 1)]


@pytest.mark.parametrize(("hint", "shown"), [(Any, "Any"), (set[str], "set"), (int | str, "int | str"), (dict, "dict")])
def test_a_field_without_an_arrow_type_is_named_instead_of_a_guess(hint: Any, shown: str) -> None:
    model = pydantic.create_model("Model", good=int, inner=list[pydantic.create_model("Inner", bad=hint)])
    told = advised(model)
    assert f"because of inner[].bad ({'typing.' if hint is Any else ''}{shown}" in told
    assert "here @leman.udf" not in told
    assert "Return value.model_dump()" in told


def test_a_class_that_holds_itself_has_no_type() -> None:
    class Node(pydantic.BaseModel):
        children: list[Node]

    Node.model_rebuild(_types_namespace={"Node": Node})
    assert "because of children[] (" in advised(Node)
