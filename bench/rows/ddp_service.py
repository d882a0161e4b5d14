"""A high-priority service on the first GPU beside a low-priority training of two ranks on both.

The service answers requests by graph replay, as in `latency`. Cells alternate in the same warm
processes: alone while the training is paused, the driver's default, Switchyard. Alone and
Switchyard serve the same arrivals. Needs two GPUs.
"""

from rig import ranks
from rig.report import Report, interval, median, tail
from rig.rig import ACTIVITY_WINDOW
from rows.latency import latencies

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
    both = [("default", "none"), ("switchyard", "auto")]
    for cell, means in both if seed % 2 else reversed(both):
        cells[cell].append(beside(rig, high, means, seed))


def run(rig, report: Report):
    ranks.one_gpu_each()
    low = ranks.counting(rig, "train", "ddp", "--batch", rig.options.batch, priority="low")
    high = rig.start("serve", "networks.py", "--mode", "graph", "--batch", 4, priority="high",
                     gpus=0)
    for job in (low, high):
        job.ready(180)
    cells = {"alone": [], "default": [], "switchyard": []}
    report.keep(cells=cells)
    for index in range(rig.options.rounds):
        one_round(rig, high, low, index + 1, cells)
    trained = {cell: ranks.step_rates(low, [(each["begun"], each["ended"]) for each in cells[cell]])
               for cell in ("default", "switchyard")}
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
