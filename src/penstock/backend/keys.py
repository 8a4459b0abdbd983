"""Every key Penstock writes, its type, and the one cluster slot it shares with its topic.

| key                                     | type   | holds |
|-----------------------------------------|--------|-------|
| `<topic>`                               | stream | the messages; exactly the name the user gave |
| `{<queue>}:high`, `:normal`, `:low`     | stream | the jobs of a queue, by priority: a topic each |
| `penstock:{<slot>}:<topic>:dead`        | stream | dead letters of every group of the topic |
| `<prefix>:<topic>`                      | stream | the same, for the stream manager, which says where they are to be |
| `penstock:{<slot>}:<topic>:handled/<g>/<uuid>[/<replay>]` | string | `done`, or the entry that g handles it as |
| `penstock:{<slot>}:<queue>:job/<uuid>`  | hash   | where a job is that moved, its progress and result; expires |
| `penstock:{<slot>}:<queue>:recalled`    | set    | jobs nobody is to begin where they are, as stream@entry; expires |
| `penstock:{<slot>}:<queue>:rate`        | string | when the next job may be begun, in µs; expires |
| `penstock:{<slot>}:<queue>:migrated`    | hash   | how many jobs were taken over, by place and former queue |
| `penstock:{<slot>}:<queue>:crons`       | hash   | of each schedule its times, terms, last tick, and if it is paused |
| `penstock:{<slot>}:<queue>:unique/<k>`  | string | the job that stands for k, and where it was put; expires |
| `penstock:{<slot>}:<topic>:later`       | zset   | messages that are not due yet, by due time in ms |
| `penstock:{<slot>}:<topic>:cursors`     | hash   | durable cursor name → entry id, epoch, ordinal; it holds trimming |
| `penstock:{<slot>}:<topic>:fence/<q>`   | hash   | Spark query q: part → batch and rows written; `done` → batch |
| `penstock:{<slot>}:<topic>:once/<uuid>` | string | where a message published once is, or empty; expires |
| `penstock:{<slot>}:<topic>:groups`      | hash   | group → how it stood when it was last looked at |
| `penstock:{<slot>}:<topic>:members/<g>` | zset   | who reads partitions for g, by when that runs out in ms |
| `penstock:{<slot>}:<topic>:partitions`  | string | how many partitions there are; `<topic>:p<k>` is one |
| `penstock:{<slot>}:<topic>:paused`      | set    | groups that are to read nothing for now |
| `penstock:{<slot>}:<topic>:obeyed`      | hash   | group → epoch and id of the command it obeyed last |
| `penstock:{<slot>}:<topic>:parked/<g>`  | zset   | what group g has to try later, by due time in ms |
| `penstock:{<slot>}:<topic>:retry/<g>`   | stream | deliveries of group g that became due; read by g alone |
| `penstock:{<slot>}:<topic>:starts/<g>`  | hash   | suspect entry of g → how often it was started, token of the last |
| `penstock:{<slot>}:<topic>:steals/<g>`  | hash   | consumer → a counter that rises when entries are taken from it |
| `penstock:{<slot>}:<topic>:turn/<r>`    | hash   | who may read as r now, with its token, and how far r is |
| `penstock:{<slot>}:<topic>:valve`       | hash   | how the stream was; within a transaction of Spark's sink only |
| `penstock:{<slot>}:<topic>:written/<q>/<b>` | set | ids that batch b of Spark query q has written: UUIDs as bytes |

| `penstock:topics`                       | set    | the topics we know; alone in a slot of its own |

No two (topic, kind, group) build the same key: kinds are fixed words, and whatever follows the last `:` is a kind
with, behind `/`, quoted names in which neither `:` nor `/` can occur.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from penstock import options
from penstock.errors import ConfigurationError

_NEW_TOPIC = re.compile(r"[A-Za-z0-9._:-]*(?:\{[A-Za-z0-9._:-]+\}[A-Za-z0-9._:-]*)?")
_RETRY = re.compile(r"penstock:\{[^}]*\}:(?P<topic>.*):retry/(?P<group>[^:/]*)", re.DOTALL)
_OURS = "penstock:"
OWN_GROUP = "penstock"
"""A group of every watched stream that reads nothing: its one consumer, `epoch-<hex>`, is lost with the stream."""
JOB_GROUP = "workers"
"""What the workers of a queue call themselves, unless they are told otherwise."""
TOPICS = "penstock:topics"
LANES = tuple(priority.value for priority in options.Priority)
"""What the lanes of a queue are called behind its name, the most urgent first."""

_OF_QUEUES = frozenset({"job", "recalled", "rate", "migrated", "crons", "unique"})
"""Kinds of keys that a whole queue has: the home of one may be the name of a topic too."""

_LONGEST_NAME = 1024


def dead(topic: str) -> str:
    return _aux(topic, "dead")


def dead_under(prefix: str, topic: str) -> str:
    """Where the stream manager's users look for dead letters. It need not share the topic's slot."""
    return f"{prefix}:{topic}"


def cursors(topic: str) -> str:
    return _aux(topic, "cursors")


def fence(topic: str, query: str) -> str:
    return _aux(topic, "fence", query)


def valve(topic: str) -> str:
    """How a stream was when a transaction of a sink began; it is there only within that."""
    return _aux(topic, "valve")


def handled(topic: str, group: str, message_id: str, replay_id: str = "") -> str:
    return _aux(topic, "handled", group, message_id, *([replay_id] if replay_id else []))


def later(topic: str) -> str:
    return _aux(topic, "later")


def lane(queue: str, priority: str) -> str:
    """The stream of a queue's jobs of one priority. All of them lie in one slot."""
    return f"{queue if _tag(queue) else '{' + queue + '}'}:{priority}"


def is_lane(topic: str) -> bool:
    """Whether this is the name of a queue's lane, unless the queue was given streams of other names."""
    return queue_of(topic) is not None


def queue_home(queue: str, lane: str) -> str:
    """What the keys of a whole queue are named after: in the slot of its lanes, and apart from other queues there."""
    home = lane.removesuffix(":high")
    return home if home != lane and _tag(home) else f"{{{_slot(lane)}}}:{queue}"


def queue_of(lane: str) -> tuple[str, int] | None:
    """The home of the queue that a topic of this name is a lane of, and which one; None if it is called like none."""
    home, _, priority = lane.rpartition(":")
    return (home, LANES.index(priority)) if priority in LANES and _tag(home) else None


def queue_name(lane: str) -> str:
    """What the queue is called that a topic of this name is a lane of."""
    home = lane.rpartition(":")[0]
    return home[1:-1] if home.startswith("{") and home.endswith("}") else home


def recalled(home: str) -> str:
    return _aux(home, "recalled")


def rate(home: str) -> str:
    return _aux(home, "rate")


def migrated(home: str) -> str:
    return _aux(home, "migrated")


def crons(home: str) -> str:
    return _aux(home, "crons")


def unique(home: str, key: str) -> str:
    return _aux(home, "unique", key)


def record(home: str, job_id: str) -> str:
    """What is kept of a job. A UUID needs no quoting, so the key is the one of "" and the id behind it."""
    return _aux(home, "job", job_id)


def once(topic: str, message_id: str) -> str:
    return _aux(topic, "once", message_id)


def parked(topic: str, group: str) -> str:
    return _aux(topic, "parked", group)


def retry(topic: str, group: str) -> str:
    return _aux(topic, "retry", group)


def starts(topic: str, group: str) -> str:
    return _aux(topic, "starts", group)


def start_field(stream: str, id: str) -> str:
    """Where in `starts` the marks of an entry are: a group's topic and its retry stream share one hash."""
    return f"{'retry' if is_retry(stream) else 'topic'}/{id}"


def groups(topic: str) -> str:
    return _aux(topic, "groups")


def note_field(stream: str, group: str) -> str:
    """Where in `groups` the note on a group is: its topic and its retry stream share one hash."""
    return f"{'retry' if is_retry(stream) else 'topic'}/{group}"


def members(topic: str, group: str) -> str:
    return _aux(topic, "members", group)


def partitions(topic: str) -> str:
    return _aux(topic, "partitions")


def partition(topic: str, number: int) -> str:
    """The topic that is one partition of `topic`."""
    return f"{topic}:p{number}"


def is_partition(name: str, topic: str) -> bool:
    """Whether this is the name of a partition of `topic`, if that is divided."""
    number = name.removeprefix(f"{topic}:p")
    return number != name and number.isdecimal()


def paused(topic: str) -> str:
    return _aux(topic, "paused")


def obeyed(topic: str) -> str:
    return _aux(topic, "obeyed")


def steals(topic: str, group: str) -> str:
    return _aux(topic, "steals", group)


def turn(topic: str, reader: str) -> str:
    return _aux(topic, "turn", reader)


def written(topic: str, query: str, batch: int) -> str:
    return _aux(topic, "written", query, str(batch))


def types_of(topic: str, names: Iterable[str]) -> dict[str, str]:
    """What a topic and these groups of it may have beside the stream and its dead letters: key to type."""
    found = {later(topic): "zset", partitions(topic): "string", paused(topic): "set"}
    found |= {build(topic): "hash" for build in (cursors, groups, obeyed)}
    for name in names:
        found |= {retry(topic, name): "stream", parked(topic, name): "zset", members(topic, name): "zset"}
        found |= {build(topic, name): "hash" for build in (starts, steals, turn)}
    return found


def beside(topic: str) -> str:
    """How every key of the topic but its stream begins; also those of topics that are called after it: see `kind`."""
    return _aux(topic, "")


def unnamed_homes(topic: str) -> str:
    """How the keys of every queue in the topic's slot begin whose lanes were given names: see `queue_home`."""
    return _aux(f"{{{_slot(topic)}}}", "")


def kind(key: str) -> tuple[str, str, str]:
    """Of a key of ours: how it begins, which is `beside` of its topic or queue; its kind; for which group, or id."""
    start = key.rfind(":") + 1
    word, _, name = key[start:].partition("/")
    return key[:start], word, unquote(name)


def is_of_queue(word: str) -> bool:
    """True for a kind of key that belongs to a whole queue, and outlives its lanes."""
    return word in _OF_QUEUES


def home(stream: str) -> str:
    """The topic a stream belongs to: itself, or, for a group's retry stream, the topic that is retried."""
    found = _RETRY.fullmatch(stream)
    return unquote(found["topic"]) if found else stream


def is_retry(stream: str) -> bool:
    """True for a stream that only one group reads, so that a settled entry can be deleted at once."""
    return _RETRY.fullmatch(stream) is not None


def is_own(name: str) -> bool:
    """True for keys of Penstock's own, which are no topics."""
    return name.startswith(_OURS)


def may_create(topic: str) -> bool:
    """True if Penstock may create a stream of this name; any other existing stream can still be read and written."""
    if topic.startswith(_OURS):
        return is_retry(topic)
    return bool(topic) and _NEW_TOPIC.fullmatch(topic) is not None


def is_too_long(topic: str) -> bool:
    return len(topic.encode(errors="surrogatepass")) > _LONGEST_NAME


def check_topic(topic: str) -> None:
    """Refuse what can be no key of ours at all, before it reaches the server."""
    if not isinstance(topic, str) or not topic:
        raise ConfigurationError(f"a topic is a non-empty string, not {topic!r}")
    if is_too_long(topic):
        raise ConfigurationError(f"the topic name {topic[:40]!r}… is longer than {_LONGEST_NAME} bytes")
    _check_text("topic", topic)
    if is_own(topic) and not is_retry(topic):
        raise _own(topic)


def check_named(topic: str) -> None:
    """As `check_topic`, for what users name: a group's retry stream is no topic either."""
    check_topic(topic)
    if is_own(topic):
        raise _own(topic)


def check_name(what: str, name: str) -> None:
    """Groups, consumers and readers may be called anything printable of up to 256 bytes."""
    options.check_name(what, name)
    if what == "group" and name == OWN_GROUP:
        raise ConfigurationError(f"the group name {OWN_GROUP!r} is Penstock's own: choose another")


def refusal(topic: str) -> ConfigurationError:
    """Why a stream of this name cannot be created, and what can be done."""
    return ConfigurationError(
        f"topic {topic!r} does not exist and cannot be created under this name: use letters, digits, '.', '_', ':', '-'"
        " and at most one non-empty {tag}, or create the stream yourself first"
    )


def _own(topic: str) -> ConfigurationError:
    return ConfigurationError(f"{topic!r} is a key of Penstock's own: topic names may not start with {_OURS!r}")


def _check_text(what: str, name: str) -> None:
    if not name.isprintable():
        raise ConfigurationError(f"the {what} name {name!r} has characters that cannot be printed")


def _aux(topic: str, kind: str, *names: str) -> str:
    suffix = "".join("/" + quote(name, safe="") for name in names)
    return f"{_OURS}{{{_slot(topic)}}}:{quote(topic, safe='{}:')}:{kind}{suffix}"


def _slot(topic: str) -> str:
    """What the server hashes for `topic`: its first {tag} if that is not empty, else the whole name.

    A name with a `}` but no tag has no such spelling; its keys then hash elsewhere, which only a cluster minds.
    """
    return _tag(topic) or topic.replace("}", "%7D")


def _tag(topic: str) -> str:
    start = topic.find("{")
    end = topic.find("}", start + 1)
    return topic[start + 1 : end] if 0 <= start < end - 1 else ""
