"""What to raise, or to log, where `penstock.backend.survey` finds that something is missing."""

from penstock.backend.survey import Kind, Position, Survey, Verdict
from penstock.errors import DataLossError

_TEXTS: dict[Kind, str] = {
    "gone": "the stream is gone: it was deleted, renamed or flushed",
    "recreated": "the stream was deleted and made anew: what it held is gone",
    "rolled back": "the server fell back to an older state: entries that were read are not there any more",
    "trimmed": "entries were trimmed before they were read",
    "removed": "entries were trimmed or deleted before they were read",
    "deleted": "entries were deleted before they were read",
}
_TO_GO_ON = "to go on with what is there, set failOnDataLoss=false (archive, metrics and alerts: --allow-loss)"


def loss_error(stream: str, position: Position, survey: Survey | None, verdict: Verdict) -> DataLossError:
    """What to raise, or to log, for a verdict that is a loss."""
    number = "" if verdict.lost is None else f"{verdict.lost} "
    now = "" if survey is None else f", which now holds {survey.first or 'nothing'} to {survey.newest or 'nothing'}"
    return DataLossError(
        f"data loss in stream {stream!r} behind {position.id}{now}: {number}{_TEXTS[verdict.kind]}; {_TO_GO_ON}"
    )


def never_reached(stream: str, after: str, survey: Survey) -> DataLossError:
    """What to raise, or to log, where reading is to begin behind an entry that the stream cannot have had."""
    return DataLossError(
        f"data loss in stream {stream!r} behind {after}: its last id is {survey.last}, so it was deleted and made anew,"
        f" or the server fell back to an older state, or that id is another stream's; {_TO_GO_ON}"
    )


def short_read(stream: str, after: str, upto: str, planned: int, found: int) -> DataLossError:
    """What to raise, or to log, when a range holds another number of entries than were counted for the plan."""
    change = "trimmed or deleted meanwhile" if found < planned else "not the ones that were planned"
    return DataLossError(
        f"data loss in stream {stream!r} from {after} (not included) to {upto}: {planned} entries were planned and"
        f" {found} are there, so some were {change}; {_TO_GO_ON}"
    )


def unknown_gap(stream: str, after: str, survey: Survey) -> DataLossError:
    """What to raise, or to log, where the stream was trimmed beyond `after` and nobody has counted what lay there."""
    return DataLossError(
        f"data loss in stream {stream!r} behind {after}, perhaps: it now begins at {survey.first or 'its end'}, and"
        f" whether any of the entries that were trimmed lay between them cannot be told; {_TO_GO_ON}"
    )
