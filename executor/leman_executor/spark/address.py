"""The address at which Spark's workers call this process back: the driver, its blocks, and the dispatcher."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from dataclasses import dataclass

import structlog

from leman_core.settings import Spark

_log = structlog.get_logger(__name__)

LOOPBACK = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"  # behind another address, as in a container


@dataclass(frozen=True, slots=True)
class CallbackAddress:
    """The address and the ports of this process; a port is 0 where any free one will do."""

    #: What workers are told.
    host: str
    #: The address of this machine on which it listens.
    bind: str
    driver_port: int = 0
    block_port: int = 0
    dispatcher_port: int = 0

    def spark_settings(self) -> dict[str, str]:
        """The settings by which Spark uses the address."""
        ports = {"spark.driver.port": self.driver_port, "spark.driver.blockManager.port": self.block_port}
        return {
            "spark.driver.host": self.host,
            "spark.driver.bindAddress": self.bind,
            **{key: str(port) for key, port in ports.items() if port},
        }


def is_local(settings: Spark) -> bool:
    """Tell whether Spark's workers are on this machine alone."""
    return not settings.master or settings.master.startswith("local")


def has_cluster(settings: Spark) -> bool:
    """Tell whether workers are processes of a Spark cluster, also of one on this machine (`local-cluster`)."""
    return bool(settings.master) and re.match(r"local($|\[)", settings.master) is None


def warn_of_open_spark(settings: Spark) -> None:
    """Say in the log that Spark's own connections are not protected, where the settings do not protect them."""
    wanted = ("spark.authenticate", "spark.network.crypto.enabled")
    missing = [name for name in wanted if settings.conf.get(name, "").lower() != "true"]
    if missing and settings.conf.get("spark.ssl.rpc.enabled", "").lower() != "true":
        _log.warning(
            "Anyone who can reach Spark's own connections can use them: set both in LEMAN_SPARK__CONF, or keep the "
            "network between executor and workers to yourself",
            reason="SPARK_NOT_AUTHENTICATED",
            missing=missing,
        )


def callback_address(settings: Spark) -> CallbackAddress:
    """Return where workers call back.

    That is loopback for workers of this machine; else the host that the settings or SPARK_LOCAL_IP name, or the address
    that this machine has towards the master.
    """
    if is_local(settings):
        return CallbackAddress(LOOPBACK, LOOPBACK)
    host = settings.conf.get("spark.driver.host", "") or settings.driver_host or os.environ.get("SPARK_LOCAL_IP", "")
    host = host or _towards(settings.master)
    bind = settings.conf.get("spark.driver.bindAddress", "") or (host if _is_ours(host) else _EVERYWHERE)
    first = settings.callback_port
    return CallbackAddress(host, bind, *((first, first + 1, first + 2) if first else (0, 0, 0)))


def _towards(master: str) -> str:
    """Return the address of the interface through which the master is reached.

    Where the master's url has no address, return this host's name.
    """
    found = re.match(r"spark://([^:,/]+|\[[^]]+\]):(\d+)", master)
    if found:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((found[1], int(found[2])))  # sends nothing
            return str(probe.getsockname()[0])
    return socket.getfqdn()


def _is_ours(host: str) -> bool:
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
