"""What workers get to know of a remote function, and what a job ends with where no one computes it."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pydantic import ValidationError

from leman._format.stored_functions import RemoteFunction, UdfDefinition, UdfKind
from leman_core.model.service_errors import FailedPrecondition, NotFound, Unavailable
from leman_core.model.work import ServerAccess, UnitFailure
from leman_core.settings import Settings, Udf
from leman_executor.jobs import job_run, work_context

ADDRESS = "grpc+tls://a.features.internal:7443"


def test_workers_get_the_credentials_of_their_function_s_servers_alone(tmp_path):
    credentials = tmp_path / "credentials.toml"
    tables = [("grpc+tls://a.features.internal:*", "one"), ("grpc+tls://b.features.internal:*", "other")]
    credentials.write_text("".join(f'[[server]]\naddress = "{a}"\ntoken = "{t}"\n' for a, t in tables))
    settings = Settings(
        udf=Udf(remote_credentials=str(credentials), remote_patience_seconds=7, remote_answer_seconds=8)
    )
    remote = RemoteFunction((ADDRESS,), "embed")
    udf = UdfDefinition("e", "1", UdfKind.REMOTE, ("text",), pa.int8(), (pa.string(),), remote=remote)
    told = work_context._remote(udf, settings)
    assert told is not None
    assert told.servers == (ServerAccess(ADDRESS, "one"),)
    assert (told.function, told.patience_seconds, told.answer_seconds) == ("embed", 7, 8)
    own = work_context._remote(replace(udf, timeout_seconds=3600.0), settings)
    assert own is not None
    assert own.answer_seconds == 0.0, "the watchdog has it"
    assert pa.ipc.read_schema(pa.py_buffer(told.input_schema)) == pa.schema([("text", pa.string())])
    credentials.write_text(credentials.read_text().replace("one", "renewed"))
    renewed = work_context._remote(udf, settings)
    assert renewed is not None
    assert renewed.servers[0].token == "renewed"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("FUNCTION_UNAVAILABLE", Unavailable),
        ("FUNCTION_NOT_FOUND", NotFound),
        ("FUNCTION_VERSION_MISMATCH", FailedPrecondition),
    ],
)
def test_a_job_ends_with_what_its_worker_was_told(reason, kind):
    error = job_run.unit_error(UnitFailure(reason, "why"))
    assert (type(error), error.reason, error.facts) == (kind, reason, {})


def test_a_setting_that_is_no_pattern_of_addresses_is_refused():
    with pytest.raises(ValidationError, match="not a pattern of addresses"):
        Udf(remote_addresses=("features.internal",))
