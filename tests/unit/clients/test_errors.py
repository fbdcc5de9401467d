"""From statuses to exceptions."""

from __future__ import annotations

import pickle
import subprocess
import sys

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2

from leman import errors
from leman._wire import conversions
from tests.unit.clients.fake_services import status


@pytest.mark.parametrize(
    ("code", "reason", "kind", "also"),
    [
        ("FAILED_PRECONDITION", "COLUMN_NOT_DEFINED", errors.ColumnNotDefined, ValueError),
        ("FAILED_PRECONDITION", "INPUT_COLUMN_MISSING", errors.InputColumnMissing, KeyError),
        ("FAILED_PRECONDITION", "INPUT_COLUMN_MISSING", errors.InputColumnMissing, ValueError),
        ("FAILED_PRECONDITION", "TYPE_MISMATCH", errors.TypeMismatch, TypeError),
        ("FAILED_PRECONDITION", "SOMETHING_NEW", errors.FailedPrecondition, errors.LemanError),
        ("INVALID_ARGUMENT", "INVALID_FILTER", errors.InvalidArgument, ValueError),
        ("NOT_FOUND", "TABLE_NOT_FOUND", errors.TableNotFound, KeyError),
        ("NOT_FOUND", "COLUMN_NOT_FOUND", errors.ColumnNotFound, ValueError),
        ("ALREADY_EXISTS", "UDF_EXISTS", errors.UdfExists, ValueError),
        ("UNAVAILABLE", "DRAINING", errors.Unavailable, ConnectionError),
        ("UNIMPLEMENTED", "", errors.NotSupported, NotImplementedError),
        ("INTERNAL", "INTERNAL_BUG", errors.Internal, RuntimeError),
        ("UNKNOWN", "", errors.Internal, RuntimeError),
    ],
)
def test_class_by_reason_then_by_code(code, reason, kind, also):
    error = conversions.from_status(status(code, reason, "what to do", column="n"))
    assert type(error) is kind
    assert isinstance(error, also)
    assert str(error) == "what to do"  # KeyError would show quotes
    assert error.facts == {"column": "n"}
    assert error.reason == reason or not reason


class Failure(grpc.RpcError):
    def __init__(self, code, details="", reason=""):
        self._code, self._details, self._reason = code, details, reason

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        packed = status(self._code.name, self._reason, self._details).SerializeToString()
        return (("grpc-status-details-bin", packed),) if self._reason else ()


@pytest.mark.parametrize(
    ("code", "details", "reason", "expected"),
    [
        ("INTERNAL", "Received RST_STREAM with error code 2", "", "UNAVAILABLE"),
        ("UNKNOWN", "Stream removed (RST_STREAM with error code 2)", "", "UNAVAILABLE"),
        ("INTERNAL", "Received RST_STREAM with error code 2", "INTERNAL_BUG", "INTERNAL"),
        ("INTERNAL", "Exception deserializing response!", "", "INTERNAL"),
        ("CANCELLED", "Received RST_STREAM with error code 8", "", "UNAVAILABLE"),
        ("CANCELLED", "Channel closed!", "", "UNAVAILABLE"),
        ("CANCELLED", "The job was cancelled", "JOB_CANCELLED", "CANCELLED"),
        ("CANCELLED", "Locally cancelled by application!", "", "CANCELLED"),
    ],
)
def test_a_call_that_was_cut_is_of_services_that_cannot_be_reached(code, details, reason, expected):
    failure = Failure(grpc.StatusCode[code], details, reason)
    assert conversions.code_of(failure) is grpc.StatusCode[expected]
    assert conversions.from_rpc(failure, service="executor", address="h:1").code == expected


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (grpc.StatusCode.UNAVAILABLE, "cannot reach the commit coordinator at h:1"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "no answer from the commit coordinator at h:1 in time"),
        (grpc.StatusCode.UNIMPLEMENTED, "same release"),
        (grpc.StatusCode.UNKNOWN, "answered UNKNOWN: ipv4 noise"),
    ],
)
def test_failures_of_the_transport_are_told_without_noise(code, message):
    error = conversions.from_rpc(Failure(code, "ipv4 noise"), service="commit_coordinator", address="h:1")
    assert message in str(error)
    assert ("noise" in str(error)) is (code is grpc.StatusCode.UNKNOWN)


def test_errors_survive_pickling():
    error = errors.JobFailed("why", reason="UDF_FAILED", facts={"a": "b"}, job_id="j")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.reason, copy.facts, copy.job_id) == ("why", "UDF_FAILED", {"a": "b"}, "j")


def test_every_error_is_in_the_tree_that_the_docstring_draws():
    public = [v for name, v in vars(errors).items() if not name.startswith("_")]
    kinds = [v for v in public if isinstance(v, type) and issubclass(v, errors.LemanError)]
    assert len(kinds) > 20
    assert all(kind.__name__ in errors.__doc__ for kind in kinds)


def test_importing_leman_is_light():
    """Neither Lance nor Spark, nor what only the command line needs."""
    code = "import sys, leman; print(*sorted(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "leman" in loaded
    assert not loaded & {"lance", "pyspark", "rich", "typer", "core", "redis", "sklearn"}


def test_an_error_has_its_code_the_fields_that_are_wrong_and_when_to_try_again():
    told = status("RESOURCE_EXHAUSTED", "TOO_MANY_JOBS", "later")
    for detail in (
        error_details_pb2.BadRequest(
            field_violations=[error_details_pb2.BadRequest.FieldViolation(field="spec.where", description="no SQL")]
        ),
        error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000)),
    ):
        told.details.add().Pack(detail)

    error = conversions.from_status(told)

    assert (error.code, error.retry_after) == ("RESOURCE_EXHAUSTED", 1.5)
    assert error.fields == (errors.FieldViolation("spec.where", "no SQL"),)
    assert pickle.loads(pickle.dumps(error)).fields == error.fields


def test_an_error_that_the_client_finds_itself_has_a_code_too():
    assert errors.TableNotFound("gone").code == "NOT_FOUND"
    assert errors.ColumnNotFound("gone").code == "FAILED_PRECONDITION"  # as the services say it
    assert errors.Internal("oh").code == "INTERNAL"
