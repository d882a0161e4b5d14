#!/usr/bin/env python3
"""Sentences of comments and documents that have to be read twice.

A sentence has at most 25 words. It does not begin with Who, Whose or Whoever, nor with "What ... is":
its subject is a thing, not a clause. A question may begin so.

Read are comments, docstrings of Python, and documents. Headings, tables, figures, code and
generated pages are no sentences. Code in backticks is one word.

    scripts/check_language.py [ROOT] [FOLDER...]    ROOT: another tree (the check's own test uses it)
"""
import ast
import io
import re
import sys
import tokenize
from pathlib import Path

# The folders that are checked; the files beside them are, too.
FOLDERS = (".ci", ".github", "bench", "cmake", "docs", "examples", "include", "monitor",
           "packaging", "scripts", "shim", "tests", "third_party", "tools")
# Generated, or words of an earlier day that are kept as they were.
KEPT = ("docs/measurements/", "docs/measurements.md", "docs/reference/cli.md",
        "docs/reference/json.md", "bench/results/")

MOST_WORDS = 25
SLASHES = (".h", ".cpp", ".c", ".cu", ".def", ".in")
HASHES = (".sh", ".cmake", ".yml", ".service", ".list")
HASHED_NAMES = ("CMakeLists.txt", "Makefile", "run", ".clang-tidy", ".clang-format")

CLAUSE = re.compile(r"(Who|Whose|Whoever)\b|What( [\w'`]+){0,12}? (is|are|was|were|has|have|had)\b")
# A point ends a sentence, but for those of "e.g.", "3.5" and "..."; a colon does before a capital.
END = re.compile(r"""(?:(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!\.\.\.)|(?<=[.!?]["')*\]])|(?<=[.!?]\*\*)|"""
                 r"""(?<=[:;])(?=\s+[A-Z`*"'(\[]))\s+""")
ITEM = re.compile(r"([*+-]|\d+\.) +")
# A row of a table or a figure: columns, or strokes and arrows.
DRAWN = re.compile(r"\S {3,}\S|[│└├┌┐┘┤─►▼▲]|^\||^[-=~]{3}| → .* → ")


class Paragraph:
    """Text of several lines, joined by spaces, and the line on which each piece begins."""

    def __init__(self):
        self.text, self.starts = "", []

    def add(self, line, piece):
        self.starts.append((len(self.text) + bool(self.text), line))
        self.text += (" " if self.text else "") + piece

    def line_at(self, offset):
        return [line for start, line in self.starts if start <= offset][-1]


def paragraphs(lines, skips):
    """The paragraphs of (number, text); an empty text, an item and `skips(text)` end one."""
    found, indent, skipping = Paragraph(), 0, False
    for number, text in [*lines, (None, "")]:
        plain = text.strip()
        item = ITEM.match(plain)
        depth = len(text) - len(text.lstrip())
        code = depth >= indent + 2 and not item and not (found.text and depth < indent + 4)
        dropped = bool(plain) and (skips(plain) or DRAWN.search(plain) is not None or code)
        if found.text and (not plain or item or dropped):
            yield found
            found = Paragraph()
        # The rest of a row that is skipped stands below it, further in.
        skipping = dropped or (skipping and bool(plain) and depth >= 2 and not item)
        if plain and not skipping:
            if item:
                indent = depth + len(item[0])
            elif not found.text:
                indent = min(indent, depth)
            found.add(number, plain[len(item[0]) if item else 0:])


def of_document(text):
    lines, fence = [], False
    for number, line in enumerate(text.splitlines(), 1):
        marks = re.match(r"\s*(```|~~~)", line)
        fence ^= bool(marks)
        lines.append((number, "" if fence or marks else line))
    return paragraphs(lines, lambda plain: plain.startswith(("#", "![", "<", "> ")))


def of_comments(comments):
    """`comments`: (line, column, whether code stands before it, text behind the mark). Those below
    each other are one text, but for those of a column behind code."""
    block, last = [], (0, 0)
    for line, column, code, text in [*comments, (None, 0, False, "")]:
        if block and (line is None or code or (line, column) != (last[0] + 1, last[1])):
            yield from paragraphs(block, lambda plain: plain.startswith(("NOLINT", "!", "clang-")))
            block = []
        block.append((line, text))
        last = (line, column)


def marked(text, mark):
    """Comments of a language whose comments reach from `mark` to the end of the line."""
    quoted = re.compile(r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\]|\\.)'")
    for number, line in enumerate(text.splitlines(), 1):
        plain = quoted.sub(lambda match: "_" * len(match[0]), line)
        found = re.search(r"(?:^|(?<=\s))" + mark + r"+[!<]*(?: |$)", plain)
        if found and not (plain[:found.start()].count('"') or plain[:found.start()].count("'") % 2):
            yield number, found.start(), bool(line[:found.start()].strip()), line[found.end():]


def of_python(text):
    comments = [(*token.start, bool(token.line[:token.start[1]].strip()),
                 token.string.lstrip("#").removeprefix(" "))
                for token in tokenize.generate_tokens(io.StringIO(text).readline)
                if token.type == tokenize.COMMENT]
    yield from of_comments(comments)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            first = node.body[0].lineno
            lines = ast.get_docstring(node).splitlines()
            yield from paragraphs([(first + at, line) for at, line in enumerate(lines)],
                                  lambda plain: False)


def of_file(path):
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".md":
        return of_document(text)
    if path.suffix == ".py":
        return of_python(text)
    if path.suffix in SLASHES:
        return of_comments(marked(text, "//"))
    if path.suffix in HASHES or path.name in HASHED_NAMES:
        return of_comments(marked(text, "#"))
    return ()


def masked(text):
    """`text` with its code and quotes as a word each, without its links' targets, equally long."""
    text = re.sub(r"([`\"])[^`\"]{,200}\1",
                  lambda match: match[1] + "x" * (len(match[0]) - 2) + match[1], text)
    return re.sub(r"(?<=\])\([^)]*\)", lambda match: "\0" * len(match[0]), text)


def sentences(text):
    """(offset, sentence) of each."""
    start, plain = 0, masked(text)
    for end in [*END.finditer(plain), None]:
        piece = plain[start:end.start() if end else None]
        if piece.strip():
            yield start, piece
        start = end.end() if end else None


def complaints(path):
    for paragraph in of_file(path):
        for offset, sentence in sentences(paragraph.text):
            bare = sentence.strip().lstrip("*\"'([")
            # A bold or slanted sentence is the heading of its paragraph.
            heading = re.fullmatch(r"(\*+)[^*]*\1", sentence.strip()) is not None
            words = sum(bool(re.search(r"\w", word)) for word in sentence.split())
            if words > MOST_WORDS:
                yield paragraph, offset, sentence, f"{words} words"
            elif CLAUSE.match(bare) and not heading and not bare.endswith("?"):
                yield paragraph, offset, sentence, "a clause is the subject"


def files(root, folders):
    for path in sorted(root.glob("*")):
        if path.is_file():
            yield path
    for folder in folders:
        yield from (path for path in sorted((root / folder).rglob("*")) if path.is_file())


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    wrong = 0
    for path in files(root, sys.argv[2:] or FOLDERS):
        name = path.relative_to(root).as_posix()
        if name.startswith(KEPT):
            continue
        for paragraph, offset, sentence, why in complaints(path):
            wrong += 1
            text = paragraph.text[offset:offset + len(sentence)]
            print(f"{name}:{paragraph.line_at(offset)}: {why}: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
