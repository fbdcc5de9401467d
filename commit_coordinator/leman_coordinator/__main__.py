"""`python -m leman_coordinator`: serve commits."""

import sys

from leman_core.process.absent_modules import HEAVY, without
from leman_core.process.no_arguments import take_none

with without(*HEAVY):
    from leman_coordinator.app import create
    from leman_core.server.server import main

if __name__ == "__main__":
    take_none("commit_coordinator")
    sys.exit(main("commit_coordinator", create))
