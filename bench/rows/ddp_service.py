"""A high-priority service on the first GPU beside a low-priority training of two ranks on both.

The service answers requests by graph replay, as in `latency`. Cells alternate in the same warm
processes: alone while the training is paused, the driver's default, bare slices, Switchyard. All
serve the same arrivals. Needs two GPUs.
"""

from rig import bare, ranks
from rig.report import Report, interval, median, tail
from rig.rig import ACTIVITY_WINDOW
from rows.latency import LEAST_OF_BARE, judge_bare, latencies

TITLE = "High inference beside low DDP"
MOST_OVER_MS, LEAST_OF_DEFAULT = 0.2, 1.0


def arguments(parser):
    ranks.batch_argument(parser)
    parser.add_argument("--rounds", type=int, default=4, help="of all cells")
    parser.add_argument("--rate", type=float, default=50, help="requests per second")
    parser.add_argument("--requests", type=int, default=400, help="of each cell")


def serve(rig, high, seed):
    return high.serve(rig.options.rate, rig.counted(rig.options.requests), seed=seed)


def beside(rig, high, means, seed):
    rig.means(means)
    rig.window(0, settle=ACTIVITY_WINDOW)
    return serve(rig, high, seed)


def one_round(rig, high, low, seed, cells):
    rig.say(f"round {seed}")
    rig.cli("pause", low.name)
    cells["alone"].append(serve(rig, high, seed))
    rig.cli("resume", low.name)

    def by_bare_slices():
        with rig.bare_slices({high.name: bare.HIGH_US, low.name: bare.LOW_US}):
            rig.window(0, settle=1)
            return serve(rig, high, seed)

    by = [("default", lambda: beside(rig, high, "none", seed)), ("bare", by_bare_slices),
          ("switchyard", lambda: beside(rig, high, "auto", seed))]
    for cell, measure in by if seed % 2 else reversed(by):
        cells[cell].append(measure())


def run(rig, report: Report):
    ranks.one_gpu_each()
    low = ranks.counting(rig, "train", "ddp", "--batch", rig.options.batch, priority="low",
                         with_bare=True)
    high = rig.start("serve", "networks.py", "--mode", "graph", "--batch", 4, priority="high",
                     gpus=0, with_bare=True)
    for job in (low, high):
        job.ready(180)
    cells = {"alone": [], "default": [], "bare": [], "switchyard": []}
    report.keep(cells=cells)
    for index in range(rig.options.rounds):
        one_round(rig, high, low, index + 1, cells)
    trained = {cell: ranks.step_rates(low, [(each["begun"], each["ended"]) for each in cells[cell]])
               for cell in ("default", "bare", "switchyard")}
    report.keep(trained=trained)
    low.end(0)
    judge(report, cells, trained)


def judge(report, cells, trained):
    alone = tail(latencies(cells["alone"]))
    for cell, each in cells.items():
        values = latencies(each)
        report.note(f"{cell}: p50 / p99", f"{median(values):.3f} / {tail(values):.3f} ms",
                    f"training {median(trained[cell]):.2f} steps/s" if cell in trained else "")
    report.at_most("switchyard: p99 over alone, ms", tail(latencies(cells["switchyard"])) - alone,
                   MOST_OVER_MS)
    ratios = [ours / theirs for ours, theirs in zip(trained["switchyard"], trained["default"])]
    report.at_least("switchyard: the training, over the default's", median(ratios),
                    LEAST_OF_DEFAULT)
    report.ends(interval(ratios), LEAST_OF_DEFAULT)
    judge_bare(report, latencies(cells["bare"]), latencies(cells["switchyard"]))
    over_bare = [ours / theirs for ours, theirs in zip(trained["switchyard"], trained["bare"])]
    report.at_least("switchyard: the training, over that of bare slices", median(over_bare),
                    LEAST_OF_BARE)
