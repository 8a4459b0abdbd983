"""Handlers that are plain functions: each in a thread, never more than allowed, and whatever they raise comes back."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator

import pytest

from penstock.delivery.threads import HandlerThreads

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    opened = HandlerThreads(2)
    yield opened
    opened.close()


async def test_it_runs_elsewhere_and_its_result_comes_back(threads: HandlerThreads) -> None:
    def handle(number: int) -> tuple[int, int]:
        return number * 2, threading.get_ident()

    async with asyncio.timeout(30):
        result, where = await threads.call(handle, 21)
    assert result == 42
    assert where != threading.get_ident()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(3),
        KeyboardInterrupt(),
        RecursionError(),
        GeneratorExit(),
        MemoryError(),
        StopAsyncIteration(),
    ],
    ids=repr,
)
async def test_whatever_it_raises_reaches_the_one_who_waits(threads: HandlerThreads, error: BaseException) -> None:
    def handle(_: object) -> None:
        raise error

    async with asyncio.timeout(30):
        with pytest.raises(type(error)) as caught:
            await threads.call(handle, None)
        assert caught.value is error
        assert await threads.call(lambda _: "still here", None) == "still here"


@pytest.mark.parametrize("error", [StopIteration(7), asyncio.CancelledError("mine")], ids=repr)
async def test_an_error_that_no_future_can_hold_is_an_error_too(threads: HandlerThreads, error: BaseException) -> None:
    def handle(_: object) -> None:
        raise error

    future = asyncio.ensure_future(threads.call(handle, None))
    await asyncio.wait([future], timeout=30)
    assert future.done()
    with pytest.raises(BaseException):  # noqa: B017, PT011 - as long as one comes
        future.result()


async def test_no_more_run_at_the_same_time_than_allowed(threads: HandlerThreads) -> None:
    both, lock, running, most = threading.Barrier(2), threading.Lock(), 0, 0

    def handle(_: object) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(30)
        with lock:
            running -= 1

    async with asyncio.timeout(40):
        await asyncio.gather(*[threads.call(handle, None) for _ in range(20)])
    assert most == 2


async def test_it_sees_the_context_of_the_caller(threads: HandlerThreads) -> None:
    PLACE.set("here")
    async with asyncio.timeout(30):
        assert await threads.call(lambda _: PLACE.get(), None) == "here"


async def test_what_was_cancelled_before_its_turn_is_not_run(threads: HandlerThreads) -> None:
    go, ran = threading.Event(), []
    held = [asyncio.ensure_future(threads.call(lambda _: go.wait(30), None)) for _ in range(2)]
    waiting = asyncio.ensure_future(threads.call(ran.append, "late"))
    await asyncio.sleep(0)
    waiting.cancel()
    go.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*held)
        await threads.call(ran.append, "after")
    assert ran == ["after"]


async def test_threads_end_when_they_are_not_needed_any_more() -> None:
    threads = HandlerThreads(2)
    async with asyncio.timeout(30):
        names = await asyncio.gather(*[threads.call(lambda _: threading.current_thread(), None) for _ in range(4)])
    threads.close()
    for thread in set(names):
        thread.join(30)
        assert not thread.is_alive()
