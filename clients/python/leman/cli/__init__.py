"""The command line `leman`."""

from __future__ import annotations

import os
import sys
import warnings

from leman._message_text import for_command_line
from leman._program import OutputFailed
from leman.cli._app import app
from leman.cli._output import fail, note
from leman.errors import InvalidArgument, LemanError, UdfDefinitionError

OK, FAILED, USAGE, WITH_ERRORS = 0, 1, 2, 3
"""Exit codes: done, failed, wrong usage, finished with failed rows."""


def main() -> None:
    """Run one command and exit. Errors are told in a line or two on standard error, never as a traceback, and
    warnings as remarks, without a line of this package's code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_where: note(str(message))
        _run()


def _run() -> None:
    try:
        app(prog_name="leman")
    except LemanError as error:
        is_usage = isinstance(error, InvalidArgument) and not isinstance(error, UdfDefinitionError)
        sys.exit(fail(error.reason, for_command_line(error.message), error.facts, code=USAGE if is_usage else FAILED))
    except (BrokenPipeError, OutputFailed) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still in its buffer goes there
        if isinstance(error, OutputFailed):
            note(str(error))
        sys.exit(FAILED)
    except Exception as error:
        if os.environ.get("LEMAN_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}. LEMAN_DEBUG=1 shows the traceback."
        sys.exit(fail("INTERNAL_BUG", what, {}, code=FAILED))
