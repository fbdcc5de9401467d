"""DropTable and RenameTable: what goes, what stays, what refers to a table, and what a repeated request is answered."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import lance
import pyarrow as pa
import pytest

from leman.v1 import commit_pb2
from leman_coordinator.lance_io import table_removal
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.storage.lance_tables import LanceTables
from leman_executor.history.job_history import JobHistory
from tests.integration.commits.commit_helpers import Planner, make_table
from tests.integration.commits.test_commit_service import message, refusal, run
from tests.integration.commits.view_commit_helpers import View
from tests.integration.tables.table_helpers import coordinator


def folders(path):
    return {entry.name for entry in Path(path).iterdir()}


def test_a_dropped_table_is_gone_and_another_one_can_take_its_name(tmp_path):
    """The coordinator has the old one open when the new one is written to."""
    world = make_table(str(tmp_path / "t.lance"))

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.SubmitCommit(message(Planner(world), 0))
            await up.drop(request_id="mine")
            there = folders(tmp_path)
            await up.drop(request_id="mine")
            gone = [(await refusal(call))[1] for call in (up.drop(), up.delete("true"), up.read())]
            await up.create(pa.schema([("y", pa.int64())]))
            await up.append(pa.table({"y": [1, 2]}))
            await up.drop(request_id="mine")
            return there, gone

    there, gone = run(scenario)
    assert "t.lance" not in there
    assert gone == ["TABLE_NOT_FOUND"] * 3
    assert lance.dataset(world.uri).to_table().to_pydict() == {"y": [1, 2]}


def test_a_view_that_is_dropped_again_is_dropped_once(tmp_path):
    """Also where another table has its name by then."""
    View(str(tmp_path)).made()

    async def scenario():
        async with coordinator(tmp_path) as up:
            asked = commit_pb2.DropViewRequest(view=up.ref("v"), request_id="mine")
            await up.DropView(asked)
            await up.DropView(asked)
            there = folders(tmp_path)
            forced = commit_pb2.DropViewRequest(view=up.ref("v"), request_id="mine", force=True)
            unnamed = commit_pb2.DropViewRequest(view=up.ref("v"))
            new = commit_pb2.DropViewRequest(view=up.ref("v"), request_id="other")
            wrong = [(await refusal(up.DropView(r)))[1] for r in (forced, unnamed, new)]
            await up.create(pa.schema([("y", pa.int64())]), "v")
            await up.DropView(asked)
            await up.append(pa.table({"y": [1]}), "v")
            return there, wrong, (await refusal(up.DropView(new)))[1]

    there, wrong, table = run(scenario)
    assert {"t.lance", "v.lance"} & there == {"t.lance"}
    assert wrong == ["REQUEST_ID_REUSED", "MISSING_FIELD", "TABLE_NOT_FOUND"]
    assert table == "NOT_A_VIEW"


@pytest.mark.parametrize("kind", ["table", "view"])
def test_who_asks_again_after_a_restart_does_not_drop_what_others_made_meanwhile(tmp_path, kind):
    """The answer was lost, and the coordinator that is asked again remembers nothing."""
    View(str(tmp_path)).made()
    name = {"table": "other", "view": "v"}[kind]
    lance.write_dataset(pa.table({"x": [1]}), str(tmp_path / "other.lance"))

    async def asked(up):
        if kind == "table":
            await up.drop(name, request_id="mine")
        else:
            await up.DropView(commit_pb2.DropViewRequest(view=up.ref(name), request_id="mine"))

    async def first():
        async with coordinator(tmp_path) as up:
            await up.append(pa.table({"x": [2]}), "other")
            await asked(up)

    async def later():
        async with coordinator(tmp_path) as up:
            await asked(up)
            await up.create(pa.schema([("y", pa.int64())]), name)
            await up.append(pa.table({"y": [1]}), name)
            await asked(up)

    run(first)
    assert f"{name}.lance" not in folders(tmp_path)
    run(later)
    assert lance.dataset(str(tmp_path / f"{name}.lance")).to_table().to_pydict() == {"y": [1]}


@pytest.mark.parametrize("stopped", [False, True], ids=["the answer was lost", "the coordinator was killed"])
@pytest.mark.parametrize("maker", ["Lance", "Leman", "who moves a copy back"])
def test_a_drop_of_a_table_that_lance_made_is_about_that_one_alone(tmp_path, monkeypatch, maker, stopped):
    """It had no incarnation when it was dropped; the coordinator that is asked again remembers nothing."""
    place, aside = tmp_path / "t.lance", tmp_path / "aside"
    lance.write_dataset(pa.table({"x": [1]}), str(place))
    shutil.copytree(place, aside)

    async def first():
        async with coordinator(tmp_path) as up:
            if stopped:
                await refusal(up.drop(request_id="mine"))
            else:
                await up.drop(request_id="mine")

    async def later():
        async with coordinator(tmp_path) as up:
            if maker == "Leman":
                await up.create(pa.schema([("x", pa.int64())]))
                await up.append(pa.table({"x": [1]}))
            elif maker == "Lance":
                lance.write_dataset(pa.table({"x": [1]}), str(place))
            else:
                aside.rename(place)
            await up.drop(request_id="mine")

    with monkeypatch.context() as killed:
        if stopped:
            killed.setattr(table_removal, "crash_point", _die)
        run(first)
    assert not place.exists()
    run(later)
    assert lance.dataset(str(place)).to_table().to_pydict() == {"x": [1]}


def test_a_copy_with_the_incarnation_of_a_dropped_table_stays(tmp_path):
    place, aside = Path(make_table(str(tmp_path / "t.lance")).uri), tmp_path / "aside"
    shutil.copytree(place, aside)

    async def ask():
        async with coordinator(tmp_path) as up:
            await up.drop(request_id="mine")

    run(ask)
    aside.rename(place)
    run(ask)
    assert lance.dataset(str(place)).count_rows() == 40


def _die(_point: str) -> None:
    raise RuntimeError("killed")


def test_a_table_that_is_made_while_another_one_of_its_name_goes_stays(tmp_path, monkeypatch):
    """A name is free at once; workers of the old table may still write there."""
    world = make_table(str(tmp_path / "t.lance"))

    def others_act(_point: str) -> None:
        late = Path(world.uri, "_checkpoints", "late")
        late.parent.mkdir(parents=True)
        late.write_bytes(b"of a worker")
        lance.write_dataset(pa.table({"y": [1, 2]}), world.uri)

    monkeypatch.setattr(table_removal, "crash_point", others_act)

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.drop()

    run(scenario)
    assert lance.dataset(world.uri).to_table().to_pydict() == {"y": [1, 2]}
    assert not list(Path(tmp_path, "_leman").glob("*ed-*"))


def test_what_somebody_left_who_was_stopped_while_a_table_went_goes_with_the_next_one(tmp_path):
    left = Path(tmp_path, "_leman", "dropped-before", "data")
    left.mkdir(parents=True)
    (left / "a.lance").write_bytes(b"rows")
    make_table(str(tmp_path / "t.lance"))

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.drop()

    run(scenario)
    assert folders(tmp_path) == {"_leman"}
    assert folders(tmp_path / "_leman") == {"drops"}


def test_a_renamed_table_keeps_versions_row_ids_and_values(tmp_path):
    world = make_table(str(tmp_path / "t.lance"))

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.SubmitCommit(message(Planner(world), 0, 1))
            before = world.open().to_table(with_row_id=True)
            version = await up.rename("new", request_id="mine")
            again = await up.rename("new", request_id="mine")
            await up.append(pa.table({"id": pa.array([77], pa.int64())}), "new")
            gone = (await refusal(up.read()))[1]
        async with coordinator(tmp_path) as up:
            restarted = await up.rename("new", request_id="mine")
            other = (await refusal(up.rename("new", request_id="mine", force=True)))[1]
            strange = (await refusal(up.rename("new", request_id="another")))[1]
        return before, version, again, gone, restarted, other, strange

    before, version, again, gone, restarted, other, strange = run(scenario)
    dataset = lance.dataset(tmp_path / "new.lance")
    assert dataset.to_table(with_row_id=True, filter="id != 77") == before
    assert version == again == restarted < dataset.version
    assert (gone, other, strange) == ("TABLE_NOT_FOUND", "REQUEST_ID_REUSED", "TABLE_NOT_FOUND")
    assert folders(tmp_path) == {"new.lance"}


@pytest.mark.parametrize(
    ("new_name", "code", "reason", "field"),
    [
        ("", "INVALID_ARGUMENT", "MISSING_FIELD", "new_name"),
        ("t", "INVALID_ARGUMENT", "BAD_TABLE_NAME", "new_name"),
        ("a/b", "INVALID_ARGUMENT", "BAD_TABLE_NAME", "new_name"),
        ("-x", "INVALID_ARGUMENT", "BAD_TABLE_NAME", "new_name"),
        ("other", "ALREADY_EXISTS", "TABLE_EXISTS", ""),
        ("half", "ALREADY_EXISTS", "TABLE_EXISTS", ""),
    ],
)
def test_names_that_a_table_cannot_get_are_refused(tmp_path, new_name, code, reason, field):
    make_table(str(tmp_path / "t.lance"))
    make_table(str(tmp_path / "other.lance"), fragments=1)
    (tmp_path / "half.lance" / "data").mkdir(parents=True)  # a view that is being made

    async def scenario():
        async with coordinator(tmp_path) as up:
            return await refusal(up.rename(new_name))

    assert run(scenario) == (grpc.StatusCode[code], reason, field)
    assert lance.dataset(tmp_path / "t.lance").count_rows() == 40


def test_an_object_store_renames_nothing(tmp_path):
    async def scenario():
        async with coordinator("s3://bucket/lake") as up:
            return await refusal(up.rename("new", force=True))

    assert run(scenario)[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "RENAME_NOT_SUPPORTED")


def test_a_table_that_views_or_jobs_need_goes_by_force_only(tmp_path):
    View(str(tmp_path)).made()
    make_table(str(tmp_path / "u.lance"), fragments=1)
    history = JobHistory(str(tmp_path))
    history.prepare()
    history.save(Job("job", "", JobState.RUNNING, BackfillSpec(str(tmp_path), "u", "c"), 1.0, 2.0))

    async def scenario():
        async with coordinator(tmp_path) as up:
            calls = (up.drop("t"), up.rename("new", "t"), up.drop("u"), up.rename("new", "u"))
            refused = [await refusal(call) for call in calls]
            await up.rename("new", "t", force=True)
            await up.drop("new", force=True)
            await up.drop("u", force=True)
            return refused

    assert run(scenario) == [(grpc.StatusCode.FAILED_PRECONDITION, "TABLE_IN_USE", "")] * 4
    assert folders(tmp_path) == {"_leman", "v.lance"}


def test_a_job_of_a_dropped_table_holds_no_other_one_of_its_name(tmp_path):
    """It may be paused, and does not know yet."""
    there = lance.dataset(make_table(str(tmp_path / "u.lance"), fragments=1).uri).config()["leman.incarnation"]
    history = JobHistory(str(tmp_path))
    history.prepare()
    for job_id, incarnation in (("old", "of a dropped one"), ("own", there)):
        spec = BackfillSpec(str(tmp_path), "u", "c")
        history.save(Job(job_id, "", JobState.PAUSED, spec, 1.0, 2.0, incarnation=incarnation))

    async def scenario():
        async with coordinator(tmp_path) as up:
            with pytest.raises(grpc.aio.AioRpcError, match="used by jobs own:"):
                await up.drop("u")
            history.save(Job("own", "", JobState.CANCELLED, spec, 1.0, 3.0, incarnation=there))
            await up.drop("u")

    run(scenario)
    assert "u.lance" not in folders(tmp_path)


@pytest.fixture
def linked(tmp_path):
    """A table with a view on it, and other names that are links: to the table, to the view, and to nothing."""
    View(str(tmp_path)).made()
    for link, place in (("alias", "t"), ("look", "v"), ("nothing", "elsewhere")):
        (tmp_path / f"{link}.lance").symlink_to(tmp_path / f"{place}.lance")
    return tmp_path


def test_of_a_link_that_is_dropped_only_the_link_goes(linked):
    """Also with `force`, and where the same request comes again."""
    before = {path: path.read_bytes() for name in "tv" for path in (linked / f"{name}.lance").rglob("*.*")}

    async def scenario():
        async with coordinator(linked) as up:
            assert (await refusal(up.drop("t")))[1] == "TABLE_IN_USE"
            await up.drop("alias", request_id="mine", force=True)
            await up.DropView(commit_pb2.DropViewRequest(view=up.ref("look"), request_id="mine"))
        async with coordinator(linked) as up:
            await up.drop("alias", request_id="mine", force=True)

    run(scenario)
    assert folders(linked) == {"_leman", "t.lance", "v.lance", "nothing.lance"}
    assert {path: path.read_bytes() for name in "tv" for path in (linked / f"{name}.lance").rglob("*.*")} == before


def test_no_table_is_made_through_a_link_and_other_calls_are_about_its_table(linked):
    """The request ids of a table are the same by all of its names."""

    async def scenario():
        async with coordinator(linked) as up:
            made = [await refusal(up.create(pa.schema([("y", pa.int64())]), name)) for name in ("alias", "nothing")]
            await up.CollectGarbage(commit_pb2.CollectGarbageRequest(table=up.ref("alias"), dry_run=True))
            deleted = [await up.delete("true", table=name, request_id="mine") for name in ("alias", "t")]
            (linked / "old.lance").symlink_to("gone.lance")
            renamed = await refusal(up.rename("old", "alias"))
            await up.rename("new", "alias")
            return [reason for _, reason, _ in made], deleted, renamed[1]

    made, deleted, renamed = run(scenario)
    assert made == ["TABLE_EXISTS"] * 2
    assert not (linked / "elsewhere.lance").exists()
    assert deleted[0] == deleted[1]
    assert renamed == "TABLE_EXISTS"
    assert (linked / "new.lance").readlink() == linked / "t.lance"


def test_a_folder_that_no_table_can_be_called_by_is_in_the_way_of_no_drop(tmp_path):
    """Nor of the other listings: all of them look at what is named like a table."""
    View(str(tmp_path)).made()
    for name in (".hidden", "two\nlines", ""):
        (tmp_path / f"{name}.lance" / "_versions").mkdir(parents=True)
    assert LanceTables().list_tables(str(tmp_path)) == ["t", "v"]

    async def scenario():
        async with coordinator(tmp_path) as up:
            return (await refusal(up.drop()))[1]

    assert run(scenario) == "TABLE_IN_USE"
