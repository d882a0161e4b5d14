"""`--share auto`: does a training find the knee of its share, against a sweep of weights?

A GPT training of small batches, whose CPU bounds it in part, works beside another that always
works. Its rate is taken at each weight of a sweep, then it is left to find one by itself.
"""

import math
import time

from rig.process import rate_between
from rig.report import Report
from rig.rig import RigError
from rows.latency import training_arguments

TITLE = "A share that is found, and a sweep"
SWEEP = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
WITHIN = 0.03
FOUND_WITHIN = 60


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=3, help="of each window of the sweep")
    parser.add_argument("--batch", type=int, default=1, help="of the training")


def window(rig, seconds, settle=1):
    time.sleep(rig.scaled(settle))
    begin = time.monotonic()
    time.sleep(rig.scaled(seconds))
    return begin, time.monotonic()


def found(rig):
    """Seconds until the monitor says that it has found a weight."""
    log = rig.scratch / "monitor.log"
    begin = time.monotonic()
    while time.monotonic() < begin + FOUND_WITHIN:
        if "is the smallest that brings it nearly all" in log.read_text(errors="replace"):
            return time.monotonic() - begin
        time.sleep(0.1)
    raise RigError(f"no weight was found within {FOUND_WITHIN} s")


def run(rig, report: Report):
    job = rig.start("auto", "gpt.py", *training_arguments(rig, rig.options.batch))
    hog = rig.start("hog", "loops.py", "--kernels", 20)
    for each in (job, hog):
        each.ready()
        each.start()
    windows = {}
    for weight in SWEEP:
        rig.say(f"weight {weight}")
        rig.set("auto", share=weight)
        windows[weight] = window(rig, rig.options.seconds)
    rig.say("auto")
    rig.set("auto", share="auto")
    seconds = found(rig)
    weight = rig.job("auto")["share_weight"]
    at_it = window(rig, 2 * rig.options.seconds)
    figures = job.stop()
    hog.stop()
    rates = {each: rate_between(figures, *windows[each]) for each in SWEEP}
    own = rate_between(figures, *at_it)
    report.keep(rates=rates, found={"weight": weight, "rate": own, "seconds": seconds})
    judge(report, rates, weight, own, seconds)


def judge(report, rates, weight, own, seconds):
    best = max(rates.values())
    for each, rate in rates.items():
        report.note(f"weight {each:g}", f"{rate:.2f} steps/s", f"{100 * rate / best:.1f} %")
    report.at_most("seconds until it is found", seconds, FOUND_WITHIN, "{:.0f}")
    report.at_least("auto, of the sweep's best", own / best, 1 - WITHIN)
    # From which on every weight gives it.
    smallest = max(rates)
    for each in sorted(rates, reverse=True):
        if rates[each] < (1 - WITHIN) * best:
            break
        smallest = each
    levels = 2 * math.log2(weight / smallest)
    report.judge("weight that was found", f"{weight:.3g}",
                 f"about {smallest:g}, the sweep's smallest", abs(levels) <= 2)
