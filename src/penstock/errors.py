"""Every error Penstock raises on purpose.

PenstockError
├── ConfigurationError            an option, URL or name is wrong; also a ValueError
│   └── CannotListenError         another process listens there, or the address is none of this machine's
├── EmbeddedServerError           the private server did not start or did not stay up
├── SetupError                    something that has to be installed is missing or unfit: Java, an extra
├── ServerError                   the server cannot serve us now
│   ├── ServerUnreachableError    no connection, or it broke before the reply
│   ├── AuthenticationError       wrong password, or the user may not run the command
│   ├── ServerTooOldError         older than Redis 7.0 or Valkey 7.2
│   ├── ServerBusyError           it reads its data from disk, runs a long script, or moves slots; wait
│   ├── ServerReadOnlyError       we talk to a replica, or to a server that refuses writes
│   └── ServerOutOfMemoryError    maxmemory is reached; reading and settling still work
├── TopicError                    the key is not what a topic must be
│   ├── WrongKeyTypeError         another kind of value lives at that key
│   ├── GroupMissingError         the stream or its group vanished, or never existed
│   ├── DataLossError             entries that a reader still needed are gone
│   └── CursorNotFoundError       the place a reader asked for is not in the topic
├── PublishError                  a message was not, or perhaps not, written
│   ├── EncodeError               the body cannot be put on the wire
│   ├── FencedError               a newer attempt writes the same part of a batch now
│   ├── NotDurableError           it was written, but is not as safe as was asked for; carries the receipt's facts
│   ├── PartlyPublishedError      some of its topics have it and others lack it; carries the id
│   └── PublishUnknownError       it may or may not have been written; carries the id
├── JournalError                  records of attempts are missing in a journal, which says how many
├── LakeError                     the lake cannot be read, or not be written as asked
│   └── LakeNotFoundError         there is no lake, or nothing in it of what was asked for
├── FlowError                     a user's flow on Spark could not start, or failed
├── MalformedError                what is stored cannot be read as a message; carries the raw fields
├── SettleError
│   ├── LeaseLostError            somebody else holds the entry, or the turn, now
│   │   └── TurnLostError         of a sequential reader; also a ChangeStreamError
│   └── AckOutOfSequenceError     the position is not where the caller believes; also a ChangeStreamError
├── ChangeStreamError             a sequential change stream cannot go on
│   ├── ChangeStreamIOError       the server cannot be asked, or refuses; its cause says why
│   ├── ChangeMessageError        the next message cannot be read; carries its id
│   └── ChangesLostError          changes that the reader had still to come to are gone; also a DataLossError
│   └── AckOutOfSequenceError     the position is not where the caller believes
├── JobError                      what became of a job that somebody waits for
│   ├── JobDeadError              it was given up; its dead letter says more
│   ├── JobCancelledError         somebody cancelled it
│   └── JobNotFoundError          the queue knows no job of that id, or does not remember it any more
├── MigrationError                jobs of another queue cannot be taken over, and stay there
└── DeliveryError                 why a delivery failed, when it was not the handler that raised
    ├── HandlerTimeoutError       the handler took longer than its timeout
    ├── HandlerProcessError       the handler ran in a process of its own, and raised or died there
    ├── BodyMismatchError         its body is none of the type that its handler takes
    ├── ExpiredError              nobody came to it before it expired
    └── UnhandledTypeError        no handler takes messages of that type

Texts say what happened, to which topic, group or id, and what to do. None holds a password.
"""

from collections.abc import Mapping, Sequence


class PenstockError(Exception):
    """The root: catching it catches every failure Penstock itself reports."""


class ConfigurationError(PenstockError, ValueError):
    """An option, URL or name cannot work. Nothing was sent; fix the call."""


class CannotListenError(ConfigurationError):
    """This machine lets nobody listen there: another process does, or the address is none of its own."""


class EmbeddedServerError(PenstockError):
    """The embedded server could not be started or reached; the text ends with its last log lines."""


class SetupError(PenstockError):
    """What this needs is not installed here, or cannot be used; the text says what to install."""


class ServerError(PenstockError):
    """The server cannot serve this call now. Unless said otherwise, trying later may work."""


class ServerUnreachableError(ServerError):
    """No connection could be made in time, or it broke before the reply came.

    What was sent on a broken connection may have run.
    """


class AuthenticationError(ServerError):
    """The server refused our user or password, or that user may not run the command."""


class ServerTooOldError(ServerError):
    """The server lacks what Penstock relies on: Redis 7.0 or Valkey 7.2 is the oldest that will do."""


class ServerBusyError(ServerError):
    """The server answers nothing for a while: it reads its data from disk, runs a long script, or moves slots."""


class ServerReadOnlyError(ServerError):
    """The server takes no writes: a replica, too few replicas, or its disk refuses to persist."""


class ServerOutOfMemoryError(ServerError):
    """The server is at `maxmemory` and refuses to store more. Nothing was written.

    Workers still start, read and settle; that alone makes no room, for settled entries stay as `Retention` says.
    """


class TopicError(PenstockError):
    """The key of a topic is not in the state the call needs."""


class WrongKeyTypeError(TopicError):
    """Something that is not the expected kind of value lives at the key. Nothing was changed."""


class GroupMissingError(TopicError):
    """The stream or the group does not exist (any more). Create the group again, at 0 to skip nothing."""


class DataLossError(TopicError):
    """Entries that a reader still needed were trimmed, deleted, or went with their stream; the text says which."""


class CursorNotFoundError(TopicError):
    """What a reader wants to begin behind, a message or a cursor, is not there. Nothing was read."""

    def __init__(self, topic: str, cursor: str, why: str) -> None:
        super().__init__(f"topic {topic!r} cannot be read from {cursor!r}: {why}")
        self.topic = topic
        self.cursor = cursor


class PublishError(PenstockError):
    """The message was not written, or, if it is a `PublishUnknownError`, perhaps not."""


class EncodeError(PublishError):
    """The message cannot be put on the wire: not encodable, or larger than the limits. Nothing was sent."""


class FencedError(PublishError):
    """Another attempt took over the part of a batch that we were writing. Our last rows were not written; stop."""


class PublishUnknownError(PublishError):
    """The connection broke after the message left: it may have been written, or not.

    If it was published with `once=True`, or under an id of your own, publish it again under `id`: it is stored only
    once. Anything else may then be there twice, under one id.
    """

    def __init__(self, topic: str, id: str) -> None:
        super().__init__(
            f"the connection broke while message {id} was on its way to topic {topic!r}: it may or may not have been"
            " written; if it was published with once=True or an id of its own, publish it again under that id, else it"
            " may then be there twice"
        )
        self.topic = topic
        self.id = id


class PartlyPublishedError(PublishError):
    """A message that belongs on several topics is on some of them. Publish it again under `id`: that completes it."""

    def __init__(self, id: str, written: Sequence[str], missing: "Mapping[str, Exception]") -> None:
        reasons = "; ".join(f"{topic!r}: {error}" for topic, error in missing.items())
        super().__init__(
            f"message {id} is in {', '.join(map(repr, written))} and not known to be in {reasons}; publish it again"
            " under that id within a day: what is missing is added, and nothing is there twice"
        )
        self.id = id
        self.written = tuple(written)
        self.missing = tuple(missing)


class JournalError(PenstockError):
    """Records of attempts could not be written to a journal. Deliveries are not concerned."""


class LakeError(PenstockError):
    """A lake is not there, is damaged, or was changed by another writer meanwhile; nothing of this step is in it."""


class LakeNotFoundError(LakeError):
    """There is no lake at the path, or nothing in it of the topic."""


class FlowError(PenstockError):
    """A flow failed; the text has the reason in the words of whoever raised it. What was delivered stays; run it again
    to go on."""


class MalformedError(PenstockError):
    """A stored entry cannot be read as a message. `raw` holds its fields and values exactly as stored."""

    def __init__(self, topic: str, entry_id: str, reason: str, raw: Sequence[bytes]) -> None:
        super().__init__(f"entry {entry_id} of topic {topic!r} is malformed: {reason}")
        self.topic = topic
        self.entry_id = entry_id
        self.reason = reason
        self.raw = tuple(raw)


class SettleError(PenstockError):
    """An outcome was not made durable; the entry is where it was before."""


class LeaseLostError(SettleError):
    """Somebody else holds what we believed to be ours; whatever we did with it may be done again."""


class ChangeStreamError(PenstockError):
    """A sequential change stream cannot go on; what was not acknowledged comes again."""


class ChangeStreamIOError(ChangeStreamError):
    """The server could not be asked, or refused; `__cause__` is what it failed with. Nothing is lost: try again."""


class ChangeMessageError(ChangeStreamError):
    """The next message of a change stream cannot be read, so nothing behind it is given.

    `id` is its entry id: `ack(id)` passes it by, `dead_letter(id, reason)` puts it to the dead letters. `error` says
    why it cannot be read, and holds the fields as they are stored.
    """

    def __init__(self, topic: str, reader: str, id: str, error: MalformedError) -> None:
        super().__init__(
            f"reader {reader!r} of topic {topic!r} stands before an entry that it cannot read: {error}; ack({id!r})"
            f" passes it by, dead_letter({id!r}, reason) puts it to the dead letters"
        )
        self.id = id
        self.error = error


class ChangesLostError(ChangeStreamError, DataLossError):
    """Changes that a sequential reader had still to come to are gone. `accept_loss()` has it go on behind them."""

    def __init__(self, topic: str, reader: str, after: str, upto: str | None, count: int | None, reason: str) -> None:
        how_many = "an unknown number of" if count is None else str(count)
        super().__init__(
            f"{how_many} changes of topic {topic!r} behind {after}, up to {upto or 'nobody knows where'}, are missing"
            f" for reader {reader!r} ({reason}): accept_loss() has it go on behind them"
        )
        self.after = after
        self.upto = upto
        self.count = count
        self.reason = reason


class TurnLostError(LeaseLostError, ChangeStreamError):
    """Another process reads in our place now; whatever we did with the last message may be done again."""


class AckOutOfSequenceError(SettleError, ChangeStreamError):
    """A sequential position can only move from where it is; `expected` and `actual` say where."""

    def __init__(self, topic: str, reader: str, expected: str, actual: str) -> None:
        super().__init__(
            f"reader {reader!r} of topic {topic!r} is at {actual}, not at {expected}: acknowledge the message"
            " that recv() returned last"
        )
        self.expected = expected
        self.actual = actual


class NotDurableError(PublishError):
    """The message is stored, but fewer replicas have it, or the disk has it not, within the time allowed.

    Nothing is undone: it will be delivered. Do not publish it again, it would then be there twice.
    """

    def __init__(self, topic: str, id: str, entry_id: str, reached: str) -> None:
        super().__init__(
            f"message {id} is stored in topic {topic!r} as {entry_id}, but only this was reached in time: {reached};"
            " do not publish it again, check the server's replicas and persistence"
        )
        self.topic = topic
        self.id = id
        self.entry_id = entry_id
        self.reached = reached


class JobError(PenstockError):
    """A job that somebody waits for has no result, and will have none."""


class JobDeadError(JobError):
    """The job was given up, and is a dead letter: `queue.dead` has it, with the reason."""


class JobCancelledError(JobError):
    """The job was cancelled. Raised by `check()` of a job that is to end, and by whoever waits for its result."""


class JobNotFoundError(JobError):
    """No job of this id is known: it never was in this queue, or it was done so long ago that nothing is kept of it."""


class MigrationError(PenstockError):
    """Some jobs of another queue cannot be taken over: their records are missing or damaged. They stay there."""


class DeliveryError(PenstockError):
    """A delivery failed for a reason of its own, not because its handler raised."""


class HandlerTimeoutError(DeliveryError):
    """The handler took longer than its timeout; it was cancelled, if that was possible."""


class HandlerProcessError(DeliveryError):
    """The process in which a handler ran has ended, or what it raised there. Its notes hold the traceback."""


class BodyMismatchError(DeliveryError):
    """The message's body is none of the type that its handler takes, which was not called. It is given up at once."""


class ExpiredError(DeliveryError):
    """The message expired before it was handled."""


class UnhandledTypeError(DeliveryError):
    """No handler takes messages of this type: register one with `on`, or a default handler."""
