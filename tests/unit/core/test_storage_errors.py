"""What storages say when they refuse, in the words of Lance, pyarrow, Python and object stores."""

import errno
import os

import pytest

from leman.local import storage_refusal
from leman_core.model.service_errors import FailedPrecondition, LemanError, Unavailable
from leman_core.storage.error_translation import reading_file
from leman_core.storage.storage_errors import DENIED, FULL, MISSING, READ_ONLY, refusal_error, storage_failed

COPY = "LanceError(IO): Generic LocalFileSystem error: Unable to copy data to file: No space left on device"
PLACE = ", /home/runner/work/lance/rust/lance-table/src/io/commit.rs:1663:50"


def python(number, *more):
    return OSError(number, os.strerror(number), *more)


@pytest.mark.parametrize(
    ("error", "reason", "path"),
    [
        (OSError(COPY + " (os error 28)" + PLACE), FULL, "asked"),
        (
            OSError('LanceError(IO): Read-only file system (os error 30) at path "/l/t.lance/data/.tmp1"' + PLACE),
            READ_ONLY,
            "/l/t.lance/data/.tmp1",
        ),
        (ValueError("LanceError(IO): Permission denied (os error 13)" + PLACE), DENIED, "asked"),
        (OSError("LanceError(IO): Disk quota exceeded (os error 122)"), FULL, "asked"),
        (OSError("LanceError(IO): File too large (os error 27)"), FULL, "asked"),
        (
            OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
            FULL,
            "asked",
        ),
        (
            OSError(30, "Failed to open local file '/l/zz'. Detail: [errno 30] Read-only file system"),
            READ_ONLY,
            "/l/zz",
        ),
        (python(errno.EROFS, "/l/_leman"), READ_ONLY, "/l/_leman"),
        (python(errno.ENOSPC), FULL, "asked"),
        (python(errno.EACCES, "/l/x"), DENIED, "/l/x"),
        (
            OSError("Generic S3 error: Client error with status 403 Forbidden: <Code>AccessDenied</Code>"),
            DENIED,
            "asked",
        ),
        (OSError("Generic S3 error: Server error 507: <Code>XMinioStorageFull</Code>"), FULL, "asked"),
        (OSError("When uploading key 'k' in bucket 'b': AWS Error ACCESS_DENIED: AccessDenied"), DENIED, "asked"),
    ],
)
def test_refusals_have_a_reason_a_place_and_say_what_to_do(error, reason, path):
    found = refusal_error(error, "asked")
    assert isinstance(found, FailedPrecondition)
    assert (found.reason, found.facts["path"]) == (reason, path)
    assert path in found.message
    assert "try again" in found.message
    assert "/home/runner" not in found.message


LANCE = (
    "LanceError(IO): Generic S3 error: Error performing list request: Error performing GET http://s/lake in 1ms - "
    'Server returned non-2xx status code: {}: <?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code>'
    "<Message>What the store says.</Message><Resource>/lake</Resource></Error>" + PLACE
)
PYARROW = "When listing objects under key 'a/' in bucket 'lake': AWS Error {}"


@pytest.mark.parametrize(
    ("said", "reason", "shown"),
    [
        (LANCE.format("403 Forbidden", "SignatureDoesNotMatch"), DENIED, "SignatureDoesNotMatch: What the store says."),
        (LANCE.format("400 Bad Request", "ExpiredToken"), DENIED, "ExpiredToken: What the store says."),
        (LANCE.format("403 Forbidden", "AuthenticationFailed"), DENIED, "AuthenticationFailed: What the store says."),
        (
            PYARROW.format("INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: The key is unknown."),
            DENIED,
            "INVALID_ACCESS_KEY_ID: The key is unknown.",
        ),
        (
            PYARROW.format(
                "UNKNOWN (HTTP status 400) during ListObjectsV2 operation: Unable to parse ExceptionName: "
                "ExpiredToken Message: It has expired."
            ),
            DENIED,
            "ExpiredToken: It has expired.",
        ),
        (PYARROW.format("ACCESS_DENIED during HeadObject operation: No response body."), DENIED, "(ACCESS_DENIED)"),
        ("HeadObject Azure Error: [AuthorizationFailure] 403 It is not allowed.", DENIED, "(AuthorizationFailure)"),
        ("google::cloud::Status(UNAUTHENTICATED: Permanent error)", DENIED, "(UNAUTHENTICATED)"),
        (
            "LanceError(IO): The operation lacked valid authentication credentials for path a: 401 Unauthorized",
            DENIED,
            "401 Unauthorized",
        ),
        (LANCE.format("404 Not Found", "NoSuchBucket"), MISSING, "no bucket lake at AWS"),
        (LANCE.format("404 Not Found", "ContainerNotFound"), MISSING, "no bucket lake at AWS"),
        (PYARROW.format("NO_SUCH_BUCKET during ListObjectsV2 operation: It is not there"), MISSING, "no bucket lake"),
        ("google::cloud::Status(NOT_FOUND: The specified bucket does not exist.)", MISSING, "no bucket lake"),
    ],
)
def test_what_a_store_refuses_is_told_in_its_words_and_where_to_mend_it(said, reason, shown):
    for error in (OSError(said), ValueError(f"LanceError(IO): {said}")):
        found = refusal_error(error, "s3://lake/a")
        assert isinstance(found, FailedPrecondition)
        assert found.reason == reason
        assert shown in found.message
        for part in ("LEMAN_STORAGE__OPTIONS_FILE", "try again"):
            assert part in found.message
        for part in ("<?xml", "/home/runner", "user that the service runs as"):
            assert part not in found.message


@pytest.mark.parametrize(
    "error",
    [
        OSError(LANCE.format("503 Slow Down", "SlowDown")),
        OSError(PYARROW.format("NO_SUCH_KEY during GetObject operation: none")),
        OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)"),
        OSError("LanceError(IO): Generic S3 error: connection reset by peer"),
        OSError("LanceError(IO): Input/output error (os error 5)"),
        OSError("Too many open files (os error 24)"),
        ValueError("a value of AccessDenied"),
        python(errno.ENOENT, "/l/x"),
        KeyError(28),
    ],
)
def test_what_may_pass_is_no_refusal(error):
    assert refusal_error(error, "asked") is None
    found = storage_failed(error, "cannot be read now", "asked")
    assert (type(found), found.reason) == (Unavailable, "STORE_UNAVAILABLE")


def test_the_sdk_calls_refusals_of_a_file_system_what_the_services_call_them():
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO):
        for error in (python(number), OSError(f"LanceError(IO): said (os error {number})")):
            found = refusal_error(error, "")
            assert storage_refusal(error) == ("" if found is None else found.reason)


@pytest.mark.parametrize(
    ("error", "reason", "told"),
    [
        (ValueError("no such page"), "FILE_DAMAGED", "States cannot be read, the file is damaged: no such page"),
        (FileNotFoundError("a.lance"), "FILE_MISSING", "States cannot be read, the file is missing"),
        (OSError("connection reset"), "STORE_UNAVAILABLE", "States cannot be read now"),
    ],
)
def test_a_file_of_ones_own_is_damaged_missing_or_out_of_reach(error, reason, told):
    with pytest.raises(LemanError, match=told) as refused, reading_file("/t.lance", "States"):
        raise error
    assert refused.value.reason == reason
