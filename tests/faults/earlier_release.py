"""The services of an earlier release, from the history of this repository."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

from tests.conftest import ROOT

#: Commit or tag of the release; its packages are those of this environment.
REVISION = os.environ.get("LEMAN_EARLIER", "")


def unpacked(folder: Path) -> Path:
    """Unpack the earlier release; the folder is one to start its services in.

    Raises:
        CalledProcessError: git does not know the revision.
    """
    tree, archive = folder / "earlier", folder / "earlier.tar"
    subprocess.run(["git", "archive", f"--output={archive}", REVISION], cwd=ROOT, check=True)
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    return tree
