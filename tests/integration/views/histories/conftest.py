import logging
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import structlog

from tests.integration.views.histories.harness import System

_MEMORY = Path("/dev/shm")  # fsync is not what is tested here


@pytest.fixture(scope="module")
def views_system():
    system = System()
    yield system
    system.close()


@pytest.fixture
def quick_folder():
    folder = Path(tempfile.mkdtemp(prefix="leman-views-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def few_words():
    """Thousands of refreshes say what they do, each of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()
