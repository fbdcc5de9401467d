"""Which environment variables a job may have; and their values, which no error and no digest has."""

import pytest

from leman.v1 import jobs_pb2
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.model.service_errors import InvalidArgument, PermissionDenied
from leman_core.server.request_messages import body_digest, without_secrets
from leman_core.wire.convert_values import MOST_BYTES, MOST_VARIABLES, env_from_proto

SECRET = "the-value-that-nobody-sees"


@pytest.mark.parametrize("name", ["API_KEY", "_x", "a1", "GOOGLE_API_KEY", "AZURE_OPENAI_API_KEY", "TZ", "PATHS"])
def test_a_variable_has_the_value_that_it_is_given(name):
    assert env_from_proto({name: SECRET, "EMPTY": ""}) == {name: SECRET, "EMPTY": ""}


@pytest.mark.parametrize(
    "env",
    [
        {"1A": SECRET},
        {"A-B": SECRET},
        {"": SECRET},
        {f"A={SECRET}": ""},
        {"Ä": SECRET},
        {"A\n": SECRET},
        {"A": f"{SECRET}\0"},
        {"A": SECRET * MOST_BYTES},
        {"A" * MOST_BYTES: SECRET},
        {f"A{n}": SECRET for n in range(MOST_VARIABLES + 1)},
        {"PATH": SECRET},
        {"https_proxy": SECRET},
        {"PYTHONHASHSEED": SECRET},
        {"LD_PRELOAD": SECRET},
        {"OMP_NUM_THREADS": SECRET},
        {"OPENBLAS_NUM_THREADS": SECRET},
        {"LEMAN_REDIS__URL": SECRET},
        {"AWS_SECRET_ACCESS_KEY": SECRET},
        {"AZURE_STORAGE_ACCOUNT_KEY": SECRET},
    ],
)
def test_what_no_job_can_have_is_refused_without_telling_the_value(env):
    with pytest.raises(InvalidArgument) as caught:
        env_from_proto(env)
    assert (caught.value.reason, caught.value.field) == ("BAD_ENV", "env")
    assert SECRET not in repr((caught.value.message, caught.value.facts))


def test_how_many_threads_there_are_a_function_says_itself():
    with pytest.raises(InvalidArgument, match=r"OMP_NUM_THREADS has no effect .*threadpool_limits\(4\)"):
        env_from_proto({"OMP_NUM_THREADS": "4"})
    assert env_from_proto({"MKL_NUM_THREADS": "4", "NUMEXPR_NUM_THREADS": "4"}), "loaded by functions alone"


def test_as_much_as_is_allowed_is_taken():
    env = {"A": "é" * ((MOST_BYTES - 1) // 2)}
    assert env_from_proto(env) == env
    assert len(env_from_proto({f"A{n}": "" for n in range(MOST_VARIABLES)})) == MOST_VARIABLES


def test_operators_say_which_names_there_may_be():
    FunctionPolicy().check_env(["ANY"])
    FunctionPolicy(env_names=("*_API_KEY", "TZ")).check_env(["OPENAI_API_KEY", "TZ"])
    with pytest.raises(PermissionDenied) as caught:
        FunctionPolicy(env_names=("*_API_KEY",)).check_env(["X_API_KEY", "GIT_SSH_COMMAND"])
    assert caught.value.reason == "ENV_NOT_ALLOWED"
    assert "GIT_SSH_COMMAND" in caught.value.message


def test_a_digest_has_the_names_and_not_the_values():
    def digest(**env: str) -> str:
        return body_digest(jobs_pb2.CreateJobRequest(request_id="r", env=env))

    assert digest(A=SECRET) == digest(A="other")
    assert digest(B="1", A="2") == digest(A="1", B="2")
    assert len({digest(), digest(A=SECRET), digest(B=SECRET), digest(A=SECRET, B=SECRET)}) == 4


def test_what_is_passed_on_has_neither():
    request = jobs_pb2.PreviewFunctionRequest(column="c", env={"A": SECRET})
    passed_on = without_secrets(request, keys=False)
    assert passed_on == jobs_pb2.PreviewFunctionRequest(column="c")
    assert dict(request.env) == {"A": SECRET}
    assert without_secrets(passed_on) is passed_on
