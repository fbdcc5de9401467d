"""A call that loses its connection again and again while it runs is not retried for ever: it may end the service."""

import grpc
import pytest

from leman._patience import Patience
from leman._patient_channel import PatientChannel

METHOD = "/leman.v1.CatalogService/DescribeTable"


class Failure(grpc.RpcError):
    """What gRPC raises where a service cannot be used."""

    def __init__(self, details):
        super().__init__(details)
        self._details = details

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return self._details


class Explained(Exception):
    """The error that the caller gets."""


class Services:
    """Connections to services that answer nothing; each call fails with the next of some details."""

    def __init__(self, details):
        self.details = list(details)
        self.calls = 0

    def channel(self, service, *, reads=False):
        return self

    def unary_unary(self, method, *codecs, **options):
        def send(request, **kinds):
            self.calls += 1
            if self.details:
                raise Failure(self.details.pop(0))
            return "answer"

        return send

    def metadata(self):
        return ()

    def patient(self):
        return Patience(60)

    def wait_or_raise(self, service, error, patience, *, repeatable=False):
        pass

    def explain(self, service, error):
        return Explained(error.details())


def call(services):
    return PatientChannel(services, "tables", 1.0).unary_unary(METHOD)("request")


def test_the_second_loss_of_a_connection_ends_the_call():
    services = Services(["Socket closed", "recvmsg:Connection reset by peer", "Socket closed"])
    with pytest.raises(Explained, match="reset by peer"):
        call(services)
    assert services.calls == 2


def test_a_service_that_is_away_is_waited_for():
    away = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"
    services = Services([away, "Socket closed", away, away])
    assert call(services) == "answer"
    assert services.calls == 5
