"""`python -m commit_coordinator`: serve commits."""

import sys

from core.absent_modules import HEAVY, without
from core.no_arguments import take_none

with without(*HEAVY):
    from commit_coordinator.app import create
    from core.rpc.server import main

if __name__ == "__main__":
    take_none("commit_coordinator")
    sys.exit(main("commit_coordinator", create))
