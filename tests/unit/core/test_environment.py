"""What processes inherit of an environment, and what others of their user see of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leman_core.process import environment
from tests.capabilities import unprivileged

PLAIN = [
    "PATH",
    "HOME",
    "LC_ALL",
    "TZ",
    "PYTHONPATH",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "HF_HOME",
    "https_proxy",
]
PLAIN += ["SSL_CERT_FILE", "TOKENIZERS_PARALLELISM", "LANCE_LOG", "LEMAN_CRASH"]
STORES = ["AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"]
OF_SPARK = ["SPARK_HOME", "JAVA_HOME", "HADOOP_CONF_DIR", "PYSPARK_PYTHON"]
OTHERS = [
    "OPENAI_API_KEY",
    "HF_TOKEN",
    "GOOGLE_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "PGPASSWORD",
    "MY_PATH",
    "PYTHON_API_KEY",
]
#: Of Leman and of Spark's Python processes alone, independent of what is passed.
OWN = ["LEMAN_REDIS__URL", "leman_server__token", "PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET"]
OWN += ["_LEMAN_WARM_PROCESS", environment.PASSED, environment.CORE_DUMPS]
EVERYTHING = dict.fromkeys([*PLAIN, *STORES, *OF_SPARK, *OTHERS, *OWN], "x")


@pytest.mark.parametrize(
    ("passed", "more"),
    [
        ((), []),
        (("OPENAI_*", "MODEL"), ["OPENAI_API_KEY"]),
        (("LEMAN_*", "PYTHON_*"), ["PYTHON_API_KEY"]),
        (("*",), [*OF_SPARK, *OTHERS]),
    ],
)
def test_functions_have_what_their_processes_need_and_what_is_passed(passed, more):
    assert set(environment.for_functions(EVERYTHING, passed)) == {*PLAIN, *STORES, *more}


def test_spark_has_what_it_needs_beside_what_functions_have():
    found = set(environment.for_spark(EVERYTHING, ("MODEL", "PGPASSWORD")))
    assert found >= {*PLAIN, *STORES, *OF_SPARK, "PGPASSWORD", "_LEMAN_WARM_PROCESS"}
    assert not found & {"OPENAI_API_KEY", "HF_TOKEN", "LEMAN_REDIS__URL", "leman_server__token"}


def test_no_secret_is_shown_from_the_first_moment_on():
    shown, rest = environment.split({**EVERYTHING, "PGPASSWORD": "a=b\n"})
    assert set(shown) == set(PLAIN)
    assert b"PGPASSWORD=a=b\n" in rest.split(b"\0")


_GUARDED = """
import ctypes, os, sys
from leman_core.process import environment
from tests.capabilities import unprivileged
environment.guard()
lib = ctypes.CDLL(None)
lib.getenv.restype = ctypes.c_char_p
print(os.environ["THE_KEY"], lib.getenv(b"THE_KEY").decode(), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("dumped", [False, True])
def test_a_guarded_process_keeps_its_variables_and_shows_them_to_nobody(dumped):
    """Nor its memory, unless it may be dumped. Root may look everywhere, so neither has its rights."""
    given = {**os.environ, "THE_KEY": "s3cret", **({environment.CORE_DUMPS: "1"} if dumped else {})}
    command, pipes = [sys.executable, "-c", _GUARDED], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with unprivileged(subprocess.Popen, command, env=given, cwd=Path.cwd(), text=True, **pipes) as process:
        assert process.stdout.readline() == "s3cret s3cret\n"
        assert b"s3cret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
        for file in ("environ", "mem", "maps"):
            assert unprivileged(is_open, Path(f"/proc/{process.pid}/{file}")) == dumped
        process.stdin.close()


def is_open(file: Path) -> bool:
    try:
        file.open("rb").close()
    except PermissionError:
        return False
    return True
