"""Failures as one page of HTML: it stands alone, runs no script, and takes nothing from anywhere else.

Whatever comes from a message or an error is text and stays text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path

from penstock.lake.failures import AGES, Bar, Cluster

MOST_KINDS = 200
_MOST_ROWS = 12
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Dead letters</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def html(clusters: Sequence[Cluster], lake: Path, now: datetime) -> str:
    """The page about these clusters, whose messages can be replayed from `lake`."""
    parts = [_head(clusters, lake, now)]
    if clusters:
        parts += [_overview(clusters), "<h2>Kinds of failure, largest first</h2>"]
        parts += [_kind(cluster, lake) for cluster in clusters[:MOST_KINDS]]
    if len(clusters) > MOST_KINDS:
        left = sum(cluster.letters for cluster in clusters[MOST_KINDS:])
        parts.append(
            f'<p class="quiet">{len(clusters) - MOST_KINDS:,} more kinds, with {left:,} letters, are left out.</p>'
        )
    return _PAGE.format(style=_style(), body="\n".join(parts))


@cache
def _style() -> str:
    return resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")


def _head(clusters: Sequence[Cluster], lake: Path, now: datetime) -> str:
    made = f'<p class="quiet">in the lake {escape(str(lake))}, as of {_moment(now)}</p>'
    if not clusters:
        return f"<h1>Dead letters</h1>\n{made}\n<p>There are none.</p>"
    tiles = {
        "dead letters": f"{sum(cluster.letters for cluster in clusters):,}",
        "kinds of failure": f"{len(clusters):,}",
        "topics": f"{len({cluster.topic for cluster in clusters}):,}",
        "groups": f"{len({(cluster.topic, cluster.group) for cluster in clusters}):,}",
        "age of the oldest": _age(max(cluster.oldest for cluster in clusters)),
        "messages that died again after a replay": f"{sum(cluster.died_again for cluster in clusters):,}",
    }
    drawn = "\n".join(
        f'<div class="card tile"><b>{escape(value)}</b><span class="quiet">{name}</span></div>'
        for name, value in tiles.items()
    )
    return f'<h1>Dead letters</h1>\n{made}\n<div class="tiles">\n{drawn}\n</div>'


def _overview(clusters: Sequence[Cluster]) -> str:
    sums: Counter[datetime] = Counter()
    places: Counter[str] = Counter()
    for cluster in clusters:
        places[f"{cluster.topic} / {cluster.group or 'no group'}"] += cluster.letters
        sums.update({bar.start: bar.letters for bar in cluster.trend})
    trend = [Bar(start, sums[start]) for start in sorted(sums)]
    ages = {name: sum(cluster.ages[at] for cluster in clusters) for at, (name, _) in enumerate(AGES)}
    shown = dict(places.most_common(_MOST_ROWS))
    if (rest := len(places) - len(shown)) > 0:
        shown[f"{rest:,} others"] = sum(places.values()) - sum(shown.values())
    return (
        f'<div class="card wide"><h2>How they come</h2>{_bars(trend, "trend")}{_ends(trend)}</div>\n'
        f'<div class="columns"><div class="card"><h2>By topic and group</h2>{_rows(shown)}</div>\n'
        f'<div class="card"><h2>By age</h2>{_rows(ages)}</div></div>'
    )


def _kind(cluster: Cluster, lake: Path) -> str:
    place = f"{cluster.topic} / {cluster.group or 'no group'}"
    facts = {
        "messages": f"{cluster.messages:,}",
        "first": _moment(cluster.first),
        "last": _moment(cluster.last),
        "oldest": f"{_age(cluster.oldest)} ago",
        "attempts": f"{cluster.attempts:,}",
        "letters after a replay": f"{cluster.after_replay:,}",
        "messages that died again": f"{cluster.died_again:,}",
        "cluster": cluster.id,
        "fingerprint": cluster.fingerprint,
    }
    listed = "\n".join(f"<div><dt>{name}</dt> <dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f"""<article class="card kind" id="{escape(cluster.id)}">
<div class="head">
<div><p class="quiet">{escape(place)}</p><h3>{escape(cluster.error or "no exception")}</h3></div>
<div>{_bars(cluster.trend, "spark")}<p class="ends"><span><span class="number">{cluster.letters:,}</span> letters</span>
<span class="quiet">since {_day(cluster.trend[0].start)}</span></p></div>
</div>
<pre>{escape(cluster.reason)}</pre>
<dl class="facts">
{listed}
</dl>
{_details("Traceback of the last one", cluster.traceback)}
{_details("Its last messages", chr(10).join(cluster.ids))}
{_replay(cluster.replay_command(lake))}
</article>"""


def _replay(command: str) -> str:
    if not command:
        return (
            '<p class="quiet">None of these can be replayed from the lake: their ids, or the group, are not known.</p>'
        )
    return f'<p class="quiet">Give these messages back to the group:</p>\n<pre class="command">{escape(command)}</pre>'


def _details(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>" if text.strip() else ""


def _bars(trend: Sequence[Bar], kind: str) -> str:
    most = max((bar.letters for bar in trend), default=0) or 1
    drawn = "".join(_bar(at, bar, most) for at, bar in enumerate(trend) if bar.letters)
    label = f"{sum(bar.letters for bar in trend):,} letters since {_day(trend[0].start)}, at most {most:,} at a time"
    size = f"0 0 {10 * len(trend)} 100"
    return (
        f'<svg class="{kind}" viewBox="{size}" preserveAspectRatio="none" role="img" aria-label="{label}">{drawn}</svg>'
    )


def _bar(at: int, bar: Bar, most: int) -> str:
    height = max(3.0, 100 * bar.letters / most)  # a single letter among thousands must be seen
    told = f"<title>{_moment(bar.start)}: {bar.letters:,}</title>"
    return f'<rect x="{10 * at + 1}" y="{100 - height:.1f}" width="8" height="{height:.1f}">{told}</rect>'


def _ends(trend: Sequence[Bar]) -> str:
    most = max(trend, key=lambda bar: bar.letters)
    middle = f"at most {most.letters:,} in {_age(_width(trend))}, from {_moment(most.start)}"
    words = (_moment(trend[0].start), middle, f"up to {_moment(trend[-1].start + _width(trend))}")
    return f'<p class="ends quiet">{"".join(f"<span>{word}</span>" for word in words)}</p>'


def _rows(counts: Mapping[str, int]) -> str:
    most = max(counts.values(), default=0) or 1
    return f'<div class="rows">{"".join(_row(name, count, most) for name, count in counts.items())}</div>'


def _row(name: str, count: int, most: int) -> str:
    share = 100 * count / most
    return (
        f'<span>{escape(name)}</span><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="ground" width="100" height="10"/><rect width="{share:.1f}" height="10"/></svg>'
        f'<span class="count">{count:,}</span>'
    )


def _width(trend: Sequence[Bar]) -> timedelta:
    return trend[1].start - trend[0].start if len(trend) > 1 else timedelta(hours=1)


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _age(age: timedelta) -> str:
    """In the largest unit of which there is at least one."""
    units: Iterable[tuple[str, timedelta]] = (
        ("day", timedelta(days=1)),
        ("hour", timedelta(hours=1)),
        ("minute", timedelta(minutes=1)),
    )
    for name, unit in units:
        if age >= unit:
            return f"{age // unit:,} {name}{'s' if age // unit > 1 else ''}"
    return "less than a minute"
