"""`--share auto`: does a training find the knee of its share, against a sweep of weights?

A GPT training of small batches, whose CPU bounds it in part, works beside another that always
works. Its rate is taken at each weight of a sweep, there and back. Then it is left to find one by
itself, and the weight that was found takes turns with the sweep's best. At last the knee moves: a
second training like the hog begins, and the weight has to follow.
"""

import math
import re
import time

from rig.process import rate_between
from rig.report import Report, median
from rig.rig import RigError
from rows.latency import training_arguments

TITLE = "A share that is found, and a sweep"
SWEEP = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
WITHIN = 0.03
LEAST_GROWTH = 1.4  # of the weight, beside two hogs instead of one; a level of the search
FOUND_WITHIN = 60
TURNS = 3  # of the weight that was found and the sweep's best, A B B A


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=3, help="of each window of the sweep")
    parser.add_argument("--batch", type=int, default=1, help="of the training")


def all_found(rig):
    """The weights that the monitor's log says were found."""
    log = (rig.scratch / "monitor.log").read_text(errors="replace")
    return [float(weight) for weight in
            re.findall(r"a weight of (\S+) is the smallest that brings it nearly all", log)]


def weight_once(rig, holds, patience=FOUND_WITHIN):
    """Seconds until the monitor has found a weight of which `holds` says so, and the weight."""
    before, begin = len(all_found(rig)), time.monotonic()
    while time.monotonic() < begin + patience:
        for weight in all_found(rig)[before:]:
            if holds(weight):
                return time.monotonic() - begin, weight
        time.sleep(0.1)
    raise RigError(f"no such weight was found within {patience} s, but {all_found(rig)[before:]}")


def run(rig, report: Report):
    job = rig.start("auto", "gpt.py", *training_arguments(rig, rig.options.batch))
    hog, second = (rig.start(name, "loops.py", "--kernels", 20) for name in ("hog", "second"))
    for each in (job, hog, second):
        each.ready()
    for each in (job, hog):
        each.start()
    rates = {weight: [] for weight in SWEEP}
    for weight in (*SWEEP, *reversed(SWEEP)):
        rates[weight].append(rate_at(rig, job, weight))
    rig.say("auto")
    rig.set("auto", share="auto")
    seconds, weight = weight_once(rig, lambda found: True)
    best = best_weight(rates)
    ratios = []
    for turn in range(TURNS):
        pair = {}
        for which in (("found", "best") if turn % 2 == 0 else ("best", "found")):
            pair[which] = rate_at(rig, job, weight if which == "found" else best)
        ratios.append(pair["found"] / pair["best"])
    report.keep(rates=rates, found={"weight": weight, "ratios": ratios, "seconds": seconds})
    judge(report, rates, weight, ratios, seconds)
    follow(rig, report, second)
    for each in (job, hog, second):
        each.stop()


def follow(rig, report, second):
    rig.say("the knee moves")
    rig.set("auto", share="auto")
    _, before = weight_once(rig, lambda found: True)
    second.start()
    seconds, after = weight_once(rig, lambda found: found >= LEAST_GROWTH * before,
                                 2 * FOUND_WITHIN)
    report.raw["followed"] = {"before": before, "after": after, "seconds": seconds}
    report.at_most("seconds until it has followed a second hog", seconds, FOUND_WITHIN, "{:.0f}")
    report.note("  weight", f"{before:.3g}, then {after:.3g}")


def rate_at(rig, job, weight):
    """Steps per second at a weight, once it is in force."""
    rig.say(f"weight {weight:g}")
    rig.set("auto", share=weight)
    span = rig.window(rig.options.seconds, settle=1)
    rate = rate_between(job.stop(), *span)
    job.start()
    return rate


def best_weight(rates):
    return max(rates, key=lambda weight: median(rates[weight]))


def smallest_within(rates):
    """The smallest weight that gives nearly the best rate. Larger ones may give less."""
    best = median(rates[best_weight(rates)])
    return min(weight for weight, each in rates.items() if median(each) >= (1 - WITHIN) * best)


def judge(report, rates, weight, ratios, seconds):
    best = median(rates[best_weight(rates)])
    for each, both in rates.items():
        report.note(f"weight {each:g}", f"{median(both):.2f} steps/s",
                    f"{100 * median(both) / best:.1f} %; {min(both):.2f} to {max(both):.2f}")
    report.at_most("seconds until it is found", seconds, FOUND_WITHIN, "{:.0f}")
    report.at_least("weight that was found, over the sweep's best in turns", median(ratios),
                    1 - WITHIN)
    report.note("  spread", f"{min(ratios):.3f} .. {max(ratios):.3f}")
    smallest = smallest_within(rates)
    levels = 2 * math.log2(weight / smallest)
    report.judge("weight that was found", f"{weight:.3g}",
                 f"about {smallest:g}, the sweep's smallest", abs(levels) <= 2)
