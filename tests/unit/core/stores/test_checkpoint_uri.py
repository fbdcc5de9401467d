"""The option `checkpoint_uri` of an object store, and what follows from it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from leman_core.model.databases import StoreOptions
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import InvalidArgument
from leman_core.model.work import WorkContext, WorkUnit
from leman_core.settings import Settings
from leman_core.storage import object_stores
from leman_core.storage.checkpoint_store import checkpoint_place, checkpoint_root
from leman_core.storage.store_file import use_store_file
from leman_executor.jobs.work_context import RenewedStores, work_context
from tests.unit.executor.manager_helpers import HEADER


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    object_stores.set_store_source(object_stores.GivenStores())


def begun(folder, *stores: tuple[str, ...]) -> None:
    """Go by a file with entries of Google's: of each its root, and its checkpoint_uri where it has one."""
    file = folder / "storage.toml"
    entries = (
        f'[[store]]\nroot = "{root}"\n' + "".join(f'checkpoint_uri = "{c}"\n' for c in more) for root, *more in stores
    )
    file.write_text("".join(entries))
    use_store_file(str(file))


def test_checkpoints_of_tables_below_the_root_lie_below_that_place(tmp_path):
    begun(tmp_path, ("gs://lake/teams", "s3://scratch//ck/"), ("gs://lake/teams/own",), ("gs://whole", "gs://other"))
    roots = {
        "gs://lake/teams/t.lance": "s3://scratch/ck/t.lance/_checkpoints",
        "gs://lake/teams/a/b/t.lance/": "s3://scratch/ck/a/b/t.lance/_checkpoints",
        "gs://lake/teams/own/t.lance": "gs://lake/teams/own/t.lance/_checkpoints",
        "gs://lake/teams2/t.lance": "gs://lake/teams2/t.lance/_checkpoints",
        "gs://whole/t.lance": "gs://other/t.lance/_checkpoints",
        "/lake/teams/t.lance": "/lake/teams/t.lance/_checkpoints",
    }
    assert {uri: checkpoint_root(uri) for uri in roots} == roots
    assert checkpoint_place("gs://lake/teams") == "s3://scratch/ck", "a database that is the root"


@pytest.mark.parametrize(
    ("stores", "said"),
    [
        ([("gs://lake", "gs://lake")], "overlap"),
        ([("gs://lake", "gs://lake/ck")], "overlap"),
        ([("gs://lake/teams", "gs://lake")], "overlap"),
        ([("gs://lake", "gs://ck/_leman/x")], "_leman"),
        ([("gs://lake", "gs://ck/t.lance")], "the folder of a table"),
        ([("gs://lake", "/tmp/ck")], "is not in an object store"),
        ([("gs://lake", "ck")], "relative path"),
        ([("gs://lake", "ftp://ck")], "names no supported store"),
        ([("gs://a", "gs://ck"), ("gs://b", "gs://ck")], "Give each a separate place"),
        ([("gs://a", "gs://ck"), ("gs://b", "gs://ck/x")], "Give each a separate place"),
    ],
)
def test_a_place_that_is_none_or_is_not_apart_is_refused(tmp_path, stores, said):
    with pytest.raises(InvalidArgument, match="checkpoint_uri") as refused:
        begun(tmp_path, *stores)
    assert refused.value.reason == "BAD_SETTING"
    assert said in refused.value.message


@pytest.mark.parametrize("place", ["gs://lake2", "gs://ck/lake"])
def test_a_place_beside_the_root_is_taken(tmp_path, place):
    begun(tmp_path, ("gs://lake", place), ("gs://b", f"{place}2"))
    assert checkpoint_root("gs://lake/t.lance") == f"{place}/t.lance/_checkpoints"


def test_workers_know_the_place_and_how_it_is_reached_also_with_renewed_credentials():
    def use(token: str) -> None:
        lake = StoreOptions(root="gs://lake", token="of-lake", checkpoint_uri="gs://ck")
        object_stores.set_store_source(
            object_stores.GivenStores(
                [lake, StoreOptions(root="gs://ck", token=token), StoreOptions(root="gs://alien")]
            )
        )

    use("first")
    header = dataclasses.replace(HEADER, uri="gs://lake/t.lance", bundle_uri="")
    job = Job("j", "", JobState.RUNNING, BackfillSpec("gs://lake", "t", "y"), 0.0, 0.0)
    sent = msgspec.json.encode(work_context(job, header, Settings()))
    given = msgspec.json.decode(sent, type=WorkContext).stores
    renewed = RenewedStores.of(header, "gs://lake", given)
    assert renewed.now() == ()
    unit = WorkUnit("u", ())
    assert not renewed.since(unit)
    use("second")
    assert renewed.since(unit)
    after = renewed.now()
    assert not renewed.since(dataclasses.replace(unit, stores=after))
    use("third")
    assert renewed.since(dataclasses.replace(unit, stores=after))
    use("second")

    object_stores.set_store_source(object_stores.GivenStores(given))  # as in the worker
    root = checkpoint_root("gs://lake/t.lance")
    assert root == "gs://ck/t.lance/_checkpoints"
    assert {options.root for options in given} == {"gs://lake", "gs://ck"}
    tokens = []
    for stores in (given, after):
        object_stores.set_store_source(object_stores.GivenStores(stores))
        options = object_stores.options_of(root)
        tokens.append(options and options.token)
    assert tokens == ["first", "second"]
