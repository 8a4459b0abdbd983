"""Finds out what a topic's payloads hold, by DuckDB: each file is looked at once, when somebody asks first.

What was found is kept in the lake, one file per topic. It is no part of the lake's log: should it be missing or not be
readable, it is found out again.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import structs

from penstock.errors import LakeError, LakeNotFoundError
from penstock.lake import tables
from penstock.lake.lake import Lake
from penstock.lake.manifest import DataFile
from penstock.lake.schemas import MOST_COLUMNS, Contents, Schema, Sighting, grown

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

EXACT = 1 << 53
"""Whole numbers up to here are the same in every program that reads JSON."""
BODY = "CASE WHEN json_valid(payload) AND json_type(payload) = 'OBJECT' THEN payload::JSON END"
"""A payload, if it is an object. Elements of an array would answer to the names of fields that are numbers."""

_SEEN = """
    CREATE TABLE seen AS
    SELECT file, field, {kind} AS kind, count(*) AS "rows", min(row(ts, seq, place)) AS first FROM (
        SELECT file, ts, seq, unnest(json_keys(body)) AS field, generate_subscripts(json_keys(body), 1) AS place,
               unnest(json_type(body, '$.*')) AS type, unnest(body->>'$.*') AS value
        FROM (SELECT file, ts, seq, {body} AS body FROM ({rows}))
    )
    GROUP BY ALL
"""
_CHOSEN = """
    CREATE TABLE chosen AS SELECT field, kind, min(first) AS first FROM seen
    WHERE NOT contains(field, chr(0)) GROUP BY field, kind
    ORDER BY kind = 'null', list_contains($known::VARCHAR[], field) DESC, sum("rows") DESC, field, kind LIMIT $most
"""
# In the order of time, so that it does not matter which files were looked at together.
_SIGHTINGS = """
    SELECT field, kind, coalesce(strftime(first[1] AT TIME ZONE 'UTC', '%Y-%m-%d'), 'none') FROM chosen
    ORDER BY first, field, kind
"""
_CONTENTS = 'SELECT file, field, kind, "rows" FROM seen SEMI JOIN chosen USING (field, kind) ORDER BY ALL'
_LEFT_OUT = """
    SELECT file, sum("rows")::BIGINT FROM seen ANTI JOIN chosen USING (field, kind) WHERE kind <> 'null' GROUP BY file
"""


def kind_of(type: str, value: str) -> str:
    """SQL for the kind of a value of JSON, by what DuckDB calls its type, and its text."""
    return f"""CASE {type}
        WHEN 'VARCHAR' THEN 'text' WHEN 'BOOLEAN' THEN 'flag' WHEN 'NULL' THEN 'null'
        WHEN 'OBJECT' THEN 'json' WHEN 'ARRAY' THEN 'json'
        ELSE CASE WHEN NOT regexp_full_match({value}, '-?[0-9]+') THEN 'number'
            WHEN TRY_CAST({value} AS BIGINT) IS NULL THEN 'digits'
            WHEN TRY_CAST({value} AS BIGINT) BETWEEN {-EXACT} AND {EXACT} THEN 'whole' ELSE 'long' END
        END"""


def schema_of(lake: Lake, topic: str) -> Schema:
    """What the payloads of a topic hold; `LakeNotFoundError` if the lake has no messages of it.

    The first call after files were added reads those. Where nothing may be written in the lake, each call does.
    """
    files = lake.snapshot().of(tables.RAW, topic=topic)
    if not files:
        raise LakeNotFoundError(
            f"the lake {lake.path} has no messages of topic {topic!r}; `penstock lake tables` lists them"
        )
    place = lake.kept("schemas") / f"{quote(topic, safe='')}.json"
    known = _read(place, topic)
    if all(file.path in known.files for file in files):
        return _only(known, files)
    with _alone(place.parent) as may_write:
        known = _read(place, topic)
        found = _learned(lake, known, [file for file in files if file.path not in known.files])
        if may_write:
            there = lake.snapshot().files
            _write(
                place, structs.replace(found, files={path: one for path, one in found.files.items() if path in there})
            )
    return _only(found, files)


def _only(schema: Schema, files: Sequence[DataFile]) -> Schema:
    return structs.replace(schema, files={file.path: schema.files[file.path] for file in files})


def _learned(lake: Lake, known: Schema, files: Sequence[DataFile]) -> Schema:
    rows = tables.rows_of(lake, files, named=True)
    try:
        with tables.plain() as connection:
            connection.execute(_SEEN.format(kind=kind_of("type", "value"), body=BODY, rows=rows))
            fields = sorted({column.field for column in known.columns})
            connection.execute(_CHOSEN, {"known": fields, "most": MOST_COLUMNS})
            sightings = [Sighting(*row) for row in connection.execute(_SIGHTINGS).fetchall()]
            contents = _contents(lake, connection, files)
    except tables.errors() as error:
        raise LakeError(f"the payloads of topic {known.topic!r} cannot be read: {error}") from error
    return grown(known, contents, sightings, [*tables.ENVELOPE, *tables.PARTITIONS])


def _contents(lake: Lake, connection: "DuckDBPyConnection", files: Sequence[DataFile]) -> dict[str, Contents]:
    counts: dict[str, dict[str, dict[str, int]]] = {file.path: {} for file in files}
    for file, field, kind, rows in connection.execute(_CONTENTS).fetchall():
        counts[_inside(lake, file)].setdefault(field, {})[kind] = rows
    left = {_inside(lake, file): rows for file, rows in connection.execute(_LEFT_OUT).fetchall()}
    return {path: Contents(fields, left.get(path, 0)) for path, fields in counts.items()}


def _inside(lake: Lake, path: Any) -> str:
    return str(path).removeprefix(f"{lake.path}/")


def _read(place: Path, topic: str) -> Schema:
    try:
        return msgspec.json.decode(place.read_bytes(), type=Schema)
    except (OSError, msgspec.MsgspecError):
        return Schema(topic)


def _write(place: Path, schema: Schema) -> None:
    draft = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        draft.write_bytes(msgspec.json.encode(schema) + b"\n")
        draft.rename(place)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _alone(directory: Path) -> Iterator[bool]:
    """Nobody else learns meanwhile; False if nothing can be written here, so that nobody need wait for anybody."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory / ".lock", os.O_CREAT | os.O_RDWR, 0o666)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield True
    finally:
        os.close(handle)
