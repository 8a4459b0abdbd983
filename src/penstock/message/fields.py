"""Every field and header name that Penstock puts on, or reads from, a stream entry.

A name that is already on somebody's stream can never change its meaning: add, do not reuse.
"""

ID = b"id"
PAYLOAD = b"payload"
TYPE = b"type"
KEY = b"key"
HEADERS = b"headers"
TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"
TIME = b"time"

VERSION = b"penstock"
"""Wire version. Absent means 1, and 1 is never written."""

DELIVERY = b"penstock-delivery"
"""Bookkeeping of earlier attempts on retry streams (JSON object). The backend's; readers of messages ignore it."""

DEAD = b"penstock-dead"
"""First field of a dead letter: where it comes from and why it died (JSON object). The backend's."""

RAW = b"penstock-raw"
"""In a dead letter: fields and values that do not fit an entry, in one parcel. The backend's."""

CONTENT_TYPE = "content-type"
"""Header: how the payload is encoded. Absent means JSON."""

EXPIRES_AT = "expires-at"
"""Header: after this moment (RFC 3339) nobody need handle the message any more."""

FOREIGN_ID = "foreign-id"
"""Header: the id as its writer gave it, when that was no UUID. Bytes that are not UTF-8 appear as `\\xNN`."""

UNIQUE_KEY = "unique-key"
"""Header: the job stands for all of this key, as long as it does."""

EDITED_FROM = "edited-from"
"""Header: the id of the dead letter of which this message is a mended copy; of its entry, if it had none."""

SCHEDULE = "schedule"
"""Header: the schedule whose tick asked for the job."""

DATA = b"data"
"""Dialects cloudevents and job: the whole document."""

ENQUEUE_TIME = b"enqueue_time"
"""Dialect cloudevents, bare form: nanoseconds since 1970."""

ENQUEUE_TIME_HEADER = "enqueue-time"
"""Header: `enqueue_time` to the nanosecond, which a `datetime` cannot hold."""

JOB_ID = b"job_id"
"""Dialect job: the job's id once more, beside the document."""

ENVELOPE = b"message"
"""Dialect enveloped: the whole envelope."""

FLAT_ID = b"_id"
FLAT_TYPE = b"_type"
FLAT_KEY = b"_key"
FLAT_HEADERS = b"_headers"
FLAT_TRACEPARENT = b"_traceparent"
FLAT_TRACESTATE = b"_tracestate"
FLAT_TIME = b"_time"
FLAT_RETRY_COUNT = b"_retry_count"
FLAT_ORIGINAL_ID = b"_original_id"
"""Dialect flat: what is not a key of the body. The last two are the old manager's and read as headers so named."""
