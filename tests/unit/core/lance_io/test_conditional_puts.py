"""A store in which two writers of one version may both succeed is refused before there is a table in it."""

from __future__ import annotations

from collections import defaultdict

import pytest

from leman_core.model.databases import RegisteredDatabase, RegistrationRequest
from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_core.storage import table_creation
from leman_core.storage.database_registry import DatabaseRegistry
from leman_core.storage.table_creation import check_conditional_puts
from tests.unit.core.lance_io.small_store import SmallStore, known_store

DATABASE = "s3://lake/teams"


@pytest.fixture
def store(request, monkeypatch):
    """A store that this process knows, atomic or not."""
    monkeypatch.setattr(table_creation, "_stores", defaultdict(table_creation._Known))
    atomic = getattr(request, "param", True)
    if atomic:
        monkeypatch.setattr(table_creation, "_TRIES", 1)
    with known_store(atomic=atomic) as running:
        yield running


def test_what_was_tried_once_costs_a_look_in_another_process_and_nothing_in_this_one(store, monkeypatch):
    check_conditional_puts(DATABASE)
    assert named(store) == ["teams/_leman/conditional_puts.json"]  # what was tried is removed

    tried = store.requests
    check_conditional_puts(DATABASE)
    check_conditional_puts("s3://lake/others")
    assert store.requests == tried

    monkeypatch.setattr(table_creation, "_stores", defaultdict(table_creation._Known))  # as in another process
    check_conditional_puts(DATABASE)
    assert tried < store.requests <= tried + 2


@pytest.mark.parametrize("store", [False], indirect=True)
def test_a_store_that_lets_more_than_one_win_is_refused_each_time(store):
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match="atomic conditional puts") as refused:
            check_conditional_puts(DATABASE)
        assert refused.value.reason == "STORE_NOT_ATOMIC"
        assert int(refused.value.facts["winners"]) > 1
    assert not named(store)
    with pytest.raises(FailedPrecondition) as refused:
        DatabaseRegistry(DATABASE).register(*_registration())
    assert refused.value.reason == "STORE_NOT_ATOMIC"


def test_a_note_of_another_endpoint_says_nothing(store):
    store.objects["teams/_leman/conditional_puts.json"] = b'{"endpoint": "http://elsewhere", "writers": 32}'
    before = store.requests
    check_conditional_puts(DATABASE)
    assert store.requests > before + table_creation.WRITERS


def test_where_nobody_wins_nothing_is_known(store, monkeypatch):
    def lost(*_: object, **__: object) -> None:
        raise FileExistsError

    monkeypatch.setattr(table_creation, "create_empty", lost)
    with pytest.raises(Unavailable) as refused:
        check_conditional_puts(DATABASE)
    assert refused.value.reason == "STORE_UNAVAILABLE"


def test_what_cannot_be_tried_is_told_for_a_while_and_then_tried_again(store, monkeypatch):
    tries = []

    def lost(*_: object, **__: object) -> None:
        tries.append(1)
        raise FileExistsError

    with monkeypatch.context() as patched:
        patched.setattr(table_creation, "create_empty", lost)
        for _ in range(2):
            with pytest.raises(Unavailable):
                check_conditional_puts(DATABASE)
    assert len(tries) == table_creation.WRITERS
    monkeypatch.setattr(table_creation, "_FAILED_SECONDS", 0.0)
    check_conditional_puts(DATABASE)


def test_where_no_thread_can_be_started_the_others_do_not_wait_for_ever(store, monkeypatch):
    begun = []

    class Few(table_creation.ThreadPoolExecutor):
        def submit(self, *given):
            if len(begun) == 3:
                raise RuntimeError("can't start new thread")
            begun.append(1)
            return super().submit(*given)

    monkeypatch.setattr(table_creation, "ThreadPoolExecutor", Few)
    monkeypatch.setattr(table_creation, "_START_SECONDS", 0.2)
    with pytest.raises(Unavailable, match="can't start new thread") as refused:
        check_conditional_puts(DATABASE)
    assert refused.value.reason == "STORE_UNAVAILABLE"


def test_a_local_disk_is_not_tried(tmp_path):
    check_conditional_puts(str(tmp_path))
    assert not list(tmp_path.iterdir())


def named(store: SmallStore) -> list[str]:
    """Its objects, without those that stand for folders."""
    return [key for key in store.objects if not key.endswith("/")]


def _registration() -> tuple[RegisteredDatabase, RegistrationRequest]:
    return RegisteredDatabase(name="d", root="s3://lake/d", created_at=0.0, updated_at=0.0), RegistrationRequest(
        "r", "b"
    )
