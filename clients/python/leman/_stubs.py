"""The generated stubs of all services, as callers get them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import grpc

from leman._channel import Services
from leman._tracebacks import boundary
from leman.errors import LemanError
from leman.v1 import (
    catalog_pb2_grpc,
    commit_pb2_grpc,
    databases_pb2_grpc,
    info_pb2_grpc,
    jobs_pb2_grpc,
    planner_pb2_grpc,
    tables_pb2_grpc,
)

_SECONDS = 600.0  # that a call may take which names no time


class Answers:
    """The answers of a call that gives a stream of them. Iterating raises LemanError; leaving it early is said by
    `cancel`."""

    def __init__(self, call: Any, explain: Callable[[grpc.RpcError], LemanError]) -> None:
        self._call = call
        self._explain = explain

    def __iter__(self) -> Iterator[Any]:
        return self

    @boundary
    def __next__(self) -> Any:
        try:
            return next(self._call)
        except grpc.RpcError as error:
            raise self._explain(error) from None

    def cancel(self) -> None:
        """End the call; iterating over it then raises Cancelled."""
        self._call.cancel()


class Stubs:
    """A stub for each service, of the generated module `leman.v1`: every call of the API, as the protos have it.

    Calls go to where the services are and carry the token, as all calls of this client. One that answers once is made
    again while its service is away; one with a stream is made once. All of them take `timeout`, seconds, and raise
    LemanError.
    """

    def __init__(self, services: Services) -> None:
        planner, executor, coordinator = (
            cast("grpc.Channel", _Channel(services, name)) for name in ("planner", "executor", "commit_coordinator")
        )
        self.catalog = catalog_pb2_grpc.CatalogServiceStub(planner)
        self.databases = databases_pb2_grpc.DatabaseServiceStub(planner)
        self.info = info_pb2_grpc.InfoServiceStub(planner)
        self.planner = planner_pb2_grpc.PlannerServiceStub(planner)
        self.jobs = jobs_pb2_grpc.JobServiceStub(executor)
        self.commits = commit_pb2_grpc.CommitServiceStub(coordinator)
        self.tables = tables_pb2_grpc.TableServiceStub(coordinator)


class _Channel:
    """Has as much of a `grpc.Channel` as a generated stub needs; raises LemanError for streams, too."""

    def __init__(self, services: Services, service: str) -> None:
        self._services = services
        self._service = service
        self._calls = services.patient_channel(service, _SECONDS)

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Make a method of a stub."""
        return boundary(self._calls.unary_unary(method, *codecs, **options))

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Make a method of a stub that is sent a stream."""
        send = self._calls.stream_unary(method, *codecs, **options)

        def call(requests: Iterable[Any], timeout: float | None = None) -> Any:
            try:
                return send(iter(requests), timeout=timeout)
            except grpc.RpcError as error:
                raise self._explain(error) from None

        return boundary(call)

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Make a method of a stub that answers with a stream."""
        send = self._calls.unary_stream(method, *codecs, **options)

        def call(request: Any, timeout: float | None = None) -> Answers:
            return Answers(send(request, timeout=timeout), self._explain)

        return boundary(call)

    def _explain(self, error: grpc.RpcError) -> LemanError:
        return self._services.explain(self._service, error)
