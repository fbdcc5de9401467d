"""Verification reports as protobuf."""

from __future__ import annotations

from leman.v1 import commit_pb2
from leman_coordinator.verification.report import Finding, FindingCounts, Flaw, Subject
from leman_core.wire.convert_values import given, unless_negative

_Finding = commit_pb2.VerificationFinding
_SUBJECT = {subject: _Finding.Subject.Value(f"SUBJECT_{subject.name}") for subject in Subject}
_FLAW = {flaw: _Finding.Flaw.Value(f"FLAW_{flaw.name}") for flaw in Flaw}


def report_to_proto(found: FindingCounts, resume_token: str, table: str) -> commit_pb2.VerifyDatabaseResponse:
    """Return one message of VerifyDatabase."""
    counts = [
        commit_pb2.VerifiedCount(
            subject=_SUBJECT[subject],
            looked=count.looked,
            unverifiable=count.unverifiable,
            flawed=count.flawed,
            bytes=count.size_bytes,
        )
        for subject, count in found.counts.items()
    ]
    findings = [_finding(finding) for finding in found.findings]
    return commit_pb2.VerifyDatabaseResponse(counts=counts, findings=findings, resume_token=resume_token, table=table)


def _finding(finding: Finding) -> commit_pb2.VerificationFinding:
    return _Finding(
        subject=_SUBJECT[finding.subject],
        flaw=_FLAW[finding.flaw],
        path=finding.path,
        message=finding.message,
        table=finding.table,
        columns=finding.columns,
        fragment_id=unless_negative(finding.fragment_id),
        rows=given(finding.rows),
    )
