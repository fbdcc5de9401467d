"""Settings: where they come from, what is refused, what is shown."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from pydantic import ValidationError

from leman_core import settings as config
from leman_core.model.service_errors import InvalidArgument
from leman_core.process.addresses import is_loopback
from leman_core.settings import __main__ as command
from leman_core.settings import sections


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith("LEMAN_"):
            monkeypatch.delenv(name)


def shown() -> dict[str, config.SettingInfo]:
    return {info.key: info for info in config.describe(config.load())}


def test_defaults_hold_without_an_environment():
    settings = config.load()
    assert settings.server.host == "127.0.0.1"
    assert settings.writer.stall_idle_checks == 6
    assert settings.commit.version_conflict_max_retries == 10
    assert settings.server.token.get_secret_value() == ""


def test_the_environment_wins(monkeypatch):
    monkeypatch.setenv("LEMAN_WRITER__STALL_IDLE_CHECKS", "3")
    monkeypatch.setenv("LEMAN_SPARK__CONF", '{"spark.ui.enabled": "true"}')
    monkeypatch.setenv("LEMAN_EXECUTOR__CHECKPOINT_INTERVAL_SECONDS", "0.5")
    settings = config.load()
    assert settings.writer.stall_idle_checks == 3
    assert settings.spark.conf == {"spark.ui.enabled": "true"}
    assert settings.executor.checkpoint_interval_seconds == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEMAN_WRITER__STALL_IDEL_CHECKS", "3"),
        ("LEMAN_WRITTER__STALL_IDLE_CHECKS", "3"),
        ("LEMAN_SERVER_TOKEN", "0123456789abcdef"),
        ("leman_redis_url", "redis://redis:6379/0"),
        ("LEMAN_SPARK_MASTER_", "local"),
        ("LEMAN_SERVER__PORT", "70000"),
        ("LEMAN_SERVER__PORT", "http"),
        ("LEMAN_LOG__LEVEL", "loud"),
        ("LEMAN_EXECUTOR__COMMIT_INTERVAL_SECONDS", "0"),
        ("LEMAN_LOG", ""),
        ("LEMAN_LOG", "debug"),
        ("LEMAN_LOG", "[1]"),
        ("leman_spark", "x"),
        ("LEMAN_SPARK__CONF", '{"a'),
    ],
)
def test_a_wrong_setting_is_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument) as caught:
        config.load()
    assert caught.value.reason == "BAD_SETTING"
    assert name in caught.value.message


def test_a_folder_in_the_home_of_nobody_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("LEMAN_SPARK__CLASS_ARCHIVE_DIR", "~nobody-of-this-name/archives")
    with pytest.raises(InvalidArgument, match=r"LEMAN_SPARK__CLASS_ARCHIVE_DIR: .*~nobody-of-this-name") as caught:
        config.load()
    assert caught.value.reason == "BAD_SETTING"
    monkeypatch.setenv("LEMAN_SPARK__CLASS_ARCHIVE_DIR", "~/archives")
    config.load()


@pytest.mark.parametrize("heap", ["5 gigs", "512mb", "512", "1.5g", ""])
def test_a_heap_that_no_jvm_takes_is_refused_by_name(monkeypatch, heap):
    """Spark hands it on as it stands; of a plain number it thinks in MiB, and the JVM in bytes."""
    monkeypatch.setenv("LEMAN_SPARK__DRIVER_MEMORY", heap)
    monkeypatch.setenv("LEMAN_SPARK__CONF", json.dumps({"spark.driver.memory": heap}))
    with pytest.raises(InvalidArgument) as caught:
        config.load()
    assert caught.value.reason == "BAD_SETTING"
    assert f"LEMAN_SPARK__DRIVER_MEMORY: '{heap}' is not a JVM heap" in caught.value.message
    assert f"LEMAN_SPARK__CONF: spark.driver.memory: '{heap}' is not a JVM heap" in caught.value.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.executor.memory", "lots"),
        ("spark.executor.memory", "1.5g"),
        ("spark.executor.memoryOverhead", "two"),
        ("spark.executor.pyspark.memory", "-1"),
        ("spark.executor.cores", "two"),
        ("spark.executor.cores", "0"),
        ("spark.cores.max", ""),
        ("spark.task.cpus", "0.5"),
        ("spark.executor.resource.gpu.amount", "one"),
    ],
)
def test_what_is_said_of_sparks_executors_is_refused_by_name_where_it_is_no_amount(monkeypatch, key, value):
    monkeypatch.setenv("LEMAN_SPARK__CONF", json.dumps({key: value, "spark.app.secret": "s3cret"}))
    with pytest.raises(InvalidArgument, match=re.escape(f"LEMAN_SPARK__CONF: {key}: ")) as caught:
        config.load()
    assert caught.value.reason == "BAD_SETTING"
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("master", "cores", "refused"),
    [("spark://m:7077", "2", True), ("spark://m:7077", "4", False), ("yarn", "2", False), ("", "2", False)],
)
def test_limits_under_which_spark_starts_no_executor_are_refused(monkeypatch, master, cores, refused):
    monkeypatch.setenv("LEMAN_SPARK__MASTER", master)
    monkeypatch.setenv("LEMAN_SPARK__CONF", json.dumps({"spark.cores.max": cores, "spark.executor.cores": "4"}))
    with (
        pytest.raises(InvalidArgument, match=r"spark.cores.max=2 in LEMAN_SPARK__CONF allows no executor of .*cores=4;")
        if refused
        else contextlib.nullcontext()
    ):
        config.load()


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("512", 512), (" 2G ", 2048), ("2gb", 2048), ("1t", 1 << 20), ("1p", 1 << 30), ("2048k", 2), ("3145728b", 3)],
)
def test_amounts_of_memory_are_those_of_spark(monkeypatch, text, mebibytes):
    monkeypatch.setenv("LEMAN_SPARK__CONF", json.dumps({"spark.executor.memory": text}))
    assert sections.mebibytes(config.load().spark.conf["spark.executor.memory"]) == mebibytes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"METRICS__PORT": "7443", "SERVER__PORT": "7443"}, "LEMAN_METRICS__PORT: 7443 is LEMAN_SERVER__PORT already"),
        ({"SERVER__HTTP_PORT": "7080", "METRICS__PORT": "7080"}, "LEMAN_METRICS__PORT: 7080 is LEMAN_SERVER__HTTP"),
        ({"SERVER__PORT": "8", "SERVER__MTLS_PORT": "8"}, "LEMAN_SERVER__MTLS_PORT: 8 is LEMAN_SERVER__PORT already"),
        (
            {"SPARK__CALLBACK_PORT": "7441", "SERVER__PORT": "7443"},
            "LEMAN_SPARK__CALLBACK_PORT: 7443 is LEMAN_SERVER__PORT already; choose the first of three free ports",
        ),
    ],
)
def test_one_port_for_two_things_is_refused_by_both_names(monkeypatch, given, said):
    for name, value in given.items():
        monkeypatch.setenv(f"LEMAN_{name}", value)
    with pytest.raises(InvalidArgument, match=re.escape(said)) as caught:
        config.load()
    assert caught.value.reason == "BAD_SETTING"


def test_any_free_ports_are_different_ones(monkeypatch):
    for name in ("SERVER__PORT", "SERVER__MTLS_PORT", "SERVER__HTTP_PORT", "METRICS__PORT", "SPARK__CALLBACK_PORT"):
        monkeypatch.setenv(f"LEMAN_{name}", "0")
    config.load()


#: What a list is, with the example of the setting.
A_LIST = """: this takes a list, such as '/data,s3://bucket/lakes' or '["/data", "s3://bucket/lakes"]'"""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(
            ("SERVER__DATABASE_ROOTS", value, A_LIST)
            for value in ("", " , ", '"/data"', '{"a": 1}', '["/data"', "[/data]")
        ),
        ("SERVER__DATABASE_ROOTS", '["/data", 2]', ": item 2: Input should be a valid string, in double quotes"),
        ("SPARK__CONF", "spark.cores.max=2", """: this takes JSON, such as '{"spark.cores.max": "2"}'"""),
        ("SPARK__CONF", '["a"]', """: this takes JSON, such as '{"spark.cores.max": "2"}'"""),
        ("SPARK__CONF", '{"spark.cores.max":2}', ": spark.cores.max: Input should be a valid string, in double quotes"),
        ("JWT__ROLES", '{"a": ["boss"]}', ": a: item 1: Input should be 'reader', "),
        ("SERVER__PORT", "http", ": Input should be a valid integer"),
        ("LOG", "debug", ": that is a whole section: unset it, and set single settings of it, see `leman config show`"),
    ],
)
def test_what_is_wrong_with_a_setting_that_is_json_is_told_with_an_example_and_where(monkeypatch, name, value, said):
    monkeypatch.setenv(f"LEMAN_{name}", value)
    with pytest.raises(InvalidArgument, match=re.escape(f"LEMAN_{name}{said}")) as caught:
        config.load()
    assert ("unset" in caught.value.message) == (name == "LOG")


def test_two_settings_that_are_no_json_are_both_told(monkeypatch):
    monkeypatch.setenv("LEMAN_JWT__ROLES", "reader")
    monkeypatch.setenv("LEMAN_SPARK__CONF", "spark.cores.max=2")
    monkeypatch.setenv("LEMAN_UDF__ENV_NAMES", "*_API_KEY,*_URL")  # a list need not be JSON
    with pytest.raises(InvalidArgument, match=r"^LEMAN_JWT__ROLES: .*; LEMAN_SPARK__CONF: ") as caught:
        config.load()
    assert "ENV_NAMES" not in caught.value.message


def test_each_setting_that_is_an_object_or_a_list_has_an_example_that_it_takes(monkeypatch):
    told = 0
    for info in config.describe(config.load()):
        monkeypatch.setenv(info.env, "{")
        try:
            config.load()
        except InvalidArgument as error:
            example = re.search(r"such as .*?'([\[{].*)'$", error.message)
            if example is None:
                assert not isinstance(info.value, dict | tuple), info.env
            else:
                monkeypatch.setenv(info.env, example[1])
                section, name = info.key.split(".")
                found = getattr(getattr(config.load(), section), name)
                assert json.loads(json.dumps(found)) == json.loads(example[1])
                told += 1
        monkeypatch.delenv(info.env)
    assert told == 13


@pytest.mark.parametrize("name", ["SERVER__DATABASE_ROOTS", "SERVER__HTTP_ORIGINS", "SERVER__HTTP_HOSTS"])
@pytest.mark.parametrize("text", ['["https://a", "b"]', "https://a,b", " https://a , b,"])
def test_each_list_is_json_or_separated_by_commas(monkeypatch, name, text):
    monkeypatch.setenv(f"LEMAN_{name}", text)
    assert getattr(config.load().server, name.removeprefix("SERVER__").lower()) == ("https://a", "b")


def test_an_empty_list_of_origins_is_none_and_no_roles_are_as_not_set(monkeypatch):
    monkeypatch.setenv("LEMAN_SERVER__HTTP_ORIGINS", "")
    monkeypatch.setenv("LEMAN_SERVER__ANONYMOUS_ROLES", "null")
    monkeypatch.setenv("LEMAN_JWT__ALGORITHMS", "RS256,ES256")
    settings = config.load()
    assert (settings.server.http_origins, settings.server.anonymous_roles) == ((), None)
    assert settings.jwt.algorithms == ("RS256", "ES256")


def test_a_wrong_value_is_never_repeated(monkeypatch):
    monkeypatch.setenv("LEMAN_SERVER", '{"token": ["s3cret"]}')
    with pytest.raises(InvalidArgument) as caught:
        config.load()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("variable", ["LEMAN_SERVER__TOKEN", "LEMAN_PEERS__TOKEN"])
@pytest.mark.parametrize("token", [" ", "s3cret ", "two words", "s3cr\u00e9t", "s3cret\n"])
def test_a_token_that_no_header_carries_is_refused_and_not_told(monkeypatch, variable, token):
    monkeypatch.setenv(variable, token)
    with pytest.raises(InvalidArgument) as caught:
        config.load()
    assert (variable in caught.value.message, "visible ASCII" in caught.value.message) == (True, True)
    assert token == " " or token not in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "redis://:pa/s3cret@127.0.0.1:6379/0",
        "redis://:s3cret#x@127.0.0.1:6379/0",
        "redis://:s3cret?x@127.0.0.1",
        "redis://u:s3@cret@127.0.0.1",
        "127.0.0.1:6379",
        "redis//x",
        "redis://host:port",
        "redis://host:6379/s3cret",
        "http://host:6379",
        "redis://",
        "unix://",
    ],
)
def test_a_url_that_is_none_of_redis_is_refused_and_not_told(monkeypatch, url):
    monkeypatch.setenv("LEMAN_REDIS__URL", url)
    with pytest.raises(InvalidArgument) as caught:
        config.load()
    assert "LEMAN_REDIS__URL: " in caught.value.message
    assert "s3" not in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis://redis",
        "redis://redis:6379/0",
        "rediss://user:p%2Fw:x@redis.data:6379/12?ssl_ca_certs=/tls/ca.pem&ssl_check_hostname=true",
        "redis://:password@[::1]:6379",
        "unix:///tmp/redis.sock",
        "unix://:password@/tmp/a%20b/redis.sock?db=1",
    ],
)
def test_urls_of_redis(monkeypatch, url):
    monkeypatch.setenv("LEMAN_REDIS__URL", url)
    assert config.load().redis.url.get_secret_value() == url


@pytest.mark.parametrize("name", ["LEMAN_CRASH", "LEMAN_TOKEN", "LEMAN_DEBUG", "LEMAN_VERSION", "LEMAN_SPARK_MASTER"])
def test_other_variables_of_ours_are_left_alone(monkeypatch, name):
    monkeypatch.setenv(name, "point:1")
    config.load()


def test_the_listing_tells_origin_and_masks_secrets(monkeypatch):
    monkeypatch.setenv("LEMAN_SERVER__TOKEN", "s3cret")
    monkeypatch.setenv("LEMAN_REDIS__URL", "redis://:s3cret@redis:6379/0")
    named = ("fs.s3a.secret.key", "fs.azure.account.key.acc.dfs.core.windows.net", "X_API_KEY", "fs.s3a.access.key")
    given = {"spark.x": "1", **{f"spark.hadoop.{name}": "s3cret" for name in named}}
    monkeypatch.setenv("LEMAN_SPARK__CONF", json.dumps(given))
    listing = shown()
    assert (listing["server.token"].origin, listing["server.host"].origin) == ("env", "default")
    assert listing["server.host"].env == "LEMAN_SERVER__HOST"
    assert listing["spark.conf"].value["spark.x"] == "1"
    assert "s3cret" not in repr(listing.values())
    assert "s3cret" not in repr(config.load())


def test_every_setting_says_what_it_is():
    listing = shown()
    assert len(listing) > 35
    assert [key for key, info in listing.items() if not info.description.endswith(".")] == []


def test_the_command_prints_json(monkeypatch, capsys):
    monkeypatch.setenv("LEMAN_SERVER__TOKEN", "s3cret")
    assert command.main(["--json"]) == 0
    out = capsys.readouterr().out
    rows = {row["env"]: row for row in json.loads(out)}
    assert rows["LEMAN_SERVER__TOKEN"]["origin"] == "env"
    assert "s3cret" not in out
    monkeypatch.setenv("LEMAN_SERVER__PORT", "x")
    assert command.main([]) == 2
    assert "LEMAN_SERVER__PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("[::1]", True), ("localhost", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com", "")],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected


def test_an_embedded_system_passes_all_variables_unless_something_is_said():
    assert config.Spark().of_own_user().pass_env == ("*",)
    assert config.Spark(pass_env=()).of_own_user().pass_env == ()
    with pytest.raises(ValidationError, match="pass_env"):
        config.Spark(pass_env=("A,B",))
