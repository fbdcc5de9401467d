"""Which of all tables and views that had one name a job is about: another one that has it by now is left alone."""

from __future__ import annotations

from core.errors import NotFound


class SameTable:
    """What plan after plan of one job is to be about; `kind` and `name` are for a person."""

    def __init__(self, kind: str, name: str) -> None:
        self._kind = kind
        self._name = name
        #: Of the first plan here; empty: not known.
        self._incarnation = ""

    def check(self, incarnation: str) -> None:
        """Check the incarnation of a new plan; an empty one is of a table that Leman has not written to.

        Raises:
            NotFound: TABLE_NOT_FOUND – the table was dropped, and another one has its name.
        """
        self._incarnation = self._incarnation or incarnation
        if incarnation not in ("", self._incarnation):
            message = (
                f"{self._kind} '{self._name}' was dropped during the job, and another one has its name now. "
                "Send the request again if it is meant for that one"
            )
            raise NotFound("TABLE_NOT_FOUND", message, table=self._name)
