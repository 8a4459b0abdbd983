"""`penstock topic`: one topic, as an operator sees it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.backend import keys
from penstock.backend.facts import position
from penstock.cli.confirming import Yes, only_tried
from penstock.cli.looking import MOST_COUNTED, count_behind, counted_text, topic_there
from penstock.cli.moments import Span
from penstock.cli.printing import Form, chosen, print_one, print_rows
from penstock.cli.progress import progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, ask
from penstock.cli.standing import GROUP_COLUMNS, group_row, topic_facts
from penstock.cli.usage import NotThereError, UsageError
from penstock.diagnosis.finding import amount
from penstock.errors import ConfigurationError, TopicError
from penstock.message.times import EPOCH, span_text
from penstock.overview import Overview, TopicView

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.entry import Pin
    from penstock.cli.progress import Show


def info(topic: str, /, *, output: Form = None, server: At = HERE) -> None:
    """Say how a topic and its groups stand.

    Parameters
    ----------
    topic
        Its whole name.
    """
    found = ask(server, lambda app: topic_there(app, topic))
    if chosen(output) == "table":
        print_one(topic_facts(found), output)
        print_rows((group_row(group, for_people=True) for group in found.groups), output, GROUP_COLUMNS)
    else:
        groups = [group_row(group, for_people=False) for group in found.groups]
        print_one({**topic_facts(found), "groups": groups}, output)


def trim(
    topic: str,
    /,
    *,
    keep: Span | None = None,
    most: Annotated[int | None, Parameter(name="--max")] = None,
    yes: Yes = False,
    server: At = HERE,
) -> None:
    """Drop old entries that every group has settled and every cursor has passed. Nothing that anybody needs goes.

    Entries go in blocks of about a hundred, so some that are old enough may stay.

    Parameters
    ----------
    topic
        Its whole name.
    keep
        Keep what is younger than this, like 7d.
    most
        Keep no more than so many entries, however young the others are.
    """
    if keep is None and most is None:
        raise UsageError("say what to keep: --keep 7d, or --max 100000, or both.")
    if most is not None and most < 0:
        raise UsageError(f"--max is a number of entries, not {most}.")
    ask(server, lambda app: _trim(app, topic, keep, most, yes=yes))


async def _trim(app: "Penstock", topic: str, keep: timedelta | None, most: int | None, *, yes: bool) -> None:
    found = await topic_there(app, topic)
    floor = "0-0"
    if keep is not None and found.at is not None:
        floor = f"{max(timedelta(0), found.at - EPOCH - keep) // timedelta(milliseconds=1)}-0"
    if not yes:
        await _try_trim(app, found, floor, keep, most)
        return
    removed, last = 0, None
    with progress("trimming") as show:
        while last is None or last.removed:
            last = await app.backend.trim(topic, floor, max_entries=most)
            removed += last.removed
            show(removed)
    pin = (await topic_there(app, topic)).pin if last.pin is not None else None
    print(f"Removed {amount(removed, 'entry', 'entries')} of {topic!r}{_why_kept(pin)}")


def _why_kept(pin: "Pin | None") -> str:
    if pin is None:
        return ""
    return f"; what is left is kept: {pin}" if pin.kind == "nobody" else f"; {pin} keeps what is left"


async def _try_trim(app: "Penstock", found: TopicView, floor: str, keep: timedelta | None, most: int | None) -> None:
    """Say what would go, and of what would not, whether somebody needs it or it is only too young."""
    if not found.length or found.settled_upto is None:
        why = "it is empty" if not found.length else "nobody reads it yet, so all of it is kept for who comes first"
        print(f"Nothing to remove of {found.name!r}: {why}")
        return
    upto = found.settled_upto
    settled = await count_behind(app, found.name, "0-0", f"({upto}" if found.is_settled_upto_held else upto)
    old = min(settled, await count_behind(app, found.name, "0-0", min(upto, floor, key=position)))
    removed = min(settled, max(old, max(0, found.length - most) if most is not None else 0))
    young = [f"younger than {span_text(keep)}"] if keep is not None else []
    young += [f"within --max {most}"] if most is not None else []
    stay = _why_stay(found.pin, settled - removed, " and ".join(young), "the others" if removed else "all of them")
    if not removed:
        print(f"Nothing to remove of {found.name!r}: {stay}")
        return
    if settled > MOST_COUNTED:  # no more than these were counted, so nobody knows why others stay
        stay = ""
    only_tried(
        f"remove up to {counted_text(removed)} of the {found.length:,} of {found.name!r}{'; ' if stay else ''}{stay}"
    )


def _why_stay(pin: "Pin | None", settled: int, young: str, those: str) -> str:
    if not settled:
        return "" if pin is None else f"{pin} needs {those}"
    if pin is None:
        return f"{those} are settled, and {young}"
    return f"of {those}, {counted_text(settled)} are settled and {young}, and {pin} needs the rest"


def adopt(
    *topics: str,
    match: str | None = None,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Have streams that others made known as topics, so that they are listed and looked after. They stay as they are.

    Parameters
    ----------
    topics
        The names of their keys.
    match
        Also every stream whose name fits a pattern, like 'chat:*'. This looks at every key of the database.
    """
    if not topics and match is None:
        raise UsageError("name streams to adopt, or give a pattern with --match.")
    with progress("adopting") as show:
        rows = ask(server, lambda app: _adopted(app, topics, match, show))
    print_rows(rows, output, ("topic", "length", "groups", "new"))


async def _adopted(app: "Penstock", topics: tuple[str, ...], match: str | None, show: "Show") -> list[dict[str, Any]]:
    known, rows = set(await app.backend.topics()), []
    named = {name: await _stream(app, name) for name in topics}  # all of them before one is made known
    names = list(dict.fromkeys([*named, *sorted(await _fitting(app, match, show))]))
    for count, name in enumerate(names, 1):
        if (view := named.get(name) or await _stream_if_fit(app, name)) is not None:
            await app.backend.register(name)
            rows.append({"topic": name, "length": view.length, "groups": len(view.groups), "new": name not in known})
        show(count, len(names))
    return rows


async def _fitting(app: "Penstock", match: str | None, show: "Show") -> list[str]:
    found: list[str] = []
    if match is not None:
        async for name in app.backend.streams(match):
            found.append(name)
            show(0, facts=f"{len(found):,} found")
    return found


async def _stream_if_fit(app: "Penstock", name: str) -> TopicView | None:
    try:
        return await _stream(app, name)
    except (ConfigurationError, NotThereError, TopicError) as error:  # it is damaged, or its name cannot be written
        warn(f"the stream {name!r} cannot be adopted: {error}")
        return None


async def _stream(app: "Penstock", name: str) -> TopicView:
    keys.check_named(name)
    found = await Overview(app.backend).topic(name)
    if not found.exists:
        raise NotThereError(f"there is no stream {name!r} to adopt; penstock publish makes a new topic")
    return found
