"""A Java that Spark cannot run on is reported before anything is started."""

from __future__ import annotations

import pytest

from leman_core.model.service_errors import Unavailable
from leman_executor.spark import driver_launch


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Makes a Java with such a description."""

    def make(release):
        program = tmp_path / "jre" / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
        if release is not None:
            (tmp_path / "jre" / "release").write_text(release)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))

    return make


@pytest.mark.parametrize(
    "release", [None, "", 'JAVA_VERSION="17.0.9"', 'JAVA_VERSION="21"\nMODULES="java.base jdk.incubator.vector"']
)
def test_one_that_will_do_or_does_not_say(java, release):
    java(release)
    driver_launch.check_java()


@pytest.mark.parametrize(
    ("release", "told"),
    [
        ('JAVA_VERSION="11.0.2"', "is Java 11: install one"),
        ('JAVA_VERSION="1.8.0_392"', "is Java 8: install one"),
        ('JAVA_VERSION="17.0.9"\nMODULES="java.base"', "jdk.incubator.vector, which .* lacks: install one"),
    ],
)
def test_one_that_will_not_do(java, release, told):
    java(release)
    with pytest.raises(Unavailable, match=told) as caught:
        driver_launch.check_java()
    assert caught.value.reason == "SPARK_NOT_STARTED"


def test_none(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match=r"has no bin/java: install one \(apt-get install openjdk-17"):
        driver_launch.check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="no java on PATH, and JAVA_HOME is not set: install one"):
        driver_launch.check_java()
