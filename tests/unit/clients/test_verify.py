"""Verification through the SDK and the command line, against a made-up Leman on real gRPC."""

from __future__ import annotations

import json
import sys

import grpc
import pytest

import leman
from leman import Finding, Verified, errors
from leman.cli import main
from leman.v1 import commit_pb2

FOUND = Finding("column_file", "damaged", "docs.lance/data/a", "a is damaged: restore it", "docs", ("n",), 4, 10)
COUNTS = (Verified("column_file", 3, 0, 1, 150), Verified("data_file", 3, 3, 0, 0))
KINDS = commit_pb2.VerificationFinding


@pytest.fixture
def database(fake, tmp_path):
    with leman.connect(tmp_path, fake.address) as opened:
        yield opened


@pytest.fixture
def run(fake, tmp_path, monkeypatch, capsys):
    """Runs `leman verify`; returns exit code, standard output and standard error."""

    def call(*arguments):
        argv = ["leman", "verify", str(tmp_path), "--endpoint", fake.address, *arguments]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return call


def first():
    message = commit_pb2.VerifyDatabaseResponse(resume_token="half", table="docs")
    message.counts.add(subject=KINDS.SUBJECT_COLUMN_FILE, looked=2, bytes=100)
    return message


def test_counts_and_findings_of_all_messages_are_one_report(database):
    seen = []
    found = database.verify(progress=seen.append)
    assert (found.checked, found.findings) == (COUNTS, (FOUND,))
    assert (found.complete, found.sound) == (True, False)
    assert [(s.resume_token, s.table) for s in seen] == [("half", "docs"), ("", "")]
    assert seen[0].checked == (Verified("column_file", 2, 0, 0, 100),)


def test_an_interrupted_stream_is_gone_on_with(database, fake):
    whole = [first()]

    def cut(request):
        if request.resume_token:
            del fake.scripts["VerifyDatabase"]
            return [grpc.StatusCode.UNAVAILABLE]
        return [*whole, grpc.StatusCode.UNAVAILABLE]

    fake.scripts["VerifyDatabase"] = cut
    found = database.verify()
    assert (found.checked, found.findings) == (COUNTS, (FOUND,))
    assert [request.resume_token for request in fake.named("VerifyDatabase")] == ["", "half", "half"]


def test_a_token_goes_on_from_there(database):
    found = database.verify(resume_token="half")
    assert found.checked == (Verified("column_file", 1, 0, 1, 50), COUNTS[1])


def test_a_refusal_is_an_error(database, fake):
    fake.scripts["VerifyDatabase"] = [grpc.StatusCode.INVALID_ARGUMENT]
    with pytest.raises(errors.InvalidArgument):
        database.verify(resume_token="bad")


def test_findings_make_exit_code_3(run):
    code, out, _ = run()
    assert code == 3
    assert "damaged column file (n; fragment 4, 10 rows): a is damaged: restore it" in out
    assert out.splitlines()[-1] == "1 finding: 6 things (150 bytes) checked, 3 of them not verifiable"


def test_a_sound_database_is_exit_code_0(run, fake):
    fake.scripts["VerifyDatabase"] = [commit_pb2.VerifyDatabaseResponse()]
    code, out, _ = run("--json")
    assert (code, json.loads(out)["sound"]) == (0, True)


def test_json_has_the_whole_report(run):
    code, out, _ = run("--json", "--resume", "half")
    document = json.loads(out)
    assert (code, document["complete"], document["sound"], document["resume_token"]) == (3, True, False, "")
    assert document["findings"][0]["columns"] == ["n"]
    assert document["checked"][0] == {
        "subject": "column_file",
        "looked": 1,
        "unverifiable": 0,
        "flawed": 1,
        "bytes": 50,
    }


def test_an_interrupted_run_tells_how_to_go_on(run, fake, monkeypatch):
    fake.scripts["VerifyDatabase"] = [first()]

    def interrupted(_services, _uri, _resume, progress):
        progress(leman.Verification(COUNTS[:1], (), "half", "docs"))
        raise KeyboardInterrupt

    monkeypatch.setattr("leman._maintenance.verify", interrupted)
    code, out, err = run()
    assert code == 130
    assert "--resume half" in err
    assert "sound so far" in out
