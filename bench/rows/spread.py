"""One process at work on two GPUs, half of a model on each, is swapped out and in again and again.

Its losses and its memory must be those of an undisturbed run of as many steps. Needs two GPUs.
"""

import time

from rig.process import BENCH, python
from rig.report import Report, median
from rig.residency import nvml, wait_for_pool

TITLE = "A process at work on two GPUs, swapped"


def arguments(parser):
    parser.add_argument("--gib", type=int, default=8, help="of ballast, half on each GPU")
    parser.add_argument("--times", type=int, default=20)


def start(rig, name, *steps):
    program = [python(), BENCH / "checks" / "moved_training.py", rig.options.gib, "--both",
               "--changing", *steps]
    return rig.start_program(name, program, swappable=True, gpus="0,1").ready(180)


def swapped(rig, job):
    """Seconds out and in, and the least that left a GPU."""
    out = rig.timed("swap-out", job.name)
    left = [gpu["memory_swapped_bytes"] for gpu in rig.job(job.name)["gpus"]]
    back = rig.timed("swap-in", job.name)
    time.sleep(rig.scaled(0.5))
    return {"out": out, "in": back, "gpus": len(left), "least_bytes": min(left, default=0)}


def run(rig, report: Report):
    nvml(1)  # says so if there is none
    o = rig.options
    job = start(rig, "spread")
    wait_for_pool(rig, job.name, o.gib << 30)
    rig.say("swapped")
    rounds = [swapped(rig, job) for _ in range(max(1, int(o.times * o.scale)))]
    disturbed = job.ask(end=True, timeout=120)
    rig.say("undisturbed")
    alone = start(rig, "alone", "--steps", disturbed["steps"]).receive(600)
    report.keep(rounds=rounds, disturbed=disturbed, alone=alone)
    least = min(one["least_bytes"] for one in rounds)
    half = o.gib << 29
    report.note("swap-out, swap-in, s, median",
                ", ".join(f"{median([one[way] for one in rounds]):.3f}" for way in ("out", "in")))
    report.judge("left each of two GPUs, GiB, the least", f"{least / (1 << 30):.1f}",
                 f"at least {half / (1 << 30):.1f}",
                 least >= half and all(one["gpus"] == 2 for one in rounds))
    report.judge("losses and memory", f"{disturbed['steps']} steps, {len(rounds)} times out",
                 "as in an undisturbed run", disturbed["digest"] == alone["digest"])
