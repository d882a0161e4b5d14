"""Weighted shares: two equal trainings, two at 4 : 1, three at 70 / 20 / 10, on warm processes.

A job's share is its part of what all of them complete in one common window; the sum is over the
mean of each job's own rate alone, measured before, between and after.
"""

import time

from rig.process import rate_between
from rig.report import Report, median
from rig.rig import ACTIVITY_WINDOW
from rows.latency import training_arguments

TITLE = "Shares of equal trainings"
CELLS = (("equal", (1, 1)), ("4 : 1", (4, 1)), ("70 / 20 / 10", (7, 2, 1)))


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=24, help="of each cell under Switchyard")
    parser.add_argument("--default-seconds", type=float, default=12)
    parser.add_argument("--solo-seconds", type=float, default=7)
    parser.add_argument("--mps", action="store_true", help="two equal trainings under MPS as well")
    parser.add_argument("--settle-seconds", type=float, default=3,
                        help="before a cell's window opens")


def together(rig, jobs, seconds):
    """Rates of the jobs in one common window, in steps per second."""
    for job in jobs:
        job.start()
    time.sleep(rig.scaled(rig.options.settle_seconds))
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


def run(rig, report: Report):
    jobs = [rig.start(f"train-{index}", "gpt.py", *training_arguments(rig)) for index in range(3)]
    clients = [rig.start(f"train-mps-{index}", "gpt.py", *training_arguments(rig), under="mps",
                         hold=True) for index in range(2 if rig.options.mps else 0)]
    for job in (*jobs, *clients):
        job.ready()
    solos = [[], [], []]
    cells = []
    report.keep(solos=solos, cells=cells)

    def solo():
        index = sum(map(len, solos)) % len(jobs)  # each in its turn
        idle(rig)
        rig.say(f"solo of job {index}")
        solos[index].append(jobs[index].run(rig.scaled(rig.options.solo_seconds))
                            ["steps_per_second"])

    solo()
    for name, weights in CELLS:
        some = jobs[: len(weights)]
        for job, weight in zip(some, weights):
            rig.set(job.name, share=weight)
        idle(rig)
        rig.say(f"{name}, Switchyard")
        rates, listing = together(rig, some, rig.options.seconds)
        cells.append({"cell": name, "weights": weights, "means": "auto", "rates": rates,
                      "jobs": listing})
        if name != "4 : 1":  # the default knows no weights: two and three jobs say it all
            rig.means("none")
            idle(rig)
            rig.say(f"{len(some)} jobs, default")
            rates, listing = together(rig, some, rig.options.default_seconds)
            cells.append({"cell": f"{len(some)} jobs", "weights": weights, "means": "none",
                          "rates": rates, "jobs": listing})
            rig.means("auto")
        solo()
    solo()
    if clients and rig.start_mps():  # last: its server stays while any client lives
        for client in clients:
            client.send(init=True)
        for client in clients:
            client.ready()
        rig.say("2 jobs, MPS")
        rates, listing = together(rig, clients, rig.options.default_seconds)
        cells.append({"cell": "2 jobs", "weights": (1, 1), "means": "mps", "rates": rates,
                      "jobs": listing})
    judge(report, cells, solos)


def judge(report, cells, solos):
    alone = median([rate for rates in solos for rate in rates])
    report.note("one training alone", f"{alone:.3f} steps/s",
                " ".join(f"{rate:.3f}" for rates in solos for rate in rates))
    for cell in cells:
        total = sum(cell["rates"])
        got = [100 * rate / total for rate in cell["rates"]]
        text = " / ".join(f"{value:.1f}" for value in got)
        if cell["means"] != "auto":
            under = {"none": "default", "mps": "MPS"}[cell["means"]]
            report.note(f"{under}, {cell['cell']}: shares", f"{text} %",
                        f"sum {100 * total / alone:.1f} % of solo")
            continue
        wanted = [100 * weight / sum(cell["weights"]) for weight in cell["weights"]]
        off = max(abs(a - b) for a, b in zip(got, wanted))
        report.judge(f"{cell['cell']}: shares", f"{text} %", "each within 1 point", off <= 1)
        report.at_least(f"{cell['cell']}: sum, % of solo", 100 * total / alone, 99, "{:.1f}")
