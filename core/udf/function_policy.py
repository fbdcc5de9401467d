"""Which functions may be registered and run: by kind, by where their code is, by entrypoint; and how large that is."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from core.domain.udf import UdfDefinition, UdfKind
from core.errors import PermissionDenied

PICKLED, ENTRYPOINT = "pickled", "entrypoint"
_ANY = re.escape("*")
_EVERYTHING = (*(kind.value for kind in UdfKind), PICKLED, ENTRYPOINT)


@dataclass(frozen=True, slots=True)
class FunctionPolicy:
    """What settings allow (`LEMAN_UDF__…`); by itself everything."""

    #: Values of `UdfKind`, and `PICKLED` and `ENTRYPOINT`.
    kinds: tuple[str, ...] = _EVERYTHING
    #: Patterns of entrypoints; empty: all.
    entrypoints: tuple[str, ...] = ()
    #: The largest bundle that is taken; 0: any.
    max_bundle_bytes: int = 0

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
        needed = [udf.kind.value]
        if udf.kind is not UdfKind.SQL:
            needed.append(ENTRYPOINT if udf.entrypoint else PICKLED)
        missing = [kind for kind in needed if kind not in self.kinds]
        if missing:
            raise _refused(udf, f"functions of the kind '{missing[0]}'", "LEMAN_UDF__ALLOW")
        if udf.entrypoint and self.entrypoints and not self.lists(udf.entrypoint):
            raise _refused(udf, f"the entrypoint '{udf.entrypoint}'", "LEMAN_UDF__ENTRYPOINTS")

    def lists(self, entrypoint: str) -> bool:
        """Tell whether a pattern names the entrypoint.

        `*` stands for any module, and for a public name in one: neither for `_x` nor for `x.y`, as through the
        attributes of what a module holds everything can be reached (`module:__loader__.get_data`).
        """
        return any(_matcher(pattern).fullmatch(entrypoint) for pattern in self.entrypoints)


@functools.cache
def _matcher(pattern: str) -> re.Pattern[str]:
    module, _, name = pattern.partition(":")
    modules, names = re.escape(module).replace(_ANY, r"[\w.]*"), re.escape(name).replace(_ANY, r"\w*")
    return re.compile(f"{modules}:{'(?!_)' if name.startswith('*') else ''}{names}")


def _refused(udf: UdfDefinition, what: str, setting: str) -> PermissionDenied:
    return PermissionDenied(
        "UDF_NOT_ALLOWED",
        f"Function {udf.name}@{udf.version}: these services do not run {what} ({setting}): use another one, or ask "
        "whoever runs the services",
        udf=udf.name,
        version=udf.version,
        setting=setting,
    )


#: What refuses nothing.
ALL_FUNCTIONS = FunctionPolicy()
