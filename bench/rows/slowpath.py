"""What a launch and a wait of a high job cost in the library beside a low one, by what is armed.

In one process, requests through the library's entries and through the driver's own addresses take
turns (bench/slow_path.cpp). A wait is timed once the GPU is done. Each state is what the monitor
arms by itself for such a service:

    none      no backend
    numbers   gates alone: the GPU writes a number behind the launches
    timed     slices, the service waits for its CPU: its waits are timed
    foreseen  the same, and its waits are foreseen: it rings
    linger    slices, the service waits for the GPU: numbers, and lingering before each wait
"""

import json
import time

from rig.report import Report, interval, median
from rig.rig import RigError

TITLE = "A high job's launch and wait beside a low one"
LAUNCH_NS, WAIT_US = 300, 5
# state: backend, rule for waits, microseconds of GPU work in between, for what it waits then
STATES = {
    "none": ("none", "foreseen", 0, None),
    "numbers": ("gate", "slices", 0, None),
    "timed": ("auto", "slices", 0, "cpu"),
    "foreseen": ("auto", "foreseen", 0, "cpu"),
    "linger": ("auto", "slices", 2000, "gpu"),
}


def arguments(parser):
    parser.add_argument("--only", choices=STATES, action="append")
    parser.add_argument("--requests", type=int, default=600, help="of either way, in each state")
    parser.add_argument("--launches", type=int, default=200, help="in each request")


def cell(rig, state):
    """The program's figures, and what the monitor says of it in the middle."""
    o = rig.options
    backend, waits, between, _ = STATES[state]
    rig.cli("policy", "--waits", waits)
    rig.means(backend)
    argv = [rig.program("slow_path"), rig.counted(o.requests), o.launches, between]
    process = rig.once(f"service-{state}", argv, under="switchyard", priority="high")
    time.sleep(4)  # the program counts from then on
    told = rig.job(f"service-{state}")["gpus"][0]
    told["yield_reason"] = rig.listing("status")["gpus"][0]["yield_reason"]
    return json.loads(rig.wait_for(f"service-{state}", process)), told


def judge(report, state, figures, told):
    if not figures["library"]:
        raise RigError("slow_path: dlsym gives the driver's own address: the library is missing")
    expected = STATES[state][-1]
    if expected is not None:
        report.judge(f"{state}: it waits for its", str(told["waits_for"]), expected,
                     told["waits_for"] == expected)
    report.note("  the monitor's reason", "", told["yield_reason"])
    launch, wait = figures["launch_added_ns"], figures["wait_added_us"]
    report.at_most(f"{state}: added ns per launch", median(launch), LAUNCH_NS, "{:.1f}")
    report.ends(interval(launch), LAUNCH_NS, f"of {figures['launch_ns']:.0f} ns", "{:.1f}")
    what = f"{state}: added us per wait"
    low, high = interval(wait)
    if state == "linger":  # what that is worth shows in the row `latency`
        report.note(what, f"{median(wait):.2f}", f"{low:.2f} .. {high:.2f}, with lingering")
        return
    report.at_most(what, median(wait), WAIT_US, "{:.2f}")
    report.ends((low, high), WAIT_US, f"of {figures['wait_us']:.2f} us", "{:.2f}")


def run(rig, report: Report):
    low = rig.start_program("low", [rig.program("kernel_rate")], priority="low")
    low.ready()
    low.start()
    cells = {}
    report.keep(cells=cells)
    for state in rig.options.only or STATES:
        rig.say(state)
        cells[state] = cell(rig, state)
    low.stop()
    for state, (figures, told) in cells.items():
        judge(report, state, figures, told)
