"""Objects as notebooks show them, and messages of services in terms of this client. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import importlib
import re
from typing import Any


class Shown:
    """An object that notebooks show as HTML. `leman._notebook` makes the HTML, and is imported only in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        shown: str | None = importlib.import_module("leman._notebook").show(self)
        return shown  # if None, Jupyter shows the text


def short_repr(one: Any) -> str:
    """Return a dataclass as code, without fields that have their default values."""
    told = [(field, getattr(one, field.name)) for field in dataclasses.fields(one)]
    shown = [f"{field.name}={value!r}" for field, value in told if value != _default(field)]
    return f"{type(one).__name__}({', '.join(shown)})"


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


#: RPC → this client's method for it. Other RPCs keep their names in messages.
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
#: Advice of services → advice for this client.
ADVICE = {
    "run the services by the Python that has it": "run the services by the Python that has it: `leman down`, then this"
    " program in its environment, or `leman up --python`"
}
#: Method → the command with the same effect.
COMMANDS = {
    "Table.collect_checkpoints()": "`leman checkpoints gc`",
    "Table.get_errors()": "`leman errors`",
    "Database.jobs()": "`leman jobs ls`",
}
_WORDS = METHODS | ADVICE
_RPC = re.compile("|".join(re.escape(name) for name in sorted(_WORDS, key=len, reverse=True)))


def translate(message: str) -> str:
    """Return a service's message with this client's methods instead of RPCs."""
    return _RPC.sub(lambda found: _WORDS[found[0]], message)


def for_command_line(message: str) -> str:
    """Return a message of `translate` with commands instead of methods."""
    for method, command in COMMANDS.items():
        message = message.replace(method, command)
    return message
