#!/usr/bin/env python3
"""Writes the manual pages from what the programs say with --help.

    packaging/help/man_pages.py BUILD FOLDER     FOLDER/man1/*.1 and FOLDER/man8/switchyardd.8

The pages' date is the one that CHANGELOG.md gives to the version.
"""
import os
import re
import sys
from pathlib import Path

from help_texts import ask_all

SOURCE = Path(__file__).resolve().parents[2]
VERSION = (SOURCE / "VERSION").read_text(encoding="utf-8").split()[0]
DATE = re.search(rf"^## {re.escape(VERSION)} \(([0-9-]+)\)$",
                 (SOURCE / "CHANGELOG.md").read_text(encoding="utf-8"), re.M).group(1)


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(['.])", r"\\&\1", text, flags=re.M)


def marked(text):
    """A command between backticks is bold."""
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fR", roff(text))


def items(rows):
    return [line for head, meaning in rows
            for line in (".TP", f"\\fB{roff(head)}\\fR", marked(meaning))]


def verbatim(lines):
    return [".PP", ".nf", *(roff(line) for line in lines), ".fi"]


def indented(block):
    """Lines that stand to the right: "  name   meaning", or commands as they are."""
    rows = []
    for line in block:
        row = re.match(r"  (\S.*?)  +(\S.*)$", line)
        if row:
            rows.append(list(row.groups()))
        elif rows and line.startswith("      "):
            rows[-1][1] += " " + line.strip()
        else:
            return verbatim(block)
    return items(rows)


def prose(lines):
    """Paragraphs and indented blocks, to the exit status, which has a section of its own."""
    out, block = [], []
    for line in [*lines, ""]:
        same = line and (not block or line.startswith("  ") == block[-1].startswith("  "))
        if block and not same:
            if block[0].startswith("  "):
                out += indented(block)
            else:
                text, found, status = " ".join(block).partition("Exit status:")
                out += [".PP", marked(text.strip())] if text else []
                if found:
                    status = status.strip()
                    out += [".SH EXIT STATUS", marked(status[0].upper() + status[1:])]
            block = []
        if line:
            block.append(line)
    return out


def page(help_text, section, see):
    name = "-".join(help_text.words)
    about = help_text.about.split(". ")[0].rstrip(".")
    about = about.removeprefix(f"{name}, ")
    out = [f'.TH {name.upper()} {section} "{DATE}" "Switchyard {VERSION}" "Switchyard"',
           ".SH NAME", f"{roff(name)} \\- {roff(about)}", ".SH SYNOPSIS",
           f"\\fB{roff(' '.join(help_text.words))}\\fR "
           f"{roff(help_text.usage.removeprefix(' '.join(help_text.words)).strip())}"]
    if help_text.more:
        out += [".SH EXAMPLES", *verbatim([line for line in help_text.more if line])]
    for heading, rows in help_text.sections:
        out += [f".SH {roff(heading.upper())}", *items([(row.head, row.meaning) for row in rows])]
    if help_text.prose:
        heading, *lines = help_text.prose
        examples = next((i for i, line in enumerate(lines) if not line), len(lines))
        out += [f".SH {roff(heading[:-1].upper())}", *verbatim(lines[:examples])]
        rest = prose(lines[examples:])
        out += [".SH NOTES"] if rest and not rest[0].startswith(".SH") else []
        out += rest
    out += [".SH SEE ALSO", ", ".join(f"\\fB{roff(other)}\\fR({number})" for other, number in see
                                      if other != name)]
    return name, "\n".join(out) + "\n"


def main(build, folder):
    line, commands, monitor, entrypoint = ask_all(build)
    all_pages = [("switchyard", 1), *(("-".join(c.words), 1) for c in commands), ("switchyardd", 8),
                 ("switchyard-entrypoint", 1)]
    short = [all_pages[0], all_pages[-2]]
    for help_text, section, see in [(line, 1, all_pages), *((c, 1, short) for c in commands),
                                    (monitor, 8, short), (entrypoint, 1, short)]:
        name, text = page(help_text, section, see)
        os.makedirs(f"{folder}/man{section}", exist_ok=True)
        with open(f"{folder}/man{section}/{name}.{section}", "w", encoding="utf-8") as out:
            out.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
