"""Remote functions on a worker: which answers count as values, and which as errors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from leman_core.functions import function_servers
from leman_core.model.service_errors import FailedPrecondition
from leman_executor.worker import user_errors
from leman_executor.worker.evaluator import Evaluator, JobFailing
from leman_executor.worker.user_errors import BatchTooLarge, FunctionLost, NoServer, ServerError
from tests.unit.executor.worker.remote_servers import (
    SKIP,
    Compressing,
    EndsLate,
    Server,
    Talkative,
    batch,
    evaluated,
    made,
    running,
)


def test_an_answer_that_is_none_of_the_protocol_is_nobody_s_row():
    class Vague(Server):
        def do_exchange(self, context, descriptor, reader, writer):
            told = {"leman.function": "twice", "leman.version": "1"}
            writer.begin(pa.schema([("value", pa.int64())], metadata=told))
            for _ in reader:
                writer.write_metadata(b"well")

    server = Vague()
    with running(server), made(server.address) as function, pytest.raises(FailedPrecondition) as caught:
        evaluated(function, 1, policy=ErrorPolicy((ErrorRule(ErrorAction.SKIP),)))
    assert caught.value.reason == "FUNCTION_PROTOCOL"


def test_an_error_of_the_function_is_the_server_s_and_the_next_batch_is_computed():
    server = Server()
    with running(server), made(server.address) as function:
        with pytest.raises(ServerError, match="below") as caught:
            function(batch(-1))
        assert function(batch(1)).to_pylist() == [2]
    assert user_errors.error_names(caught.value) == {
        *("my.pack.BadValue", "BadValue", "ValueError", "Exception", "BaseException")
    }
    failure = user_errors.to_row_failure(caught.value, 0, 5, 1)
    assert (failure.error_type, failure.error_message, failure.traceback) == ("my.pack.BadValue", "below", "line 7")


@pytest.mark.parametrize(("how", "values"), [("pieces", 2), ("error", 2)])
def test_no_row_gets_what_a_server_said_beyond_an_answer(how, values):
    """Each was a wrong value: what was left on the stream answered the next batch."""
    server = Talkative(how)
    with running(server), made(server.address) as function:
        for n in range(1, 4):
            with pytest.raises((NoServer, ServerError)):
                function(batch(*range(n, n + values)))


@pytest.mark.parametrize(
    "damaged",
    [
        pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")),
        pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\x32\0\0\0\1\0\0\0"), pa.py_buffer(b"ab")),
    ],
    ids=["no UTF-8", "offsets out of bounds"],
)
def test_values_that_would_damage_the_table_are_an_error_of_their_rows(damaged):
    evaluate = Evaluator(lambda rows: damaged, UdfKind.RECORD_BATCH, "f", pa.string(), ("x",), ErrorPolicy())
    with pytest.raises(JobFailing, match="failed with type error"):
        evaluate(0, np.arange(2, dtype=np.int64), batch(1, 2))


def test_a_server_that_answers_twice_is_found_out_before_its_values_count():
    server = Talkative("twice")
    with running(server), made(server.address) as function:
        function(batch(1, 2))
        with pytest.raises(FailedPrecondition) as caught:
            function.finish()
        assert (caught.value.reason, function.is_doubted) == ("FUNCTION_PROTOCOL", True)


def test_an_answer_that_is_too_large_is_not_read_and_comes_in_parts(monkeypatch):
    """Callers took any size that a server sent, and died of it."""
    options = [(name, 20_000 if "receive" in name else value) for name, value in function_servers._OPTIONS]
    monkeypatch.setattr(function_servers, "_OPTIONS", options)
    server = Server()
    with running(server):
        with made(server.address) as function, pytest.raises(FunctionLost, match="its answer has more than 256 MiB"):
            function(batch(*range(1000, 4000)))
        with made(server.address, policy=SKIP) as function:
            result = evaluated(function, *range(1000, 4000), policy=SKIP)
    assert result.values.to_pylist() == [2 * n for n in range(1000, 4000)]
    assert result.failures == ()


def test_a_batch_that_is_larger_than_servers_take_is_not_sent(monkeypatch):
    """It broke the connection again and again, as if the server had died of it."""
    monkeypatch.setattr(function_servers, "MOST_SENT_BYTES", 100)
    server, policy = Server(), ErrorPolicy((ErrorRule(ErrorAction.FAIL),))
    with running(server):
        with made(server.address) as function:
            with pytest.raises(BatchTooLarge, match=r"a batch of 20 rows has .* a smaller `batch_size`"):
                function(batch(*range(20)))
            with pytest.raises(JobFailing, match="a smaller `batch_size`"):
                evaluated(function, *range(20), policy=policy)
        assert server.batches == 0
        with made(server.address, policy=SKIP) as function:
            assert evaluated(function, *range(20), policy=SKIP).values.to_pylist() == [2 * n for n in range(20)]
            monkeypatch.setattr(function_servers, "MOST_SENT_BYTES", 7)
            failed = evaluated(function, 1, policy=SKIP).failures
    assert [failure.error_type for failure in failed] == ["BatchTooLarge"]
    assert "the inputs of this row have" in failed[0].error_message


def test_an_answer_that_is_large_once_it_is_decompressed_comes_in_parts_as_one_that_is_sent_so(monkeypatch):
    """It continued as values of any size."""
    monkeypatch.setattr(function_servers, "MOST_MESSAGE_BYTES", 1 << 20)
    server, rows = Compressing(), range(1 << 17, 2 << 17)
    with running(server):
        with made(server.address) as function, pytest.raises(FunctionLost, match="returned too many bytes for") as lost:
            function(batch(*rows, 1))
        assert "more than 1 MiB, decompressed. Give the function a smaller" in str(lost.value)
        with made(server.address, policy=SKIP) as function:
            result = evaluated(function, *rows, 1, policy=SKIP)
    assert result.values.equals(pa.array([0] * (len(rows) + 1), pa.int64()))
    assert result.failures == ()


def test_a_stream_that_is_ended_in_the_moment_of_its_answer_is_given_no_other_batch():
    """That one broke with it, and was held for one that breaks connections."""
    server = Server()
    with running(server), made(server.address) as function:
        at, stream = function._stream(1)
        assert at.call(stream, batch(1).rename_columns(["x"]), EndsLate(1.0)).to_pylist() == [2]
        at.give_back(stream)
        again, other = function._stream(1)
        assert other is not stream
        again.give_back(other)
        assert function(batch(2)).to_pylist() == [4]
    assert (server.streams, server.batches) == (2, 2)
