"""What a function prints in a preview: it goes to whoever asked, and no further. Imports no gRPC and no Spark."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from leman_executor.worker.preview_messages import Printed

#: Of what is printed so much is kept; the rest is read and dropped, so that printing never blocks the function.
KEPT_BYTES = 16 << 10
#: Programs that the function started may hold the pipe open: nobody waits for these.
_END_SECONDS = 0.5
_PIECE = 1 << 16


@contextlib.contextmanager
def captured(tell: Callable[[Printed], None]) -> Iterator[None]:
    """Have what this process prints in this block told; its standard descriptors lead nowhere afterwards."""
    source, sink = os.pipe()
    reader = threading.Thread(target=_tell_all, args=(source, tell), name="prints", daemon=True)
    for fd in (1, 2):
        os.dup2(sink, fd)
    os.close(sink)
    reader.start()
    try:
        yield
    finally:
        null = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):
            os.dup2(null, fd)
        os.close(null)
        reader.join(_END_SECONDS)


def _tell_all(source: int, tell: Callable[[Printed], None]) -> None:
    total = 0
    with contextlib.suppress(OSError):  # nobody listens any more
        while piece := os.read(source, _PIECE):
            kept = piece[: max(0, KEPT_BYTES - total)]
            total += len(piece)
            tell(Printed(kept.decode(errors="replace"), total))
    with contextlib.suppress(OSError):
        os.close(source)
