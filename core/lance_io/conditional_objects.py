"""Single objects of an object store that are put only where there is none: of many writers exactly one succeeds.

`conditional_puts` tells whether a store keeps to that. Lance does so for its manifests, and pyarrow cannot.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import structlog

from core.domain.store import StoreOptions
from core.lance_io.panics import panics_as_errors
from core.stores.known import options_of
from core.stores.lance_options import lance_options

_SCHEME = "s3://"
#: How long a request is made again that the store refuses as it is busy, or that it does not answer.
_RETRIED_SECONDS = 30
_KEPT = 32
#: Of an error, in the log.
_SAID = 500

_log = structlog.get_logger(__name__)


def are_possible(folder: str) -> bool:
    """Tell whether objects can be created below a folder, with what this process knows by itself.

    It needs a store that speaks S3, a key, and where to go with it: what else Lance looks for, such as a profile or the
    role of a machine, is not looked for here.
    """
    if not folder.startswith(_SCHEME) or importlib.util.find_spec("obstore") is None:
        return False
    options = options_of(folder)
    if options is not None:
        return bool(options.access_key_id and (options.region or options.endpoint))
    said = os.environ
    goes = any(said.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"))
    return bool(said.get("AWS_ACCESS_KEY_ID") and goes)


def are_answered(folder: str) -> bool:
    """Tell whether the store answers who would create objects, by a listing: Lance may reach it in another way.

    Certificates and regions, for example, are found by both, but not in every place by the same rules.
    """
    obstore = _obstore()
    try:
        with panics_as_errors():  # over options that it does not know
            next(iter(obstore.list(_store(folder, options_of(folder), os.getpid()), chunk_size=1)), None)
    except Exception as error:  # noqa: BLE001 - whatever it is, things are done without it
        _log.warning("objects are not put by themselves in this store", folder=folder, error=str(error)[:_SAID])
        return False
    return True


def create(folder: str, name: str, content: bytes) -> bool:
    """Put an object; False: there is one of that name, which may be this one, where the first answer was lost.

    Raises:
        OSError: the store cannot be used, and the object may be there.
    """
    obstore = _obstore()
    try:
        obstore.put(_store(folder, options_of(folder), os.getpid()), name, content, mode="create", use_multipart=False)
    except obstore.exceptions.AlreadyExistsError:
        return False
    except obstore.exceptions.BaseError as error:
        raise OSError(str(error)) from error
    return True


def delete(folder: str, names: Sequence[str]) -> None:
    """Delete objects, as far as they are there.

    Raises:
        OSError: the store cannot be used.
    """
    obstore = _obstore()
    try:
        obstore.delete(_store(folder, options_of(folder), os.getpid()), list(names))
    except FileNotFoundError:
        return
    except obstore.exceptions.BaseError as error:
        raise OSError(str(error)) from error


def _obstore() -> Any:
    # most processes need it never
    importlib.import_module("obstore.store")
    return importlib.import_module("obstore")


@functools.lru_cache(_KEPT)
def _store(folder: str, _options: StoreOptions | None, _process: int) -> Any:
    named = dict(lance_options(folder) or {})
    client = {"allow_http": True} if named.pop("allow_http", "") else {}
    retried = {"max_retries": 10, "retry_timeout": datetime.timedelta(seconds=_RETRIED_SECONDS)}
    return _obstore().store.from_url(folder, config=named, client_options=client, retry_config=retried)
