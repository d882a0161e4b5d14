"""A gate that stays closed for minutes in front of full queues, waits, copies, frees: no deadlock.

Nothing of the job may run meanwhile, its neighbour goes on, and afterwards every thread gets on and
every kernel has run exactly once. `--seconds 300` takes a longer --limit.
"""

import time

from rig.process import BENCH, python
from rig.report import Report, median

TITLE = "A gate closed for minutes"
RATE = 20  # the neighbour's requests a second, of 1 ms


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=200)


def state(job):
    return job.ask(state=True)


def run(rig, report: Report):
    job = rig.start_program("held", [python(), BENCH / "checks" / "held.py"])
    other = rig.start("other", "loops.py")
    for warm in (job, other):
        warm.ready()
    time.sleep(2)
    answer = rig.cli("pause", "held", "--json")
    time.sleep(1)
    first = state(job)
    seconds = rig.scaled(rig.options.seconds)
    requests = int(RATE * seconds)
    other.send(serve={"rate": RATE, "requests": requests, "warm": 0})
    rig.say(f"held for {seconds:.0f} s: {first}")
    begun = time.monotonic()
    looks = []
    while time.monotonic() - begun < seconds:
        time.sleep(min(10.0, seconds / 4))
        looks.append(state(job))
    served = other.receive(60)
    held = time.monotonic() - begun
    rig.cli("resume", "held")
    time.sleep(2)
    after = state(job)
    ended = job.ask(end=True, timeout=100)
    report.keep(pause=answer.stdout, first=first, looks=looks, after=after, ended=ended,
                neighbour=served)
    report.note("held for", f"{held:.0f} s", f"{len(looks)} looks")
    moved = max(look["kernels"] for look in looks) - first["kernels"]
    report.judge("kernels that ran meanwhile", str(moved), "none", moved == 0)
    stuck = [name for name, count in first["threads"].items()
             if after["threads"].get(name, 0) <= count]
    report.judge("threads that went on afterwards", ", ".join(stuck) or "all", "all", not stuck)
    report.judge("every kernel once, every copy right", "; ".join(ended["wrong"]) or
                 f"{ended['kernels']} of {ended['launched']}", "all",
                 not ended["wrong"] and not ended["stuck"]
                 and ended["kernels"] == ended["launched"])
    report.note("the neighbour meanwhile", f"{served['requests']} requests",
                f"p50 {median(served['latencies_ms']):.2f} ms, longest {served['max_ms']:.2f} ms")
