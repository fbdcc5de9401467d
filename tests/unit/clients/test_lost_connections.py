"""A call that loses its connection again and again while it runs is not retried for ever: it may end the service."""

import types

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

import leman
from leman import _maintenance
from leman._functions.registration import upload_bundle
from leman._wire import row_transfer
from leman._wire.channel import Endpoints, Services
from leman.v1 import catalog_pb2, tables_pb2, udf_pb2

AWAY = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"


class Failure(grpc.RpcError):
    """What gRPC raises where a service cannot be used."""

    def __init__(self, details, reason=""):
        super().__init__(details)
        self._details = details
        self._trailers = ()
        if reason:
            packed = any_pb2.Any()
            packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="leman"))
            status = status_pb2.Status(code=self.code().value[0], message=details, details=[packed])
            self._trailers = (("grpc-status-details-bin", status.SerializeToString()),)

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._trailers


class Moving:
    """A locator that finds the services at another port each time, so that nothing waits."""

    def __init__(self):
        self.port = 0

    def check(self, *, reads):
        return None

    def locate_first(self):
        return self.locate()

    def locate(self):
        self.port += 1
        return Endpoints(*[f"127.0.0.1:{self.port}"] * 3)


class Failing(Services):
    """Services of which each call fails with the next of some details, and then answers."""

    def __init__(self, *failures):
        super().__init__(Moving())
        self.failures = list(failures)
        self.calls = 0

    def channel(self, service, *, reads=False):
        self.begin()

        def one(request, **_):
            self.calls += 1
            if self.failures:
                failure = self.failures.pop(0)
                raise failure if isinstance(failure, Failure) else Failure(failure)
            return "answer"

        def many(request, **_):
            yield one(request)

        def streaming(requests, **_):
            list(requests)
            return one(None)

        ways = {
            "unary_unary": one,
            "unary_stream": lambda request, **_: Cancellable(many(request)),
            "stream_unary": streaming,
        }
        return types.SimpleNamespace(**{kind: lambda *_, way=way, **__: way for kind, way in ways.items()})


class Cancellable:
    def __init__(self, answers):
        self._answers = answers

    def __iter__(self):
        return self._answers

    def __next__(self):
        return next(self._answers)

    def cancel(self):
        pass


WAYS = {
    "a call that answers once": lambda services: services.catalog.DescribeTable(catalog_pb2.DescribeTableRequest()),
    "a read": lambda services: row_transfer.RowStream(services, tables_pb2.ReadRowsRequest()),
    "an upload": lambda services: upload_bundle(services, "lake", udf_pb2.PythonBundle(), b"code"),
    "a verification": lambda services: _maintenance.verify(services, "lake", "", None),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "lost",
    [
        Failure("Socket closed"),
        Failure("the planner cannot be reached, or went away: recvmsg:Connection reset by peer", "PEER_UNAVAILABLE"),
        Failure("upstream connect error or disconnect/reset before headers. reset reason: connection termination"),
    ],
    ids=["service", "front", "proxy"],
)
def test_the_second_loss_of_a_connection_ends_the_call(way, lost):
    services = Failing(*[lost] * 20)
    with pytest.raises(leman.errors.Unavailable, match=r"went away|ended during the call|connection termination"):
        way(services)
    assert services.calls == 2


def test_a_service_that_is_away_is_waited_for():
    services = Failing(AWAY, "Socket closed", AWAY, AWAY)
    assert services.catalog.DescribeTable(catalog_pb2.DescribeTableRequest()) == "answer"
    assert services.calls == 5
