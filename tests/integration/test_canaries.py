"""Secrets with known words in them, through all services: they are in no log, no file, no error, no command line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from pathlib import Path

import grpc
import jwt
import psutil
import pyarrow as pa
import pytest
import redis
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

import leman
from leman import errors
from leman.functions import FunctionServer
from leman.v1 import catalog_pb2, catalog_pb2_grpc, commit_pb2, commit_pb2_grpc, jobs_pb2, jobs_pb2_grpc
from tests.conftest import start_system, stop_system
from tests.redis_process import RedisProcess

ONE_TOKEN = "canary-of-the-one-token"
FILE_TOKEN = "canary-of-the-tokens-file"
WRONG_TOKEN = "canary-of-a-wrong-token"
REDIS_PASSWORD = "canary-of-redis"
STORAGE_KEY = "canary-of-the-storage-key"
STORAGE_SECRET = "canary-of-the-storage-in-spark"
URL_PASSWORD = "canary-in-a-url"
FUNCTION_TOKEN = "canary-of-the-function-server"
ENV_VALUE = "canary-of-the-environment"
ISSUER, AUDIENCE = "https://login.example/", "leman"
#: Files of which the use is that a secret is in them, for their owner alone.
SECRET_FILES = {"service.json", "tokens.toml", "functions.toml"}


class Issuer:
    """Keys of an issuer of JWTs, in a file."""

    def __init__(self, folder: Path) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.path = folder / "keys.json"
        public = ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        self.path.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self.pem = self.key.private_bytes(encoding, form, serialization.NoEncryption()).decode().splitlines()[1]

    def token(self, **claims: object) -> str:
        held = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "roles": ["editor", "code"], "exp": time.time() + 600}
        return jwt.encode(held | claims, self.key, "ES256", headers={"kid": "one"})


@leman.udf(
    data_type=pa.int64(),
    name="sometimes",
    version="1",
    error_handling=leman.ErrorHandlingConfig(on_error=[leman.Skip(ValueError)]),
)
def sometimes(x: int) -> int:
    if x == 1:
        raise ValueError("a row that fails")
    return x


@leman.udf(
    data_type=pa.int64(),
    name="asks",
    version="1",
    error_handling=leman.ErrorHandlingConfig(on_error=[leman.Skip(ValueError)]),
)
def asks(x: int) -> int:
    key = os.environ["API_KEY"]
    print("asking with", key)  # noqa: T201 it is to be masked
    if x == 1:
        raise ValueError(f"https://asked.example/?key={key} says 401")
    return x


def use_variables(table: leman.Table, db: leman.Database) -> list[str]:
    """Has a function print a variable, and raise an error that tells it; and has a preview and a view use it."""
    table.add_columns({"k": asks})
    job_id = table.backfill("k", env={"API_KEY": ENV_VALUE}, progress=False)
    job, failed = db.job(job_id), table.get_errors(job_id=job_id)
    assert job.env_names == ("API_KEY",)
    assert "key=*** says 401" in failed[0].error_message
    tried = table.preview(asks, env={"API_KEY": ENV_VALUE})
    assert [row.state for row in tried.rows[:2]] == ["computed", "failed"]
    with pytest.raises(errors.InvalidArgument) as caught:
        table.backfill("k", env={"PATH": ENV_VALUE}, progress=False)
    whole = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    return [repr(caught.value), repr(whole), repr(failed), repr(tried.rows)]


@leman.udf(version="1")
def halved(x: int) -> float:
    return x / 2


def use_function_servers(table: leman.Table, db: leman.Database, with_token: int, with_another: int) -> list[str]:
    """Has a server compute a column to which the token is sent, and one refuse that does not know it."""
    db.register_remote("halved", addresses=[f"grpc://127.0.0.1:{with_token}"])
    table.add_columns({"h": ("halved@1", ["x"])})
    table.backfill("h", progress=False)
    assert table.to_arrow(["h"])["h"].to_pylist() == [n / 2 for n in range(10)]
    with pytest.raises(errors.FailedPrecondition) as caught:
        db.register_remote("halved", addresses=[f"grpc://127.0.0.1:{with_another}"])
    assert caught.value.reason == "FUNCTION_ACCESS_DENIED"
    return [repr(caught.value)]


def try_everything(service: dict[str, object], issuer: Issuer) -> list[str]:
    """What callers get who show right and wrong secrets, as they would print it."""
    said = []
    shown = (ONE_TOKEN, FILE_TOKEN, WRONG_TOKEN, issuer.token(), issuer.token(exp=1), issuer.token(aud="else"), "a.b.c")
    place = f"ftp://someone:{URL_PASSWORD}@host/lake"
    requests = {
        "planner": (catalog_pb2_grpc.CatalogServiceStub, "ListTables", catalog_pb2.ListTablesRequest(database=place)),
        "executor": (jobs_pb2_grpc.JobServiceStub, "CancelJob", jobs_pb2.CancelJobRequest(job_id="j", database="/no")),
        "commit_coordinator": (
            commit_pb2_grpc.CommitServiceStub,
            "DropView",
            commit_pb2.DropViewRequest(view=catalog_pb2.TableRef(database=place, table="v")),
        ),
    }
    for name, (stub, method, request) in requests.items():
        with grpc.insecure_channel(str(service[name])) as channel:
            for token in shown:
                ask, metadata = getattr(stub(channel), method), (("authorization", f"Bearer {token}"),)
                with pytest.raises(grpc.RpcError) as caught:
                    ask(request, metadata=metadata, timeout=60)
                said.append(f"{caught.value.details()} {caught.value.trailing_metadata()}")
    return said


def files_below(*folders: Path) -> dict[str, bytes]:
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.name not in SECRET_FILES:
                found[str(path)] = path.read_bytes()
    return found


def command_lines(pid: int) -> dict[str, bytes]:
    process = psutil.Process(pid)
    found: dict[str, bytes] = {}
    for one in [process, *process.children(True)]:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # it has just ended
            found[f"command line of {one.pid}"] = " ".join(one.cmdline()).encode()
    return found


def test_no_secret_is_in_a_log_a_file_an_error_or_a_command_line(tmp_path):
    database, scratch, keys = tmp_path / "lake", tmp_path / "scratch", tmp_path / "keys"
    for folder in (scratch, keys):
        folder.mkdir()
    issuer = Issuer(keys)
    tokens = keys / "tokens.toml"
    tokens.write_text(f'[[token]]\nname = "nightly"\nroles = ["runner"]\ntoken = "{FILE_TOKEN}"\n')
    functions = keys / "functions.toml"
    functions.write_text(f'[[server]]\naddress = "grpc://127.0.0.1:*"\ntoken = "{FUNCTION_TOKEN}"\n')
    with (
        RedisProcess(tmp_path) as store,
        FunctionServer([halved], port=0, token=FUNCTION_TOKEN) as server,
        FunctionServer([halved], port=0, token="another") as stranger,
    ):
        with redis.Redis.from_url(store.url) as client:
            client.config_set("requirepass", REDIS_PASSWORD)
        system = start_system(
            database,
            LEMAN_SERVER__TOKEN=ONE_TOKEN,
            LEMAN_SERVER__TOKENS_FILE=str(tokens),
            LEMAN_UDF__REMOTE_CREDENTIALS=str(functions),
            LEMAN_JWT__ISSUER=ISSUER,
            LEMAN_JWT__AUDIENCE=AUDIENCE,
            LEMAN_JWT__JWKS=str(issuer.path),
            LEMAN_REDIS__URL=store.url.replace("unix://", f"unix://:{REDIS_PASSWORD}@"),
            LEMAN_SPARK__SCRATCH_DIR=str(scratch),
            LEMAN_SPARK__CONF=json.dumps({"spark.hadoop.fs.s3a.secret.key": STORAGE_SECRET}),
            AWS_SECRET_ACCESS_KEY=STORAGE_KEY,
        )
        service = system.service
        seen: dict[str, bytes] = {}
        try:
            with leman.connect(database, endpoint=str(service["executor"]), token=issuer.token()) as db:
                table = db.create_table("t", pa.table({"x": range(10)}))
                table.add_columns({"y": sometimes, "z": "x + 1"})
                table.backfill("y", progress=False)
                with pytest.raises(errors.InvalidArgument) as caught:
                    table.backfill("z", where=f"x = '{WRONG_TOKEN[:0]}' AND", progress=False)
                said = [repr(caught.value), *try_everything(service, issuer)]
                said += use_function_servers(table, db, server.port, stranger.port)
                said += use_variables(table, db)
            with leman.connect(database, endpoint=str(service["planner"]), token=FILE_TOKEN) as db:
                with pytest.raises(errors.PermissionDenied) as refused:
                    db.open_table("t").add_columns({"w": sometimes})
                said.append(repr(refused.value))
            seen |= command_lines(system.process.pid) | files_below(scratch)
        finally:
            seen["what it printed"] = stop_system(system).encode()
    seen |= files_below(database, scratch) | {f"error {n}": text.encode() for n, text in enumerate(said)}

    logs = b"".join(content for name, content in seen.items() if "/_leman/" in name and ".log" in name)
    assert logs.count(b'"event": "audit"') > 10, "there are logs, and they are looked at"
    assert b'"caller": "ada"' in logs
    assert b'"caller": "nightly"' in logs
    assert any("TOKEN_INVALID" in text for text in said)
    secrets = {
        name: value.encode()
        for name, value in globals().items()
        if isinstance(value, str) and value.startswith("canary")
    }
    assert b"asking with ***" in logs
    assert len(secrets) == 9
    secrets |= {"a JWT": issuer.token().split(".")[0].encode() + b".", "a private key": issuer.pem.encode()}
    assert [(name, where) for name, secret in secrets.items() for where, text in seen.items() if secret in text] == []
