"""`python -m leman_core.server.front --listen HOST:PORT`: print the configuration of an Envoy before the services."""

from __future__ import annotations

import argparse
import ipaddress
import json
import sys

from leman_core import settings as config
from leman_core.model.errors import InvalidArgument
from leman_core.server.addresses import host_and_port
from leman_core.server.channels import check_peer_files
from leman_core.server.exposure import check_bind
from leman_core.server.front.envoy import FrontLimits, bootstrap

_LARGEST_BUDGET = 1 << 20
_ADVERTISE = (
    "Clients that ask GetInfo call the services' own addresses, past the front: where they are to go through it, set "
    "LEMAN_ADVERTISE__PLANNER, LEMAN_ADVERTISE__EXECUTOR and LEMAN_ADVERTISE__COMMIT_COORDINATOR of the planner to the "
    "front's address.\n"
)


def main(argv: list[str] | None = None) -> int:
    """Print it and return 0; 2: the settings or the arguments do not say where services are, or are unsafe."""
    usual = FrontLimits()
    parser = argparse.ArgumentParser(prog="python -m leman_core.server.front", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="IP:PORT", help="where the front takes calls")
    parser.add_argument("--reads", type=_budget, default=usual.reads, help="calls at work of a method that only reads")
    parser.add_argument("--changes", type=_budget, default=usual.changes, help="… of one that changes something")
    given = parser.parse_args(argv)
    try:
        settings = config.load()
        host, port = _listened(given.listen)
        if not (settings.peers.planner and settings.peers.executor and settings.peers.commit_coordinator):
            raise InvalidArgument(
                "BAD_SETTING",
                "where the services are is not known: set LEMAN_PEERS__PLANNER, LEMAN_PEERS__EXECUTOR and "
                "LEMAN_PEERS__COMMIT_COORDINATOR",
            )
        check_peer_files(settings.peers)
        # Services on loopback may ask nobody who they are: a front that others reach would publish them.
        check_bind(settings.model_copy(update={"server": settings.server.model_copy(update={"host": host})}))
    except InvalidArgument as error:
        sys.stderr.write(f"{error}\n")
        return 2
    limits = FrontLimits(reads=given.reads, changes=given.changes, streams=settings.server.max_streams)
    sys.stdout.write(json.dumps(bootstrap(settings, host, port, limits), indent=1) + "\n")
    sys.stderr.write(_ADVERTISE)
    return 0


def _listened(listen: str) -> tuple[str, int]:
    try:
        host, port = host_and_port(listen)
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise InvalidArgument(
            "BAD_SETTING", f"--listen is {listen!r}: write IP:PORT, such as 0.0.0.0:7000 or [::]:7000"
        ) from None
    return host, port


def _budget(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _LARGEST_BUDGET):
        raise argparse.ArgumentTypeError(f"a number of calls between 1 and {_LARGEST_BUDGET}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
