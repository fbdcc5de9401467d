"""`python -m leman_coordinator`: serve commits."""

import sys

from leman_core.process.blocked_imports import HEAVY, blocked_imports
from leman_core.process.release import parse_no_args

with blocked_imports(*HEAVY):
    from leman_coordinator.app import create
    from leman_core.server.server import main

if __name__ == "__main__":
    parse_no_args("commit_coordinator")
    sys.exit(main("commit_coordinator", create))
