"""The same promises where slices are refused: a service beside a training, by gates alone.

Cells on the same processes: alone, gates (`means gate`), default (`means none`). Then come cells
under an MPS daemon: MPS by itself and with gates, and two equal trainings.
"""

import time

from rig.report import Report, median, percentile
from rows.latency import beside, service, training
from rows.shares import together
from rig.rig import ACTIVITY_WINDOW
from rows import latency

TITLE = "Gates alone, and under MPS"


def arguments(parser):
    latency.pair_arguments(parser, requests=900, default_requests=400)
    parser.add_argument("--solo-seconds", type=float, default=9)
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--settle-seconds", type=float, default=3)
    parser.add_argument("--pair-seconds", type=float, default=10)
    parser.add_argument("--only-mps", action="store_true", help="beside alone and solo")


def measure(rig, cells):
    o = rig.options
    requests = rig.counted(o.requests)
    low = training(rig, "train", priority="low")
    high = service(rig, "serve", priority="high")
    for warm in (low, high):
        warm.ready()
    gpu_ms = high.ask(gpu_time=200)["gpu_time_ms"]
    rig.say("alone")
    cells["alone"] = high.serve(o.rate, requests, seed=1, even=o.even)
    if not o.only_mps:
        rig.means("gate")
        rig.say("gates")
        cells["gates"] = beside(rig, high, low, requests, 2)
        rig.means("none")
        rig.say("default")
        cells["default"] = beside(rig, high, low, rig.counted(o.default_requests), 3)
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
    rig.say("solo")
    cells["solo"] = low.run(rig.scaled(o.solo_seconds))
    rig.means("auto")
    for warm in (low, high):
        warm.end()
    return gpu_ms


def measure_mps(rig, cells):
    o = rig.options
    if not rig.start_mps():
        rig.say("no MPS control daemon here: its cells are left out")
        return
    lows = [training(rig, f"train-mps-{i}", under="both", priority="low") for i in range(2)]
    high = service(rig, "serve-mps", under="both", priority="high")
    for warm in (*lows, high):
        warm.ready()
    cells["means"] = rig.listing("status")["gpus"]
    requests = rig.counted(o.requests)
    rig.say("MPS with gates")
    cells["mps with gates"] = beside(rig, high, lows[0], requests, 4)
    rig.means("none")
    rig.say("MPS")
    cells["mps"] = beside(rig, high, lows[0], rig.counted(o.default_requests), 5)
    rig.means("auto")
    time.sleep(rig.scaled(ACTIVITY_WINDOW))
    rig.say("two trainings under MPS")
    cells["mps solo"] = lows[0].run(rig.scaled(o.solo_seconds))
    time.sleep(rig.scaled(ACTIVITY_WINDOW))
    cells["mps pair"], _ = together(rig, lows, o.pair_seconds)


def judge(report, cells, gpu_ms):
    alone = cells["alone"]["latencies_ms"]
    solo = cells["solo"]["steps_per_second"]
    report.note("alone: p50 / p99", f"{median(alone):.3f} / {percentile(alone, 0.99):.3f} ms")
    left = 1 - report.options.rate * gpu_ms / 1e3
    for key in ("default", "gates", "mps", "mps with gates"):
        if key not in cells:
            continue
        values = cells[key]["latencies_ms"]
        worse = percentile(values, 0.99) / percentile(alone, 0.99)
        trained = cells[key]["training_steps_per_second"] / solo
        report.note(f"{key}: p50 / p99",
                    f"{median(values):.3f} / {percentile(values, 0.99):.3f} ms",
                    f"training {100 * trained:.1f} % of solo")
        if "gates" in key:
            report.at_most(f"{key}: p99 over p99 alone", worse, 1.8)
        else:
            report.note(f"{key}: p99 over p99 alone", f"{worse:.2f}")
        if key == "gates":
            report.at_least("gates: training over what is left", trained / left, 0.9)
    if "mps pair" in cells:
        total = sum(cells["mps pair"])
        report.at_least("two trainings under MPS, sum, % of solo", 100 * total / solo, 100,
                        "{:.1f}")


def run(rig, report: Report):
    cells = {}
    report.keep(cells=cells)
    gpu_ms = measure(rig, cells)
    if not rig.options.no_mps:
        measure_mps(rig, cells)
    judge(report, cells, gpu_ms)
