"""`leman databases` and named databases in other commands, against a made-up Leman on real gRPC."""

from __future__ import annotations

import json

import pytest

import leman
from leman import errors
from leman.v1 import databases_pb2
from tests.unit.clients.test_cli import fake, run, shared  # noqa: F401 - fixtures


@pytest.fixture
def databases(fake):  # noqa: F811
    fake.databases.clear()
    yield fake.databases
    fake.databases.clear()


def test_register_sends_what_is_said(run, fake, databases):  # noqa: F811
    said = ("--description", "documents", "--label", "team=search", "--label", "tier=1", "--max-running-jobs", "2")
    code, out, _ = run("databases", "register", "lake", "s3://bucket/lake/", *said)
    assert code == 0
    assert out.splitlines()[0].split("  ")[0] == "database"
    assert out.splitlines()[1].split() == ["lake", "s3://bucket/lake", "team=search", "tier=1", "2", "documents"]
    (request,) = fake.named("RegisterDatabase")
    assert request.request_id
    sent = request.database
    assert (sent.name, sent.root, sent.description) == ("lake", "s3://bucket/lake", "documents")
    assert dict(sent.labels) == {"team": "search", "tier": "1"}
    assert (sent.limits.max_running_jobs, sent.limits.HasField("max_waiting_jobs")) == (2, False)


def test_ls_and_show(run, databases):  # noqa: F811
    databases["lake"] = databases_pb2.Database(name="lake", root="/data/lake")
    code, out, err = run("databases", "ls")
    assert (code, err) == (0, "leman: odd is damaged\n")
    assert out.splitlines()[1].split() == ["lake", "/data/lake"]
    assert json.loads(run("databases", "ls", "--json")[1])[0]["root"] == "/data/lake"
    assert json.loads(run("databases", "show", "lake", "--json")[1])["name"] == "lake"
    code, _, err = run("databases", "show", "nowhere")
    assert code == 1
    assert "DATABASE_NOT_REGISTERED" in err


def test_update_changes_what_is_given(run, fake, databases):  # noqa: F811
    run("databases", "update", "lake", "--description", "x")
    run("databases", "update", "lake", "--label", "a=b")
    run("databases", "update", "lake", "--max-waiting-jobs", "0")
    sent = fake.named("UpdateDatabase")
    assert [list(request.update_mask.paths) for request in sent] == [["description"], ["labels"], ["limits"]]
    assert (sent[2].database.limits.HasField("max_running_jobs"), sent[2].database.limits.max_waiting_jobs) == (
        False,
        0,
    )
    code, _, err = run("databases", "update", "lake")
    assert code == 2
    assert "description" in err


def test_unregister(run, fake, databases):  # noqa: F811
    databases["lake"] = databases_pb2.Database(name="lake")
    code, out, _ = run("databases", "unregister", "lake", "--force")
    assert (code, out, list(databases)) == (0, "lake is not registered any more\n", [])
    (request,) = fake.named("UnregisterDatabase")
    assert (request.force, bool(request.request_id)) == (True, True)


def test_a_registered_database_is_named_with_an_at(run, fake, databases):  # noqa: F811
    databases["lake"] = databases_pb2.Database(name="lake", root="/data/lake")
    assert run("tables", "ls", "@lake")[0] == 0
    assert fake.named("ListTables")[0].database == "/data/lake"
    code, _, err = run("tables", "ls", "@lake", remote=False)
    assert code == 2
    assert "--endpoint" in err


def test_a_relative_path_is_none_of_services_elsewhere(run, fake, databases, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    code, _, err = run("tables", "ls", "lake")
    assert code == 2
    assert "'lake' is a relative path" in err
    assert err.endswith("give an absolute path or a uri, or for a registered database @lake [INVALID_ARGUMENT]\n")
    for command in (
        ("databases", "register", "lake", "lake"),
        ("views", "create", str(tmp_path), "v", "--source", "t", "--source-db", "lake"),
    ):
        code, _, err = run(*command)
        assert (code, err.endswith("give an absolute path or a uri [INVALID_ARGUMENT]\n")) == (2, True), command
    assert fake.named("ListTables") == fake.named("RegisterDatabase") == fake.named("GetTable") == []


def test_connect_takes_a_name_or_a_place(fake, databases):  # noqa: F811
    databases["lake"] = databases_pb2.Database(name="lake", root="/data/lake")
    with leman.connect(fake.address, database="lake") as db:
        assert db.uri == "/data/lake"
    with pytest.raises(errors.NotFound, match="nowhere"):
        leman.connect(fake.address, database="nowhere")
    with pytest.raises(errors.InvalidArgument, match="leave out endpoint="):
        leman.connect("/data/lake", fake.address, database="lake")
    with pytest.raises(errors.InvalidArgument, match="host:port"):
        leman.connect("/data/lake", database="lake")
