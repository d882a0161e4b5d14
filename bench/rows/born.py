"""Gangs that are ordered out at a bad moment: while they are born, or while their monitor dies.

Ranks without a framework (rank_steps), one on each GPU. Half of the gangs are ordered out at a
random moment of their start. The order is a swap-out, a released pause with a time-out, or a pause
that is resumed meanwhile. One gang more is released, and its monitor is killed meanwhile; the next
one resumes it. No pause may outlast its end by more than a second and the copy of 256 MiB. No
swap-out may stand until it is given up after a minute. Needs two GPUs.
"""

import random
import struct
import threading
import time

from rig import ranks
from rig.monitor import Monitor
from rig.report import Report
from rig.rig import RigError
from rig.steps import Gang

TITLE = "Gangs ordered out while they are born, or while their monitor dies"
MOST_S, MOST_SWAP_S = 1.0, 30
TIMEOUT_S = 1
TOO_EARLY = ("no job", "cannot be swapped out")


def arguments(parser):
    parser.add_argument("--gangs", type=int, default=25, help="that are ordered out at birth")
    parser.add_argument("--deaths", type=int, default=25, help="of the monitor")
    parser.add_argument("--mib", type=int, default=256, help="of each rank")
    parser.add_argument("--seed", type=int, default=0, help="0: a new one, which is printed")
    ranks.number_argument(parser)


def gang_of(rig, name):
    return Gang(rig, name, rig.options.ranks, rig.options.mib, swappable=True)


def order_out(gang, kind, order, chance):
    """Orders it out as soon as that is possible: (when that is over, how long the command took,
    when it began)."""
    said = {}

    def ask():
        said["answer"] = gang.ask(**order)

    while True:
        begun = time.monotonic()
        asking = threading.Thread(target=ask)
        asking.start()
        over = None
        if kind == 2:
            asking.join(chance.uniform(0, 0.3))
            if asking.is_alive():
                gang.ask(op="resume")
                over = time.monotonic()
        asking.join()
        took = time.monotonic() - begun
        if isinstance(said["answer"], str) and any(text in said["answer"] for text in TOO_EARLY):
            continue
        if kind == 1:
            return max(time.monotonic(), begun + TIMEOUT_S), took, begun
        if over is None:
            gang.ask(op="swap-in" if kind == 0 else "resume")
            over = time.monotonic()
        return over, took, begun


def born(rig, number, span, chance):
    kind = number % 3
    order = {"op": "swap-out"} if kind == 0 else {"op": "pause", "release": True}
    if kind == 1:
        order["timeout_seconds"] = TIMEOUT_S
    gang = gang_of(rig, f"born-{number}")
    while isinstance(gang.ask(op="resume"), str):
        time.sleep(0.002)
    listed = time.monotonic()
    time.sleep(chance.uniform(0, span))
    over, took, begun = order_out(gang, kind, order, chance)
    # The rest of its birth does not count as a delay after the pause.
    late = gang.goes_on(max(over, listed + span + over - begun))
    return {"kind": kind, "took": took, "late": late, "memory": gang.end()}


def orphaned(rig, gang, chance):
    threading.Thread(target=lambda: quiet(gang, op="pause", release=True)).start()
    time.sleep(chance.uniform(0, 0.25))
    rig.monitor.kill()
    rig.monitor.wait(timeout=10)
    rig.start_monitor()
    until = time.monotonic() + 30
    while not joined(rig, gang):
        if time.monotonic() > until:
            raise RigError(f"{gang.name} does not find the next monitor")
        time.sleep(0.01)
    gang.ask(op="resume")
    return {"late": gang.goes_on(time.monotonic())}


def quiet(gang, **request):
    try:
        gang.ask(**request)
    except (OSError, ValueError, struct.error):
        pass  # its monitor has died meanwhile


def joined(rig, gang):
    for job in Monitor(rig.socket).ask(op="ps")["jobs"]:
        if job["name"] == gang.name:
            return len(job["processes"]) == rig.options.ranks
    return False


def usual_birth(rig):
    """Seconds from the first process in `ps` to the first step of all."""
    gang = gang_of(rig, "usual")
    while isinstance(gang.ask(op="resume"), str):
        time.sleep(0.002)
    span = gang.goes_on(time.monotonic())
    return gang, span


def run(rig, report: Report):
    ranks.one_gpu_each(rig.options.ranks)
    seed = rig.options.seed or random.randrange(1 << 30)
    rig.say(f"seed {seed}")
    chance = random.Random(seed)
    gang, span = usual_birth(rig)
    rig.say(f"a birth takes {span:.2f} s")
    deaths = [orphaned(rig, gang, chance) for _ in range(rig.options.deaths)]
    orphan = gang.end()
    rig.say("ordered out while they are born")
    births = [born(rig, number, span, chance) for number in range(rig.options.gangs)]
    report.keep(seed=seed, span=span, births=births, deaths=deaths, orphan=orphan)
    right = [orphan, *(each["memory"] for each in births)].count("right")
    report.judge("gangs with the memory that they must have", f"{right} of {len(births) + 1}",
                 "all", right == len(births) + 1)
    swaps = [each["took"] for each in births if each["kind"] == 0]
    pauses = [each["late"] for each in births if each["kind"] != 0]
    report.note("gangs", f"{len(births)} at birth, {len(deaths)} deaths", f"seed {seed}")
    report.at_most("a pause outlasts its end, s, longest", max(pauses, default=0), MOST_S)
    report.at_most("a death of the monitor, s, longest",
                   max((each["late"] for each in deaths), default=0), MOST_S)
    report.at_most("a swap-out takes, s, longest", max(swaps, default=0), MOST_SWAP_S)
