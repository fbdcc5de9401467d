"""Calls that a service's message names, as users of this client know them."""

from __future__ import annotations

import re

#: RPCs that a method stands for; others are told as they are.
METHODS = {
    "CatalogService.AddColumns": "Table.add_columns()",
    "CatalogService.AlterColumns": "Table.alter_columns()",
    "CatalogService.AlterMaterializedView": "View.alter_columns()",
    "CommitService.CollectGarbage": "Table.collect_checkpoints()",
    "CommitService.ListCommits": "Table.commits()",
    "CommitService.VerifyDatabase": "`leman verify`",
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
