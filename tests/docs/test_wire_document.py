"""The page on the wire format names every header and field that has a meaning."""

import re

from penstock.message import fields
from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "wire.md").read_text()
NAMES = [value for name, value in vars(fields).items() if name.isupper()]


def test_the_headers_of_the_page_are_those_of_the_code() -> None:
    (table,) = re.findall(r"^\| header \| says \|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert set(re.findall("^\\| `(.*?)` \\|", table, re.MULTILINE)) == {name for name in NAMES if isinstance(name, str)}


def test_the_page_names_the_fields_that_are_not_of_a_dialect() -> None:
    own = {"id", "payload", "type", "key", "headers", "traceparent", "tracestate", "time"}
    own |= {name.decode() for name in NAMES if isinstance(name, bytes) and name.startswith(b"penstock")}
    assert {name.encode() for name in own} <= set(NAMES)
    assert [name for name in sorted(own) if f"`{name}`" not in PAGE] == []
