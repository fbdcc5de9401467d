"""What the pool of function processes hears from its connections."""

from __future__ import annotations

import os
import socket

from executor.worker.processes.pool import Pool


def test_what_a_closed_connection_said_is_not_taken_for_one_that_has_its_number_now():
    """It would have been the end of a caller that has only just come, and with it of all workers of the daemon."""
    told: list[str] = []
    (first, said), (second, also_said), (spare, other) = (socket.socketpair() for _ in range(3))
    pool = Pool(first, lambda *_: 0, lambda _: None, ())
    pool._spare = 0

    def replace_the_second() -> None:
        number = second.fileno()
        pool._close(second)
        os.dup2(spare.fileno(), number)
        pool._on(socket.socket(fileno=number), lambda: told.append("the new one"))
        pool._over = True

    pool._on(first, replace_the_second)
    pool._on(second, lambda: told.append("the second"))
    said.send(b"x")
    also_said.send(b"x")
    pool._look_after(os.getppid())
    assert told == []
    for connection, _ in pool._actions.values():
        connection.close()
    for connection in (said, also_said, spare, other):
        connection.close()
