"""Wrong arguments of public calls are typed errors that name the argument: each parameter of each call."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence  # noqa: F401 - annotations are read by name
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import leman
from leman._call_boundary import Arguments
from leman.errors import InvalidArgument, LemanError

#: What no parameter is meant to be given: a value of each kind that fits some other one.
WRONG = (None, 5, 5.5, True, b"x", [None], {"a": None}, {1: 2}, object())
#: What parameters without a default are given while another one is wrong.
RIGHT: dict[str, Any] = {
    "where": "n > 1",
    "columns": {"m": "n + 1"},
    "data": [{"n": 1}],
    "schema": pa.schema([("z", pa.int64())]),
    "column": "n",
    "on": "n",
    "expression": "n > 1",
    "rows": 1,
    "value": "n + 1",
    "data_type": pa.int64(),
    "input_columns": ["n"],
    "entrypoint": "math:sqrt",
    "addresses": ["grpc://localhost:1"],
}
#: They wait for what does not come from services that are made up, or end what the others need.
LEFT_OUT = {"close", "down", "events", "open", "result", "start", "updates", "watch", "refresh", "to_batches"}


def calls(thing: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in inspect.getmembers(thing):
        if not name.startswith("_") and inspect.isroutine(member) and name not in LEFT_OUT:
            yield name, member


def wrongly(call: Callable[..., Any]) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    parameters = inspect.signature(call).parameters.values()
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    right = {one.name: RIGHT.get(one.name, "docs") for one in named if one.default is one.empty}
    for one in named:
        for value in WRONG:
            if value is not None or one.default is not None:
                yield one.name, value, partial(call, **right | {one.name: value})


def crashes(thing: Any) -> list[str]:
    """Calls that end with another exception than one of Leman's; ArrowInvalid is of what made up services answer."""
    found = []
    for name, call in calls(thing):
        for parameter, value, wrong in wrongly(call):
            try:
                answer = wrong()
                if isinstance(answer, Iterator):
                    list(itertools.islice(answer, 2))
            except (LemanError, pa.ArrowInvalid):
                continue
            except Exception as error:  # noqa: BLE001 - that there is none is what is tested
                found.append(f"{name}({parameter}={value!r}): {error!r}")
    return found


@pytest.mark.filterwarnings("ignore")
def test_each_call_tells_what_is_wrong(db, fake):
    table, rest = db.open_table("docs"), leman.databases(fake.address)
    things = [db, table, rest, table.search(None), db.job_future("j1")]
    assert sum(1 for thing in things for call in calls(thing) for _ in wrongly(call[1])) > 1000
    assert not (found := [crash for thing in things for crash in crashes(thing)]), "\n".join(found)


@pytest.mark.parametrize("wrong", WRONG)
def test_functions_and_policies_tell_it_too(wrong):
    places = []
    for make in (leman.sql, leman.ErrorHandlingConfig, partial(leman.connect, "/lake"), leman.databases):
        for parameter, value, call in wrongly(make):
            if value is wrong:
                try:
                    call()
                except LemanError:
                    continue
                except Exception as error:  # noqa: BLE001 - likewise
                    places.append(f"{make}({parameter}={value!r}): {error!r}")
    assert places == []


def checked(annotation: Any, value: Any) -> str:
    def call(given: Any) -> None: ...

    call.__annotations__["given"] = annotation
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("given", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)]
    )
    try:
        Arguments(call).check((value,), {})
    except InvalidArgument as refused:
        return refused.message
    return ""


@pytest.mark.parametrize(
    ("annotation", "right", "wrong", "told"),
    [
        ("str", ["", "a"], [None, 5, b"a"], "given is a str, not "),
        ("int", [5], [True, 5.5, "5", None], "given is an int, not "),
        ("float | None", [5, 5.5, None], ["5", True], "given is a number, not "),
        ("bool", [True, False], [None, "yes", 5.5, 1], "given is True or False, not "),
        ("Mapping[str, str]", [{}, {"a": "b"}], [None, {1: "a"}, {"a": 1}, "a"], "given is a mapping of keys"),
        ("Sequence[str] | None", [[], ("a",), None], [[1], "a", {"a": 1}], "given is a list of names, not "),
        ("Callable[[], str]", [len], [5], "given is a function, not an int"),
        ("Any", [None, 5], [], ""),
        ("NotKnownHere | None", [None, 5], [], ""),
    ],
)
def test_annotations_say_what_is_admitted(annotation, right, wrong, told):
    for value in right:
        assert checked(annotation, value) == ""
    for value in wrong:
        assert checked(annotation, value).startswith(told), value


def test_a_value_is_not_shown():
    assert checked("str", b"secret") == "given is a str, not a bytes"


def test_options_of_a_job_are_looked_at(db):
    with pytest.raises(InvalidArgument, match="concurrency is an int, not a str"):
        db.open_table("docs").backfill("n", concurrency="many")
