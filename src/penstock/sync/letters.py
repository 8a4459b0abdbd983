"""Dead letters, for programs without an event loop."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from penstock.delivery.letters import DeadLetters as AsyncDeadLetters
from penstock.delivery.letters import Letter, ReplayReport, Where

T = TypeVar("T")

_LETTERS_PER_CALL = 100


class Call(Protocol):
    """Has a coroutine run in the loop's thread, and gives what it returned."""

    def __call__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T: ...


class DeadLetters:
    """Of one group, over the topics of a bus. Iterate to see them, oldest first."""

    def __init__(self, letters: AsyncDeadLetters, call: Call) -> None:
        self._letters = letters
        self._call = call

    def __iter__(self) -> Iterator[Letter]:
        letters = aiter(self._letters)
        while page := self._call(lambda: _take(letters, _LETTERS_PER_CALL)):
            yield from page

    def get(self, id: str) -> Letter | None:
        """The letter of this message id, or of this place among the dead letters; None if there is none."""
        return self._call(lambda: self._letters.get(id))

    def count(self) -> int:
        """How many there are. Looks at each, since a topic's dead letters are shared by its groups."""
        return self._call(self._letters.count)

    def replay(
        self,
        *,
        ids: Iterable[str] | str | None = None,
        where: Where | None = None,
        dry_run: bool = False,
        rate: float | None = None,
    ) -> ReplayReport:
        """Give letters back to this group, as first attempts under a new replay id. Other groups see nothing of it.

        Those with these message ids or letter ids, or those for which `where` says so; with neither, all that are there
        now. `where` runs in the loop's thread: it must be quick, and cannot use this app. `rate` is the most per
        second. Ctrl-C ends it: what was given back until then stays so.
        """
        return self._call(lambda: self._letters.replay(ids=ids, where=where, dry_run=dry_run, rate=rate))

    def edit(self, letter: Letter, body: Any) -> str | None:
        """Give a letter back to its group with another body, as a new message; returns its UUID, None if it is gone."""
        return self._call(lambda: self._letters.edit(letter, body))

    def purge(
        self, *, ids: Iterable[str] | str | None = None, where: Where | None = None, dry_run: bool = False
    ) -> int:
        """Throw letters away for good, chosen by ids or by `where`, as for `replay`; returns how many."""
        return self._call(lambda: self._letters.purge(ids=ids, where=where, dry_run=dry_run))


async def _take(items: AsyncIterator[T], most: int) -> list[T]:
    taken: list[T] = []
    async for item in items:
        taken.append(item)
        if len(taken) == most:
            break
    return taken
