"""A job is watched while services of this machine are restarted: the watch waits for them, and starts none."""

from __future__ import annotations

import fcntl
import json
import os

import grpc
import pytest

from leman._jobs import JobFuture
from leman._local import embedded_services, running_systems
from leman._wire import channel
from leman._wire.channel import Services
from leman.errors import StartFailed, Unavailable
from leman.v1 import jobs_pb2
from tests.unit.clients.fake_services import FakeLeman, make_job


class System:
    """The files of one, and the lock that it holds."""

    def __init__(self, database, kind, address):
        self.place = database / "_leman"
        self._home = self.place if kind == "up" else running_systems.shared_home()
        said = dict.fromkeys(("planner", "executor", "commit_coordinator"), address)
        self._said = json.dumps({**said, "pid": os.getpid(), "token": "", "home": str(self._home)})
        self.begin()
        self.announce()

    def begin(self):
        self._lock = (self.place / "supervisor.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def announce(self):
        (self.place / "service.json").write_text(self._said)

    def killed(self):
        self._lock.close()

    def ended(self):
        (self.place / "service.json").unlink()
        self._lock.close()


@pytest.fixture
def fake():
    server = FakeLeman()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(running_systems, "is_alive", lambda _: True)
    (tmp_path / "lake" / "docs.lance").mkdir(parents=True)
    (tmp_path / "lake" / "_leman").mkdir()
    return tmp_path / "lake"


@pytest.fixture
def services(database, monkeypatch):
    def start(*_):
        raise StartFailed("others were started")

    monkeypatch.setattr(embedded_services.Embedded, "_start", start)
    made = Services(embedded_services.Embedded(str(database)))
    yield made
    made.close()


def begun(fake, services, database):
    """A watch that has heard of its job, and is cut when it asks for more."""
    running = jobs_pb2.WatchJobResponse(sequence=1, job=make_job("job-1", "RUNNING"))
    fake.scripts["WatchJob"] = [running, grpc.StatusCode.UNAVAILABLE]
    watch = JobFuture(services, str(database), "job-1").updates()
    assert not next(watch).job.state.terminal
    return watch


@pytest.mark.parametrize("kind", ["up", "shared"])
def test_services_that_are_restarted_are_waited_for(fake, services, database, kind, monkeypatch):
    first = System(database, kind, fake.address)
    watch = begun(fake, services, database)
    first.ended()
    fake.stop()
    others = []
    steps = iter((first.begin, first.killed, fake.start, lambda: others.append(System(database, kind, fake.address))))

    def pause(*_):
        next(steps)()
        return True

    monkeypatch.setattr(channel.RetryBudget, "pause", pause)
    fake.scripts.clear()
    assert [update.job.state for update in watch] == ["DONE"]
    assert list(steps) == []
    others[0].killed()
    assert fake.named("WatchJob")[-1].after_sequence == 1


@pytest.mark.parametrize(("kind", "how"), [("up", System.ended), ("up", System.killed), ("shared", System.ended)])
def test_who_has_ended_them_is_told_that_nobody_starts_others_and_the_next_call_does(
    fake, services, database, kind, how, monkeypatch
):
    system = System(database, kind, fake.address)
    watch = begun(fake, services, database)
    how(system)
    monkeypatch.setattr(channel.RetryBudget, "pause", lambda *_: False)
    with pytest.raises(Unavailable, match=r"the services have ended .* the next call starts them") as caught:
        next(watch)
    assert not isinstance(caught.value, StartFailed)
    fake.scripts["WatchJob"] = [grpc.StatusCode.UNAVAILABLE]
    with pytest.raises(StartFailed, match="others were started"):
        JobFuture(services, str(database), "job-1").result()


def test_shared_services_that_were_killed_are_started_by_who_watches(fake, services, database):
    system = System(database, "shared", fake.address)
    watch = begun(fake, services, database)
    system.killed()
    with pytest.raises(StartFailed, match="others were started"):
        next(watch)


@pytest.mark.parametrize("has_heard", [True, False])
def test_a_watch_starts_none_because_another_one_beside_it_has_given_up(
    fake, services, database, has_heard, monkeypatch
):
    system = System(database, "up", fake.address)
    watch = begun(fake, services, database)
    beside = begun(fake, services, database) if has_heard else JobFuture(services, str(database), "job-1").updates()
    system.ended()
    fake.scripts["WatchJob"] = [grpc.StatusCode.UNAVAILABLE]
    pauses = []

    def pause(*_):
        pauses.append(True)
        if len(pauses) > 1:
            return False  # the first one's time is used up, and then that of the second one
        with pytest.raises(Unavailable, match="the services have ended"):
            next(watch)
        return True

    monkeypatch.setattr(channel.RetryBudget, "pause", pause)
    with pytest.raises(Unavailable, match="the services have ended") as caught:
        next(beside)
    assert not isinstance(caught.value, StartFailed)
    assert len(pauses) == 3


def test_a_watch_that_heard_nothing_for_long_starts_services_as_any_call_does(fake, services, database, monkeypatch):
    monkeypatch.setattr(channel, "_SILENCE", -1000.0)
    system = System(database, "shared", fake.address)
    watch = begun(fake, services, database)
    system.ended()
    with pytest.raises(StartFailed, match="others were started"):
        next(watch)


def test_services_that_are_coming_up_are_waited_for_by_every_call(services, database, monkeypatch):
    """As `leman up` has the database's lock long before it can be called."""
    system = System(database, "up", "there:1")
    (system.place / "service.json").unlink()
    monkeypatch.setattr(embedded_services.time, "sleep", lambda _: system.announce())
    assert services._locator.locate().planner == "there:1"
    system.killed()
