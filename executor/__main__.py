"""`python -m executor`: runs jobs."""

import functools
import sys

from core.absent_modules import HEAVY, without
from core.no_arguments import take_none

with without(*HEAVY):
    from core import config
    from core.errors import InvalidArgument
    from core.observability import otlp
    from core.process_secrets import guard
    from core.stores import store_file
    from executor.spark.spark_runner import SparkRunner


def run() -> int:
    """The life of the process. The JVM starts while the rest is imported."""
    try:
        settings = config.load()
        guard(core_dumps=settings.log.core_dumps)  # before there is a JVM to inherit them
        store_file.begin(settings.storage.options_file)
        otlp.take_headers()
        spark = SparkRunner(settings.spark)
    except InvalidArgument as error:
        sys.stderr.write(f"executor: {error}\n")
        return 2
    if not spark.on_demand:
        spark.start_meanwhile()
    with without(*HEAVY):
        from core.rpc.server import main  # noqa: PLC0415
        from executor.app import create  # noqa: PLC0415
    return main("executor", functools.partial(create, spark=spark), settings)


if __name__ == "__main__":
    take_none("executor")
    sys.exit(run())
