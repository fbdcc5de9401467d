"""`python -m leman_planner`: serves tables, functions and plans."""

import sys

from leman_core.process.absent_modules import HEAVY, without
from leman_core.process.no_arguments import take_none

with without(*HEAVY):
    from leman_core.server.server import main
    from leman_planner.app import create

if __name__ == "__main__":
    take_none("planner")
    sys.exit(main("planner", create))
