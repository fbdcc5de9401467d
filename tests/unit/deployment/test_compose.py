"""docker-compose.yml: what it sets are settings, and each of its services starts with them and reaches the others."""

from __future__ import annotations

import asyncio
import os
import re

import pytest
from cryptography import x509

from core import config
from core.config import Server
from core.errors import InvalidArgument
from core.release import version
from core.rpc.exposure import check_bind
from core.rpc.healthcheck import check
from executor.spark import address
from executor.spark.address import callback_address, is_local
from tests.certificates import Authority
from tests.compose_file import CHOSEN, ON_SPARK, SERVICES, TOKEN, environment, filled_in
from tests.conftest import ROOT
from tests.unit.core.rpc_helpers import running

OURS = ("planner", "commit-coordinator", "executor")


def settings_of(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> config.Settings:
    for name in [name for name in os.environ if name.startswith(config.PREFIX)]:
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return config.load()


def port(service: str, inside: int) -> str:
    """Where a caller on the host finds a port of a container."""
    (published,) = [p for p in SERVICES[service]["ports"] if p.endswith(f":{inside}")]
    host, outside, _ = published.split(":")
    assert host == "127.0.0.1", "nothing is published to other machines without TLS"
    return f"localhost:{outside}"


@pytest.mark.parametrize("environ", [CHOSEN, ON_SPARK], ids=["alone", "spark"])
@pytest.mark.parametrize("service", OURS)
def test_each_service_starts_with_what_it_is_given(monkeypatch, service, environ):
    given = environment(service, environ)
    assert all(name.startswith(config.PREFIX) for name in given)
    settings = settings_of(monkeypatch, given)
    set_ = {info.env for info in config.describe(settings) if info.origin == "env"}
    assert set_ == set(given), "each of them is a setting and counts"
    check_bind(settings)
    assert settings.server.token.get_secret_value() == settings.peers.token.get_secret_value() == TOKEN
    assert settings.redis.url.get_secret_value() == "redis://:pa55word@redis:6379/0"
    assert environment("redis", environ)["REDISCLI_AUTH"] == "pa55word"


@pytest.mark.parametrize("service", OURS)
def test_a_setting_that_there_is_not_would_be_found(monkeypatch, service):
    with pytest.raises(InvalidArgument, match="LEMAN_SPARK__DRIVER_HOTS"):
        settings_of(monkeypatch, environment(service) | {"LEMAN_SPARK__DRIVER_HOTS": "executor"})


def test_without_its_own_guard_a_service_would_not_start(monkeypatch):
    """It is bound to all addresses: only a token, and saying so, lets it."""
    given = environment("executor")
    with pytest.raises(InvalidArgument) as weak:
        check_bind(settings_of(monkeypatch, environment("executor", CHOSEN | {"LEMAN_TOKEN": "guessme"})))
    assert weak.value.reason == "WEAK_TOKEN"
    for left_out, reason in (("TOKEN", "ANONYMOUS_BIND"), ("ALLOW_INSECURE_BIND", "INSECURE_BIND")):
        fewer = {name: value for name, value in given.items() if name != f"LEMAN_SERVER__{left_out}"}
        with pytest.raises(InvalidArgument) as refused:
            check_bind(settings_of(monkeypatch, fewer))
        assert refused.value.reason == reason


@pytest.mark.parametrize("missing", CHOSEN)
def test_what_has_to_be_chosen_is_asked_for(missing):
    with pytest.raises(LookupError, match=missing):
        environment("executor", {name: value for name, value in CHOSEN.items() if name != missing})


def test_json_over_http_is_the_executors_and_published_to_this_machine_alone(monkeypatch):
    ports = {service: settings_of(monkeypatch, environment(service)).server.http_port for service in OURS}
    assert ports == {"planner": -1, "commit-coordinator": -1, "executor": 7480}
    assert port("executor", 7480) == "localhost:7480"
    assert f"http://{port('executor', 7480)}" in text()


@pytest.mark.parametrize("service", OURS)
def test_services_find_one_another_and_callers_find_them(monkeypatch, service):
    settings = settings_of(monkeypatch, environment(service))
    for peer in OURS:
        name = peer.replace("-", "_")
        assert getattr(settings.peers, name) == f"{peer}:{settings.server.port}"
        assert getattr(settings.advertise, name) == port(peer, settings.server.port)
    assert SERVICES[service]["command"] == ["python", "-m", service.replace("-", "_")]
    assert SERVICES[service]["healthcheck"]["test"][-1] == f"localhost:{settings.server.port}"


def test_health_is_asked_for_by_a_name_of_the_certificate_that_the_head_advises(tmp_path):
    head = text().replace("\n# ", " ")
    names = re.findall(r"[a-z-]+", re.search(r"The certificate names (.*?), which the health checks call", head)[1])
    names.remove("and")
    assert sorted(names) == sorted([*OURS, "localhost"])
    authority = Authority(tmp_path)
    files = authority.issue("server", *map(x509.DNSName, names))

    async def scenario() -> None:
        async with running(Server(tls_cert=files.cert, tls_key=files.key, token=TOKEN)) as (up, _):
            for service in OURS:
                host, _, _ = SERVICES[service]["healthcheck"]["test"][-1].rpartition(":")
                said = await asyncio.to_thread(check, f"{host}:{up.port}", tls=(authority.ca, "", ""))
                assert said == "", service

    asyncio.run(scenario())


def test_by_itself_the_executor_works_on_its_own_cores(monkeypatch):
    assert is_local(settings_of(monkeypatch, environment("executor")).spark)


@pytest.mark.parametrize("resolves", [True, False], ids=["its own address", "another one"])
def test_with_the_profile_spark_workers_are_told_the_executors_name(monkeypatch, resolves):
    """A name that all containers of the network resolve; the executor listens on whatever it stands for."""
    settings = settings_of(monkeypatch, environment("executor", ON_SPARK))
    monkeypatch.setattr(address, "_is_ours", lambda host: resolves and host == "executor")
    found = callback_address(settings.spark)
    assert (found.host, found.bind) == ("executor", "executor" if resolves else "0.0.0.0")
    ports = (found.driver_port, found.block_port, found.dispatcher_port)
    assert ports == (7100, 7101, 7102)
    assert settings.server.port not in ports
    assert found.host in SERVICES


def test_the_master_that_is_advised_is_the_one_of_the_profile(monkeypatch):
    (advised,) = re.findall(r"^#\s+LEMAN_SPARK_MASTER=(\S+) docker compose --profile spark up$", text(), re.MULTILINE)
    assert advised == ON_SPARK["LEMAN_SPARK_MASTER"]
    assert settings_of(monkeypatch, environment("executor", ON_SPARK)).spark.master == advised
    master, worker = SERVICES["spark-master"], SERVICES["spark-worker"]
    host, spark_port = advised.removeprefix("spark://").split(":")
    assert master["hostname"] == host == "spark-master"
    started = filled_in(master["command"][-1], {})
    assert f"org.apache.spark.deploy.master.Master --host {host} --port {spark_port} --webui-port 8080" in started
    assert master["healthcheck"]["test"][-1].count("http://localhost:8080") == 1
    assert port("spark-master", 8080) == "localhost:8080"
    assert filled_in(worker["command"][-1], {}).endswith(f" {advised}")
    assert [service["profiles"] for service in (master, worker)] == [["spark"]] * 2


def test_workers_have_the_executors_python_and_data_and_none_of_its_secrets(monkeypatch):
    executor, worker = SERVICES["executor"], SERVICES["spark-worker"]
    assert worker["image"] == executor["image"]
    assert worker["volumes"] == executor["volumes"]
    assert "environment" not in worker
    assert "environment" not in SERVICES["spark-master"]
    settings = settings_of(monkeypatch, environment("executor", ON_SPARK))
    assert settings.spark.python == "", "the interpreter's path is the image's"


def test_the_image_is_that_of_this_release():
    assert filled_in(SERVICES["planner"]["image"], {}) == f"leman:{version()}"


def text() -> str:
    return (ROOT / "docker-compose.yml").read_text()
