"""The program `leman`: the command line as a process, which begins and ends sooner than a Python does by itself.

Of a command that reads some tables, a tenth was garbage collection while modules are imported, which leave none, and a
fifth the end of Python, which takes down one by one what the system is about to free at once.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading

_ALLOCATIONS = 50_000
"""Objects after which garbage is looked for: many times what Python has, as most commands live for a moment."""


def main() -> None:
    """Run the command that the arguments name, and end this process."""
    gc.set_threshold(_ALLOCATIONS)
    from leman.cli import main as run  # noqa: PLC0415 - this is what takes time

    try:
        run()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _end(ended.code or 0)
        raise
    _end(0)


def _end(code: int) -> None:
    """End at once, where nothing is left that Python waits for; what is to be done at the end is done."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:  # Python tells it, and ends with a code of its own
        return
    os._exit(code)
