"""What storages say when they refuse, in the words of Lance, pyarrow, Python and object stores."""

import errno
import os

import pytest

from core.errors import FailedPrecondition, Unavailable
from core.storage_errors import DENIED, FULL, READ_ONLY, failed, refusal
from leman.local import storage_refusal

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
    found = refusal(error, "asked")
    assert isinstance(found, FailedPrecondition)
    assert (found.reason, found.facts["path"]) == (reason, path)
    assert path in found.message
    assert "send the request again" in found.message
    assert "/home/runner" not in found.message


@pytest.mark.parametrize(
    "error",
    [
        OSError("LanceError(IO): Generic S3 error: connection reset by peer"),
        OSError("LanceError(IO): Input/output error (os error 5)"),
        OSError("Too many open files (os error 24)"),
        ValueError("a value of AccessDenied"),
        python(errno.ENOENT, "/l/x"),
        KeyError(28),
    ],
)
def test_what_may_pass_is_no_refusal(error):
    assert refusal(error, "asked") is None
    found = failed(error, "cannot be read now", "asked")
    assert (type(found), found.reason) == (Unavailable, "STORE_UNAVAILABLE")


def test_the_sdk_calls_refusals_of_a_file_system_what_the_services_call_them():
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO):
        for error in (python(number), OSError(f"LanceError(IO): said (os error {number})")):
            found = refusal(error, "")
            assert storage_refusal(error) == ("" if found is None else found.reason)
