"""Databases that have names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leman_core.model.errors import DataLoss, NotFound, UnknownFormat


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """How much of an executor the jobs of a database may take. None: as its settings say."""

    max_running_jobs: int | None = None
    max_waiting_jobs: int | None = None


#: What limits nothing.
NO_LIMITS = DatabaseLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredDatabase:
    """What is said of a database under its name. Times are seconds since the epoch."""

    name: str
    #: In its canonical form.
    root: str
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: DatabaseLimits = NO_LIMITS
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Registrations:
    """All registered databases at one moment."""

    by_name: Mapping[str, RegisteredDatabase] = field(default_factory=dict)
    #: Names of which the registration is not what was written.
    damaged: frozenset[str] = frozenset()
    #: Names whose registration another release wrote.
    unknown: Mapping[str, UnknownFormat] = field(default_factory=dict)

    def get(self, name: str) -> RegisteredDatabase:
        """Return the registration of a name.

        Raises:
            NotFound: DATABASE_NOT_REGISTERED.
            DataLoss: REGISTRATION_DAMAGED.
            UnknownFormat: FORMAT_TOO_NEW.
        """
        if name in self.damaged:
            raise DataLoss("REGISTRATION_DAMAGED", damage_of(name), name=name)
        if name in self.unknown:
            raise self.unknown[name]
        found = self.by_name.get(name)
        if found is None:
            raise NotFound(
                "DATABASE_NOT_REGISTERED",
                f"No database is registered as '{name}': check the name, register it, or give a path or uri",
                name=name,
            )
        return found

    def name_of(self, root: str) -> str:
        """Return the name of the database with that root; empty: it has none."""
        return next((database.name for database in self.by_name.values() if database.root == root), "")


def damage_of(name: str) -> str:
    """Return what people are told of a damaged registration."""
    return f"The registration of database '{name}' is not what was written: register it again, which heals it"


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a caller: its id, and what tells its body from another one under that id."""

    request_id: str
    body: str
