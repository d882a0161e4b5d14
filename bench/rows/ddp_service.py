"""A high-priority service on the first GPU, or on each, beside a low-priority training of all ranks.

The service answers requests by graph replay, as in `latency`. Cells alternate in the same warm
processes: alone while the training is paused, the driver's default, bare slices, Switchyard. All
serve the same arrivals. Needs a GPU for each rank.
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
    parser.add_argument("--services", type=int, default=1, help="one on each of so many GPUs")
    ranks.number_argument(parser)


def serve(rig, highs, seed):
    """What each service says; all serve at the same time."""
    rate, requests = rig.options.rate, rig.counted(rig.options.requests)
    for index, high in enumerate(highs):
        high.send(serve={"rate": rate, "requests": requests, "seed": seed + 100 * index})
    return [high.receive(3 * requests / rate + 60) for high in highs]


def beside(rig, highs, means, seed):
    rig.means(means)
    rig.window(0, settle=ACTIVITY_WINDOW)
    return serve(rig, highs, seed)


def one_round(rig, highs, low, seed, cells):
    rig.say(f"round {seed}")
    rig.cli("pause", low.name)
    cells["alone"].append(serve(rig, highs, seed))
    rig.cli("resume", low.name)

    def by_bare_slices():
        slices = dict.fromkeys((high.name for high in highs), bare.HIGH_US)
        with rig.bare_slices({**slices, low.name: bare.LOW_US}):
            rig.window(0, settle=1)
            return serve(rig, highs, seed)

    by = [("default", lambda: beside(rig, highs, "none", seed)), ("bare", by_bare_slices),
          ("switchyard", lambda: beside(rig, highs, "auto", seed))]
    for cell, measure in by if seed % 2 else reversed(by):
        cells[cell].append(measure())


def span(served):
    """In which all services of a cell served."""
    return (max(each["begun"] for each in served), min(each["ended"] for each in served))


def run(rig, report: Report):
    ranks.one_gpu_each(rig.options.ranks)
    low = ranks.counting(rig, "train", "ddp", "--batch", rig.options.batch, "--ranks",
                         rig.options.ranks, priority="low", with_bare=True)
    highs = [rig.start(f"serve{gpu}", "networks.py", "--mode", "graph", "--batch", 4,
                       priority="high", gpus=gpu, with_bare=True)
             for gpu in range(rig.options.services)]
    for job in (low, *highs):
        job.ready(180)
    cells = {"alone": [], "default": [], "bare": [], "switchyard": []}
    report.keep(cells=cells)
    for index in range(rig.options.rounds):
        one_round(rig, highs, low, index + 1, cells)
    trained = {cell: ranks.step_rates(low, [span(each) for each in cells[cell]])
               for cell in ("default", "bare", "switchyard")}
    report.keep(trained=trained)
    low.end(0)
    for gpu in range(rig.options.services):
        report.note("service on GPU", str(gpu))
        judge_service(report, {cell: [served[gpu] for served in each]
                               for cell, each in cells.items()}, trained)
    judge_training(report, trained)


def judge_service(report, cells, trained):
    alone = tail(latencies(cells["alone"]))
    for cell, each in cells.items():
        values = latencies(each)
        report.note(f"{cell}: p50 / p99", f"{median(values):.3f} / {tail(values):.3f} ms",
                    f"training {median(trained[cell]):.2f} steps/s" if cell in trained else "")
    report.at_most("switchyard: p99 over alone, ms", tail(latencies(cells["switchyard"])) - alone,
                   MOST_OVER_MS)
    judge_bare(report, latencies(cells["bare"]), latencies(cells["switchyard"]))


def judge_training(report, trained):
    ratios = [ours / theirs for ours, theirs in zip(trained["switchyard"], trained["default"])]
    report.at_least("switchyard: the training, over the default's", median(ratios),
                    LEAST_OF_DEFAULT)
    report.ends(interval(ratios), LEAST_OF_DEFAULT)
    over_bare = [ours / theirs for ours, theirs in zip(trained["switchyard"], trained["bare"])]
    report.at_least("switchyard: the training, over that of bare slices", median(over_bare),
                    LEAST_OF_BARE)
