"""Run a planner: `python -m leman_planner`."""

import sys

from leman_core.process.blocked_imports import HEAVY, blocked_imports
from leman_core.process.release import parse_no_args

with blocked_imports(*HEAVY):
    from leman_core.server.server import main
    from leman_planner.app import create

if __name__ == "__main__":
    parse_no_args("planner")
    sys.exit(main("planner", create))
