"""The other side of `flight`: `pyarrow.flight`'s own server over Lance tables in a folder, as a program of its own.

`python -m benchmarks.flight_side FOLDER` prints its port. A ticket, and the path of a descriptor, is the name of a
table; the rows of `MEMORY` are held, and what is put there is thrown away.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.flight as fl

MEMORY = "memory"
#: Rows of a message: so that it has about 2 MiB, with which this server is fastest, too.
BATCH_ROWS = 1 << 14


class Server(fl.FlightServerBase):
    """Reads and writes tables; asks no one who they are, and checks nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._folder = folder
        self._held: pa.Table | None = None

    def do_get(self, _context: Any, ticket: fl.Ticket) -> fl.FlightDataStream:
        if ticket.ticket.decode() != MEMORY:
            scanner = lance.dataset(self._folder / f"{ticket.ticket.decode()}.lance").scanner(
                batch_size=BATCH_ROWS, scan_in_order=True
            )
            return fl.RecordBatchStream(scanner.to_reader())
        if self._held is None:
            self._held = lance.dataset(self._folder / "t.lance").to_table()
        batches = self._held.to_batches(max_chunksize=BATCH_ROWS)
        return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(self._held.schema, batches))

    def do_put(
        self, _context: Any, descriptor: fl.FlightDescriptor, reader: Any, _writer: fl.FlightMetadataWriter
    ) -> None:
        name = descriptor.path[0].decode()
        if name == MEMORY:
            for _ in reader:
                pass
        else:
            coming = pa.RecordBatchReader.from_batches(reader.schema, _aligned(reader))
            lance.write_dataset(coming, self._folder / f"{name}.lance")


def _aligned(reader: Any) -> Iterator[pa.RecordBatch]:
    """Batches as Lance takes them: of buffers that begin where a gRPC message has them it panics."""
    for chunk in reader:
        yield pa.ipc.read_record_batch(chunk.data.serialize(), reader.schema)


def main() -> None:
    server = Server(Path(sys.argv[1]))
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
