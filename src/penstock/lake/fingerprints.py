"""Failures that are alike, in SQL: what a dead letter says without what differs from one message to the next.

The view `failures` is the table `dead` with three more columns:

pattern       the reason, with values, numbers and ids replaced by what they are
fingerprint   of error, pattern, and the functions it went through last: the same wherever the same thing goes wrong
cluster       of topic, group and fingerprint: one kind of failure of one group
"""

from penstock.lake.words import DEAD, text

VIEW = "failures"
_WORKED_OUT = '"worked out"'  # which no other table can be called
_LONGEST = 2000
_FRAMES = 5
"""The innermost ones. A traceback is kept from its end: of a deep one, the first frames differ by where it was cut."""
_DIGITS = 10
# In this order: an id is also digits, and a quoted value may be anything.
_VALUES = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<uuid>"),
    # Behind a letter it is an apostrophe.
    (r"(^|[^\w])'[^']*'", r"\1<text>"),
    (r'"[^"]*"', "<text>"),
    (r"`[^`]*`", "<text>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
    # Before bare digests: one that is a number must not differ from a shorter number.
    (r"[+-]?\b[0-9]+(?:[.,:][0-9]+)*(?:[eE][+-]?[0-9]+)?\b", "<n>"),
    (r"\b[0-9a-fA-F]{8,}\b", "<hex>"),
    (r"[0-9]+", "<n>"),
    (r"\s+", " "),
)
_FRAME = r'File "[^"]*", line [0-9]+, in [^\n]*'
_FRAME_PARTS = r'File "(?:[^"]*?[/\\])??([^/\\"]*[/\\][^/\\"]*|[^/\\"]*)", line [0-9]+, in ([^\n]*)'


def _pattern() -> str:
    found = f"left(coalesce(said, ''), {_LONGEST})"
    for values, name in _VALUES:
        found = f"regexp_replace({found}, {text(values)}, {text(name)}, 'g')"
    return f"trim({found})"


def _path() -> str:
    """File and function of the last frames; no lines, which change with every edit, nor where it is installed."""
    frames = f"regexp_extract_all(coalesce(trace, ''), {text(_FRAME)})[-{_FRAMES}:]"
    parts, kept = text(_FRAME_PARTS), text(r"\1 \2")
    return f"regexp_replace(array_to_string({frames}, chr(10)), {parts}, {kept}, 'g')"


def _hashed(*columns: str) -> str:
    told = ", ".join(f"coalesce({column}, '')" for column in columns)
    return f"left(md5(concat_ws(chr(31), {told})), {_DIGITS})"


DEFINITIONS = (
    f"CREATE OR REPLACE MACRO failure_pattern(said) AS {_pattern()}",
    f"CREATE OR REPLACE MACRO failure_path(trace) AS {_path()}",
    f"""
    CREATE OR REPLACE VIEW {VIEW} AS
    SELECT *, {_hashed("topic", '"group"', "fingerprint")} AS cluster FROM (
        SELECT *, {_hashed("error", "pattern", "failure_path(traceback)")} AS fingerprint
        FROM (SELECT *, failure_pattern(reason) AS pattern FROM {DEAD})
    )
    """,  # noqa: S608 - all of it stands above
)
"""What makes the view on a connection that has the table `dead`."""
WORKED_OUT = (
    f"CREATE TABLE {_WORKED_OUT} AS SELECT topic, letter_id, pattern, fingerprint, cluster FROM {VIEW}",  # noqa: S608
    f"""
    CREATE OR REPLACE VIEW {VIEW} AS
    SELECT {DEAD}.*, pattern, fingerprint, cluster FROM {DEAD} JOIN {_WORKED_OUT} USING (topic, letter_id)
    """,  # noqa: S608
)
"""What makes the view cheap to ask often: its own columns are found out once, at some 20 µs a letter."""
