"""`python -m core.rpc.front --listen HOST:PORT`: print the configuration of an Envoy in front of the services."""

from __future__ import annotations

import argparse
import json
import sys

from core import config
from core.errors import InvalidArgument
from core.rpc.front.envoy import FrontLimits, bootstrap


def main(argv: list[str] | None = None) -> int:
    """Print it and return 0; 2: the settings or the arguments do not say where services are, or the front."""
    usual = FrontLimits()
    parser = argparse.ArgumentParser(prog="python -m core.rpc.front", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="where the front takes calls")
    parser.add_argument("--reads", type=int, default=usual.reads, help="calls at work of a method that only reads")
    parser.add_argument("--changes", type=int, default=usual.changes, help="… of one that changes something")
    given = parser.parse_args(argv)
    host, _, port = given.listen.rpartition(":")
    try:
        settings = config.load()
        if not (host and port.isdecimal()):
            raise InvalidArgument("BAD_SETTING", f"--listen is {given.listen!r}: write HOST:PORT")
        if not (settings.peers.planner and settings.peers.executor and settings.peers.commit_coordinator):
            raise InvalidArgument(
                "BAD_SETTING",
                "where the services are is not known: set LEMAN_PEERS__PLANNER, LEMAN_PEERS__EXECUTOR and "
                "LEMAN_PEERS__COMMIT_COORDINATOR",
            )
    except InvalidArgument as error:
        sys.stderr.write(f"{error}\n")
        return 2
    limits = FrontLimits(reads=given.reads, changes=given.changes, streams=settings.server.max_streams)
    sys.stdout.write(json.dumps(bootstrap(settings, host, int(port), limits), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
