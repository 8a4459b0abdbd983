"""`penstock lake`: what was archived, asked by DuckDB. Needs no Spark and no server."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.backend import keys
from penstock.cli.printing import Form, print_rows, print_table
from penstock.cli.usage import NotThereError
from penstock.errors import LakeError
from penstock.lake import Lake, Snapshot
from penstock.lake import tables as sql_tables

_NO_TABLE = re.compile("Table with name (.+?) does not exist!")


def query(
    sql: str, /, *, lake: Path, output: Form = None, verbose: Annotated[bool, Parameter(negative=())] = False
) -> None:
    """Ask the tables of a lake in SQL.

    The tables are raw (every entry that is a message, once), malformed (every entry that is none), messages (every
    message of a topic once, however often it was published), files, and, once dead letters were archived, dead and
    failures. A query of one table with WHERE id = '...' opens only the files that may hold that message.

    Parameters
    ----------
    sql
        Like "SELECT topic, count(*) FROM raw GROUP BY topic".
    lake
        The lake's directory.
    verbose
        Say also how many files of the lake were opened.
    """
    opened = Lake.open(lake)
    state = opened.snapshot()
    needed = sql_tables.needed_by(sql, state)
    found = _answer(opened, sql, needed)
    if found is not None:
        print_table(found, output)
    if verbose:
        print(f"{len(needed.files):,} of {len(state.files):,} files of the lake were opened", file=sys.stderr)


def _answer(lake: Lake, sql: str, needed: Snapshot) -> Any:
    try:
        return sql_tables.query(lake, sql, needed)
    except LakeError as error:
        if found := _NO_TABLE.search(str(error)):  # DuckDB would name tables of its own that are called likewise
            raise NotThereError(
                f"the lake has no table {found[1]!r}: penstock lake tables lists its tables and topics, and each topic"
                " is a table, too"
            ) from error
        raise


def tables(*, lake: Path, output: Form = None) -> None:
    """Say what is in a lake: rows, files and bytes by table and topic, and how far it has come.

    reached is the last entry of the topic, or the last of its dead letters, that was brought to the lake.

    Parameters
    ----------
    lake
        The lake's directory.
    """
    opened = Lake.open(lake)
    found = sql_tables.query(
        opened,
        'SELECT "table", topic, sum("rows")::BIGINT AS "rows", count(*) AS files, sum(size)::BIGINT AS bytes,'
        " min(date) AS first_date, max(date) AS last_date FROM files GROUP BY ALL ORDER BY ALL",
    )
    print_table(_with_reached(found, opened.snapshot()), output)


def _with_reached(found: Any, state: Snapshot) -> Any:
    import pyarrow as pa

    reached = {place: at.id for place, at in state.reached.items()}
    topics = [(row["table"], row["topic"]) for row in found.to_pylist()]
    places = [keys.dead(topic) if topic and table == sql_tables.DEAD else topic for table, topic in topics]
    return found.append_column("reached", pa.array([reached.get(place) for place in places], pa.string()))


def files(table: str, /, *, lake: Path, topic: str | None = None, output: Form = None) -> None:
    """List the files of a table: what other readers of Parquet should read, and nothing else. -o raw: paths alone.

    Parameters
    ----------
    table
        raw, malformed, dead, or whatever else `penstock lake tables` shows.
    lake
        The lake's directory.
    topic
        Only those of this topic.
    """
    opened = Lake.open(lake)
    known = {*sql_tables.COLUMNS, *(file.table for file in opened.snapshot().files.values())}
    if table not in known:
        raise NotThereError(f"a lake has no files of a table {table!r}: it has {', '.join(sorted(known))}")
    wanted = {} if topic is None else {"topic": topic}
    found = opened.snapshot().of(table, **wanted)
    rows = [{"path": str(opened.path / one.path), **one.partition, "rows": one.rows, "size": one.size} for one in found]
    print_rows(rows, output, ("path",) if output == "raw" else ("topic", "date", "rows", "size", "path"))
