"""Which process may run a function in which environment; and values of it, which texts of a function do not have."""

import dataclasses
import io
import json
import re
from urllib.parse import quote, quote_plus

import pytest

from leman._format.stored_functions import UdfKind
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.work import WorkUnit
from leman_core.settings import Settings
from leman_executor.jobs.work_context import work_context
from leman_executor.worker import function_pool, user_errors
from leman_executor.worker.function_pool import Request
from leman_executor.worker.process_environment import MASK, MaskedValues, PrintedLines
from leman_executor.worker.unit_runner import UnitRunner
from tests.unit.executor.manager_helpers import HEADER, UDF

SALT = b"one salt"
VALUE = "sk-a/value that=nobody sees"
QUOTED = "sk-\"a\\value/of é'"


def named(env: dict[str, str], salt: bytes = SALT, kind: UdfKind = UdfKind.SCALAR) -> str:
    job = Job("j", "", JobState.RUNNING, BackfillSpec("/lake", "t", "y"), 0.0, 0.0)
    header = dataclasses.replace(HEADER, udf=dataclasses.replace(UDF, kind=kind))
    return work_context(job, header, Settings(), env=env).process_name(salt)


def test_a_process_is_that_of_one_environment_and_its_name_does_not_tell_which():
    plain = named({})
    names = [plain, named({"A": VALUE}), named({"A": "other"}), named({"B": VALUE}), named({"A": VALUE, "B": ""})]
    assert len(set(names)) == len(names)
    assert all(name.startswith(plain) for name in names)
    assert named({"A": "1", "B": "2"}) == named({"B": "2", "A": "1"})
    assert named({"A": VALUE}) != named({"A": VALUE}, b"another salt")
    assert VALUE not in "".join(names)


def test_what_runs_in_the_services_is_given_nothing():
    assert named({"A": VALUE}, kind=UdfKind.SQL) == named({}, kind=UdfKind.SQL)


@pytest.fixture
def masked(monkeypatch):
    made = MaskedValues()
    monkeypatch.setattr("leman_executor.worker.user_errors.masked", made)
    monkeypatch.setattr("leman_executor.worker.process_environment.masked", made)
    made.take([VALUE, VALUE[:9], "ab"])
    return made


def test_what_a_function_raised_does_not_tell_a_value(masked):
    try:
        raise ValueError(f"401 for https://x?key={VALUE}&key=sk-a%2Fvalue%20that%3Dnobody%20sees, about ab")
    except ValueError as error:
        failure = user_errors.to_row_failure(error, 0, 0, 1)
    assert failure.error_message == f"401 for https://x?key={MASK}&key={MASK}, about ab"
    assert "nobody" not in failure.traceback
    assert user_errors.format_value({"key": VALUE}) == f"{{'key': '{MASK}'}}"


def test_what_a_function_prints_does_not_tell_a_value(masked, tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as log, io.BufferedWriter(PrintedLines(log.fileno())) as out:
        out.write(f"key {VALUE}!\n".encode())
        out.flush()
    assert path.read_text() == f"key {MASK}!\n"


@pytest.mark.parametrize(
    "told",
    [
        f"is it {QUOTED!r}?",
        json.dumps({"key": QUOTED}),
        json.dumps({"key": QUOTED}, ensure_ascii=False),
        quote(QUOTED),
        quote_plus(QUOTED),
        "Bearer key-with-a-line-end",
        "the second line",
    ],
)
def test_a_value_is_masked_as_others_write_it(told):
    made = MaskedValues()
    made.take([QUOTED, "key-with-a-line-end\n", "one\n  the second line\r\n"])
    assert MASK in made.out_of(told)
    assert made.out_of_bytes(told.encode()).decode() == made.out_of(told)
    assert not re.search("value|line", made.out_of(told))


class Unspeakable(BaseException):
    def __str__(self) -> str:
        raise SystemExit(VALUE)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(f"no model for {VALUE}"), f"SystemExit: no model for {MASK}"),
        (KeyboardInterrupt(VALUE), f"KeyboardInterrupt: {MASK}"),
        (Unspeakable(), "Unspeakable: <no message: Unspeakable.__str__ raised>"),
    ],
)
def test_what_ends_a_task_outright_does_not_tell_a_value(masked, error, told):
    def run(_task, _say):
        raise error

    answer = function_pool._answer(Request(""), run, lambda _state: None, lambda _content: None)
    assert answer.error == told


def test_what_ends_a_unit_as_a_bug_does_not_tell_a_value(masked, monkeypatch):
    def bug(*_args):
        raise RuntimeError(VALUE)

    monkeypatch.setattr(UnitRunner, "_reader", bug)
    job = Job("j", "", JobState.RUNNING, BackfillSpec("/lake", "t", "y"), 0.0, 0.0)
    context = work_context(job, HEADER, Settings(), env={"A": VALUE})
    failure = (
        UnitRunner(context, WorkUnit("u", ()), store=None, reservations=None, sink=None, errors=None).run().failure
    )
    assert failure is not None
    assert (failure.reason, failure.message) == ("INTERNAL_BUG", f"RuntimeError: {MASK}")


def test_without_values_texts_are_as_they_are():
    nothing = MaskedValues()
    nothing.take(["", "short"])
    assert nothing.out_of("short") == "short"
    assert nothing.out_of_bytes(b"short") == b"short"
