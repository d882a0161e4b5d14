"""`migrate` of a training with 40 GiB to another GPU and back, again and again.

How long the training makes no step, and whether its losses and its memory are those of an
undisturbed run of as many steps. Needs two GPUs.
"""

import time

from rig.process import BENCH, python
from rig.report import Report, median
from rig.residency import nvml, used_bytes, wait_for_pool

TITLE = "A training moved to another GPU and back"
MOST_GAP_S = 3
MOST_GAP_BESIDE_S = 2  # where its memory follows from GPU to GPU
LEFT_MIB = 16


def arguments(parser):
    parser.add_argument("--gib", type=int, default=40, help="of ballast")
    parser.add_argument("--rounds", type=int, default=10, help="there and back")
    parser.add_argument("--changing", action="store_true", help="each step changes a part of it")
    parser.add_argument("--sees-both", action="store_true", help="the process sees both GPUs")


def start(rig, name, *steps):
    o = rig.options
    program = [python(), BENCH / "checks" / "moved_training.py", o.gib, *steps,
               *(["--changing"] if o.changing else [])]
    job = rig.start_program(name, program, swappable=True, gpus="0,1" if o.sees_both else "0")
    return job.ready(180)


def move(rig, job, to):
    took = rig.timed("migrate", job.name, "--to", to)
    time.sleep(rig.scaled(2))
    return took


def run(rig, report: Report):
    nvml(1)  # says so if there is none
    before = used_bytes()
    job = start(rig, "moved")
    wait_for_pool(rig, job.name, rig.options.gib << 30)
    times, left = [], []
    for index in range(max(1, int(rig.options.rounds * rig.options.scale))):
        rig.say(f"round {index + 1}")
        times.append(move(rig, job, 1))
        left.append((used_bytes() - before) >> 20)
        times.append(move(rig, job, 0))
    moved = job.ask(end=True, timeout=120)
    rig.say("undisturbed")
    alone = start(rig, "alone", "--steps", moved["steps"]).receive(600)
    report.keep(times=times, left_mib=left, moved=moved, alone=alone)
    report.note("a move, until the answer, median", f"{median(times):.2f} s",
                f"the longest {max(times):.2f} s")
    most = MOST_GAP_BESIDE_S if rig.options.sees_both else MOST_GAP_S
    report.at_most("without a step, the longest", max(moved["gaps"], default=0), most, "{:.2f} s")
    report.at_most("left on the first GPU, MiB", max(left), LEFT_MIB, "{:.0f}")
    report.judge("losses and memory", f"{moved['steps']} steps", "as in an undisturbed run",
                 moved["digest"] == alone["digest"])
