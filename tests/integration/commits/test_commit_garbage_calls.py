"""CollectGarbage over gRPC: its answers, and that no file goes between its check and its commit."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from google.protobuf.duration_pb2 import Duration

from leman.v1 import catalog_pb2, commit_pb2
from leman_coordinator.commits.group_commit import FileChecks
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_internal.v1 import submission_pb2
from tests.integration.commits.commit_helpers import Planner, ref_of
from tests.integration.commits.test_commit_service import coordinator, message, refusal, run
from tests.unit.commit_coordinator.garbage_world import record

Outcome = submission_pb2.FragmentOutcome
File = commit_pb2.StoredFile


def ask(table, **fields):
    return commit_pb2.CollectGarbageRequest(table=ref_of(table.uri), **{"older_than": Duration(), **fields})


def data_files(table):
    return {p.name for p in Path(table.uri, "data").iterdir()}


def test_a_file_that_is_being_committed_stays(table, monkeypatch):
    """Its check is through, its commit is not: the collection waits, looks again and lets it be."""
    checked, go = asyncio.Event(), asyncio.Event()
    candidates = FileChecks.candidates

    async def slow(self, request):
        found = await candidates(self, request)
        checked.set()
        await go.wait()
        return found

    monkeypatch.setattr(FileChecks, "candidates", slow)

    async def scenario():
        async with coordinator() as stub:
            wanted = message(Planner(table), 0, 1)
            commit = asyncio.ensure_future(stub.SubmitCommit(wanted))
            await checked.wait()
            dry = await stub.CollectGarbage(ask(table, dry_run=True))
            assert dry.files_removed == 2, "nothing names them yet"
            collection = asyncio.ensure_future(stub.CollectGarbage(ask(table)))
            done, _ = await asyncio.wait([collection], timeout=0.3)
            assert not done
            go.set()
            answer, collected = await asyncio.gather(commit, collection)
            assert [o.status for o in answer.outcomes] == [Outcome.STATUS_COMMITTED] * 2
            assert (collected.files_removed, collected.files_kept) == (0, 2)
            assert {f.file.file for f in wanted.replace_column.fragments} <= data_files(table)

    run(scenario)
    assert table.column()[:20] == [10 * x for x in range(20)]


def test_a_file_that_went_before_its_commit_is_refused(table):
    async def scenario():
        async with coordinator() as stub:
            wanted = message(Planner(table), 0)
            assert (await stub.CollectGarbage(ask(table))).files_removed == 1
            answer = await stub.SubmitCommit(wanted)
            assert [(o.status, o.reason) for o in answer.outcomes] == [(Outcome.STATUS_REJECTED, "FILE_MISSING")]

    run(scenario)


def test_counts_are_of_all_and_names_are_limited(table):
    store = LanceCheckpointStore(checkpoint_root(table.uri))
    for n in range(5):
        store[f"{n:064x}"] = record("f", "x").to_batch()
        store[f"stranger{n}"] = record("f", "x").to_batch()
    old = time.time() - 8 * 86400
    for path in Path(table.uri, "_checkpoints").iterdir():
        os.utime(path, (old, old))

    async def scenario():
        async with coordinator() as stub:
            default = commit_pb2.CollectGarbageRequest(
                table=ref_of(table.uri), dry_run=True, include_kept=True, max_files=6
            )
            found = await stub.CollectGarbage(default)
            assert (found.files_removed, found.files_kept, found.version) == (5, 5, table.snapshot().version)
            assert [(c.use, c.fate, c.files) for c in found.counts] == [
                (File.USE_LEGACY, File.FATE_GARBAGE, 5),
                (File.USE_UNKNOWN, File.FATE_KEPT, 5),
            ]
            assert len(found.files) == 6
            assert found.bytes_removed == sum(c.bytes for c in found.counts if c.use == File.USE_LEGACY) > 0
            assert found.files[0].path == f"_checkpoints/{0:064x}.lance"
            assert not any(f.removed for f in found.files)
            done = await stub.CollectGarbage(commit_pb2.CollectGarbageRequest(table=ref_of(table.uri)))
            assert [f.removed for f in done.files] == [True] * 5

    run(scenario)


def test_refusals(table):
    async def scenario():
        async with coordinator() as stub:
            code, reason, _ = await refusal(stub.CollectGarbage(ask(table, older_than=Duration(seconds=-1))))
            assert (code.name, reason) == ("INVALID_ARGUMENT", "BAD_NUMBER")
            missing = commit_pb2.CollectGarbageRequest(table=ref_of(table.uri.replace(".lance", "x.lance")))
            assert (await refusal(stub.CollectGarbage(missing)))[1] == "TABLE_NOT_FOUND"
            nameless = commit_pb2.CollectGarbageRequest(table=catalog_pb2.TableRef(database="/lake"))
            assert (await refusal(stub.CollectGarbage(nameless)))[1] == "BAD_TABLE_NAME"
            assert (await refusal(stub.CollectGarbage(commit_pb2.CollectGarbageRequest())))[1] == "MISSING_FIELD"
            stub.draining.set()
            assert (await refusal(stub.CollectGarbage(ask(table))))[1] == "DRAINING"

    run(scenario)
