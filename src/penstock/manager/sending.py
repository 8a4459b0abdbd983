"""Sending messages, and keeping streams near the length their senders ask for."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from penstock.backend.base import StreamBackend
from penstock.bus.publisher import Publisher, as_message
from penstock.errors import PenstockError
from penstock.events import Listeners, Scope, Trouble
from penstock.options import check_count, check_flag, check_kind

_PER_STEP = 1000
_SENDS_PER_TRIM = 100  # the server drops a hundred entries together, so looking more often finds nothing
_MOST_STREAMS = 1024


class _Outlet:
    """One stream that is sent to."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.sent = 0


class Sender:
    """Sends for one manager."""

    def __init__(self, backend: Callable[[], StreamBackend], listeners: Listeners) -> None:
        self._backend = backend
        self._listeners = listeners
        self._outlets: OrderedDict[str, _Outlet] = OrderedDict()

    async def send(
        self, stream: str, data: Mapping[str, Any], max_len: int | None, *, force_trim: bool, id: str | None
    ) -> str:
        """The entry id of the message, which is stored then."""
        check_kind("send_message(data=...)", data, Mapping)
        if max_len is not None:
            check_count("send_message(max_len=...)", max_len)
        check_flag("send_message(force_trim=...)", force_trim)
        outlet = self._outlet(stream)
        message = as_message(dict(data), None, id, None)
        receipt = await outlet.publisher.publish(message, once=id is not None, sending=None)
        if max_len is not None and outlet.sent % _SENDS_PER_TRIM == 0:
            await self._trim(stream, max_len, force_trim=force_trim)
        outlet.sent += 1
        return receipt.entry_id or ""

    async def _trim(self, stream: str, max_len: int, *, force_trim: bool) -> None:
        """The message is stored by now, so what goes wrong is only told: raised, it would be sent again."""
        try:
            if force_trim:
                await self._backend().cut(stream, max_len, _PER_STEP)
            else:
                await self._backend().trim(stream, "0-0", _PER_STEP, max_entries=max_len)
        except PenstockError as error:
            self._tell(stream, error)

    def _outlet(self, stream: str) -> _Outlet:
        outlet = self._outlets.get(stream)
        if outlet is None:
            outlet = self._outlets[stream] = _Outlet(Publisher(self._backend, stream, None, self._tell))
            if len(self._outlets) > _MOST_STREAMS:
                self._outlets.popitem(last=False)
        return outlet

    def _tell(self, stream: str, error: PenstockError) -> None:
        self._listeners.emit(Trouble(Scope.UPKEEP, error, topic=stream, group=""))
