#!/usr/bin/env python3
"""Makes docs/measurements.md from the runs that are kept here.

    python3 bench/results/page.py                  writes the page
    python3 bench/results/page.py --check          ends with 1 if the page is not what this writes
    python3 bench/results/page.py --keep FILE...   keeps OUT/ROW.json of bench/run.py here, and writes

A run is one file, ROW-DATE-NUMBER.json: what bench/run.py printed, with date, machine and command,
without the single values. claims.json lists all claims. One that names a row and its lines takes
figure, verdict and date from the newest run that has them all; any other has the words of its
earlier section.
head.txt is what stands before the table.
"""
import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INTERVAL = "95 % interval"
FIELDS = ("schema_version", "row", "title", "date", "machine", "command", "seconds", "misses", "table")


def kept(folder):
    """{row: its runs, the newest first}"""
    runs = {}
    for path in sorted(folder.glob("*-*-*-*-*.json"), reverse=True):
        run = json.loads(path.read_text())
        runs.setdefault(run["row"], []).append(run)
    return runs


def line_of(run, what):
    """The line of a run, and the interval that stands below it."""
    table = run["table"]
    for at, line in enumerate(table):
        if line["what"] == what:
            below = table[at + 1] if at + 1 < len(table) else {"what": ""}
            return line, below["value"] if below["what"].strip() == INTERVAL else ""
    raise SystemExit(f"page.py: {run['row']} of {run['date']} has no line '{what}'")


def cell(text):
    return str(text).replace("|", "\\|").strip()


def has_line(run, what):
    return any(line["what"] == what for line in run["table"])


def claim_row(claim, runs):
    if "row" not in claim:
        return claim["claim"], claim["measured"], claim["verdict"], "earlier"
    of_row = runs[claim["row"]]
    has_all = (run for run in of_row if all(has_line(run, what) for what in claim["lines"]))
    run = next(has_all, of_row[0])
    measured, verdicts = [], []
    for what in claim["lines"]:
        line, interval = line_of(run, what)
        measured.append(line["value"] + (f" ({interval})" if interval else ""))
        verdicts.append(line["verdict"])
    verdict = "**missed**" if "MISS" in verdicts else "kept"
    return claim["claim"], "; ".join(measured), verdict, f"[{run['date']}](#{claim['row']})"


def command_lines(command):
    """A long one stands in a block, where lines may be wide."""
    return [f"`{command}`"] if len(command) <= 98 else ["```sh", command, "```"]


def whole(run):
    out = [f"{run['title']}.", f"{run['date']}, {run['machine']}.", "", *command_lines(run["command"]),
           "", "| what | measured | bound | |", "| --- | --- | --- | --- |"]
    for line in run["table"]:
        verdict = {"PASS": "kept", "MISS": "**missed**"}.get(line["verdict"], "")
        out.append(f"| {cell(line['what'])} | {cell(line['value'])} | {cell(line['bound'])} | {verdict} |")
    return out


def section(row, runs):
    """A run of which a newer one judges nothing stands there whole, as the newest does."""
    out, judged = [f"## {row}"], set()
    for run in runs:
        lines = [line for line in run["table"] if line["verdict"]]
        if judged.isdisjoint(line["what"] for line in lines):
            out += ["", *whole(run)]
        else:
            told = "; ".join(f"{line['what']} {line['value']}" for line in lines)
            out += ["", "| before | judged |", "| --- | --- |",
                    f"| {run['date']}, {cell(run['machine'])} | {cell(told)} |"]
        judged.update(line["what"] for line in lines)
    return "\n".join(out)


def page(folder):
    runs = kept(folder)
    claims = json.loads((folder / "claims.json").read_text())
    rows = "\n".join("| " + " | ".join(claim_row(claim, runs)) + " |" for claim in claims)
    parts = [(folder / "head.txt").read_text().rstrip(),
             "## All claims\n\n| claim | measured | | run |\n| --- | --- | --- | --- |\n" + rows,
             *(section(row, runs[row]) for row in sorted(runs))]
    return "\n\n".join(parts) + "\n"


def keep(file):
    run = json.loads(Path(file).read_text())
    if run.get("failure") or run["scale"] != 1 or run["device"] != "cuda":
        raise SystemExit(f"page.py: {file} is no whole run on a GPU")
    number = 1 + len(list(HERE.glob(f"{run['row']}-{run['date']}-*.json")))
    path = HERE / f"{run['row']}-{run['date']}-{number}.json"
    path.write_text(json.dumps({key: run[key] for key in FIELDS}, indent=1, ensure_ascii=False) + "\n")
    print(path.relative_to(ROOT))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--root", type=Path, default=ROOT, help="another tree (the check's own test)")
    options = parser.parse_args()
    for file in options.keep:
        keep(file)
    written = options.root / "docs/measurements.md"
    text = page(options.root / "bench/results")
    if not options.check:
        written.write_text(text)
        return 0
    if not written.exists() or written.read_text() != text:
        print("page.py: docs/measurements.md is not what bench/results says: run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
