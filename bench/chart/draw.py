#!/usr/bin/env python3
"""Draws the chart of the README from recorded figures.

    python3 bench/chart/draw.py             writes docs/latency.svg
    python3 bench/chart/draw.py --check     ends with 1 if that file is not what this draws

Each bar is a p99 over the p99 alone of the same session, for ratios travel better than times. The
figures in latency.json are rows of docs/measurements/earlier.md; --check looks for them there, too.
"""
import argparse
import html
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

WIDTH, LEFT, RIGHT, TOP, STEP, THICK = 760, 150, 160, 62, 40, 24
COLOURS = {"Switchyard": "#1a7f37", "alone": "#8c959f"}


def draw(figures):
    """The chart as SVG text; the same figures give the same text."""
    bars = figures["bars"]
    ratios = [bar["p99_ms"] / bar["alone_p99_ms"] for bar in bars]
    scale = (WIDTH - LEFT - RIGHT) / max(ratios)
    height = TOP + STEP * len(bars) + 16
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" role="img">',
        f'<title>{html.escape(figures["title"])}</title>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="16" font-weight="bold">{html.escape(figures["title"])}'
        "</text>",
        f'<text x="16" y="45" font-size="12" fill="#57606a">{html.escape(figures["machine"])}</text>',
    ]
    for row, (bar, ratio) in enumerate(zip(bars, ratios)):
        top = TOP + STEP * row
        middle = top + THICK / 2 + 5
        length = ratio * scale
        colour = COLOURS.get(bar["name"], "#cf222e")
        out += [
            f'<text x="{LEFT - 10}" y="{middle:.0f}" font-size="14" text-anchor="end">'
            f'{html.escape(bar["name"])}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{THICK}" fill="{colour}"/>',
            f'<text x="{LEFT + length + 8:.1f}" y="{middle:.0f}" font-size="14">'
            f'{ratio:.2f} x ({bar["p99_ms"]:.2f} ms)</text>',
        ]
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Draws docs/latency.svg from latency.json.")
    parser.add_argument("--check", action="store_true", help="compare, and change nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="another tree (the check's own test)")
    options = parser.parse_args()
    figures = json.loads((options.root / "bench/chart/latency.json").read_text())
    chart = options.root / "docs/latency.svg"
    drawn = draw(figures)
    if not options.check:
        chart.write_text(drawn)
        return 0
    wrong = []
    if not chart.exists() or chart.read_text() != drawn:
        wrong.append("docs/latency.svg is not what its figures draw: run python3 bench/chart/draw.py")
    recorded = (options.root / figures["source"]).read_text()
    for bar in figures["bars"]:
        for key in ("p99_ms", "alone_p99_ms"):
            if f"/ {bar[key]:.3f}" not in recorded:
                wrong.append(f"{figures['source']} has no p99 of {bar[key]:.3f} ms ({bar['name']})")
    for line in wrong:
        print(f"draw.py: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
