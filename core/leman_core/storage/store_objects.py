"""Single objects of an object store, where it matters what the store says of them: neither Lance nor pyarrow tells.

`create` puts one only where there is none: of many writers exactly one succeeds (`conditional_puts` tells whether a
store keeps to that). `put`, `tagged_digest` and `end_of` go by an object's ETag: as long as the store tells the same
one, it is the same object.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
import xxhash

from leman_core.model.store import StoreOptions
from leman_core.storage.object_stores.known import options_of
from leman_core.storage.object_stores.lance_options import lance_options
from leman_core.storage.object_stores.requests import count
from leman_core.storage.panics import panics_as_errors

_SCHEME = "s3://"
_LIBRARY = "obstore"
#: How long a request is made again that the store refuses as it is busy, or that it does not answer.
_RETRIED_SECONDS = 30
_KEPT = 32
#: How long requests are made again that only spare others: without an answer the same is done by Lance.
_SPARING_SECONDS = 5
#: How long a store is left alone after it did not answer such a request.
_LEFT_SECONDS = 600.0
_DIGEST_CHUNK = 1 << 22
#: Of an error, in the log.
_SAID = 500

_log = structlog.get_logger(__name__)
#: Until when folders are left alone, by time.monotonic().
_left: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Tagged:
    """What a store says of an object; `etag` is empty where it says none."""

    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectEnd:
    """The last bytes of an object, and what the store says of all of it."""

    tagged: Tagged
    content: bytes


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
    count(folder, _LIBRARY, writes=False)
    try:
        with panics_as_errors():  # over options that it does not know
            next(iter(obstore.list(_opened(folder), chunk_size=1)), None)
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
    count(folder, _LIBRARY, writes=True)
    try:
        obstore.put(_opened(folder), name, content, mode="create", use_multipart=False)
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
    count(folder, _LIBRARY, writes=True)
    try:
        obstore.delete(_opened(folder), list(names))
    except FileNotFoundError:
        return
    except obstore.exceptions.BaseError as error:
        raise OSError(str(error)) from error


def put(folder: str, name: str, content: bytes) -> str | None:
    """Put an object in one request, in place of another one if there is one, and return the ETag that it got.

    Returns:
        None where that has to be done in another way: this process cannot, or the store did not answer.
    """
    with _sparing(folder) as store:
        if store is not None:
            count(folder, _LIBRARY, writes=True)
            return str(_obstore().put(store, name, content, use_multipart=False).get("e_tag") or "")
    return None


def tagged_digest(folder: str, name: str) -> tuple[Tagged, str] | None:
    """Read all of an object in one request; return what the store says of it, and the xxh3-128 of its bytes as hex.

    Returns:
        None where that has to be done in another way: this process cannot, the object is not there, or the store did
        not answer.
    """
    with _sparing(folder) as store:
        if store is not None:
            count(folder, _LIBRARY, writes=False)
            found = _obstore().get(store, name)
            digest, size = xxhash.xxh3_128(), 0
            for chunk in found.stream(min_chunk_size=_DIGEST_CHUNK):
                digest.update(chunk)
                size += len(chunk)
            return Tagged(size, found.meta.get("e_tag") or ""), digest.hexdigest()
    return None


def end_of(folder: str, name: str, start: int, size_bytes: int) -> ObjectEnd | None:
    """Return the bytes of an object from `start` on, in one request, if it has `size_bytes`.

    Returns:
        None where that has to be found out in another way: this process cannot, the object is not there or has another
        size, or the store did not answer.
    """
    with _sparing(folder) as store:
        if store is not None:
            count(folder, _LIBRARY, writes=False)
            found = _obstore().get(store, name, options={"range": (start, size_bytes)})
            content = bytes(found.bytes())
            tagged = Tagged(int(found.meta["size"]), found.meta.get("e_tag") or "")
            if tagged.size_bytes == size_bytes and len(content) == size_bytes - start:
                return ObjectEnd(tagged, content)
    return None


@contextlib.contextmanager
def _sparing(folder: str) -> Iterator[Any]:
    """Yield a store for a request that can be spared, or None; where it does not answer, the block ends silently."""
    if not are_possible(folder) or _left.get(folder, 0.0) > time.monotonic():
        yield None
        return
    obstore = _obstore()
    try:
        with panics_as_errors():
            yield _opened(folder, _SPARING_SECONDS)
    except FileNotFoundError:
        return
    except (obstore.exceptions.BaseError, OSError, ValueError, RuntimeError) as error:
        _left[folder] = time.monotonic() + _LEFT_SECONDS
        _log.warning("objects are read and put by Lance in this store", folder=folder, error=str(error)[:_SAID])


def _opened(folder: str, retried_seconds: int = _RETRIED_SECONDS) -> Any:
    return _store(folder, options_of(folder), os.getpid(), retried_seconds)


def _obstore() -> Any:
    # most processes need it never
    importlib.import_module("obstore.store")
    return importlib.import_module("obstore")


def _environment_allows_http() -> bool:
    """Tell whether the environment says so as Lance reads it; obstore does not look for it there."""
    return any(os.environ.get(name, "").lower() in ("true", "1") for name in ("AWS_ALLOW_HTTP", "ALLOW_HTTP"))


@functools.lru_cache(_KEPT)
def _store(folder: str, _options: StoreOptions | None, _process: int, retried_seconds: int) -> Any:
    named = dict(lance_options(folder) or {})
    said = named.pop("allow_http", "") if named else _environment_allows_http()
    client = {"allow_http": True} if said else {}
    retried = {"max_retries": 10, "retry_timeout": datetime.timedelta(seconds=retried_seconds)}
    return _obstore().store.from_url(folder, config=named, client_options=client, retry_config=retried)
