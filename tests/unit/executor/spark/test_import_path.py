"""Where Spark's Python processes look for modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from leman_executor.spark.daemon_startup import without_archives


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which pyspark is installed."""
    package = tmp_path / "site-packages" / "pyspark"
    (package / "python" / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    return package.parent


def archives(home: Path) -> list[str]:
    """What a Spark at home puts in front of the import path."""
    zips = [home / "python" / "lib" / name for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    return [str(path) for path in (*zips, home / "jars" / "spark-core_2.13-4.3.0.jar")]


def test_the_archives_of_an_installed_pyspark_are_left_out(site):
    own = ["/job/files", "/usr/lib/python311.zip", "/job/lib.zip", "/job/classes.jar"]
    assert without_archives([own[0], *archives(site / "pyspark"), *own[1:], str(site)]) == [*own, str(site)]


def test_an_installed_pyspark_is_known_under_another_name_of_its_folder(site, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(site)
    assert without_archives([*archives(site / "pyspark"), str(link)]) == [str(link)]


def test_a_spark_that_is_not_installed_for_this_python_keeps_its_archives(site, tmp_path):
    elsewhere = archives(tmp_path / "opt" / "spark")
    assert without_archives([*elsewhere, str(site)]) == [*elsewhere, str(site)]
    unreached = archives(site / "pyspark")
    assert without_archives([*unreached, str(tmp_path)]) == [*unreached, str(tmp_path)]


def test_the_folder_that_python_was_started_in_stays(site):
    assert without_archives(["", *archives(site / "pyspark"), str(site)]) == ["", str(site)]
