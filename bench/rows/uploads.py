"""Uploads of a high-priority job beside a low-priority one that keeps PCIe saturated.

Uploads of 64 KiB and 16 MiB from pinned memory, with Poisson arrivals, timed from the scheduled
arrival to the end of the copy. They are alone, and by turns under the driver's default and under
Switchyard, on the same warm processes.
"""

import time

from rig.process import rate_between
from rig.report import Report, median, percentile
from rig.rig import ACTIVITY_WINDOW
from rows.latency import latencies

TITLE = "High uploads beside a saturated PCIe"
PIECE = 32 << 20
# name, bytes, arrivals per second, requests of a cell, bound on p99 over the default's p99
SIZES = (("64 KiB", 64 << 10, 200, 2000, 0.35), ("16 MiB", 16 << 20, 40, 500, 0.7))


def arguments(parser):
    parser.add_argument("--turns", type=int, default=2, help="of default and Switchyard")
    parser.add_argument("--solo-seconds", type=float, default=3)


def beside(rig, high, low, rate, requests, seed):
    low.start()
    time.sleep(rig.scaled(ACTIVITY_WINDOW))
    served = high.serve(rate, requests, seed=seed)
    figures = low.stop()
    served["low_bytes_per_second"] = PIECE * rate_between(figures, served["begun"],
                                                          served["ended"])
    return served


def run(rig, report: Report):
    low = rig.start("saturate", "copies.py", "--mode", "saturate", "--bytes", PIECE,
                    priority="low")
    highs = [rig.start(f"upload-{size}", "copies.py", "--mode", "upload", "--bytes", size,
                       priority="high") for _, size, _, _, _ in SIZES]
    for warm in (low, *highs):
        warm.ready()
    solo = [PIECE * low.run(rig.scaled(rig.options.solo_seconds))["steps_per_second"]]
    sizes = {}
    report.keep(sizes=sizes, low_alone_bytes_per_second=solo)
    for high, (what, _, rate, requests, _) in zip(highs, SIZES):
        cells = sizes[what] = {"alone": [], "default": [], "switchyard": []}
        requests = rig.counted(requests)
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
        rig.say(f"{what}, alone")
        cells["alone"].append(high.serve(rate, requests, seed=9))
        for seed in range(1, rig.options.turns + 1):
            for key, means in (("default", "none"), ("switchyard", "auto")):
                rig.say(f"{what}, {key}")
                rig.means(means)
                cells[key].append(beside(rig, high, low, rate, requests, seed))
                cells.setdefault("jobs", []).append(rig.listing("ps")["jobs"])
    solo.append(PIECE * low.run(rig.scaled(rig.options.solo_seconds))["steps_per_second"])
    judge(report, sizes, median(solo))


def judge(report, sizes, solo):
    report.note("low alone", f"{solo / 1e9:.1f} GB/s")
    for what, _, _, _, bound in SIZES:
        cells = sizes[what]
        p99 = {}
        for key in ("alone", "default", "switchyard"):
            values = [1e3 * value for value in latencies(cells[key])]
            p99[key] = percentile(values, 0.99)
            low = "" if key == "alone" else "low {:.1f} GB/s".format(
                median([cell["low_bytes_per_second"] for cell in cells[key]]) / 1e9)
            report.note(f"{what}, {key}: p50 / p99", f"{median(values):.0f} / {p99[key]:.0f} us",
                        low)
        report.at_most(f"{what}: p99 over the default's", p99["switchyard"] / p99["default"], bound)
        kept = median([c["low_bytes_per_second"] for c in cells["switchyard"]]) / solo
        report.at_least(f"{what}: low keeps of its rate alone", kept, 0.95)
