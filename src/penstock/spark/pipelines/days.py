"""Days, as Spark's SQL says them: those of UTC, wherever Spark runs."""

_DAY = "yyyy-MM-dd"
NO_DAY = "none"
"""In place of the day of what has no time."""


def day_of(column: str) -> str:
    """SQL for the day of a column of moments; null where there is none."""
    return f"date_format(to_utc_timestamp({column}, current_timezone()), '{_DAY}')"
