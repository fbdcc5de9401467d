"""Registrations of databases: several writers, damage, a store that cannot be used."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import lance
import pytest

from leman_core.model.databases import DatabaseLimits, RegisteredDatabase, RegistrationRequest
from leman_core.model.service_errors import (
    Aborted,
    AlreadyExists,
    DataLoss,
    FailedPrecondition,
    LemanError,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from leman_core.storage import database_registry, documents
from leman_core.storage.database_registry import DatabaseRegistry


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "deep" / "registry")


@pytest.fixture
def registry(place):
    return DatabaseRegistry(place)


def database(name="lake", root="/data/lake", **fields):
    return RegisteredDatabase(**{"name": name, "root": root, "created_at": 1.5, "updated_at": 1.5, **fields})


def request(request_id="", body=""):
    return RegistrationRequest(request_id, body)


def nothing_is_wrong(_database):
    pass


def refused(kind, call, *arguments):
    with pytest.raises(kind) as caught:
        call(*arguments)
    return caught.value.reason


def config_of(place):
    return lance.dataset(f"{place}/databases.lance").config()


def write(place, **values):
    lance.dataset(f"{place}/databases.lance").update_config({f"database.{name}": text for name, text in values.items()})


def test_what_is_registered_is_found_until_it_is_unregistered(registry, place):
    assert registry.read().by_name == {}
    assert not Path(place).exists(), "who reads makes nothing"
    wanted = database(description="of docs, ü", labels={"team": "search"}, limits=DatabaseLimits(2, 0))
    assert registry.register(wanted, request()) == wanted
    assert registry.get("lake") == wanted
    assert DatabaseRegistry(f"{place}/").read().by_name == {"lake": wanted}
    changed = registry.update("lake", lambda before: replace(before, labels={}))
    assert (changed.labels, changed.description, changed.created_at) == ({}, "of docs, ü", 1.5)
    assert changed.updated_at > wanted.updated_at
    assert registry.get("lake") == changed
    registry.unregister("lake", request("one"), nothing_is_wrong)
    assert refused(NotFound, registry.get, "lake") == "DATABASE_NOT_REGISTERED"
    assert refused(NotFound, registry.update, "lake", lambda before: before) == "DATABASE_NOT_REGISTERED"
    assert registry.register(wanted, request()) == wanted


def test_a_name_has_one_root_and_a_root_one_name(registry):
    registry.register(database(), request("one", "a"))
    for other in (database(root="/data/other"), database("other"), database()):
        assert refused(AlreadyExists, registry.register, other, request("two", "b")) == "DATABASE_EXISTS"
    registry.register(database("other", "/data/other"), request())
    registry.unregister("lake", request("three"), nothing_is_wrong)
    assert registry.register(database("new"), request()).root == "/data/lake"


def test_a_request_that_is_sent_again_is_answered_as_before(registry):
    first = registry.register(database(), request("one", "a"))
    assert registry.register(database(created_at=9.0), request("one", "a")) == first
    assert refused(AlreadyExists, registry.register, database(), request("one", "b")) == "REQUEST_ID_REUSED"
    changed = registry.update("lake", lambda before: replace(before, description="x"))
    assert registry.register(database(), request("one", "a")) == changed
    registry.unregister("lake", request("two", "c"), nothing_is_wrong)
    registry.register(database(), request("three", "a"))
    registry.unregister("lake", request("two", "c"), nothing_is_wrong)
    assert registry.get("lake"), "it is the answer of before, and takes no other name away"
    assert refused(AlreadyExists, registry.unregister, "lake", request("two", "d"), nothing_is_wrong) == (
        "REQUEST_ID_REUSED"
    )


def test_a_check_keeps_the_name(registry):
    registry.register(database(), request())

    def check(found):
        raise FailedPrecondition("DATABASE_IN_USE", f"jobs in {found.root}")

    assert refused(FailedPrecondition, registry.unregister, "lake", request("one"), check) == "DATABASE_IN_USE"
    assert registry.get("lake").root == "/data/lake"


def outcomes(calls):
    """What calls in as many threads give, all begun at once: the reason where one raises."""
    gate = threading.Barrier(len(calls))

    def run(call):
        gate.wait()
        try:
            return call()
        except LemanError as error:
            return error.reason

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def test_planners_that_register_at_once_lose_nothing(place):
    """Each has a registry of its own, which no one has made yet."""
    wanted = [database(f"d{n}", f"/data/{n}") for n in range(6)]
    made = outcomes([lambda d=d: DatabaseRegistry(place).register(d, request()) for d in wanted])
    assert made == wanted
    assert DatabaseRegistry(place).read().by_name == {d.name: d for d in wanted}


def test_a_registry_that_is_made_while_one_looks_is_found(place, monkeypatch):
    looked = documents.has_versions

    def made_before_the_second_look(uri):
        monkeypatch.undo()
        DatabaseRegistry(place).register(database("other", "/other"), request())
        return looked(uri)

    monkeypatch.setattr(documents, "has_versions", made_before_the_second_look)
    assert DatabaseRegistry(place).read().by_name.keys() == {"other"}


@pytest.mark.parametrize(
    "wanted",
    [[database(root=f"/data/{n}") for n in range(4)], [database(f"d{n}") for n in range(4)]],
    ids=["name", "root"],
)
def test_of_those_who_want_the_same_one_gets_it(place, wanted):
    DatabaseRegistry(place).register(database("there", "/there"), request())
    made = outcomes([lambda d=d: DatabaseRegistry(place).register(d, request()) for d in wanted])
    (winner,) = [found for found in made if isinstance(found, RegisteredDatabase)]
    assert sorted(map(str, made))[:3] == ["DATABASE_EXISTS"] * 3
    assert DatabaseRegistry(place).read().by_name.keys() == {"there", winner.name}


def test_updates_at_once_are_both_made(place):
    DatabaseRegistry(place).register(database(), request())
    changes = [lambda before, n=n: replace(before, labels={**before.labels, f"k{n}": "v"}) for n in range(4)]
    outcomes([lambda c=c: DatabaseRegistry(place).update("lake", c) for c in changes])
    assert DatabaseRegistry(place).get("lake").labels == {f"k{n}": "v" for n in range(4)}


def test_a_write_of_which_the_answer_is_lost_counts_as_made(registry, monkeypatch):
    registry.register(database(), request())
    update = lance.LanceDataset.update_config

    def lost(dataset, values):
        update(dataset, values)
        raise OSError("the connection was reset")

    monkeypatch.setattr(lance.LanceDataset, "update_config", lost)
    assert registry.register(database("other", "/other"), request()).name == "other"
    monkeypatch.setattr(lance.LanceDataset, "update_config", lambda *_: (_ for _ in ()).throw(OSError("reset")))
    assert refused(Unavailable, registry.register, database("third", "/third"), request()) == "STORE_UNAVAILABLE"
    assert registry.read().by_name.keys() == {"lake", "other"}


@pytest.mark.parametrize("how", ["changed", "cut", "swapped", "empty"])
def test_a_damaged_registration_is_told_and_healed(registry, place, how):
    registry.register(database(), request())
    registry.register(database("other", "/data/other"), request())
    stored = config_of(place)["database.lake"]
    damaged = {
        "changed": stored.replace("/data/lake", "/data/evil"),
        "cut": stored[:-1],
        "swapped": config_of(place)["database.other"],
        "empty": "",
    }[how]
    write(place, lake=damaged)
    found = registry.read()
    assert (set(found.by_name), found.damaged) == ({"other"}, {"lake"})
    assert refused(DataLoss, registry.get, "lake") == "REGISTRATION_DAMAGED"
    assert refused(DataLoss, registry.update, "lake", lambda before: before) == "REGISTRATION_DAMAGED"
    assert registry.register(database(), request()).root == "/data/lake"
    assert registry.read().damaged == frozenset()
    write(place, lake=damaged)
    registry.unregister("lake", request("one"), nothing_is_wrong)
    assert set(config_of(place)) & {"database.lake"} == set()
    assert registry.register(database("new"), request()).root == "/data/lake", "its root is free again"


def test_a_registry_that_cannot_be_read_is_no_empty_one(registry, place):
    registry.register(database(), request())
    manifest = min(Path(f"{place}/databases.lance/_versions").glob("*.manifest"))  # the latest: names count down
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[: len(whole) // 2])
    assert refused(DataLoss, registry.read) == "TABLE_DAMAGED"
    assert refused(DataLoss, registry.register, database("other", "/other"), request()) == "TABLE_DAMAGED"
    manifest.write_bytes(whole)
    assert registry.get("lake").name == "lake"


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(LemanError) as caught:
        DatabaseRegistry(str(tmp_path / "file" / "registry")).register(database(), request())
    assert caught.value.reason in ("STORE_UNAVAILABLE", "STORAGE_DENIED")


def test_there_is_a_bound(registry, monkeypatch):
    monkeypatch.setattr(database_registry, "MOST_DATABASES", 2)
    for n in range(2):
        registry.register(database(f"d{n}", f"/{n}"), request())
    assert refused(ResourceExhausted, registry.register, database(), request()) == "TOO_MANY_DATABASES"


def test_who_loses_to_others_again_and_again_is_told(registry, monkeypatch):
    registry.register(database(), request())
    monkeypatch.setattr(documents.DocumentTable, "write", lambda *_: False)
    with pytest.raises(Aborted, match="at the same time: try again") as refused:
        registry.update("lake", lambda before: replace(before, labels={"k": "v"}))
    assert refused.value.reason == "CONFLICT"
