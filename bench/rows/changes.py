"""How soon a `switchyard set` on running jobs is in force.

Two jobs of short kernels stamp every few kernels; while they run, weight and priority are changed.
A change is in force when the jobs' part of the kernels, over a sliding window, has come to where it
stays. `ps` must also show the slices that it will keep. Time counts from before `set` was called.
"""

import time

from rig.process import rate_between
from rig.report import Report

TITLE = "set on running jobs"
BOUND = 0.5
WINDOW = 0.2  # four cycles of two jobs' slices
# what, job, knobs, the first job's expected part of the kernels (None: at least 95 %)
CHANGES = (
    ("weight 1 : 1 to 4 : 1", "first", {"share": 4}, 0.8),
    ("weight 4 : 1 to 1 : 4", "first", {"share": 0.25}, 0.2),
    ("weight back to 1 : 1", "first", {"share": 1}, 0.5),
    ("second to low beside normal", "second", {"priority": "low"}, 10 / 11),
    ("first to high beside low", "first", {"priority": "high"}, None),
    ("first back to normal", "first", {"priority": "normal"}, 10 / 11),
    ("second back to normal", "second", {"priority": "normal"}, 0.5),
)


def arguments(parser):
    parser.add_argument("--kernel", type=int, default=100, help="microseconds of a kernel, about")
    parser.add_argument("--after", type=float, default=2.5, help="seconds watched after a change")
    parser.add_argument("--rounds", type=int, default=2)


def slices(rig):
    """{job: slices in force and asked, by GPU}"""
    return {job["name"]: [(gpu.get("slice_in_force_us"), gpu.get("slice_status"))
                          for gpu in job["gpus"]] for job in rig.listing("ps")["jobs"]}


def watch(rig, seconds):
    """[(moment, slices)] until the time is over; at least two."""
    seen = []
    until = time.monotonic() + seconds
    while len(seen) < 2 or time.monotonic() < until:
        # Stamped before the call: what it shows was so then or later, so the wait isn't shortened
        # by more than the call takes.
        seen.append((time.monotonic(), slices(rig)))
        time.sleep(0.02)
    return seen


def settled(seen, begun):
    """Seconds from `begun` to the first listing that equals the last and all that follow it."""
    last = seen[-1][1]
    moment = seen[-1][0]
    for stamp, listing in reversed(seen):
        if listing != last:
            break
        moment = stamp
    return max(0.0, moment - begun)


def part(figures, begin, end):
    rates = [rate_between(figure, begin, end) for figure in figures]
    return rates[0] / sum(rates) if sum(rates) else 0.5


def in_rates(figures, begun, ended):
    """(seconds until the part of the first job is where it stays, that part)"""
    final = part(figures, (begun + ended) / 2, ended)
    moment = begun
    while moment < ended - WINDOW:
        if abs(part(figures, moment, moment + WINDOW) - final) < 0.06:
            return moment - begun, final
        moment += 0.01
    return ended - begun, final


def run(rig, report: Report):
    program = rig.program("kernel_rate")
    jobs = [rig.start_program(name, [program, rig.options.kernel, 5])
            for name in ("first", "second")]
    for job in jobs:
        job.ready()
    processes = [job.pid for job in jobs]
    for job in jobs:
        job.start()
    time.sleep(rig.scaled(3))
    changes = []
    for _ in range(rig.options.rounds):
        for what, job, knobs, expected in CHANGES:
            begun = time.monotonic()
            rig.set(job, **knobs)
            returned = time.monotonic() - begun
            seen = watch(rig, max(1.0, rig.scaled(rig.options.after)))
            changes.append({"what": what, "expected": expected, "begun": begun,
                            "ended": time.monotonic(), "set_seconds": returned,
                            "listed_seconds": settled(seen, begun), "slices": seen[-1][1]})
    for job in jobs:
        job.send(stop=True)
    figures = [job.receive(60) for job in jobs]
    for change in changes:
        change["rate_seconds"], change["part"] = in_rates(figures, change["begun"],
                                                          change["ended"])
    judge(report, changes)
    alive = all(job.process.poll() is None for job in jobs)
    report.judge("no job restarted", " ".join(map(str, processes)), "the same processes", alive)


def judge(report, changes):
    report.keep(changes=changes)
    for what, _, _, expected in CHANGES:
        some = [change for change in changes if change["what"] == what]
        slowest = max(max(c["rate_seconds"], c["listed_seconds"]) for c in some)
        parts = [change["part"] for change in some]
        # Without the effect, "in force" would mean nothing.
        if expected is None:
            bound, effective = "at least 95 %", min(parts) >= 0.95
        else:
            bound = f"{100 * expected:.1f} % within 3 points"
            effective = all(abs(one - expected) <= 0.03 for one in parts)
        report.judge(f"{what}: first's part",
                     " ".join(f"{100 * one:.1f}" for one in parts) + " %", bound, effective)
        report.at_most("  in force after (rates, ps; slowest)", slowest, BOUND, "{:.2f} s")
