"""Name an RPC to users of the SDK by the method that calls it."""

from __future__ import annotations

from google.rpc import code_pb2, status_pb2
from typer.testing import CliRunner

import leman
from leman._message_text import COMMANDS, METHODS, for_command_line
from leman._wire.conversions import from_status
from leman.cli import app
from leman_core.server.routes import public_services

CALLS = {f"{service.name}.{method.name}" for service in public_services().values() for method in service.methods}


def test_messages_name_methods_of_the_sdk():
    message = "Add it with CatalogService.AddColumns. CatalogService.GetUdf knows; JobService.ListJobErrors tells"
    status = status_pb2.Status(code=code_pb2.NOT_FOUND, message=message)
    told = "Add it with Table.add_columns(). CatalogService.GetUdf knows; Table.get_errors() tells"
    assert str(from_status(status)) == told


def test_advice_names_commands():
    message = (
        "No module named 'x' (functions run in /p: install it there, or run the services by the Python that has it)"
    )
    told = str(from_status(status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message=message)))
    assert told.endswith("it: `leman down`, then this program in its environment, or `leman up --python`)")


def test_both_are_there():
    for call, method in METHODS.items():
        assert call in CALLS
        if not method.startswith("`"):
            owner, _, name = method.removesuffix("()").partition(".")
            assert callable(getattr(getattr(leman, owner), name))


def test_the_command_line_names_commands():
    assert for_command_line("No job x. Database.jobs() lists those that there are") == (
        "No job x. `leman jobs ls` lists those that there are"
    )
    assert set(COMMANDS) <= set(METHODS.values())
    for command in COMMANDS.values():
        words = command.strip("`").split()[1:]
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0, command
