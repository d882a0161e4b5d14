"""`switchyard stats` says how many iterations a second a training makes: is it right?

A training of each sort counts its own steps; `stats` is asked over the same seconds. No framework
helps it: it sees launches only.
"""

import bisect
import json
import time

from rig.process import BENCH, python
from rig.report import Report

TITLE = "Iterations per second, by stats and by the script"
MODES = ("plain", "resnet", "graph", "compile")
MOST_OFF = 0.01


def arguments(parser):
    parser.add_argument("--seconds", type=int, default=10, help="that are compared")
    parser.add_argument("--learn", type=int, default=7, help="that stats learns for first")
    parser.add_argument("--modes", default=",".join(MODES), help="only these")


def asked(rig, name, seconds):
    said = rig.cli("stats", name, "--interval", f"{seconds}s", "--json", timeout=seconds + 20)
    return json.loads(said.stdout)["jobs"][0]


def rate_within(moments, begin, end):
    first, last = bisect.bisect_left(moments, begin), bisect.bisect_left(moments, end) - 1
    return (last - first) / (moments[last] - moments[first])


def compare(rig, mode):
    o = rig.options
    job = rig.start_program(mode, [python(), BENCH / "checks" / "counted_training.py", mode])
    job.ready(120)
    asked(rig, mode, o.learn)
    begin = time.monotonic()
    told = asked(rig, mode, o.seconds)
    end = time.monotonic()
    own = rate_within(job.ask(ask=True)["moments"], begin, end)
    job.end(0)
    return {"own": own, "told": told.get("iterations_per_second") or 0}


def run(rig, report: Report):
    rates = {}
    report.keep(rates=rates)
    for mode in rig.options.modes.split(","):
        rig.say(mode)
        rates[mode] = compare(rig, mode)
        off = rates[mode]["told"] / rates[mode]["own"] - 1
        report.judge(f"{mode}: stats, the script's own",
                     f"{rates[mode]['told']:.2f}, {rates[mode]['own']:.2f} /s",
                     f"within {100 * MOST_OFF:.0f} %: {100 * off:+.2f} %", abs(off) <= MOST_OFF)
