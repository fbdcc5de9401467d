"""Messages with file descriptors."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from leman_local import fd_messages


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_message_arrives_with_its_descriptors(pair):
    ours, theirs = pair
    read, write = os.pipe()
    fd_messages.send(ours, {"command": ["planner"]}, [write])
    os.close(write)
    document, descriptors = fd_messages.receive(theirs)
    assert document == {"command": ["planner"]}
    os.write(descriptors[0], b"said")
    fd_messages.close(descriptors)
    assert os.read(read, 10) == b"said"
    os.close(read)


def test_a_message_may_be_larger_than_what_a_socket_holds(pair):
    ours, theirs = pair
    read, write = os.pipe()
    environment = {f"VARIABLE_{n}": "x" * 1000 for n in range(1000)}
    sending = threading.Thread(target=fd_messages.send, args=(ours, environment, [write]))
    sending.start()
    document, descriptors = fd_messages.receive(theirs)
    sending.join()
    assert document == environment
    fd_messages.close([read, write, *descriptors])


def test_messages_do_not_run_into_each_other(pair):
    ours, theirs = pair
    fd_messages.send(ours, {"n": 1})
    fd_messages.send(ours, {"n": 2})
    assert [fd_messages.receive(theirs)[0]["n"] for _ in range(2)] == [1, 2]


def test_the_end_of_the_other_side_is_no_message(pair):
    ours, theirs = pair
    ours.sendall(fd_messages.encoded({"n": 1})[:-1])
    ours.close()
    assert fd_messages.receive(theirs) is None
