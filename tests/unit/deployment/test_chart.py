"""deploy/helm: what it renders is what Kubernetes takes, and its pods start with the settings that they are given."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pydantic import SecretStr

from leman_core import settings as config
from leman_core.process.release import MODULES, release_version
from leman_core.server.server import check_bind
from leman_executor.spark.spark_conf import callback_address
from tests.conftest import ROOT

CHART = ROOT / "deploy" / "helm" / "leman"
OBSERVABILITY = ROOT / "deploy" / "observability"
HELM = shutil.which("helm", path=f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
#: The oldest release that the chart says it is for and of which schemas are here, and the newest.
KUBERNETES = ("1.27", "1.37")
TOKEN = "BJ7wq1mXf0nUeS3cGk5TzR8v"
#: What secrets of the cluster hold.
SECRETS = {("leman-token", "token"): TOKEN, ("leman-redis", "url"): "rediss://:pa55word@redis.data:6379/0"}
LEAST = {"auth": {"existingSecret": "leman-token"}, "redis": {"existingSecret": "leman-redis"}}
LABELS = {"app": "prometheus"}
IN_THE_CLEAR = {**LEAST, "tls": {"allowInsecure": True}}
ALL = {
    **LEAST,
    "auth": {"existingSecret": "leman-token", "tokensFileSecret": "callers"},
    "tls": {"existingSecret": "leman-tls"},
    "image": {
        "repository": "registry.internal/leman",
        "servicesRepository": "registry.internal/leman-services",
        "tag": "0.1.0-3",
        "pullSecrets": ["pull"],
    },
    "extraVolumes": [{"name": "models", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    "storage": {
        "optionsSecret": "stores",
        "existingClaim": "lake",
        "databaseRoots": ["s3://lake", "/data"],
        "registry": "s3://lake/_names",
    },
    "envFromSecrets": ["aws", "lineage"],
    "advertise": {"planner": "p.example:443", "executor": "e.example:443", "commitCoordinator": "c.example:443"},
    "planner": {"replicas": 3, "env": {"LEMAN_SERVER__MAX_CALLS": "50"}, "nodeSelector": {"pool": "small"}},
    "executor": {"env": {"LEMAN_EXECUTOR__SLOTS": "8", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}},
    "commitCoordinator": {"replicas": 2, "tolerations": [{"key": "lake", "operator": "Exists"}]},
    "spark": {
        "master": "k8s://https://kubernetes.default.svc",
        "kubernetesRole": True,
        "conf": {"spark.kubernetes.container.image": "registry.internal/leman:0.1.0-3", "spark.executor.cores": "4"},
    },
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {
        "callers": [{"namespaceSelector": {}}],
        "monitoring": [{"podSelector": {"matchLabels": {"a": "b"}}}],
    },
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/lake"}},
}
FEW = {
    **IN_THE_CLEAR,
    "planner": {"replicas": 1},
    "executor": {"replicas": 1, "httpPort": 0},
    "spark": {"master": "spark://spark-master:7077", "callbackPort": 7200},
    "metrics": {"port": 0},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
}
VALUES: dict[str, Mapping[str, Any]] = {"in the clear": IN_THE_CLEAR, "all": ALL, "few": FEW}
WORKLOADS = {"planner": "planner", "executor": "executor", "commit-coordinator": "commit_coordinator"}

pytestmark = pytest.mark.skipif(HELM is None, reason="there is no helm for this machine on PyPI: put one on PATH")


def helm(*arguments: str, values: Mapping[str, Any], chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    command = [str(HELM), arguments[0], *arguments[1:], str(chart), "--values", "-"]
    return subprocess.run(command, input=yaml.safe_dump(dict(values)), capture_output=True, text=True, check=False)


@cache
def rendered(name: str) -> list[dict[str, Any]]:
    done = helm("template", "etl", "--namespace", "data", values=VALUES[name])
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def of_kind(name: str, kind: str) -> list[dict[str, Any]]:
    return [found for found in rendered(name) if found["kind"] == kind]


def pods(name: str) -> dict[str, dict[str, Any]]:
    """What pods are made from, by service."""
    made = [*of_kind(name, "Deployment"), *of_kind(name, "StatefulSet")]
    return {found["metadata"]["labels"]["app.kubernetes.io/component"]: found["spec"]["template"] for found in made}


def container(name: str, service: str) -> dict[str, Any]:
    (found,) = pods(name)[service]["spec"]["containers"]
    return dict(found)


def environment(name: str, service: str) -> dict[str, str]:
    """What a container gets, with secrets as they are in the cluster; of a variable of a pod its name."""
    given: dict[str, str] = {}
    for entry in container(name, service)["env"]:
        source = entry.get("valueFrom", {})
        if "secretKeyRef" in source:
            given[entry["name"]] = SECRETS[source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]]
        elif source:
            given[entry["name"]] = "leman-executor-0"
        else:
            given[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], entry["value"])
    return given


def settings_of(monkeypatch: pytest.MonkeyPatch, name: str, service: str, files: Path) -> config.Settings:
    """Settings as the service reads them; files that secrets are mounted as lie in `files`."""
    for variable in [variable for variable in os.environ if variable.startswith(config.PREFIX)]:
        monkeypatch.delenv(variable)
    for variable, value in environment(name, service).items():
        if value.startswith("/etc/leman/"):
            path = files / value.removeprefix("/etc/leman/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            value = str(path)  # noqa: PLW2901 - where it lies here
        if variable.startswith(config.PREFIX):
            monkeypatch.setenv(variable, value)
    return config.load()


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("release", KUBERNETES)
def test_kubernetes_takes_all_that_is_rendered(name, release):
    found = rendered(name)
    assert len({(one["kind"], one["metadata"]["name"]) for one in found}) == len(found)
    for manifest in found:
        if manifest["apiVersion"] != "monitoring.coreos.com/v1":  # the operator brings that schema
            kubernetes_validate.validate(manifest, release, strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_helm_finds_nothing_to_say(name):
    done = helm("lint", "--strict", values=VALUES[name])
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("service", WORKLOADS)
def test_each_service_starts_with_what_it_is_given(monkeypatch, tmp_path, name, service):
    settings = settings_of(monkeypatch, name, service, tmp_path)
    given = {variable for variable in environment(name, service) if variable.startswith(config.PREFIX)}
    assert {info.env for info in config.describe(settings) if info.origin == "env"} == given
    check_bind(settings)
    assert settings.server.token.get_secret_value() == settings.peers.token.get_secret_value() == TOKEN
    one = container(name, service)
    assert one["command"] == ["python", "-m", MODULES[WORKLOADS[service]]]
    ports = {port["name"]: port["containerPort"] for port in one["ports"]}
    assert ports.pop("grpc") == settings.server.port
    assert ports.pop("metrics", -1) == (settings.metrics.port if settings.metrics.port else -1)
    assert ports.pop("http", -1) == settings.server.http_port
    spark = [ports.pop(f"spark-{what}", 0) for what in ("driver", "blocks", "workers")]
    assert not ports
    if service == "executor" and settings.spark.master:
        told = callback_address(settings.spark)
        assert spark == [told.driver_port, told.block_port, told.dispatcher_port]
        assert told.host == f"leman-executor-0.{headless(name)['metadata']['name']}.data.svc"


def headless(name: str) -> dict[str, Any]:
    (found,) = [one for one in of_kind(name, "Service") if one["spec"].get("clusterIP") == "None"]
    (executor,) = of_kind(name, "StatefulSet")
    assert executor["spec"]["serviceName"] == found["metadata"]["name"]
    return found


@pytest.mark.parametrize("name", VALUES)
def test_services_find_one_another_and_select_the_right_pods(monkeypatch, tmp_path, name):
    services = {one["metadata"]["name"]: one for one in of_kind(name, "Service")}
    for service in WORKLOADS:
        settings = settings_of(monkeypatch, name, service, tmp_path)
        for peer in WORKLOADS:
            host, _, port = getattr(settings.peers, peer.replace("-", "_")).partition(":")
            labels = pods(name)[peer]["metadata"]["labels"]
            assert services[host]["spec"]["selector"].items() <= labels.items()
            assert int(port) in {one["port"] for one in services[host]["spec"]["ports"]}
    everything = [*pods(name).values()]
    for service in services.values():
        selected = [
            pod for pod in everything if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        ]
        assert len(selected) == 1
        names = {port["name"] for port in selected[0]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


@pytest.mark.parametrize("name", VALUES)
def test_pods_may_do_nothing_that_they_need_not(name):
    for pod in pods(name).values():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["runAsUser"] == 10001, "the user of the image"
        assert pod["spec"]["enableServiceLinks"] is False, "a service called leman would set LEMAN_… variables"
        (one,) = pod["spec"]["containers"]
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {mount["mountPath"] for mount in one["volumeMounts"] if not mount.get("readOnly")}
        assert writable <= {"/tmp", "/data"}
        assert {mount["name"] for mount in one["volumeMounts"]} == {v["name"] for v in pod["spec"]["volumes"]}
    assert "useradd --create-home --uid 10001 leman" in (ROOT / "Dockerfile").read_text()
    uses_api = {service: pod["spec"]["automountServiceAccountToken"] for service, pod in pods(name).items()}
    assert uses_api == {"planner": False, "executor": name == "all", "commit-coordinator": False}


@pytest.mark.parametrize("name", VALUES)
def test_no_secret_stands_in_what_is_rendered(name):
    text = yaml.safe_dump_all(rendered(name))
    assert not of_kind(name, "Secret")
    for variable in ("LEMAN_SERVER__TOKEN", "LEMAN_PEERS__TOKEN", "LEMAN_REDIS__URL"):
        for service in WORKLOADS:
            (entry,) = [one for one in container(name, service)["env"] if one["name"] == variable]
            assert "secretKeyRef" in entry["valueFrom"]
    assert TOKEN not in text


@pytest.mark.parametrize(("name", "probe"), [("in the clear", "grpc"), ("all", "exec")])
def test_health_is_asked_as_it_can_be_answered(name, probe):
    for service in WORKLOADS:
        one = container(name, service)
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert probe in one[kind]
            assert one[kind]["timeoutSeconds"] > 3, "as long as the check itself waits"
        if probe == "exec":
            assert one["readinessProbe"]["exec"]["command"][1:3] == ["-m", "leman_core.server.healthcheck"]
        grace = next(int(e["value"]) for e in one["env"] if e["name"] == "LEMAN_SERVER__GRACE_SECONDS")
        assert pods(name)[service]["spec"]["terminationGracePeriodSeconds"] > grace
        alive = one["livenessProbe"]
        assert alive["periodSeconds"] * alive["failureThreshold"] > grace, "a pod that stops is given its grace"


def test_a_commit_coordinator_knows_whether_it_is_alone():
    for name, replicas in (("in the clear", 1), ("few", 1), ("all", 2)):
        (found,) = [d for d in of_kind(name, "Deployment") if d["metadata"]["name"].endswith("commit-coordinator")]
        strategy = "Recreate" if replicas == 1 else "RollingUpdate"
        assert (found["spec"]["replicas"], found["spec"]["strategy"]["type"]) == (replicas, strategy)
        env = {one["name"]: one.get("value") for one in container(name, "commit-coordinator")["env"]}
        assert env.get("LEMAN_COMMIT__ALONE", "true") == ("true" if replicas == 1 else "false")


def test_merges_fit_the_memory_and_the_disk_that_the_chart_gives(monkeypatch, tmp_path):
    """docs/operations.md: 60 MB, and for each of as many merges as may run at once 120 MB and its rows."""
    commit = settings_of(monkeypatch, "in the clear", "commit-coordinator", tmp_path).commit
    values = yaml.safe_load((CHART / "values.yaml").read_text())["commitCoordinator"]
    gibibytes = re.compile(r"(\d+)Gi")
    memory, disk = (
        int(gibibytes.fullmatch(text)[1]) << 30 for text in (values["resources"]["limits"]["memory"], values["tmpSize"])
    )
    assert 60_000_000 + commit.max_uploads * (120_000_000 + commit.max_merge_bytes) < memory
    assert commit.max_uploads * commit.max_merge_bytes < disk


def test_a_second_commit_coordinator_comes_beside_one_that_knows_it():
    """The first step, with one replica, replaces its pod; the second one changes nothing of it."""
    alone = {"env": {"LEMAN_COMMIT__ALONE": "false"}}
    steps = []
    for replicas in (1, 2):
        done = helm("template", "etl", values={**IN_THE_CLEAR, "commitCoordinator": {"replicas": replicas, **alone}})
        assert done.returncode == 0, done.stderr
        found = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "Deployment"]
        (one,) = [one for one in found if one["metadata"]["name"].endswith("commit-coordinator")]
        steps.append(one["spec"])
    first, second = steps
    assert first["strategy"]["type"] == "Recreate"
    assert first["template"] == second["template"]
    told = [one["value"] for one in first["template"]["spec"]["containers"][0]["env"] if "ALONE" in one["name"]]
    assert told == ["false"]


@pytest.mark.parametrize("name", ["in the clear", "all"])
def test_disruptions_network_and_monitoring_are_about_these_pods(name):
    labels = {service: pod["metadata"]["labels"] for service, pod in pods(name).items()}
    for kind, selector in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        found = of_kind(name, kind)
        assert len(found) == len(WORKLOADS)
        for one in found:
            wanted = one["spec"][selector]["matchLabels"]
            assert [s for s in labels if wanted.items() <= labels[s].items()] == [wanted["app.kubernetes.io/component"]]
    for policy in of_kind(name, "NetworkPolicy"):
        service = policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        open_ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        known = {port["name"] for port in container(name, service)["ports"]}
        assert {port for port in open_ports if isinstance(port, str)} <= known
        assert all(rule["from"] for rule in policy["spec"]["ingress"]), "an empty list would let in everyone"
    for monitor in of_kind(name, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        watched = [
            service["metadata"]["labels"]["app.kubernetes.io/component"]
            for service in of_kind(name, "Service")
            if wanted.items() <= service["metadata"]["labels"].items()
            and any(port["name"] == "metrics" for port in service["spec"]["ports"])
        ]
        assert sorted(watched) == sorted(WORKLOADS), "each once"
    assert len(of_kind(name, "ServiceMonitor")) == (name == "all")


def job_of(monitor: dict[str, Any], service: dict[str, Any]) -> str:
    """The label `job` of what the monitor finds behind a service, as Prometheus's operator has Prometheus make it."""
    metadata = service["metadata"]
    told = {
        f"__meta_kubernetes_service_label_{re.sub(r'[^a-zA-Z0-9_]', '_', k)}": v for k, v in metadata["labels"].items()
    }
    told["job"] = metadata["labels"].get(monitor["spec"].get("jobLabel"), metadata["name"])
    (endpoint,) = monitor["spec"]["endpoints"]
    for rule in endpoint.get("relabelings", ()):
        assert rule.keys() == {"action", "sourceLabels", "targetLabel", "replacement"}, "rules that this knows"
        assert rule["action"] == "replace"
        told[rule["targetLabel"]] = rule["replacement"].replace("$1", ";".join(told[k] for k in rule["sourceLabels"]))
    assert "$" not in told["job"]
    return told["job"]


@pytest.mark.parametrize(
    ("release", "begin"),
    [("rel", "leman-rel"), ("leman", "leman"), ("leman-etl", "leman-etl"), ("my-leman", "leman-my-leman")],
)
def test_alerts_and_dashboard_find_the_services_whatever_the_release_is_called(release, begin):
    values = {**IN_THE_CLEAR, "metrics": {"serviceMonitor": {"enabled": True}}}
    done = helm("template", release, "--namespace", "data", values=values)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    (monitor,) = [one for one in found if one["kind"] == "ServiceMonitor"]
    jobs = [
        job_of(monitor, one)
        for one in found
        if one["kind"] == "Service" and any(port["name"] == "metrics" for port in one["spec"]["ports"])
    ]
    assert sorted(jobs) == sorted(f"{begin}-{service}" for service in WORKLOADS)
    asked = re.compile(r'\bjob(=~|=)\\?"([^"\\]*)\\?"')
    alerts = asked.findall((OBSERVABILITY / "alerts.yaml").read_text())
    assert alerts
    for job in jobs:
        assert all(operator == "=~" and re.fullmatch(text, job) for operator, text in alerts)
    dashboard = (OBSERVABILITY / "dashboard.json").read_text()
    assert {text for _, text in asked.findall(dashboard)} == {"$job"}
    (variable,) = [one for one in json.loads(dashboard)["templating"]["list"] if one["name"] == "job"]
    assert "{" not in variable["query"]["query"], "any job of that series can be chosen"
    assert "regex" not in variable


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "2 planners, 2 executors, 1 commit coordinator."),
        (
            {"planner": {"replicas": 1}, "executor": {"replicas": 1}, "commitCoordinator": {"replicas": 2}},
            "1 planner, 1 executor, 2 commit coordinators.",
        ),
    ],
)
def test_notes_say_how_many_there_are(tmp_path, changed, said):
    """They are rendered as a template, as helm shows them only where there is a cluster."""
    chart = tmp_path / "leman"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "NOTES.txt").rename(chart / "NOTES.txt")
    (chart / "templates" / "notes.yaml").write_text(
        '{kind: Notes, text: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}}'
    )
    done = helm(
        "template", "etl", "--show-only", "templates/notes.yaml", values={**IN_THE_CLEAR, **changed}, chart=chart
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["text"].splitlines()[0] == f"Leman {release_version()}: {said}"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"auth": {}}, "set auth.existingSecret"),
        ({"redis": {}}, "set redis.existingSecret"),
        ({"tls": {}}, "set tls.existingSecret, or tls.allowInsecure"),
        ({"tls": {"existingSecret": "a", "allowInsecure": True}}, "set one of"),
        ({"executor": {"replicas": 0}}, "replicas"),
        ({"executer": {}}, "executer"),
        ({"spark": {"master": "local[4]"}}, "master"),
        ({"planner": {"env": {"PATH": "/"}}}, "PATH"),
        ({"planner": {"env": {"LEMAN_LOG__LEVEL": 1}}}, "LEMAN_LOG__LEVEL"),
        ({"planner": {"env": {"LEMAN_LOG__LEVEL": "debug"}}}, "planner.env: LEMAN_LOG__LEVEL is set by the chart"),
        ({"executor": {"env": {"LEMAN_EXECUTOR__ADDRESS": "a:1"}}}, "executor.env: LEMAN_EXECUTOR__ADDRESS is set by"),
        (
            {"commitCoordinator": {"replicas": 2, "env": {"LEMAN_COMMIT__ALONE": "true"}}},
            "commitCoordinator.env: LEMAN_COMMIT__ALONE is false where there are two",
        ),
        (
            {"metrics": {"port": 0, "serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor.enabled: with metrics.por",
        ),
        (
            {"storage": {"databaseRoots": ["/data", "lake"]}},
            "databaseRoots, storage.registry: lake is a relative",
        ),
        ({"storage": {"databaseRoots": ["./lake"]}}, "storage.databaseRoots, storage.registry: ./lake is a relative"),
        ({"storage": {"registry": "names"}}, "storage.databaseRoots, storage.registry: names is a relative path"),
        ({"envFromSecrets": ["AWS keys"]}, "envFromSecrets"),
        ({"envFromSecrets": [""]}, "envFromSecrets"),
        ({"image": {"pullSecrets": ["Pull"]}}, "pullSecrets"),
        (
            {"executor": {"env": {"LEMAN_SPARK__CONF": "spark.a=b"}}},
            "executor.env: LEMAN_SPARK__CONF is no JSON object",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_made(changed, said):
    done = helm("template", "etl", values={**IN_THE_CLEAR, **changed})
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("release", ["9lives", "a.b"])
def test_a_release_whose_services_kubernetes_would_refuse_is_refused(release):
    done = helm("template", release, values=IN_THE_CLEAR)
    assert done.returncode != 0
    assert f"the release's name: services would be called {release}-leman" in done.stderr


@pytest.mark.parametrize("service", ["planner", "executor", "commitCoordinator"])
@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("LEMAN_SERVER__MTLS_PORT", "names a port that the chart does not open"),
        ("LEMAN_SERVER__HTTP_PORT", "comes with executor.httpPort"),
        ("LEMAN_METRICS__PORT", "comes with metrics.port"),
        ("LEMAN_METRICS__HOST", "comes with metrics.port"),
        (
            "LEMAN_SPARK__CALLBACK_PORT",
            "comes with spark.callbackPort, by which the chart opens the ports that Spark",
        ),
        (
            "LEMAN_SPARK__MASTER",
            "comes with spark.master, by which the chart opens the ports that Spark calls",
        ),
        ("LEMAN_SPARK__DRIVER_HOST", "comes with spark.master"),
    ],
)
def test_a_port_that_the_chart_would_not_open_is_refused(service, variable, said):
    """Also where the chart does not set it by itself."""
    values = {**IN_THE_CLEAR, "executor": {"httpPort": 0}, "metrics": {"port": 0}}
    done = helm("template", "etl", values={**values, service: {**values.get(service, {}), "env": {variable: "9000"}}})
    assert done.returncode != 0
    assert f"{service}.env: {variable} {said}" in done.stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"metrics": {"port": 7443}}, "metrics.port: port 7443 is the services' own already"),
        ({"executor": {"httpPort": 9464}}, "metrics.port: port 9464 is executor.httpPort already"),
        ({"spark": {"master": "spark://m:1", "callbackPort": 7442}}, "spark.callbackPort: port 7443 is the services'"),
        ({"spark": {"master": "spark://m:1", "callbackPort": 7479}}, "spark.callbackPort: port 7480 is executor.http"),
    ],
)
def test_two_things_on_one_port_are_refused(changed, said):
    done = helm("template", "etl", values={**IN_THE_CLEAR, **changed})
    assert done.returncode != 0
    assert said in done.stderr


def test_a_setting_that_is_a_secret_comes_from_one():
    """Each that the settings keep from being shown has a value of its own here, or is refused among the plain ones."""
    secrets = [
        f"{config.PREFIX}{section}__{name}".upper()
        for section, field in config.Settings.model_fields.items()
        for name, own in field.annotation.model_fields.items()  # type: ignore[union-attr]
        if own.annotation is SecretStr
    ]
    assert {"LEMAN_REDIS__URL", "LEMAN_LINEAGE__API_KEY"} <= set(secrets)
    headers = [f"OTEL_EXPORTER_OTLP_{which}HEADERS" for which in ("", "TRACES_", "METRICS_", "LOGS_")]
    for name in (*secrets, *headers):
        done = helm("template", "etl", values={**IN_THE_CLEAR, "planner": {"env": {name: "x"}}})
        assert done.returncode != 0
        assert f"planner.env: {name}" in done.stderr
    for service in WORKLOADS:
        assert container("all", service)["envFrom"] == [{"secretRef": {"name": name}} for name in ("aws", "lineage")]
    for setting in (
        *("spark.authenticate.secret", "spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyPassword"),
        *("spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net", "spark.executorEnv.X_API_KEY"),
        "spark.hadoop.fs.azure.account.oauth2.client.secret.acc.dfs.core.windows.net",
    ):
        done = helm("template", "etl", values={**IN_THE_CLEAR, "spark": {"conf": {setting: "x"}}})
        assert f"spark.conf: {setting} would be readable" in done.stderr
    plain = {
        "spark.kubernetes.executor.secrets.lake": "/x",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "a",
        "spark.kubernetes.authenticate.submission.oauthTokenFile": "/token",
    }
    assert helm("template", "etl", values={**IN_THE_CLEAR, "spark": {"conf": plain}}).returncode == 0
    env = {
        "LEMAN_SPARK__CONF": json.dumps(plain),
        "LEMAN_LINEAGE__URL": "https://marquez:5000/a:b@c?d=:@",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4317",
    }
    done = helm("template", "etl", values={**IN_THE_CLEAR, "executor": {"env": env}})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("service", ["planner", "executor", "commitCoordinator"])
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LEMAN_LINEAGE__URL", "https://leman:pa55word@marquez/api", "has credentials"),
        ("LEMAN_LINEAGE__URL", "http://:pa55word@marquez:5000", "has credentials"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://pa55word@collector:4317", "has credentials"),
        (
            "LEMAN_SPARK__CONF",
            json.dumps({"spark.executor.cores": "4", "spark.hadoop.fs.s3a.secret.key": "pa55word"}),
            "has spark.hadoop.fs.s3a.secret.key",
        ),
    ],
)
def test_a_value_with_a_secret_in_it_comes_from_one(service, variable, value, said):
    done = helm("template", "etl", values={**IN_THE_CLEAR, service: {"env": {variable: value}}})
    assert done.returncode != 0
    assert f"{service}.env: {variable} {said}, which would be readable" in done.stderr
    assert "pa55word" not in done.stderr


def test_what_kubernetes_does_not_take_would_be_found():
    wrong = yaml.safe_load(yaml.safe_dump(of_kind("few", "StatefulSet")[0]))
    wrong["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = {}
    for release in KUBERNETES:
        with pytest.raises(kubernetes_validate.ValidationError, match="readinessProb"):
            kubernetes_validate.validate(wrong, release, strict=True)


def test_the_chart_is_that_of_this_release():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == release_version()
    assert container("in the clear", "planner")["image"] == f"leman:{release_version()}"
    images = {service: container("all", service)["image"] for service in WORKLOADS}
    services = "registry.internal/leman-services:0.1.0-3"
    assert images == {
        "planner": services,
        "commit-coordinator": services,
        "executor": "registry.internal/leman:0.1.0-3",
    }


@pytest.mark.parametrize("service", WORKLOADS)
def test_pods_bound_their_disk_and_spread_over_zones(service):
    for name in VALUES:
        resources = container(name, service)["resources"]
        assert all("ephemeral-storage" in resources[kind] for kind in ("requests", "limits"))
        pod = pods(name)[service]
        (spread,) = pod["spec"]["topologySpreadConstraints"]
        assert spread["topologyKey"] == "topology.kubernetes.io/zone"
        assert spread["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize("service", WORKLOADS)
def test_further_volumes_are_in_every_pod(service):
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container("all", service)["volumeMounts"]
    assert {"name": "models", "emptyDir": {}} in pods("all")[service]["spec"]["volumes"]
