"""The store's settings of the services: the file of `LEMAN_STORAGE__OPTIONS_FILE`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.delaying_proxy import Harm
from tests.object_store.store_server import BUCKET, KEY_ID, SECRET

#: A store that is far: 50 ms for a request; 5 of 100 are refused, 2 lose their answer; what is read comes at 4 MiB/s.
FAR = Harm(refused=0.05, lost=0.02, bytes_per_second=4 << 20)
FAR_SECONDS = 0.05
#: Environment variable with the id of the key.
KEY_VARIABLE = "LAKE_KEY_ID"
#: Folder of the bucket whose tables have their checkpoints in another one.
APART, CHECKPOINTS = "apart", "checkpoints-of-apart"


def options_file(folder: Path, port: int, *, host: str = "127.0.0.1", seen_as: Path | None = None) -> dict[str, str]:
    """Write it, and return the environment that it needs. The secret is in a file of its own.

    Args:
        seen_as: where services find the folder; by itself it is where it is.
    """
    seen = seen_as or folder
    secret = folder / "lake.secret"
    secret.write_text(SECRET)
    file = folder / "storage.toml"
    reached = f"""endpoint = "http://{host}:{port}"
allow_http = true
access_key_id = {{ env = "{KEY_VARIABLE}" }}
secret_access_key = {{ file = "{seen / secret.name}" }}
"""
    file.write_text(
        f"""[[store]]
root = "s3://{BUCKET}"
{reached}
[[store]]
root = "s3://{BUCKET}/{APART}"
checkpoint_uri = "s3://{BUCKET}/{CHECKPOINTS}"
{reached}"""
    )
    return {"LEMAN_STORAGE__OPTIONS_FILE": str(seen / file.name), KEY_VARIABLE: KEY_ID}
