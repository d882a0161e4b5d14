#!/usr/bin/env python3
"""The tables that headers draw of their state machines, compared with the enums beside them.

    //     state      input              → state       action
    //     Resident   look, a reason     → SwappingOut  BeginOut

A table begins with "state", "phase" or "stage" and an arrow. Its rows are checked:

* a row's arrow stands below the one of the head, so no two rows have run together;
* every state of the enum has a row, and a name with a capital in either column of states is one of
  the enum;
* every action of an enum `Action` in the same header stands in the table, but for kNothing and kNone.

    scripts/check_drawings.py [ROOT]    ROOT: another tree (the check's own test uses it)
"""
import re
import sys
from pathlib import Path

HEAD = re.compile(r"^//( +)(state|phase|stage) .*→ \2\b")
ENUM = re.compile(r"enum class (\w+)[^{]*\{([^}]*)\}")
NAME = re.compile(r"\bk?([A-Z][A-Za-z]*)\b")


def enums(text):
    """{name: enumerators without their k}"""
    found = {}
    for name, body in ENUM.findall(text):
        body = re.sub(r"//[^\n]*", "", body)
        found.setdefault(name, []).extend(re.findall(r"\bk(\w+)", re.sub(r"=[^,}]*", "", body)))
    return found


def tables(lines):
    """[(line of the head, its arrow's column, rows as (line, text))]"""
    for at, line in enumerate(lines):
        if HEAD.match(line):
            rows = []
            for number in range(at + 1, len(lines)):
                text = lines[number]
                if not re.match(r"^// {5}", text):
                    break
                rows.append((number, text))
            yield at, line.index("→"), rows


def states_of(found, rows):
    """The enum that has most of the names in the first column."""
    first = {name for _, text in rows for name in NAME.findall(text[7:].split("  ")[0])}
    best = max(found.items(), key=lambda each: len(first & set(each[1])), default=(None, []))
    return best if first & set(best[1]) else (None, [])


def check_table(path, head, column, rows, found, complain):
    name, states = states_of(found, rows)
    if name is None:
        complain(path, head, "no enum of this header has the states of the table")
        return
    seen, words = set(), set()
    for number, text in rows:
        words.update(NAME.findall(text))
        if text.count("→") > 1:
            complain(path, number, "two arrows: two rows have run together")
        if "→" not in text:
            continue
        if text.index("→") != column:
            complain(path, number, "the arrow does not stand below the one of the head")
            continue
        start = re.match(r"// {5}(k?[A-Z]\w*)", text)
        target = re.match(r"(k?[A-Z]\w*)", text[column + 2:])
        for side, match in (("first column", start), ("column behind the arrow", target)):
            if match is None:
                continue
            word = re.sub(r"^k(?=[A-Z])", "", match[1])
            seen.add(word)
            if word not in states:
                complain(path, number, f"{name} has no '{word}', which the {side} names")
    for state in states:
        if state not in seen:
            complain(path, head, f"{name}::k{state} is in no row")
    for action in found.get("Action", []):
        if action not in words and action not in ("Nothing", "None"):
            complain(path, head, f"Action::k{action} is in no row")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    wrong = []
    count = 0

    def complain(path, number, what):
        wrong.append(f"{path.relative_to(root)}:{number + 1}: {what}")

    for folder in ("include", "shim", "monitor", "tools"):
        for path in sorted((root / folder).rglob("*.h")):
            text = path.read_text()
            lines = text.splitlines()
            for head, column, rows in tables(lines):
                count += 1
                check_table(path, head, column, rows, enums(text), complain)
    for line in wrong:
        print(f"check_drawings: {line}", file=sys.stderr)
    if not count:
        print("check_drawings: no table was found", file=sys.stderr)
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
