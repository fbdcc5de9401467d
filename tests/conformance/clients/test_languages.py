"""A runner that dies or hangs fails the case it was at, and says where; the other cases are done."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.clients import languages
from tests.conformance.clients.languages import Language, Outcome, run

RUNNER = """
import faulthandler, json, os, signal, sys, threading
faulthandler.register(signal.SIGQUIT)
for case in json.load(open(sys.argv[1]))["cases"]:
    if case == "dies":
        sys.stderr.write("out of cases")
        os._exit(7)
    if case == "hangs":
        threading.Event().wait()
    print("a line of someone else's")
    print(json.dumps({"case": case, "outcome": "passed"}), flush=True)
"""


def test_a_case_at_which_the_runner_dies_or_hangs_fails_alone(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(languages, "_SILENCE_SECONDS", 3.0)
    monkeypatch.setattr(languages, "_STACK_SECONDS", 1.0)
    (tmp_path / "runner.py").write_text(RUNNER)
    language = Language("odd", tmp_path, (), (), ("{python}", "runner.py"))
    outcomes = run(language, "http://127.0.0.1:9", ["a", "dies", "b", "hangs", "c"], tmp_path)
    passed = Outcome("passed", "")
    assert {name: outcomes[name] for name in "abc"} == dict.fromkeys("abc", passed)
    assert outcomes["dies"].outcome == "failed"
    assert "nothing of it: it ended with 7\nout of cases" in outcomes["dies"].detail
    assert "someone else's" in outcomes["dies"].detail
    assert outcomes["hangs"].outcome == "failed"
    assert "silent for 3 s" in outcomes["hangs"].detail
    assert "in wait" in outcomes["hangs"].detail, "where it hung"


def test_what_is_not_done_in_time_fails(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(languages, "_RUN_SECONDS", 2.0)
    monkeypatch.setattr(languages, "_STACK_SECONDS", 0.1)
    (tmp_path / "runner.py").write_text(RUNNER)
    language = Language("odd", tmp_path, (), (), ("{python}", "runner.py"))
    outcomes = run(language, "http://127.0.0.1:9", ["a", "hangs", "b"], tmp_path)
    assert {name: told.outcome for name, told in outcomes.items()} == {"a": "passed", "hangs": "failed", "b": "failed"}
    assert outcomes["b"].detail == "the cases before it took 2 s"
