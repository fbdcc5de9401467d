"""`python -m planner`: serves tables, functions and plans."""

import sys

from core.absent_modules import HEAVY, without
from core.no_arguments import take_none

with without(*HEAVY):
    from core.rpc.server import main
    from planner.app import create

if __name__ == "__main__":
    take_none("planner")
    sys.exit(main("planner", create))
