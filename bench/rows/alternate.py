"""PipeSwitch's Figure 6: two services take turns on the GPU every 0.1, 1 and 10 s.

ResNet-152 and BERT-base at batch 8, one at a time at full load. First both are resident. Then a
third job reserves all but the room of the larger. So with `--oversubscribe` each has to make room
for the other. The figure is the time of the work ready, one service after the other without a
change, over the time that it took. The latter includes the messages to the processes at each
change.
"""

import time

from rig.report import Report, median
from rig.residency import on_gpu, reserve_all_but
from rig.rig import RigError
from rows.arrival import MODELS, services, settle
from rows.latency import tiny

TITLE = "PipeSwitch's Figure 6: two services take turns"
PAIR = ("resnet152", "bert")  # these need nothing beside PyTorch
INTERVALS = ((0.1, 20), (1.0, 10), (10.0, 2))  # seconds, how many of them
JUDGED = {"resident": 0.97, "swapped": 0.95}   # at 1 s
SLACK = 64 << 20  # of the room that is left: the account is kept in granules


def arguments(parser):
    parser.add_argument("--pair", nargs=2, choices=MODELS, default=PAIR)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--ready-seconds", type=float, default=2, help="each of two")


def rate(rig, job):
    """Steps per second of one that is ready."""
    return median([job.run(rig.scaled(rig.options.ready_seconds))["steps_per_second"]
                   for _ in range(2)])


def moves(rig, jobs):
    return {job.name: on_gpu(rig, job.name)["swap_moves"] for job in jobs}


def cell(rig, jobs, rates, interval, runs):
    before = {} if tiny(rig) else moves(rig, jobs)
    steps = {job.name: 0 for job in jobs}
    begun = time.monotonic()
    for index in range(runs):
        job = jobs[index % 2]
        steps[job.name] += job.run(interval)["steps"]
    seconds = time.monotonic() - begun
    after = {} if tiny(rig) else moves(rig, jobs)
    return {"interval": interval, "runs": runs, "seconds": seconds, "steps": steps,
            "moves": {name: after[name] - before[name] for name in after},
            "of_ready": sum(steps[name] / rates[name] for name in steps) / seconds}


def half(rig, jobs, rates, cells):
    for interval, runs in INTERVALS:
        runs = max(2, int(runs * rig.options.scale))
        cells.append(cell(rig, jobs, rates, rig.scaled(interval), runs))
        rig.say(f"  {interval:g} s: {cells[-1]['of_ready']:.4f} of ready")


def crowd(rig, jobs):
    """Takes away the room for both. Returns the bytes that have to move from now on."""
    for job in jobs:  # the first move loads what moving needs, which would make for a long stay
        for _ in range(2):
            rig.connect().ask(op="swap-out", target=job.name)
            rig.connect().ask(op="swap-in", target=job.name)
    sizes = {}
    for job in jobs:
        there = on_gpu(rig, job.name)
        sizes[job.name] = there["memory_used_bytes"] - there["memory_overhead_bytes"]
    smaller = min(sizes, key=sizes.get)
    # The smaller goes, so that what the other has, its room, is enough for either.
    rig.connect().ask(op="swap-out", target=smaller)
    try:
        reserve_all_but(rig, SLACK)
    finally:
        rig.connect().ask(op="swap-in", target=smaller)
    if sizes[smaller] <= SLACK:
        raise RigError(f"{smaller} has only {sizes[smaller] >> 20} MiB: it fits in any case")
    return sizes[smaller] - SLACK


def run(rig, report: Report):
    halves = {"resident": [], "swapped": []}
    report.keep(cells=halves)
    ready = services(rig, report, rig.options.pair, oversubscribe=True)
    jobs = list(ready.values())
    if len(jobs) < 2:
        raise RigError(f"of {', '.join(rig.options.pair)} only {len(jobs)} can run here")
    for job in jobs:
        settle(rig, job)
    rates = {job.name: rate(rig, job) for job in jobs}
    report.keep(ready=rates, made_of={job.name: job.about.get("made_of", "") for job in jobs})
    for name, value in rates.items():
        report.note(f"{name}: ready", f"{value:.1f} batches/s",
                    report.raw["made_of"][name])
    rig.say("resident")
    half(rig, jobs, rates, halves["resident"])
    judge(report, "resident", halves["resident"])
    if tiny(rig):
        return  # the CPU's memory does not move
    moving = crowd(rig, jobs)
    report.keep(moving_bytes=moving)
    report.note("swapped: room that has to be made at each change", f"{moving / (1 << 20):.0f} MiB")
    rig.say("swapped")
    half(rig, jobs, rates, halves["swapped"])
    judge(report, "swapped", halves["swapped"])


def judge(report, key, cells):
    for (interval, _), one in zip(INTERVALS, cells):
        what = f"{key}, every {interval:g} s: of ready"
        if interval == 1:
            report.at_least(what, one["of_ready"], JUDGED[key])
        else:
            report.note(what, f"{one['of_ready']:.3f}", f"{one['runs']} turns")
        if key == "swapped" and interval == 1:
            count = sum(one["moves"].values())
            # At each change one goes and one comes; without them the figure would say nothing.
            report.judge("  moves out and in", str(count), f"at least {one['runs'] - 1}",
                         count >= one["runs"] - 1)
