"""Write what the descriptors of leman.v1 say: `python scripts/apidocs DESCRIPTORS FOLDER`.

`openapi.json`, `reference.md` and `service_config.json` are made in the folder. Run by scripts/protogen, with the
compiler's own protobuf.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import contract
import openapi
import reference
import service_config


def main(descriptors: str, folder: str) -> None:
    """Write all of them."""
    found = contract.read(Path(descriptors))
    document = json.dumps(openapi.document(found), indent=1, ensure_ascii=False)
    Path(folder, "openapi.json").write_text(document + "\n")
    Path(folder, "reference.md").write_text(reference.page(found))
    again = service_config.config(Path(descriptors))
    Path(folder, "service_config.json").write_text(json.dumps(again, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
