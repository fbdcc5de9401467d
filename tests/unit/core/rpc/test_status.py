"""Errors to status and back: codes, reasons, facts, the size bound."""

from __future__ import annotations

import base64

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from leman_core.model import service_errors
from leman_core.model.service_errors import excerpt
from leman_core.server import status

EVERY_CLASS = [
    (service_errors.InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
    (service_errors.NotFound, grpc.StatusCode.NOT_FOUND),
    (service_errors.AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (service_errors.FailedPrecondition, grpc.StatusCode.FAILED_PRECONDITION),
    (service_errors.Aborted, grpc.StatusCode.ABORTED),
    (service_errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
    (service_errors.ResourceExhausted, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (service_errors.DataLoss, grpc.StatusCode.DATA_LOSS),
    (service_errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (service_errors.PermissionDenied, grpc.StatusCode.PERMISSION_DENIED),
    (service_errors.Unimplemented, grpc.StatusCode.UNIMPLEMENTED),
    (service_errors.Internal, grpc.StatusCode.INTERNAL),
]


def info_of(packed: status_pb2.Status) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    assert packed.details[0].Unpack(info)
    return info


def test_the_whole_tree_has_a_code():
    assert {cls for cls, _ in EVERY_CLASS} == set(service_errors.LemanError.__subclasses__())


@pytest.mark.parametrize(("cls", "code"), EVERY_CLASS)
def test_every_class_round_trips(cls, code):
    error = cls("SOME_REASON", "what was wrong", column="x y", n=3)
    packed = status.to_status(error)
    assert packed.code == code.value[0]
    back = status.from_status(status_pb2.Status.FromString(packed.SerializeToString()))
    assert type(back) is cls
    assert (back.reason, back.message) == ("SOME_REASON", "what was wrong")
    assert back.facts == {"column": "x y", "n": "3"}


def test_a_subclass_has_the_code_of_the_class_above_it():
    class Special(service_errors.NotFound):
        pass

    assert status.code_of(Special("A", "b")) == grpc.StatusCode.NOT_FOUND


def test_the_field_of_a_bad_request_and_the_pause_before_a_retry_travel():
    bad = status.from_status(status.to_status(service_errors.InvalidArgument("INVALID_FILTER", "no", field="where")))
    assert bad.field == "where"
    away = status.from_status(
        status.to_status(service_errors.Unavailable("STORE_DOWN", "away", retry_after_seconds=2.5))
    )
    assert isinstance(away, service_errors.Unavailable)
    assert away.retry_after_seconds == 2.5


def test_what_does_not_help_to_send_again_has_no_delay():
    packed = status.to_status(service_errors.ResourceExhausted("MESSAGE_TOO_LARGE", "no", retry_after_seconds=0))
    assert [detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in packed.details] == [False]
    back = status.from_status(packed)
    assert isinstance(back, service_errors.ResourceExhausted)
    assert back.retry_after_seconds == 0
    by_grpc = status.error_from_rpc(Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "Sent message larger than max"))
    assert isinstance(by_grpc, service_errors.ResourceExhausted)
    assert by_grpc.retry_after_seconds == 0


def test_a_fact_may_be_named_like_anything():
    error = service_errors.NotFound("X", "y")
    error.facts = {"reason": "1", "message": "2", "field": "3", "self": "4"}
    assert status.from_status(status.to_status(error)).facts == error.facts


def test_a_status_never_exceeds_its_bound_and_keeps_reason_and_short_facts():
    facts = {f"long_{n}": "\u2603" * 50_000 for n in range(200)}
    packed = status.to_status(service_errors.FailedPrecondition("TYPE_MISMATCH", "m" * 100_000, **facts))
    assert packed.ByteSize() <= status.MAX_STATUS_BYTES
    assert info_of(packed).reason == "TYPE_MISMATCH"
    one_long = service_errors.Aborted("INPUT_CHANGED", "m", fragment=7, files="f" * 100_000)
    assert info_of(status.to_status(one_long)).metadata["fragment"] == "7"


def test_a_header_message_is_bounded_as_it_travels():
    assert status.header_message("short: ü") == "short: ü"
    kept = status.header_message("\u2603" * 10_000)
    assert kept.endswith("...")
    assert len(grpc_encoded(kept)) <= status.MAX_HEADER_BYTES


@pytest.mark.parametrize(
    "sent",
    ["j" * 100_000, "\u2603" * 5_000, "a b " * 20_000, "%" * 3_000, "x" * 399, "x" * 401, "/".join(["y" * 200] * 90)],
)
@pytest.mark.parametrize("kind", [service_errors.NotFound, service_errors.InvalidArgument, service_errors.Unavailable])
def test_what_is_repeated_of_a_caller_is_cut_and_both_places_say_the_same(sent, kind):
    error = kind("JOB_NOT_FOUND", f"There is no job '{sent}' in '{sent}': ListJobs lists all", job_id=sent, place=sent)
    trailers = status.trailers_of(error)
    packed = status_pb2.Status.FromString(dict(trailers)[status.DETAILS_KEY])
    told = status.header_message(error.message)
    assert packed.message == told
    assert told.startswith("There is no job '")
    assert info_of(packed).reason == "JOB_NOT_FOUND"
    on_the_wire = len(grpc_encoded(told)) + sum(
        len(base64.b64encode(v)) if isinstance(v, bytes) else len(v) for _, v in trailers
    )
    assert on_the_wire < 7_800, "gRPC refuses trailers of 8 KB"


def test_a_long_name_leaves_the_advice_behind_it():
    told = status.header_message(f"There is no job '{'j' * 50_000}': ListJobs lists all")
    assert told.endswith(": ListJobs lists all") or "(5" in told
    assert len(told) < 600


def grpc_encoded(text: str) -> str:
    return "".join(chr(b) if 32 <= b <= 126 and b != 37 else f"%{b:02X}" for b in text.encode())


class Failed(grpc.RpcError):
    """As a client sees a failed call."""

    def __init__(self, code, message, trailers=()):
        self.code = lambda: code
        self.details = lambda: message
        self.trailing_metadata = lambda: trailers


def test_a_call_that_failed_without_our_details_is_known_by_its_code():
    cases = {
        grpc.StatusCode.UNAVAILABLE: service_errors.Unavailable,
        grpc.StatusCode.DEADLINE_EXCEEDED: service_errors.Unavailable,
        grpc.StatusCode.CANCELLED: service_errors.Unavailable,
        grpc.StatusCode.PERMISSION_DENIED: service_errors.PermissionDenied,
        grpc.StatusCode.RESOURCE_EXHAUSTED: service_errors.ResourceExhausted,
        grpc.StatusCode.UNKNOWN: service_errors.Internal,
    }
    for code, cls in cases.items():
        error = status.error_from_rpc(Failed(code, "lost"))
        assert type(error) is cls
        assert (error.reason, error.message) == (code.name, "lost")


def test_details_of_another_code_or_none_at_all_are_not_believed():
    other = status.to_status(service_errors.NotFound("TABLE_NOT_FOUND", "x")).SerializeToString()
    for raw in (other, b"\xff\xff", b""):
        failed = Failed(grpc.StatusCode.UNAVAILABLE, "lost", ((status.DETAILS_KEY, raw),))
        assert status.error_from_rpc(failed).reason == "UNAVAILABLE"


@pytest.mark.parametrize("control", ["\0", "\x1b", "\x7f", "\x9b", "\r", "\u202e", "\u2069"], ids=ascii)
def test_no_control_character_comes_back(control):
    packed = status.to_status(
        service_errors.InvalidArgument("BAD_COLUMN", f"no column 'a{control}b'\n\tbut", column=control)
    )
    assert packed.message == "no column 'a\ufffdb'\n\tbut"
    assert control not in str([packed.message, *info_of(packed).metadata.values()])
    assert dict(info_of(packed).metadata) == {"column": "\ufffd"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("do\u200bcs", "do\\u200bcs"),
        ("\ufeffdocs", "\\ufeffdocs"),
        ("docs\u3164", "docs\\u3164"),
        ("do\u00adcs\u2060", "do\\xadcs\\u2060"),
        ("do\u200dcs\ufe0f", "do\\u200dcs\\ufe0f"),
        ("\U000e0041", "\\U000e0041"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("\U0001f468\u200d\U0001f469\u2764\ufe0f", "\U0001f468\u200d\U0001f469\u2764\ufe0f"),
    ],
    ids=ascii,
)
def test_what_shows_nothing_is_escaped_and_writing_that_needs_it_is_not(name, shown):
    error = service_errors.InvalidArgument("BAD_COLUMN", f"no column '{name}'", field="column")
    assert status.to_status(error).message == f"no column '{shown}'"
    assert excerpt(name) == shown


def test_colours_of_a_traceback_are_left_out():
    assert status.header_message("\x1b[1;31mValueError\x1b[0m: x") == "ValueError: x"


def test_no_password_of_a_url_comes_back():
    url = "s3://someone:s3cret@bucket/lake"
    error = service_errors.InvalidArgument("BAD_DATABASE", f"'{url}' is no place", field="database", uri=url)
    packed = status.to_status(error)
    assert b"s3cret" not in packed.SerializeToString()
    assert packed.message == "'s3://***@bucket/lake' is no place"
    assert "s3cret" not in status.header_message(error.message)
    assert status.header_message("a@b") == "a@b"
