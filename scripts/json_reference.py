#!/usr/bin/env python3
"""Writes docs/reference/json.md from the schemas beside it.

    python3 scripts/json_reference.py [FOLDER]            writes it
    python3 scripts/json_reference.py --check [FOLDER]    ends with 1 if it is not what they say

FOLDER is another one (the check's own test uses it).

A test compares the listings themselves with the schemas (tests/system/schema_test.cpp).
"""
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs/reference"
PAGES = ("ps", "job", "inspect", "why", "stats", "events", "report", "status", "top", "policy", "backend", "config", "stop",
         "version",
         "doctor")

HEAD = """# JSON listings

Every command with `--json` prints one JSON object on stdout. `stats --watch --json` and
`events --follow --json` print one after the other, each on a line of its own. Messages go to
stderr, also with `--json`.

* `schema_version` is 1. It rises when a key changes its meaning or goes away. New keys may come at
  any time.
* The unit is part of the name: `_bytes`, `_seconds`, `_us`, `_ratio` (1 is the whole).
* GPUs are named by UUID. `index` is NVML's own.
* `null` means unknown, or not set.
* Some keys keep an earlier word until the next version: `means` is the backend, `outside` are the
  unmanaged processes, and `spared` is what was skipped. See the [glossary](glossary.md).

Each section is made from the schema that it names, by `scripts/json_reference.py`. A test compares
every listing with its schema.
"""


def type_of(schema):
    """The type as words: "integer or null"."""
    if "$ref" in schema:
        return "object"
    kind = schema["type"]
    return " or ".join(kind) if isinstance(kind, list) else kind


def rows(schema, prefix=""):
    """One row for each key, nested ones behind their parent."""
    for key, member in schema.get("properties", {}).items():
        name = prefix + key
        text = member.get("description", "")
        if "enum" in member:
            text += ": " + ", ".join(f"`{word}`" for word in member["enum"]
                                     if word is not None)
        items = member.get("items")
        if items and "$ref" in items:
            text += "; each as in [job](#job)"
        yield f"| `{name}` | {type_of(member)} | {text} |"
        if member.get("properties"):
            yield from rows(member, name + ".")
        elif items and "$ref" not in items:
            yield from rows(items, name + "[].")


def page(folder):
    """The whole page."""
    out = [HEAD]
    for name in PAGES:
        schema = json.loads((folder / f"{name}.schema.json").read_text())
        out += [f"## {name}", "", f"{schema['title']}: {schema['description']}.",
                f"Schema: [{name}.schema.json]({name}.schema.json).", "",
                "| key | type | meaning |", "| --- | --- | --- |", *rows(schema), ""]
    return "\n".join(out).rstrip() + "\n"


def main():
    words = sys.argv[1:]
    check = "--check" in words
    folder = Path(([word for word in words if word != "--check"] or [FOLDER])[0])
    target = folder / "json.md"
    if not check:
        target.write_text(page(folder))
        return 0
    if target.read_text() == page(folder):
        return 0
    print(f"json_reference: {target} is not what the schemas say: run "
          "python3 scripts/json_reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
