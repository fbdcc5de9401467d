"""What a bundle gives that is no function: refused with a reason, before anything calls it."""

from __future__ import annotations

import hashlib
import json

import cloudpickle
import pytest

from leman._format.stored_functions import ErrorPolicy, UdfKind
from leman_core.functions.function_definitions import PYTHON
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.work import FunctionSpec
from leman_executor.worker.function_loading import load_function


def ref_of(**given):
    """A function, with the parts of it that matter to a test."""
    told = {"bundle_uri": "", "bundle_sha256": "", "bundle_python": "", "entrypoint": "", "stateful": False, **given}
    return FunctionSpec(
        name="f",
        version="1",
        kind=UdfKind.SCALAR,
        input_columns=("n",),
        batch_size=1,
        error_policy=ErrorPolicy(),
        **told,
    )


class NotCallable:
    """A class whose instances cannot be called."""


@pytest.mark.parametrize(
    ("made", "stateful"), [(5, False), ("text", False), ({}, False), (5, True), (NotCallable, True)]
)
def test_a_bundle_that_gives_nothing_to_call_is_not_loadable(made, stateful):
    bundle = cloudpickle.dumps(made)
    ref = ref_of(bundle_sha256=hashlib.sha256(bundle).hexdigest(), bundle_python=PYTHON, stateful=stateful)
    with pytest.raises(FailedPrecondition) as caught:
        load_function(ref, bundle)
    assert caught.value.reason == "UDF_NOT_LOADABLE"


def test_an_entrypoint_that_cannot_be_imported_is_told_without_where_its_module_lies(tmp_path, monkeypatch):
    (tmp_path / "some_features.py").write_text("from json import no_such_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FailedPrecondition) as caught:
        load_function(ref_of(entrypoint="some_features:f"))
    assert "cannot import name 'no_such_name' from 'json'." in caught.value.message
    assert json.__file__ not in caught.value.message


@pytest.mark.parametrize(
    ("bundle", "advice"),
    [
        (b"hello", "not a complete pickle of a function"),
        (cloudpickle.dumps(len)[:-5], "not a complete pickle of a function"),
        (b"cno_such_module\nf\n.", "Install the packages that it imports"),
        (b"cbuiltins\neval\n(V1/0\ntR.", "Fix this, on the workers or in the function"),
    ],
    ids=["junk", "cut off", "a module that is missing", "raises"],
)
def test_a_bundle_that_cannot_be_loaded_says_what_to_do(bundle, advice):
    ref = ref_of(bundle_sha256=hashlib.sha256(bundle).hexdigest(), bundle_python=PYTHON)
    with pytest.raises(FailedPrecondition) as caught:
        load_function(ref, bundle)
    assert caught.value.reason == "UDF_NOT_LOADABLE"
    assert advice in caught.value.message
