"""Texts of objects and messages, as notebooks and users of this client read them. Imports nothing heavy.

What objects that notebooks show have in common.

Calls that a service's message names, as users of this client know them.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from typing import Any


class Shown:
    """Shown by notebooks as HTML, by `leman._notebook`, which no one else needs to load."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """What Jupyter asks for; None: it falls back to text."""
        shown: str | None = importlib.import_module("leman._notebook").show(self)
        return shown


def short_repr(one: Any) -> str:
    """A dataclass as code, without the fields that have their defaults."""
    told = [(field, getattr(one, field.name)) for field in dataclasses.fields(one)]
    shown = [f"{field.name}={value!r}" for field, value in told if value != _default(field)]
    return f"{type(one).__name__}({', '.join(shown)})"


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


#: RPCs that a method stands for; others are told as they are.
METHODS = {
    "CatalogService.AddColumns": "Table.add_columns()",
    "CatalogService.AlterColumns": "Table.alter_columns()",
    "CatalogService.AlterMaterializedView": "View.alter_columns()",
    "CommitService.CollectGarbage": "Table.collect_checkpoints()",
    "CommitService.ListCommits": "Table.commits()",
    "CommitService.VerifyDatabase": "`leman verify`",
    "JobService.GroupJobErrors": "Database.error_groups()",
    "JobService.ListJobErrors": "Table.get_errors()",
    "JobService.ListJobs": "Database.jobs()",
    "TableService.CreateTable": "Database.create_table()",
}
#: What commands do.
ADVICE = {
    "run the services by the Python that has it": "run the services by the Python that has it: `leman down`, then this"
    " program in its environment, or `leman up --python`",
}
#: Methods that the command line has a command for.
COMMANDS = {
    "Table.collect_checkpoints()": "`leman checkpoints gc`",
    "Table.get_errors()": "`leman errors`",
    "Database.jobs()": "`leman jobs ls`",
}
_WORDS = METHODS | ADVICE
_RPC = re.compile("|".join(re.escape(name) for name in sorted(_WORDS, key=len, reverse=True)))


def translate(message: str) -> str:
    """A service's message with this client's methods in the place of its calls."""
    return _RPC.sub(lambda found: _WORDS[found[0]], message)


def for_command_line(message: str) -> str:
    """A message of `translate` with commands in the place of methods."""
    for method, command in COMMANDS.items():
        message = message.replace(method, command)
    return message
