"""The OpenAPI document: valid, and of the contract that is served. scripts/protogen checks that it is current."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import json_format
from jsonschema import Draft202012Validator, ValidationError
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from leman.v1 import jobs_pb2
from leman_core.http.http_calls import callable_methods

ROOT = Path(__file__).parents[4]
PATH = ROOT / "core" / "leman_core" / "http" / "openapi.json"


@pytest.fixture(scope="module")
def document():
    return json.loads(PATH.read_text())


@pytest.fixture(scope="module")
def validator_of(document):
    def validator(message: str) -> Draft202012Validator:
        return Draft202012Validator({"$ref": f"#/components/schemas/{message}", "components": document["components"]})

    return validator


def test_it_is_valid(document):
    validate(document, cls=OpenAPIV31SpecValidator)


def test_it_has_what_is_served_over_http(document):
    served = {m.path for m in callable_methods().values() if not m.client_streaming and m.path.startswith("/leman.v1.")}
    assert set(document["paths"]) == served
    for path, operations in document["paths"].items():
        method = callable_methods()[path]
        assert ("get" in operations) is method.allows_get, path
        assert method.request.DESCRIPTOR.full_name in json.dumps(operations["post"]["requestBody"])


def test_comments_of_the_protos_are_in_it(document):
    operation = document["paths"]["/leman.v1.JobService/GetJob"]["post"]
    assert "`NOT_FOUND` (JOB_NOT_FOUND)" in operation["description"]
    assert operation["description"].endswith("Asks for the role `reader`.")
    undescribed = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        if name.startswith("leman.v1.")
        for field, told in schema.get("properties", {}).items()
        if not told.get("description")
    ]
    assert undescribed == []


def test_messages_in_json_fit_their_schemas(validator_of):
    job = jobs_pb2.Job(job_id="j1", state=jobs_pb2.Job.STATE_DONE, table_version=1 << 60)
    job.error.details.add().Pack(jobs_pb2.GetJobRequest(job_id="x"))
    told = json_format.MessageToDict(jobs_pb2.GetJobResponse(job=job))
    validator_of("leman.v1.GetJobResponse").validate(told)
    for wrong in ({"job": {"state": "NO_SUCH_STATE"}}, {"job": {"noSuchField": 1}}, {"job": {"tableVersion": "one"}}):
        with pytest.raises(ValidationError):
            validator_of("leman.v1.GetJobResponse").validate(wrong)


def test_the_one_in_docs_is_the_one_that_is_served():
    assert (ROOT / "docs" / "openapi.json").read_bytes() == PATH.read_bytes()
