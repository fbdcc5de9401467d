"""The verification of functions' definitions, and of their bundles."""

from __future__ import annotations

from collections.abc import Iterator

from leman_coordinator.verification.report import Finding, Flaw, Looked, Subject
from leman_core.model.errors import DataLoss, LemanError, NotFound
from leman_core.storage.udf_registry import FOLDER, StoredFunction, UdfRegistry


def things(database: str, after: str) -> Iterator[tuple[str, Looked]]:
    """Check every file of the registry after a name, and yield them by name."""
    registry = UdfRegistry(database)
    for name in registry.names():
        if name > after:
            stored = _stored(registry, name)
            if stored is not None:
                yield name, stored


def _stored(registry: UdfRegistry, name: str) -> Looked | None:
    path = f"{FOLDER}/{name}"
    try:
        stored = registry.check(name)
    except NotFound:  # gone since it was listed
        return None
    except DataLoss as error:
        return Looked(Subject.FUNCTION, 0, True, (Finding(Subject.FUNCTION, Flaw.DAMAGED, path, error.message),))
    except LemanError as error:
        message = f"{error.message}: make {path} readable, or register its function again"
        return Looked(Subject.FUNCTION, 0, True, (Finding(Subject.FUNCTION, Flaw.UNREADABLE, path, message),))
    return _looked(path, stored)


def _looked(path: str, stored: StoredFunction) -> Looked:
    if stored.udf is None:
        if stored.intact:
            return Looked(Subject.BUNDLE, stored.size_bytes)
        what = f"The bundle {path} is not what was stored: register its function again, that stores it anew"
        return Looked(Subject.BUNDLE, stored.size_bytes, True, (Finding(Subject.BUNDLE, Flaw.DAMAGED, path, what),))
    if stored.intact:
        return Looked(Subject.FUNCTION, stored.size_bytes)
    udf = stored.udf
    what = (
        f"Function {udf.name}@{udf.version} has no bundle {udf.bundle_sha256} of {udf.bundle_size} bytes: register it "
        "again, that stores it anew"
    )
    bundle = f"{FOLDER}/{udf.bundle_sha256}.bundle"
    return Looked(Subject.FUNCTION, stored.size_bytes, True, (Finding(Subject.BUNDLE, Flaw.MISSING, bundle, what),))
