"""What the programs say with --help, taken apart. Manual pages and completions are made from it.

Versions of CLI11 write headings in other cases and columns of other widths: neither matters here.
"""
import os
import re
import subprocess
from dataclasses import dataclass, field

EXAMPLES = ("examples", "a first session")


@dataclass
class Row:
    """An option or a positional: "--limit PART   the most of the GPU's time"."""
    head: str
    meaning: str

    @property
    def names(self):
        return re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", self.head.split(" ")[0])

    @property
    def value(self):
        words = self.head.split(" ", 1)
        return words[1].removesuffix(" ...").strip("[]=") if len(words) > 1 else ""


@dataclass
class Help:
    words: list  # the program, and its subcommand
    about: str = ""
    more: list = field(default_factory=list)  # lines between that and the usage
    usage: str = ""
    sections: list = field(default_factory=list)  # (heading, [Row])
    prose: list = field(default_factory=list)  # the lines from the examples on

    def rows(self, *headings):
        return [row for name, rows in self.sections if name.lower() in headings for row in rows]

    @property
    def options(self):
        return [row for _, rows in self.sections for row in rows if row.names]

    @property
    def positionals(self):
        return self.rows("positionals")


def _add_line(rows, line):
    # A row begins two blanks from the left. A line further to the right goes on with a meaning.
    if re.match(r"  \S", line):
        head, _, meaning = line.strip().partition("  ")
        rows.append(Row(head, meaning.strip()))
    elif rows:
        rows[-1].meaning = (rows[-1].meaning + " " + line.strip()).strip()


def understand(words, text):
    out = Help(words)
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Usage:"))
    said, *rest = "\n".join(lines[:at]).split("\n\n", 1)
    out.about = " ".join(said.split())
    out.more = "".join(rest).splitlines()
    out.usage = lines[at].removeprefix("Usage:").strip()
    for number, line in enumerate(lines[at + 1:], at + 1):
        if re.match(r"\S.*:$", line):
            if line[:-1].lower() in EXAMPLES:
                out.prose = lines[number:]
                break
            out.sections.append((line[:-1], []))
        elif line and out.sections:
            _add_line(out.sections[-1][1], line)
    return out


def ask(build, *words):
    # Neither a terminal's width nor a person's settings change what is said.
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
    text = subprocess.run([os.path.join(build, words[0]), *words[1:], "--help"], env=environment,
                          check=True, capture_output=True, text=True).stdout
    return understand(list(words), text)


def ask_all(build):
    """The command line, its subcommands, the monitor, and the entrypoint of containers."""
    line = ask(build, "switchyard")
    commands = [ask(build, "switchyard", row.head) for row in line.rows("subcommands")]
    if not commands:
        raise SystemExit("help_texts: switchyard --help lists no command")
    return line, commands, ask(build, "switchyardd"), ask(build, "switchyard-entrypoint")
