"""Eight equal trainings of batch 2: the driver's default and Switchyard, on the same processes."""

from rig.report import Report
from rows.latency import training_arguments
from rows.shares import idle, together

TITLE = "Eight equal trainings"


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=30, help="of each cell")
    parser.add_argument("--settle-seconds", type=float, default=4)


def run(rig, report: Report):
    jobs = [rig.start(f"train-{index}", "gpt.py", *training_arguments(rig, batch=2))
            for index in range(8)]
    for job in jobs:
        job.ready(180)
    cells = {}
    report.keep(cells=cells)
    for key, means in (("default", "none"), ("switchyard", "auto")):
        rig.means(means)
        idle(rig)
        rig.say(key)
        cells[key], _ = together(rig, jobs, rig.options.seconds)
        total = sum(cells[key])
        report.note(f"{key}: shares",
                    " ".join(f"{100 * rate / total:.1f}" for rate in cells[key]) + " %",
                    f"sum {total:.3f} steps/s")
    total = sum(cells["switchyard"])
    off = max(abs(100 * rate / total - 12.5) for rate in cells["switchyard"])
    report.at_most("a job's distance from an eighth, points", off, 1, "{:.2f}")
    report.at_least("sum over the default's", total / sum(cells["default"]), 1.08)
