"""Which functions may be registered and run: by kind, by where their code is, by entrypoint; and how large that is."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from leman_core.functions.remote_addresses import listed, parse_address, parse_pattern
from leman_core.model.errors import PermissionDenied
from leman_core.model.udf import FunctionVersion, RemoteFunction, UdfDefinition, UdfKind

if TYPE_CHECKING:
    from leman_core.settings import Udf

PICKLED, ENTRYPOINT = "pickled", "entrypoint"
_ANY = re.escape("*")
_EVERYTHING = (*(kind.value for kind in UdfKind), PICKLED, ENTRYPOINT)


@dataclass(frozen=True, slots=True)
class FunctionPolicy:
    """What settings allow (`LEMAN_UDF__…`); by itself everything but servers elsewhere."""

    #: Values of `UdfKind`, and `PICKLED` and `ENTRYPOINT`.
    kinds: tuple[str, ...] = _EVERYTHING
    #: Patterns of entrypoints; empty: all.
    entrypoints: tuple[str, ...] = ()
    #: The largest bundle that is taken; 0: any.
    max_bundle_bytes: int = 0
    #: Patterns of addresses of function servers; empty: those of this machine.
    remote_addresses: tuple[str, ...] = ()
    #: Patterns of the environment variables that jobs may have; empty: all.
    env_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, allowed: Udf) -> FunctionPolicy:
        """Return what the settings allow."""
        return cls(
            allowed.allow,
            allowed.entrypoints,
            allowed.max_bundle_mb << 20,
            allowed.remote_addresses,
            allowed.env_names,
        )

    def check_pickled(self) -> None:
        """Refuse pickled code, whatever function it is of.

        Raises:
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        if PICKLED not in self.kinds:
            raise PermissionDenied(
                "UDF_NOT_ALLOWED",
                "These services run no pickled functions (LEMAN_UDF__ALLOW): use an entrypoint or SQL, or ask whoever "
                "runs the services",
                setting="LEMAN_UDF__ALLOW",
            )

    def check(self, udf: UdfDefinition) -> None:
        """Refuse a function that is not allowed, whoever asks.

        Raises:
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        function, needed = FunctionVersion(udf.name, udf.version), [udf.kind.value]
        if udf.kind not in (UdfKind.SQL, UdfKind.REMOTE):
            needed.append(ENTRYPOINT if udf.entrypoint else PICKLED)
        missing = [kind for kind in needed if kind not in self.kinds]
        if missing:
            raise _refused(function, f"functions of the kind '{missing[0]}'", "LEMAN_UDF__ALLOW")
        if udf.entrypoint and self.entrypoints and not self.lists(udf.entrypoint):
            raise _refused(function, f"the entrypoint '{udf.entrypoint}'", "LEMAN_UDF__ENTRYPOINTS")
        if udf.remote is not None:
            self.check_remote(udf.remote, udf.version)

    def lists(self, entrypoint: str) -> bool:
        """Tell whether a pattern names the entrypoint.

        `*` stands for any module, and for a public name in one: neither for `_x` nor for `x.y`, as through the
        attributes of what a module holds everything can be reached (`module:__loader__.get_data`).
        """
        return any(_matcher(pattern).fullmatch(entrypoint) for pattern in self.entrypoints)

    def check_remote(self, remote: RemoteFunction, version: str = "") -> None:
        """Refuse a remote function that is not allowed, before anybody speaks with its servers.

        Raises:
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        name = FunctionVersion(remote.function, version)
        if UdfKind.REMOTE.value not in self.kinds:
            raise _refused(name, "functions of the kind 'remote'", "LEMAN_UDF__ALLOW")
        for address in remote.addresses:
            if not (self.lists_address(address) if self.remote_addresses else parse_address(address).loopback):
                raise _refused(name, f"what is served at '{address}'", "LEMAN_UDF__REMOTE_ADDRESSES")

    def check_env(self, names: Iterable[str]) -> None:
        """Refuse environment variables that no pattern names.

        Raises:
            PermissionDenied: ENV_NOT_ALLOWED.
        """
        for name in names if self.env_names else ():
            if not any(fnmatchcase(name, pattern) for pattern in self.env_names):
                raise PermissionDenied(
                    "ENV_NOT_ALLOWED",
                    f"These services let nobody set the environment variable {name} for a function "
                    f"(LEMAN_UDF__ENV_NAMES names {', '.join(self.env_names)}): use another one, or ask "
                    "whoever runs the services",
                    setting="LEMAN_UDF__ENV_NAMES",
                )

    def lists_address(self, address: str) -> bool:
        """Tell whether a pattern names the address."""
        return listed(parse_address(address), map(parse_pattern, self.remote_addresses))


@functools.cache
def _matcher(pattern: str) -> re.Pattern[str]:
    module, _, name = pattern.partition(":")
    modules, names = re.escape(module).replace(_ANY, r"[\w.]*"), re.escape(name).replace(_ANY, r"\w*")
    return re.compile(f"{modules}:{'(?!_)' if name.startswith('*') else ''}{names}")


def _refused(function: FunctionVersion, what: str, setting: str) -> PermissionDenied:
    return PermissionDenied(
        "UDF_NOT_ALLOWED",
        f"Function {function}: these services do not run {what} ({setting}): use another one, or ask "
        "whoever runs the services",
        udf=function.name,
        version=function.version,
        setting=setting,
    )


#: What refuses nothing.
ALL_FUNCTIONS = FunctionPolicy(remote_addresses=("grpc://*:*", "grpc+tls://*:*"))
