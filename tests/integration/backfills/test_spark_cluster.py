"""The executor on a small Spark cluster: a master, a worker and an executor process of two cores, under one JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from leman import errors
from tests.conftest import System, start_system, stop_system
from tests.integration.backfills.test_udf_options import most_at_once, spans
from tests.integration.call_log import numbers, values

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("cluster")
    conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(spark_home(folder / "spark")))
        running = start_system(
            folder / "lake", LEMAN_SPARK__MASTER="local-cluster[1,2,1024]", LEMAN_SPARK__CONF=json.dumps(conf)
        )
    yield running
    stop_system(running)


def spark_home(folder: Path) -> Path:
    """Spark as it is installed, with room for the worker's files, which it keeps beside its programs."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.parametrize(("options", "most"), [({}, 2), ({"num_cpus": 2}, 1), ({"memory": "384m"}, 1)], ids=str)
def test_workers_take_what_they_ask_for(cluster, tmp_path, options, most):
    with cluster.connect(tmp_path) as db:
        table = db.create_table("t", numbers(60), max_rows_per_file=5)
        table.add_columns({"y": spans(tmp_path, **options)})
        future = table.backfill_async("y", concurrency=2)
        future.result()
        assert most_at_once(tmp_path) == most
        assert values(table, "y") == {x: x for x in range(60)}
        told = [event.message for event in future.events() if event.kind == "resources"]
        assert [message.startswith("each worker takes 2 cores") for message in told] == [True] * bool(options)


def test_what_the_executors_do_not_have_is_refused(cluster, tmp_path):
    with cluster.connect(tmp_path) as db:
        table = db.create_table("t", numbers(3))
        table.add_columns({"y": spans(tmp_path, num_gpus=1)})
        with pytest.raises(errors.ResourcesNotAvailable, match=r"a Spark executor has 0.*gpu\.amount"):
            table.backfill("y")
