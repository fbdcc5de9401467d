"""What this process knows of object stores. One place for the whole process, as every room of it opens files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from leman_core.model.store import StoreOptions
from leman_core.storage.locations import in_object_store


class StoreSource(Protocol):
    """Where options of stores come from. Safe for threads."""

    def stores(self) -> tuple[StoreOptions, ...]:
        """Return the options as they are now: credentials may be other ones than before."""
        ...

    def was_renewed(self, options: StoreOptions) -> bool:
        """Look whether options are not those that the store may just have been asked with."""
        ...


class GivenStores:
    """Options that were given once, as a worker has them from its executor."""

    def __init__(self, stores: Iterable[StoreOptions] = ()) -> None:
        self._stores = tuple(stores)

    def stores(self) -> tuple[StoreOptions, ...]:
        """Return them; see `StoreSource`."""
        return self._stores

    def was_renewed(self, options: StoreOptions) -> bool:  # noqa: ARG002
        """Return False; see `StoreSource`."""
        return False


_source: StoreSource = GivenStores()


def use(source: StoreSource) -> None:
    """Go by this source from now on."""
    global _source  # noqa: PLW0603 -- it is the process's
    _source = source


def options_of(uri: str) -> StoreOptions | None:
    """Return the options of what lies at a uri: those with the longest root; None where no options cover it."""
    if not in_object_store(uri):
        return None
    found = [options for options in _source.stores() if options.covers(uri)]
    return max(found, key=lambda options: len(options.root), default=None)


def were_renewed(uri: str) -> bool:
    """Look whether the options of what lies at a uri are new: what was refused lately may have come with others."""
    options = options_of(uri)
    return options is not None and _source.was_renewed(options)


def is_left_out(uri: str) -> bool:
    """Tell whether there are options of stores, and a place in one is covered by none of them."""
    return in_object_store(uri) and bool(_source.stores()) and options_of(uri) is None


def options_for(uris: Iterable[str]) -> tuple[StoreOptions, ...]:
    """Return the options that cover these uris, each once; for who reads and writes there, and nowhere else."""
    found = (options_of(uri) for uri in uris)
    return tuple(dict.fromkeys(options for options in found if options is not None))


def checkpoint_places() -> tuple[str, ...]:
    """Return the places at which options of stores keep checkpoints apart from tables, without a trailing `/`."""
    return tuple(options.checkpoint_uri.rstrip("/") for options in _source.stores() if options.checkpoint_uri)
