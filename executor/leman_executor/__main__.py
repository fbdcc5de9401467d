"""`python -m leman_executor`: runs jobs."""

import functools
import sys

from leman_core.process.blocked_imports import HEAVY, blocked_imports
from leman_core.process.release import parse_no_args

with blocked_imports(*HEAVY):
    from leman_core import settings as config
    from leman_core.model.service_errors import InvalidArgument
    from leman_core.process.process_secrets import guard
    from leman_core.storage import store_file
    from leman_core.telemetry import otlp
    from leman_executor.spark.spark_runner import SparkRunner


def run() -> int:
    """Run the executor until it stops. The JVM starts while the other modules are imported."""
    try:
        settings = config.load()
        guard(core_dumps=settings.log.core_dumps)  # before a JVM inherits them
        store_file.use_store_file(settings.storage.options_file)
        otlp.take_headers()
        spark = SparkRunner(settings.spark)
    except InvalidArgument as error:
        sys.stderr.write(f"executor: {error}\n")
        return 2
    if not spark.on_demand:
        spark.start_meanwhile()
    with blocked_imports(*HEAVY):
        from leman_core.server.server import main  # noqa: PLC0415
        from leman_executor.app import create  # noqa: PLC0415
    return main("executor", functools.partial(create, spark=spark), settings)


if __name__ == "__main__":
    parse_no_args("executor")
    sys.exit(run())
