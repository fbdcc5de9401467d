"""Computes blobs, bytes that are read when asked for and not with the row, and a column from them.

Prints:
    b'<svg>3</svg>'
    [12, 13]
"""

import sys

import leman


@leman.udf(blob=True)
def drawing(x: int) -> bytes:
    return f"<svg>{x}</svg>".encode()


@leman.udf
def size(image: bytes) -> int:
    return len(image)


db = leman.connect(sys.argv[1])
table = db.create_table("drawings", {"x": [3, 14]}, mode="overwrite")
table.add_columns({"image": drawing})
table.backfill("image")
table.add_columns({"bytes": size})
table.backfill("bytes")
for blob in table.to_lance().take_blobs("image", indices=[0]):
    print(blob.read() if blob else None)
print(table.to_arrow(["bytes"])["bytes"].to_pylist())
