"""Verification of a database: what is stored against what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from leman._channel import Services
from leman._wire_values import given
from leman.errors import DeadlineExceeded
from leman.v1 import commit_pb2

#: A stream is renewed after so many seconds; one file may take as long.
_STREAM_SECONDS = 600.0
_ORDER = commit_pb2.VerificationFinding.Subject


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written.

    `subject`: such as `column_file`, `function`, `checkpoint`; `flaw`: `damaged`, `missing` or `unreadable`. `path` is
    within the database; `table`, `columns`, `fragment_id` and `rows` say what it is about. `message` ends with what to
    do.
    """

    subject: str
    flaw: str
    path: str
    message: str
    table: str = ""
    columns: tuple[str, ...] = ()
    fragment_id: int | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Verified:
    """Things of one subject. `unverifiable`: without a digest to be compared with, as others or a compaction wrote
    them; that they are there and can be read was seen. `flawed`: those with findings."""

    subject: str
    looked: int = 0
    unverifiable: int = 0
    flawed: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Verification:
    """What was looked at and found, so far or in all. `resume_token` is empty once all was looked at; `Database.verify`
    goes on from it otherwise. `table`: the one that was looked at last."""

    checked: tuple[Verified, ...] = ()
    findings: tuple[Finding, ...] = ()
    resume_token: str = ""
    table: str = ""

    @property
    def complete(self) -> bool:
        """Whether all was looked at."""
        return not self.resume_token

    @property
    def sound(self) -> bool:
        """Whether all was looked at, from where it began, and nothing was found."""
        return self.complete and not self.findings

    def __str__(self) -> str:
        looked, size = sum(c.looked for c in self.checked), sum(c.bytes for c in self.checked)
        left = sum(c.unverifiable for c in self.checked)
        found = f"{len(self.findings):,} finding{'' if len(self.findings) == 1 else 's'}"
        what = found if self.findings else "sound" if self.complete else "sound so far"
        return f"{what}: {looked:,} things ({size:,} bytes) looked at, {left:,} of them not verifiable"


def verify(
    services: Services, database: str, resume_token: str, progress: Callable[[Verification], object] | None
) -> Verification:
    """See `Database.verify`."""
    found = Verification(resume_token=resume_token)
    for message in _messages(services, database, resume_token):
        found = _plus(found, message)
        if progress is not None:
            progress(found)
    return found


def _messages(services: Services, database: str, token: str) -> Iterator[commit_pb2.VerifyDatabaseResponse]:
    """To the last one, over interruptions of the service."""
    patience = services.patient()
    while True:
        began_at = token
        request = commit_pb2.VerifyDatabaseRequest(database=database, resume_token=token)
        stream = services.commits.VerifyDatabase(request, timeout=_STREAM_SECONDS)
        try:
            for message in stream:
                patience = services.patient()
                token = message.resume_token
                yield message
                if not token:
                    return
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                services.wait_or_raise("commit_coordinator", error, patience, repeatable=True)
            elif token == began_at:
                raise DeadlineExceeded(
                    f"the commit coordinator said nothing about {database} for {_STREAM_SECONDS:g} seconds"
                ) from None
        finally:
            stream.cancel()


def _plus(found: Verification, message: commit_pb2.VerifyDatabaseResponse) -> Verification:
    counts = {c.subject: c for c in found.checked}
    for count in message.counts:
        name = _name(_ORDER, count.subject)
        known = counts.get(name, Verified(name))
        counts[name] = Verified(
            name,
            known.looked + count.looked,
            known.unverifiable + count.unverifiable,
            known.flawed + count.flawed,
            known.bytes + count.bytes,
        )
    findings = (*found.findings, *map(_finding, message.findings))
    return Verification(tuple(counts.values()), findings, message.resume_token, message.table)


def _finding(message: commit_pb2.VerificationFinding) -> Finding:
    return Finding(
        _name(_ORDER, message.subject),
        _name(commit_pb2.VerificationFinding.Flaw, message.flaw),
        message.path,
        message.message,
        message.table,
        tuple(message.columns),
        given(message, "fragment_id"),
        message.rows,
    )


def _name(kind: Any, number: int) -> str:
    return str(kind.Name(number)).partition("_")[2].lower()
