"""The archive of Spark's classes: found only where it is whole and of this Java and these jars."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from leman_core.process import class_archives
from leman_core.settings import __main__ as config
from leman_executor.spark import class_archive
from leman_executor.spark.class_archive import ClassArchive

OPTIONS = ("-XX:+UseSerialGC",)


@pytest.fixture
def spark_home(tmp_path, monkeypatch):
    java, home = tmp_path / "java", tmp_path / "spark"
    (java / "lib").mkdir(parents=True)
    (java / "lib" / "modules").write_text("java")
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "a.jar").write_text("a")
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home


def made(archive):
    draft = archive.draft()
    draft.write_bytes(b"classes")
    return archive.publish(draft)


def test_it_is_used_once_it_is_made(spark_home):
    archive = ClassArchive.of(spark_home, OPTIONS)
    assert archive.use() == []
    path = made(archive)
    assert ClassArchive.of(spark_home, OPTIONS).use()[:2] == [f"-XX:SharedArchiveFile={path}", "-Xshare:auto"]
    assert list(path.parent.iterdir()) == [path]
    assert path.parent.stat().st_mode & 0o077 == 0


def test_other_jars_other_java_other_options_have_other_archives(spark_home, tmp_path):
    made(ClassArchive.of(spark_home, OPTIONS))
    assert ClassArchive.of(spark_home, ("-XX:+UseG1GC",)).file is None
    os.utime(tmp_path / "java" / "lib" / "modules", (1, 1))
    assert ClassArchive.of(spark_home, OPTIONS).file is None
    made(ClassArchive.of(spark_home, OPTIONS))
    (spark_home / "jars" / "b.jar").write_text("b")
    assert ClassArchive.of(spark_home, OPTIONS).file is None


def test_one_that_was_cut_short_is_not_used(spark_home):
    archive = ClassArchive.of(spark_home, OPTIONS)
    path = made(archive)
    with path.open("r+b") as file:
        file.truncate(3)
    assert archive.use() == []
    again = made(archive)
    assert archive.file == again


def test_what_was_not_used_for_a_month_goes(spark_home):
    old = ClassArchive.of(spark_home, ("-old",))
    path = made(old)
    long_ago = path.stat().st_mtime - class_archive._KEPT_SECONDS - 1
    os.utime(path, (long_ago, long_ago))
    ClassArchive.of(spark_home, OPTIONS).draft()
    assert old.file is None


def test_drafts_of_yesterday_go(spark_home):
    archive = ClassArchive.of(spark_home, OPTIONS)
    draft = archive.draft()
    for path, age in ((draft, 2), (draft.with_name(f"{draft.name}.classlist"), 2), (draft.with_suffix(".new"), 0)):
        path.write_bytes(b"")
        then = path.stat().st_mtime - age * class_archive._DRAFT_SECONDS
        os.utime(path, (then, then))
    archive.draft()
    assert list(draft.parent.iterdir()) == [draft.with_suffix(".new")]


def test_use_keeps_it(spark_home):
    archive = ClassArchive.of(spark_home, OPTIONS)
    path = made(archive)
    os.utime(path, (1, 1))
    archive.use()
    ClassArchive.of(spark_home, ("-other",)).draft()
    assert archive.file == path


def test_no_archive_where_spark_would_misread_its_path(spark_home, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a folder"))
    assert ClassArchive.of(spark_home, OPTIONS) is None


def test_no_archive_without_a_java(spark_home, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(spark_home / "nowhere"))
    assert ClassArchive.of(spark_home, OPTIONS) is None


def test_what_the_jvm_leaves_behind_is_swept_and_nothing_else(spark_home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draft = ClassArchive.of(spark_home, OPTIONS).draft()
    (tmp_path / "java_pid7_stdout").write_text(f"Command:\njava -XX:SharedArchiveFile={draft}.temp\n")
    other = tmp_path / "java_pid8_stderr"
    other.write_text("someone else's")
    class_archive._sweep(draft)
    assert list(tmp_path.glob("java_pid*")) == [other]


def test_of_many_archives_those_used_last_are_kept(spark_home):
    archives = [ClassArchive.of(spark_home, (f"-{number}",)) for number in range(6)]
    paths = [made(archive) for archive in archives]
    for at, path in enumerate(paths):
        path.write_bytes(b"classes")
        then = path.stat().st_mtime - 1000 + at
        os.utime(path, (then, then))
    archives[5].use()
    assert [archive.file is not None for archive in archives] == [False] * 3 + [True] * 3


def test_the_folder_can_be_chosen_shown_and_cleaned(spark_home, tmp_path, monkeypatch, capsys):
    chosen = tmp_path / "images"
    path = made(ClassArchive.of(spark_home, OPTIONS, str(chosen)))
    assert path.parent == chosen
    monkeypatch.setenv("LEMAN_SPARK__CLASS_ARCHIVE_DIR", str(chosen))
    assert config.main([]) == 0
    assert f"1 files of 0 MB in {chosen}" in capsys.readouterr().out
    assert class_archives.main(["--clean"]) == 0
    assert "deleted 1 files" in capsys.readouterr().out
    assert not path.exists()


def test_an_abandoned_archive_leaves_no_process_and_no_draft(spark_home):
    """A JVM that ends does not end what it has started to write the archive."""
    archive = ClassArchive.of(spark_home, OPTIONS)
    draft, other = archive.draft(), ClassArchive.of(spark_home, ("-other",)).draft()
    ends = ["", ".temp", ".classlist"]
    for path in (draft, other):
        for end in ends:
            path.with_name(path.name + end).write_bytes(b"classes")
    code = "print(flush=True); input()"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, "-Xshare:dump", f"-XX:SharedArchiveFile={path}.temp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for path in (draft, other)
    ]
    try:
        for process in started:
            assert process.stdout.readline() == b"\n"
        archive.abandon()
        assert not psutil.pid_exists(started[0].pid)
        assert started[1].poll() is None
        assert sorted(path.name for path in draft.parent.iterdir()) == sorted(other.name + end for end in ends)
    finally:
        for process in started:
            process.kill()
            process.communicate()
