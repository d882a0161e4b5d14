"""One high-priority service beside three low-priority trainings: default, bare slices, Switchyard.

Three short slices at once would bring all trainings to a standstill, so they take turns through the
gate. By bare slices one of the lows has a short slice, and the other two keep the driver's own. A
second such cell has that one low alone, as a turn does. Low: the 24-layer GPT at batch 4. The lows'
rates are taken over one common window.
"""

import time

from rig import bare
from rig.process import rate_between
from rig.report import Report, median, percentile
from rig.rig import ACTIVITY_WINDOW
from rows import latency

TITLE = "High inference beside three low trainings"


def arguments(parser):
    latency.pair_arguments(parser, requests=1500, default_requests=600)


def cell(rig, high, lows, requests, seed):
    for low in lows:
        low.start()
    time.sleep(min(ACTIVITY_WINDOW, rig.scaled(ACTIVITY_WINDOW)))
    served = high.serve(rig.options.rate, requests, seed=seed, even=rig.options.even)
    for low in lows:
        low.send(stop=True)
    figures = [low.receive(60) for low in lows]
    served["rates"] = [rate_between(f, served["begun"], served["ended"]) for f in figures]
    return served


def run(rig, report: Report):
    o = rig.options
    high = latency.service(rig, "serve", priority="high", with_bare=True)
    lows = [latency.training(rig, f"train-{i}", priority="low", with_bare=True) for i in range(3)]
    for warm in (high, *lows):
        warm.ready()
    cells = {}
    report.keep(cells=cells)
    rig.say("alone")
    cells["alone"] = high.serve(o.rate, rig.counted(o.requests), seed=1, even=o.even)
    rig.say("switchyard")
    cells["switchyard"] = cell(rig, high, lows, rig.counted(o.requests), 2)
    cells["jobs"] = rig.listing("ps")["jobs"]
    for key, some in (("bare", lows), ("bare, one low", lows[:1])):
        rig.say(key)
        with rig.bare_slices({high.name: bare.HIGH_US, lows[0].name: bare.LOW_US}):
            cells[key] = cell(rig, high, some, rig.counted(o.requests), 2)
    rig.means("none")
    rig.say("default")
    cells["default"] = cell(rig, high, lows, rig.counted(o.default_requests), 3)
    rig.means("auto")
    alone = cells["alone"]["latencies_ms"]
    report.note("alone: p50 / p99", f"{median(alone):.3f} / {percentile(alone, 0.99):.3f} ms")
    sums = {}
    for key in ("default", "bare", "bare, one low", "switchyard"):
        values, rates = cells[key]["latencies_ms"], cells[key]["rates"]
        sums[key] = sum(rates)
        report.note(f"{key}: p50 / p99",
                    f"{median(values):.3f} / {percentile(values, 0.99):.3f} ms",
                    f"{percentile(values, 0.99) / percentile(alone, 0.99):.2f} x alone")
        report.note(f"{key}: lows", " / ".join(f"{rate:.2f}" for rate in rates) + " steps/s",
                    f"sum {sum(rates):.2f}")
    p99 = percentile(cells["switchyard"]["latencies_ms"], 0.99) / percentile(alone, 0.99)
    report.at_most("switchyard: p99 over p99 alone", p99, 1.15)
    latency.judge_bare(report, cells["bare, one low"]["latencies_ms"],
                       cells["switchyard"]["latencies_ms"])
    report.at_least("lows' sum over theirs by bare slices", sums["switchyard"] / sums["bare"],
                    latency.LEAST_OF_BARE)
    report.note("lows' sum over a single low's by bare slices",
                f"{sums['switchyard'] / sums['bare, one low']:.3f}", "that one needs no turns")
    report.at_least("lows' sum over the default's", sums["switchyard"] / sums["default"], 1)
    off = max(abs(100 * rate / sums["switchyard"] - 100 / 3)
              for rate in cells["switchyard"]["rates"])
    report.at_most("a low's distance from a third, points", off, 2, "{:.2f}")
