"""Two equal trainings of two ranks or more on the same GPUs, by slices. Do they get the shares they were
given, and is their sum above the default's?

Cells alternate in the same warm processes: the driver's default, equal weights, and 3 : 1. Needs a
GPU for each rank.
"""

from rig import ranks
from rig.report import Report, interval, median
from rig.rig import ACTIVITY_WINDOW

TITLE = "Two DDP trainings by slices"
NAMES = ("left", "right")
CELLS = {"equal": (1, 1), "3 : 1": (3, 1)}
LEAST_SUM, MOST_OFF = 1.05, 1


def arguments(parser):
    ranks.batch_argument(parser)
    ranks.number_argument(parser)
    parser.add_argument("--rounds", type=int, default=4, help="of all cells")
    parser.add_argument("--seconds", type=float, default=6, help="of each window")
    parser.add_argument("--settle", type=float, default=8,
                        help="before it, where shares have changed: what gangs bear is learnt anew")


def spans_of(rig):
    """[(cell, span)] of all rounds"""
    spans = []
    for index in range(rig.options.rounds):
        rig.say(f"round {index + 1}")
        rig.means("none")
        spans.append(("default", rig.window(rig.options.seconds, settle=ACTIVITY_WINDOW)))
        rig.means("auto")
        for cell, weights in CELLS.items():
            for name, weight in zip(NAMES, weights):
                rig.set(name, share=weight)
            spans.append((cell, rig.window(rig.options.seconds, settle=rig.options.settle)))
    return spans


def rates_of(jobs, spans):
    """{cell: [rates of both in one window, ...]}"""
    rates = [ranks.step_rates(job, [span for _, span in spans]) for job in jobs]
    cells = {}
    for (cell, _), *both in zip(spans, *rates):
        cells.setdefault(cell, []).append(both)
    return cells


def judge(report, rates):
    default = [sum(both) for both in rates["default"]]
    report.note("default: the sum", f"{median(default):.2f} steps/s",
                " ".join(f"{left:.1f}+{right:.1f}" for left, right in rates["default"]))
    for cell, weights in CELLS.items():
        ratios = [sum(both) / alone for both, alone in zip(rates[cell], default)]
        report.at_least(f"{cell}: the sum, over the default's", median(ratios), LEAST_SUM)
        report.ends(interval(ratios), LEAST_SUM)
        shares = [100 * left / (left + right) for left, right in rates[cell]]
        judge_share(report, cell, shares, 100 * weights[0] / sum(weights))


def judge_share(report, cell, shares, asked):
    def off(values):
        return abs(median(values) - asked)
    report.judge(f"{cell}: share of the first, %", f"{median(shares):.1f}",
                 f"within {MOST_OFF} point", off(shares) <= MOST_OFF)
    report.ends(interval(shares, off), MOST_OFF, "so far off", "{:.1f}")


def run(rig, report: Report):
    ranks.one_gpu_each(rig.options.ranks)
    jobs = [ranks.counting(rig, name, "ddp", "--batch", rig.options.batch, "--ranks",
                           rig.options.ranks) for name in NAMES]
    for job in jobs:
        job.ready(180)
    rates = rates_of(jobs, spans_of(rig))
    report.keep(rates=rates)
    for job in jobs:
        job.end(0)
    judge(report, rates)
