"""Writes every page, and every part of a page, that is made. `tests/docs/test_reference.py` compares."""

import sys

from scripts.reference.pages import ROOT, made

for name, text in made().items():
    file = ROOT / name
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name} written\n")
