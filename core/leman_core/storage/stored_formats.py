"""The formats in which Leman stores things, and their numbers: what another release wrote is told from damage.

What is stored says the number of its format. One that says none is of format 1, unless the table below says otherwise.
A change that releases without it cannot read gets the next number; one that they read without loss keeps the number.
`docs/stored_formats.md` lists where each number stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from leman_core.model.errors import UnknownFormat


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """A format: what it is of, the number that this release writes, and the oldest one that it reads.

    `renew`: what to do about one that is too old, as a sentence.
    """

    called: str
    current: int = 1
    oldest: int = 1
    renew: str = "Let the release that wrote it, or the last one that reads it, finish what is open"

    def check(self, stated: object, where: str) -> None:
        """Refuse what this release does not read.

        Args:
            stated: The number as it is stored; None: there is none.
            where: What it is, as the subject of a sentence.

        Raises:
            UnknownFormat: FORMAT_TOO_OLD, FORMAT_TOO_NEW.
            ValueError: it is no number: that is damage.
        """
        number = 1 if stated is None else int(str(stated))
        if self.oldest <= number <= self.current:
            return
        said = f"{where} is whole, and in format {number} of {self.called}"
        if number > self.current:
            raise UnknownFormat(
                "FORMAT_TOO_NEW",
                f"{said}; this release reads up to {self.current}. Use the release that wrote it, or one after it",
                format=number,
            )
        message = f"{said}; this release reads formats from {self.oldest} on. {self.renew}"
        raise UnknownFormat("FORMAT_TOO_OLD", message, format=number)


#: The digest came with format 1, names in inputs with format 2.
BINDING = StoredFormat(
    "column bindings",
    current=2,
    renew="Open the table with a release that reads it: its values are right, and need not be computed again",
)
#: Definitions got a digest with format 2.
FUNCTION = StoredFormat("function definitions", 2, 2, "Register the function again, with the version that it had")
#: The number tells, too, how a view points to rows of its source.
VIEW = StoredFormat("views", 2)
JOB = StoredFormat("job records")
TAIL = StoredFormat("objects of a history's tail")
LOG = StoredFormat("job histories and tables of failed rows")
REGISTRATION = StoredFormat("registrations of databases")
CHECKPOINT = StoredFormat("checkpoints")
ROW_STATES = StoredFormat("row states of column files")
NULL_ROWS = StoredFormat("NULL rows of column files")
SOURCE_RECORD = StoredFormat("source records of views")
