"""Bytecode for tests where Python is set to write none (PYTHONDONTWRITEBYTECODE), as in many images.

Without it, each of the hundreds of processes of the suite would compile all that it imports, which takes one to three
seconds of a processor, and pytest would rewrite each test module in each of its processes. The bytecode lies among the
environment's packages. What tests write and import is compiled each time, as it changes within a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "leman-test-bytecode"
_ROOT = Path(__file__).resolve().parent.parent
_FOLDER, _NONE = "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"
#: With these all is imported that services, workers, the command line and tests need.
_MODULES = (
    *("leman_coordinator.app", "leman_local.__main__", "leman_executor.app", "leman_planner.app"),
    *(
        "leman_local.warm_process",
        "leman_executor.jobs.preview_process",
        "leman_executor.spark.daemon",
        "leman_executor.spark.early_jvm",
    ),
    *(
        "leman_executor.spark.spark_runner",
        "leman_executor.worker.function_pool",
        "leman_executor.worker.worker_loop",
    ),
    *("leman.cli", "leman.functions", "leman.local", "conformance.__main__", "conformance.soak"),
    *("examples.demo.main", "examples.polyglot.main", "pandas", "lance", "pyarrow.flight", "hypothesis.stateful"),
    *("pytest", "xdist.remote", "pytest_timeout", "IPython"),
)
_IMPORT = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(Exception):
        importlib.import_module(name)
"""


def write_while_collecting() -> None:
    """Have this process keep the bytecode of what it imports until `stop_writing` is called."""
    if os.environ.get(_NONE) and os.environ.get(_FOLDER, str(FOLDER)) == str(FOLDER):
        sys.pycache_prefix, sys.dont_write_bytecode = str(FOLDER), False


def stop_writing() -> None:
    """End what `write_while_collecting` began."""
    if os.environ.get(_NONE):
        sys.dont_write_bytecode = True


def use(*, renew: bool) -> None:
    """Have all processes that this one starts use it; `renew`: after what is missing there was compiled."""
    if not os.environ.get(_NONE) or os.environ.get(_FOLDER):
        return
    kept = {name: value for name, value in os.environ.items() if name != _NONE and not name.startswith("LEMAN_")}
    if renew:
        paths = (str(_ROOT), str(_ROOT / "clients" / "python"))
        subprocess.run(
            [sys.executable, "-c", _IMPORT, *_MODULES],
            cwd=_ROOT,
            env=kept | {_FOLDER: str(FOLDER), "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    if FOLDER.is_dir():
        os.environ[_FOLDER] = str(FOLDER)
