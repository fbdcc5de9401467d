"""Garbage collections as protobuf."""

from __future__ import annotations

from collections import defaultdict

from google.protobuf import timestamp_pb2

from leman.v1 import commit_pb2
from leman_core.model.garbage import Collection, Fate, RetentionDecision, StoredFile, StoredKind, Use
from leman_core.wire.convert import range_to_proto
from leman_core.wire.convert_values import ref_to_proto, unless_negative

_File = commit_pb2.StoredFile
_KIND = {kind: _File.Kind.Value(f"KIND_{kind.name}") for kind in StoredKind}
_USE = {use: _File.Use.Value(f"USE_{use.name}") for use in Use}
_FATE = {fate: _File.Fate.Value(f"FATE_{fate.name}") for fate in Fate}


def collection_to_proto(found: Collection, *, include_kept: bool, max_files: int) -> commit_pb2.CollectGarbageResponse:
    """Return the answer of CollectGarbage.

    Args:
        include_kept: Name kept files too, and not the garbage alone.
        max_files: How many files the answer names at the most; its counts are of all files.
    """
    removed = {(f.folder, f.name) for f in found.removed}
    counts: dict[tuple[StoredKind, Use, Fate], list[int]] = defaultdict(list)
    for decision in found.decisions:
        counts[decision.kind, decision.use, decision.fate].append(decision.file.size_bytes)
    stay = [v.file.size_bytes for v in found.decisions if _place(v.file) not in removed]
    wanted = [v for v in found.decisions if include_kept or v.fate is Fate.GARBAGE]
    named = sorted(wanted, key=lambda v: _place(v.file))[:max_files]
    return commit_pb2.CollectGarbageResponse(
        version=found.version,
        files_removed=len(found.removed),
        bytes_removed=sum(f.size_bytes for f in found.removed),
        files_kept=len(stay),
        bytes_kept=sum(stay),
        counts=[
            commit_pb2.StoredFileCount(
                kind=_KIND[kind], use=_USE[use], fate=_FATE[fate], files=len(sizes), bytes=sum(sizes)
            )
            for (kind, use, fate), sizes in sorted(counts.items(), key=lambda c: [part.value for part in c[0]])
        ],
        files=[_file(v, removed=not found.dry_run and _place(v.file) in removed) for v in named],
    )


def _place(file: StoredFile) -> tuple[str, str]:
    return file.folder, file.name


def _file(decision: RetentionDecision, *, removed: bool) -> commit_pb2.StoredFile:
    file, purpose = decision.file, decision.purpose
    modified = timestamp_pb2.Timestamp()
    modified.FromNanoseconds(int(file.modified * 1e9))
    return _File(
        path=f"{file.folder}/{file.name}",
        kind=_KIND[decision.kind],
        use=_USE[decision.use],
        fate=_FATE[decision.fate],
        size_bytes=file.size_bytes,
        modify_time=modified,
        key=file.key,
        udf=ref_to_proto(purpose.udf_name, purpose.udf_version),
        column=purpose.column,
        fragment_id=unless_negative(purpose.fragment_id),
        range=None if purpose.range is None else range_to_proto(purpose.range),
        removed=removed,
    )
