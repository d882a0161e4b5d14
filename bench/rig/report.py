"""What a bench says: a short table on stdout, everything in a JSON file, and one exit status.

Threading: plain values.
"""

import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path


MOST_WARNINGS = 5  # in a table


def median(values):
    return statistics.median(values)


def spread(values):
    """Half the distance between the 10th and the 90th percentile."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return (ordered[round(0.9 * last)] - ordered[round(0.1 * last)]) / 2


def percentile(values, fraction):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def tail(values, fraction=0.99, width=0.005):
    """A percentile as the mean of the values around it. It has half the spread of the single value,
    which rests on a few requests, and no systematic error that such a spread would show."""
    ordered = sorted(values)
    first = int((fraction - width) * len(ordered))
    part = ordered[first:max(first + 1, int((fraction + width) * len(ordered)))]
    return sum(part) / len(part)


def interval(values, figure=median, draws=2000):
    """A 95 % bootstrap interval of a figure of `values`: of their median, if nothing is said."""
    rng = random.Random(7)
    drawn = sorted(figure(rng.choices(values, k=len(values))) for _ in range(draws))
    return drawn[int(0.025 * draws)], drawn[int(0.975 * draws)]


def stretches(alone, beside, length=25):
    """[(alone, beside), ...]: two lists of latencies of the same arrivals, in stretches. Requests
    that are near each other may have waited for one another, so a bootstrap draws stretches."""
    return [(alone[at:at + length], beside[at:at + length])
            for at in range(0, len(alone), length)]


def tail_ratio(pairs):
    """The p99 of all that is beside over the p99 of all that is alone."""
    alone, beside = ([value for pair in pairs for value in pair[side]] for side in (0, 1))
    return tail(beside) / tail(alone)


# These say where a run was, not what it measured.
PLACES = re.compile(r" --(out|build|limit|keep-logs|shim-log)\b( (?!--)\S+)?")


def command():
    return PLACES.sub("", " ".join(["python3 bench/run.py", *sys.argv[1:]]))


def machine():
    """The GPUs and their driver, for example "2 x NVIDIA H200, driver 580.159.04"."""
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version",
                                "--format=csv,noheader"], capture_output=True, text=True,
                               check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "no GPU that nvidia-smi lists"
    gpus = Counter(asked.stdout.strip().splitlines())
    return "; ".join(f"{number} x {', driver '.join(gpu.split(', '))}"
                     for gpu, number in gpus.items()) + f", {os.cpu_count()} CPU cores"


class Report:
    def __init__(self, row, title, options):
        self.row = row
        self.title = title
        self.options = options
        self.lines = []
        self.raw = {}
        self.misses = 0
        self.begun = time.monotonic()

    def note(self, what, value, remark=""):
        """A figure without a bound."""
        self.lines.append((what, value, remark, ""))

    def judge(self, what, value, bound, passed):
        self.lines.append((what, value, bound, "PASS" if passed else "MISS"))
        self.misses += not passed

    def at_most(self, what, value, limit, form="{:.3f}"):
        self.judge(what, form.format(value), "at most " + form.format(limit), value <= limit)

    def at_least(self, what, value, limit, form="{:.3f}"):
        self.judge(what, form.format(value), "at least " + form.format(limit), value >= limit)

    def ends(self, ends, limit, remark="", form="{:.3f}"):
        """The 95 % interval of the figure above, which had this bound."""
        low, high = ends
        decided = not low <= limit <= high
        self.note("  95 % interval", f"{form.format(low)} .. {form.format(high)}",
                  ", ".join(filter(None, [remark, "" if decided else "not decided"])))

    def warned(self, warnings):
        """What the library warned of in the jobs: a row that passes may be slow because of it."""
        if warnings:
            self.keep(warnings=warnings)
        for said, times in warnings.most_common(MOST_WARNINGS):
            self.note("the library warned", f"{times} times", said)

    def keep(self, **raw):
        self.raw.update(raw)

    def save(self, failure=None):
        """Writes OUT/ROW.json, also what a bench that failed had until then."""
        path = Path(self.options.out) / f"{self.row}.json"
        document = {
            "schema_version": 1,
            "row": self.row,
            "title": self.title,
            "seconds": round(time.monotonic() - self.begun, 1),
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine(),
            "command": command(),
            "scale": self.options.scale,
            "device": self.options.device,
            "misses": self.misses,
            "failure": failure,
            "table": [dict(zip(("what", "value", "bound", "verdict"), line))
                      for line in self.lines],
            "raw": self.raw,
        }
        path.write_text(json.dumps(document, indent=1, default=str) + "\n")
        return path, document["seconds"]

    def finish(self):
        """Saves, and prints the table last; the number of misses."""
        path, seconds = self.save()
        widths = [max(len(line[column]) for line in self.lines) for column in range(3)]
        print(f"\n{self.title}")
        for what, value, bound, verdict in self.lines:
            print(f"  {what:<{widths[0]}}  {value:>{widths[1]}}  {bound:<{widths[2]}}  {verdict}"
                  .rstrip())
        if self.options.scale != 1 or self.options.device != "cuda":
            print("  (--scale or --device was given: these figures measure nothing)")
        print(f"  {seconds:.0f} s, all figures in {path}")
        return self.misses
