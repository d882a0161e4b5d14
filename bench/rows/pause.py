"""How soon `pause` stops a job's kernels and `resume` starts them, with 1,000 launches queued.

Armed is a job whose gate stands already (it has a limit): its queued work stops. Unarmed, what was
queued before the pause still runs, 50 ms of it here, and then the CPU is held.
"""

from rig.process import BENCH, python
from rig.report import Report, median, percentile

TITLE = "pause and resume, 1,000 launches queued"
KERNEL_MS = 0.11


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=40, help="of each sort")


def run(rig, report: Report):
    rounds = max(3, int(rig.options.rounds * rig.options.scale))
    argv = [python(), BENCH / "checks" / "pause_times.py", rounds, "pausing"]
    figures = rig.run_once("pausing", argv, timeout=120, under="switchyard")
    report.keep(rounds=figures)
    for sort in ("armed", "unarmed"):
        stops = [one["stop_ms"] for one in figures[sort]]
        ran = [one["ran_meanwhile"] for one in figures[sort]]
        starts = [one["start_ms"] for one in figures[sort]]
        report.note(f"{sort}: until no kernel runs, median", f"{median(stops):.2f} ms",
                    f"{median(ran):.0f} pairs of kernels ran meanwhile")
        if sort == "armed":
            report.at_most("armed: the longest, less a kernel", max(stops) - KERNEL_MS, 5)
        else:
            queued = [one["stop_ms"] - one["ran_meanwhile"] * KERNEL_MS
                      for one in figures[sort]]
            report.at_most("unarmed: the longest, less what was queued", max(queued), 5)
        report.note(f"{sort}: resume to the first kernel, median", f"{median(starts):.2f} ms",
                    f"90 % within {percentile(starts, 0.9):.2f} ms")
        report.at_most(f"{sort}: the longest", max(starts), 2)
