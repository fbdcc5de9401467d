"""Which process may run a function in which environment; and values of it, which texts of a function do not have."""

import dataclasses
import io

import pytest

from core.config import Settings
from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec
from core.domain.udf import UdfKind
from executor.jobs.work_context import work_context
from executor.worker import user_errors
from executor.worker.processes.masked_values import MASK, MaskedValues
from executor.worker.processes.printed_lines import PrintedLines
from tests.unit.executor.manager_helpers import HEADER, UDF

SALT = b"one salt"
VALUE = "sk-a/value that=nobody sees"


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
    monkeypatch.setattr("executor.worker.user_errors.masked", made)
    monkeypatch.setattr("executor.worker.processes.printed_lines.masked", made)
    made.take([VALUE, VALUE[:9], "ab"])
    return made


def test_what_a_function_raised_does_not_tell_a_value(masked):
    try:
        raise ValueError(f"401 for https://x?key={VALUE}&key=sk-a%2Fvalue%20that%3Dnobody%20sees, about ab")
    except ValueError as error:
        failure = user_errors.failure(error, 0, 0, 1)
    assert failure.message == f"401 for https://x?key={MASK}&key={MASK}, about ab"
    assert "nobody" not in failure.traceback
    assert user_errors.shown({"key": VALUE}) == f"{{'key': '{MASK}'}}"


def test_what_a_function_prints_does_not_tell_a_value(masked, tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as log, io.BufferedWriter(PrintedLines(log.fileno())) as out:
        out.write(f"key {VALUE}!\n".encode())
        out.flush()
    assert path.read_text() == f"key {MASK}!\n"


def test_without_values_texts_are_as_they_are():
    nothing = MaskedValues()
    nothing.take(["", "short"])
    assert nothing.out_of("short") == "short"
    assert nothing.out_of_bytes(b"short") == b"short"
