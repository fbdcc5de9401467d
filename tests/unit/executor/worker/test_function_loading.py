"""What a bundle gives that is no function: refused with a reason, before anything calls it."""

from __future__ import annotations

import hashlib

import cloudpickle
import pytest

from core.domain.udf import ErrorPolicy, UdfKind
from core.domain.work import UdfRef
from core.errors import FailedPrecondition
from core.udf.python_versions import PYTHON
from executor.worker.function_loading import load


class NotCallable:
    """A class whose instances cannot be called."""


@pytest.mark.parametrize(
    ("made", "stateful"), [(5, False), ("text", False), ({}, False), (5, True), (NotCallable, True)]
)
def test_a_bundle_that_gives_nothing_to_call_is_not_loadable(made, stateful):
    bundle = cloudpickle.dumps(made)
    ref = UdfRef(
        name="f",
        version="1",
        kind=UdfKind.SCALAR,
        input_columns=("n",),
        bundle_uri="",
        bundle_sha256=hashlib.sha256(bundle).hexdigest(),
        bundle_python=PYTHON,
        entrypoint="",
        stateful=stateful,
        batch_size=1,
        error_policy=ErrorPolicy(),
    )
    with pytest.raises(FailedPrecondition) as caught:
        load(ref, bundle)
    assert caught.value.reason == "UDF_NOT_LOADABLE"
