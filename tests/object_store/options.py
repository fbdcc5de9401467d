"""What services are told of the store: the file of `LEMAN_STORAGE__OPTIONS_FILE`."""

from __future__ import annotations

from pathlib import Path

from tests.object_store.store_server import BUCKET, KEY_ID, SECRET

#: Environment variable with the id of the key.
KEY_VARIABLE = "LAKE_KEY_ID"


def options_file(folder: Path, port: int) -> dict[str, str]:
    """Write it, and return the environment that it needs. The secret is in a file of its own."""
    secret = folder / "lake.secret"
    secret.write_text(SECRET)
    file = folder / "storage.toml"
    file.write_text(
        f"""[[store]]
root = "s3://{BUCKET}"
endpoint = "http://127.0.0.1:{port}"
allow_http = true
access_key_id = {{ env = "{KEY_VARIABLE}" }}
secret_access_key = {{ file = "{secret}" }}
"""
    )
    return {"LEMAN_STORAGE__OPTIONS_FILE": str(file), KEY_VARIABLE: KEY_ID}
