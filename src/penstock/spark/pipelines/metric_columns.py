"""What is measured, as Spark's SQL says it."""

from penstock.spark.pipelines.days import day_of

_NAMESPACE = "5d1c6f7ee0d04c0b8f6c4b6c2f0f9a3e"
ENTRIES = "stream string, ts timestamp, type string"
JOURNAL = "stream string, ts timestamp, id string, payload string"
RECORDS = (
    "records array<struct<topic: string, `group`: string, type: string, entry_id: string, attempt: int,"
    " outcome: string, seconds: double, at: bigint, dropped: bigint>>"
)
IS_LATE = "coalesce(ts < closed - INTERVAL '{watermark}' SECOND, false)"
# Not behind the frontier: Spark's watermark would follow, and what comes next in good time would be dropped, uncounted.
EVENT = "if(late, frontier, least(ts, frontier))"
PUBLISHED = (
    "stream AS topic",
    "CAST(NULL AS string) AS `group`",
    "type",
    *("CAST(NULL AS string) AS outcome", "CAST(NULL AS int) AS attempt", "CAST(NULL AS double) AS seconds"),
    *("CAST(NULL AS double) AS wait", "CAST(NULL AS bigint) AS dropped"),
)
ATTEMPTED = (
    "coalesce(record.topic, stream) AS topic",
    "record.`group` AS `group`",
    "record.type AS type",
    "record.outcome AS outcome",
    "record.attempt AS attempt",
    "record.seconds AS seconds",
    # Between two clocks, so it may seem to be less than nothing.
    "greatest(0, record.at - try_cast(split_part(record.entry_id, '-', 1) AS bigint)) / 1000 AS wait",
    "record.dropped AS dropped",
)
SUMS = {
    "published": "count_if(kind = 'published' AND NOT late)",
    "handled": "count_if(outcome = 'handled' AND NOT late)",
    "failed": "count_if(outcome = 'failed' AND NOT late)",
    "rejected": "count_if(outcome = 'rejected' AND NOT late)",
    "snoozed": "count_if(outcome = 'snoozed' AND NOT late)",
    "retried": "count_if(attempt > 1 AND NOT late)",
    "dropped": "coalesce(sum(if(late, NULL, dropped)), 0)",
    "late": "count_if(late)",
    "seconds_avg": "avg(if(late, NULL, seconds))",
    "seconds_p95": "percentile_approx(if(late, NULL, seconds), 0.95)",
    "seconds_max": "max(if(late, NULL, seconds))",
    "wait_avg": "avg(if(late, NULL, wait))",
    "wait_p95": "percentile_approx(if(late, NULL, wait), 0.95)",
    "wait_max": "max(if(late, NULL, wait))",
}
ROW = ("window_start", "window_end", "topic", "`group`", "type", *SUMS)
_KEY = """to_json(named_struct(
    'from', unix_millis(window_start), 'to', unix_millis(window_end), 'topic', topic, 'group', `group`, 'type', type
))"""
DIGEST = f"sha1(concat(unhex('{_NAMESPACE}'), CAST({_KEY} AS binary))) AS digest"
UUID5 = """concat_ws('-',
    substr(digest, 1, 8), substr(digest, 9, 4), '5' || substr(digest, 14, 3),
    substr('89ab', CAST(conv(substr(digest, 17, 1), 16, 10) AS int) % 4 + 1, 1) || substr(digest, 18, 3),
    substr(digest, 21, 12)
) AS id"""
DATE = f"{day_of('window_start')} AS date"
ISO = "date_format(to_utc_timestamp({name}, current_timezone()), \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\") AS {name}"
