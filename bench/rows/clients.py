"""What the monitor costs: its CPU time with 32 clients, by slices, by turns and by gates."""

import os
import time
from pathlib import Path

from rig.report import Report

TITLE = "CPU time of the monitor"
TICKS = os.sysconf("SC_CLK_TCK")


def arguments(parser):
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5, help="of each cell")


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS  # utime, stime


def run(rig, report: Report):
    o = rig.options
    high = rig.start("serve", "loops.py", "--kernels", 5)
    jobs = [rig.start_program(f"loop-{i}", [rig.program("kernel_rate"), 100, 10])
            for i in range(o.clients - 1)]
    for warm in (high, *jobs):
        warm.ready()
    cells = {}
    report.keep(cells=cells)

    def cell(name, bound):
        seconds = rig.scaled(o.seconds)
        begun, before = time.monotonic(), cpu_seconds(rig.monitor.pid)
        time.sleep(seconds)
        used = (cpu_seconds(rig.monitor.pid) - before) / (time.monotonic() - begun)
        cells[name] = used
        rig.say(f"{name}: {100 * used:.2f} %")
        report.at_most(f"{name}: % of one core", 100 * used, bound, "{:.2f}")

    def serving(name, bound):
        """The window lies inside a time of 50 requests a second."""
        high.send(serve={"rate": 50, "requests": int(50 * (rig.scaled(o.seconds) + 2)), "warm": 0})
        time.sleep(1.5)
        cell(name, bound)
        high.receive(120)

    for job in (high, *jobs):
        job.start()
    time.sleep(2)
    cell(f"{o.clients} clients of one class, slices", 2)
    high.stop()
    rig.set("serve", priority="high")
    for job in jobs:
        rig.set(job.name, priority="low")
    serving(f"high over {len(jobs)} lows, turns and slices", 10)
    rig.means("gate")
    serving(f"high over {len(jobs)} lows, gates alone", 10)
    rig.means("auto")
    for job in jobs:
        job.send(stop=True)
    for job in jobs:
        job.receive(60)
