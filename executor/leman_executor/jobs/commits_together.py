"""The commits of several columns of one job: those that are asked for at the same time become one request."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leman_core.model.errors import ATTEMPT_FENCED, LemanError, Unavailable
from leman_core.model.job import Attempt, ColumnCommit
from leman_core.model.plan import FragmentReplacement, OutputField, PlanHeader
from leman_executor.jobs.ports import Commits

#: How long a commit waits for those of other columns.
_LONGEST_WAIT_SECONDS = 1.0
#: Files in one request at the most: a message takes 4 MiB.
_MOST_FILES = 6_000


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    header: PlanHeader
    output: OutputField
    replacements: Sequence[FragmentReplacement]
    attempt: Attempt
    request_id: str
    answer: asyncio.Future[ColumnCommit]


class CommitsTogether:
    """The commits of some columns: they are sent when all of these ask for one, or have left.

    Args:
        commits: Takes them.
        told: Is told of each version, with the names of the columns in it.
    """

    def __init__(self, commits: Commits, told: Callable[[int, Sequence[str]], object]) -> None:
        self._commits = commits
        self._told = told
        self._members = 0
        self._asked: list[_Asked] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def expect(self, members: int) -> None:
        """Let commits wait for so many columns; each leaves later."""
        self._members = members

    def leave(self) -> None:
        """Wait for one column less."""
        self._members -= 1
        self._send_if_all()

    async def replace_column(
        self,
        header: PlanHeader,
        output: OutputField,
        replacements: Sequence[FragmentReplacement],
        *,
        attempt: Attempt,
        request_id: str,
    ) -> ColumnCommit:
        """Install a column's files; see `Commits`."""
        answer: asyncio.Future[ColumnCommit] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(header, output, replacements, attempt, request_id, answer))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LONGEST_WAIT_SECONDS, self._send)
        self._send_if_all()
        return await answer

    def __getattr__(self, name: str) -> Any:
        """Pass on what is not about a column's files."""
        return getattr(self._commits, name)

    def _send_if_all(self) -> None:
        if self._asked and len(self._asked) >= self._members:
            self._send()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        asked, self._asked = self._asked, []
        for part in _parts([one for one in asked if not one.answer.done()]):
            task = asyncio.create_task(self._answer(part))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _answer(self, asked: Sequence[_Asked]) -> None:
        """Send a request, and give each column its answer, whatever becomes of the request."""
        try:
            await self._submit(asked)
        except BaseException as error:
            for one in asked:
                _refuse(one, error)
            if not isinstance(error, Exception):
                raise

    async def _submit(self, asked: Sequence[_Asked]) -> None:
        if len(asked) > 1:
            columns = [(one.header, one.output, one.replacements) for one in asked]
            ids = "\n".join(one.request_id for one in asked)
            request_id = hashlib.blake2b(ids.encode(), digest_size=16).hexdigest()
            try:
                answers = await self._commits.replace_columns(columns, attempt=asked[0].attempt, request_id=request_id)
            except LemanError as error:
                if isinstance(error, Unavailable) or error.reason == ATTEMPT_FENCED:
                    raise
                # it may be about one of them; what was committed all the same is found in the table
            else:
                for one, answer in zip(asked, answers, strict=True):
                    _settle(one, answer)
                self._tell(asked, answers)
                return
        for one in asked:
            try:
                answer = await self._commits.replace_column(
                    one.header, one.output, one.replacements, attempt=one.attempt, request_id=one.request_id
                )
            except LemanError as error:
                _refuse(one, error)
            else:
                _settle(one, answer)
                self._tell([one], [answer])

    def _tell(self, asked: Sequence[_Asked], answers: Sequence[ColumnCommit]) -> None:
        names = [
            one.output.name
            for one, answer in zip(asked, answers, strict=True)
            if any(outcome.committed for outcome in answer.outcomes)
        ]
        version = max(answer.version for answer in answers)
        if version and names:
            self._told(version, names)


def _settle(one: _Asked, answer: ColumnCommit) -> None:
    if not one.answer.done():
        one.answer.set_result(answer)


def _refuse(one: _Asked, error: BaseException) -> None:
    if not one.answer.done():
        one.answer.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())


def _parts(asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """Yield what goes into one request."""
    part: list[_Asked] = []
    files = 0
    for one in asked:
        if part and files + len(one.replacements) > _MOST_FILES:
            yield part
            part, files = [], 0
        part.append(one)
        files += len(one.replacements)
    if part:
        yield part
