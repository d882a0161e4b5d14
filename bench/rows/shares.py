"""Weighted shares: two equal trainings, two at 4 : 1, three at 70 / 20 / 10, on warm processes.

A job's share is its part of what all of them complete in one common window. The sum is over one
training alone: that of the windows right before and right after, each of another job. So a GPU
whose clock wanders slows both, and a process that is slower than its copy counts on both sides.
The same weights by bare slices are the bound for what is built on them.
"""

import time

from rig.process import rate_between
from rig.report import Report, interval, median
from rig.rig import ACTIVITY_WINDOW
from rows.latency import training_arguments

TITLE = "Shares of equal trainings"
# name, weights, windows. Two equal ones lose the most to switches.
BARE_US = 50000  # of the job with the most weight
CELLS = (("equal", (1, 1), 3), ("4 : 1", (4, 1), 2), ("70 / 20 / 10", (7, 2, 1), 2))


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=7, help="of each window, Switchyard")
    parser.add_argument("--default-seconds", type=float, default=6)
    parser.add_argument("--solo-seconds", type=float, default=3)
    parser.add_argument("--mps", action="store_true", help="two equal trainings under MPS as well")
    parser.add_argument("--settle-seconds", type=float, default=3,
                        help="before a cell's window opens")


def together(rig, jobs, seconds, settle=None):
    """Rates of the jobs in one common window, in steps per second."""
    for job in jobs:
        job.start()
    time.sleep(rig.scaled(rig.options.settle_seconds if settle is None else settle))
    begin = time.monotonic()
    time.sleep(rig.scaled(seconds))
    end = time.monotonic()
    listing = rig.listing("ps")["jobs"]
    for job in jobs:
        job.send(stop=True)
    figures = [job.receive(60) for job in jobs]
    return [rate_between(figure, begin, end) for figure in figures], listing


def idle(rig):
    """Until the policy has forgotten the jobs of the cell before."""
    time.sleep(rig.scaled(ACTIVITY_WINDOW))


class Solos:
    """One training alone, again and again: each job in its turn."""

    def __init__(self, rig, jobs):
        self.rig = rig
        self.jobs = jobs
        self.rates = []

    def measure(self):
        job = self.jobs[len(self.rates) % len(self.jobs)]
        idle(self.rig)
        self.rig.say(f"solo of {job.name}")
        # By a window inside of a run, as a share is measured.
        rates, _ = together(self.rig, [job], self.rig.options.solo_seconds, settle=1)
        self.rates += rates


def run(rig, report: Report):
    jobs = [rig.start(f"train-{index}", "gpt.py", *training_arguments(rig), with_bare=True)
            for index in range(3)]
    clients = [rig.start(f"train-mps-{index}", "gpt.py", *training_arguments(rig), under="mps",
                         hold=True) for index in range(2 if rig.options.mps else 0)]
    for job in (*jobs, *clients):
        job.ready()
    solos = Solos(rig, jobs)
    cells = []
    report.keep(solos=solos.rates, cells=cells)

    def cell(name, some, weights, means, seconds):
        rig.say(f"{name}, {means}")
        rates, listing = together(rig, some, seconds)
        cells.append({"cell": name, "weights": weights, "means": means, "rates": rates,
                      "jobs": listing, "solos_before": len(solos.rates)})

    solos.measure()
    for name, weights, windows in CELLS:
        some = jobs[: len(weights)]
        for job, weight in zip(some, weights):
            rig.set(job.name, share=weight)
        for _ in range(windows):
            cell(name, some, weights, "auto", rig.options.seconds)
            solos.measure()
        slices = {job.name: BARE_US * weight // max(weights)
                  for job, weight in zip(some, weights)}
        with rig.bare_slices(slices):
            cell(name, some, weights, "bare", rig.options.default_seconds)
        solos.measure()
        if name != "4 : 1":  # the default knows no weights: two and three jobs say it all
            rig.means("none")
            cell(f"{len(some)} jobs", some, weights, "none", rig.options.default_seconds)
            rig.means("auto")
            solos.measure()
    if clients and rig.start_mps():  # last: its server stays while any client lives
        for client in clients:
            client.send(init=True)
        for client in clients:
            client.ready()
        cell("2 jobs", clients, (1, 1), "mps", rig.options.default_seconds)
    judge(report, cells, solos.rates)


def sum_over_solo(cell, solos):
    """In percent of the neighbours: the window before, and the one after unless it was the last."""
    near = solos[cell["solos_before"] - 1:cell["solos_before"] + 1]
    return 100 * sum(cell["rates"]) * len(near) / sum(near)


def judge(report, cells, solos):
    report.note("one training alone", f"{median(solos):.3f} steps/s",
                " ".join(f"{rate:.3f}" for rate in solos))
    for name, means in dict.fromkeys((cell["cell"], cell["means"]) for cell in cells):
        same = [cell for cell in cells if (cell["cell"], cell["means"]) == (name, means)]
        sums = [sum_over_solo(cell, solos) for cell in same]
        totals = [sum(rates) for rates in zip(*(cell["rates"] for cell in same))]
        got = [100 * total / sum(totals) for total in totals]
        text = " / ".join(f"{value:.1f}" for value in got)
        if means != "auto":
            under = {"none": "default", "mps": "MPS", "bare": "bare slices"}[means]
            report.note(f"{under}, {name}: shares", f"{text} %",
                        f"sum {median(sums):.1f} % of solo")
            continue
        weights = same[0]["weights"]
        wanted = [100 * weight / sum(weights) for weight in weights]
        off = max(abs(a - b) for a, b in zip(got, wanted))
        report.judge(f"{name}: shares", f"{text} %", "each within 1 point", off <= 1)
        report.at_least(f"{name}: sum, % of solo", median(sums), 99, "{:.1f}")
        report.ends(interval(sums), 99, " ".join(f"{value:.1f}" for value in sums), "{:.1f}")
        bare_sum = median([sum_over_solo(cell, solos) for cell in cells
                           if (cell["cell"], cell["means"]) == (name, "bare")])
        report.at_least(f"{name}: sum over that of bare slices", median(sums) / bare_sum, 0.99)
