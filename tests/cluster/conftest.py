"""One cluster for all tests here; where hosts of their own cannot be had they are skipped, and one line says why.

What its hosts have printed stands in the report of a test that fails, as their files go with the cluster.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from benchmarks.delaying_proxy import DelayingProxy
from tests.cluster.cluster import STORE, STORE_PORT, Cluster, running
from tests.cluster.network import why_not
from tests.object_store.store_server import Program, serving

_SHOWN_LINES = 200


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the hosts' logs to the report of a test that failed."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        for host in cluster.hosts.values():
            for name, said in host.all_said().items():
                report.sections.append((f"{host.name}: {name}", "\n".join(said.splitlines()[-_SHOWN_LINES:])))
    return report


@pytest.fixture(scope="session")
def can_have_hosts() -> None:
    """Skip where hosts with addresses of their own cannot be made."""
    missing = why_not()
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="package")
def cluster(can_have_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All services on hosts of their own, and a Spark cluster of two."""
    with running(tmp_path_factory.mktemp("cluster")) as all_of_it:
        yield all_of_it


@pytest.fixture(scope="module")
def store(
    cluster: Cluster, store_program: Program, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DelayingProxy]:
    """An object store, and the proxy by which all hosts of the cluster reach it: on a host of its own."""
    with serving(store_program, tmp_path_factory.mktemp("store") / "objects") as server:
        listener = cluster.hosts[STORE].listen(STORE_PORT)
        with DelayingProxy(server.port, listener=listener) as proxy:
            yield proxy
