"""`python -m executor`: runs jobs."""

import sys

from core.startup import without

with without("rich"):  # Spark asks for pandas
    from core.rpc.server import main
    from executor.service import create

if __name__ == "__main__":
    sys.exit(main("executor", create))
