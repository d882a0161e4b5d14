"""A machine of several GPUs: gangs of all of them, gangs that overlap, many ranks, random commands.

The ranks are small programs (rank_steps), whose memory is compared word by word in the end. The parts
are these. A gang of all GPUs is paused and swapped at work. Gangs on overlapping GPUs and single jobs
take turns. Two gangs of all GPUs do not fit together. Eight such gangs step while the monitor's CPU
time is taken. Commands at random disturb two of them. A job moves from each GPU to each. Memory is
parked on the emptiest GPU. Needs four GPUs or more; simulated ones will do.
"""

import os
import random
import time
from pathlib import Path

from rig import ranks
from rig.report import Report, median
from rig.residency import wait_until
from rig.rig import RigError
from rig.steps import Gang
from rows.clients import cpu_seconds
from rows.gangs import Disturber

TITLE = "A machine of several GPUs"
PARTS = ("gang", "overlap", "alternate", "many", "random", "migrate", "parking")
MOST_PAUSE_S = 0.04
MOST_GAP_S = 5  # without a step of any job that takes turns
MOST_CPU = 5    # % of a core, by the monitor
LINES, COLUMNS = 24, 80
PIECE_MIB = 4      # of a tensor; a smaller one is not swappable
RESERVED_MIB = 512  # more on each GPU than on the one before


def arguments(parser):
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--gpus", type=int, help="the first so many; else all of the machine")
    parser.add_argument("--mib", type=int, default=4096, help="of each rank")
    parser.add_argument("--times", type=int, default=20, help="pauses, and swap-outs")
    parser.add_argument("--seconds", type=float, default=20, help="of each part that takes turns")
    parser.add_argument("--random-seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one, which is printed")


class Machine:
    """The GPUs that are used, and gangs on them."""

    def __init__(self, rig, report):
        self.rig = rig
        self.report = report
        self.options = rig.options
        self.uuids = [gpu["uuid"] for gpu in rig.listing("status")["gpus"]][:rig.options.gpus]
        self.count = len(self.uuids)

    def gang(self, name, gpus=None, mib=None, **knobs):
        gpus = list(range(self.count)) if gpus is None else gpus
        return Gang(self.rig, name, len(gpus), mib or self.options.mib,
                    gpus=",".join(map(str, gpus)), **knobs)

    def seconds(self):
        return self.options.seconds * self.options.scale

    def judge_memory(self, gangs):
        said = {gang.name: gang.end() for gang in gangs}
        wrong = [f"{name}: {text}" for name, text in said.items() if text != "right"]
        self.report.judge("  memory of all ranks", ", ".join(wrong) or "as it must be",
                          "as it must be", not wrong)


def at_work(gangs):
    begun = time.monotonic()
    for gang in gangs:
        gang.goes_on(begun)


def longest_gaps(gangs, seconds):
    """{name: the longest time in which some rank of it made no step}"""
    last = {gang.name: (gang.steps(), time.monotonic()) for gang in gangs}
    longest = dict.fromkeys(last, 0.0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)
        for gang in gangs:
            gang.fail_if_ended()
            steps, now = gang.steps(), time.monotonic()
            before, since = last[gang.name]
            longest[gang.name] = max(longest[gang.name], now - since)
            if all(one > other for one, other in zip(steps, before)):
                last[gang.name] = (steps, now)
    return longest


def disturbed(machine):
    """20 pauses and 20 swap-outs at work."""
    rig, report, times = machine.rig, machine.report, machine.options.times
    gang = machine.gang("all", swappable=True)
    at_work([gang])
    seconds = {command: [] for command in ("pause", "resume", "swap-out", "swap-in")}
    for out, back in (("pause", "resume"), ("swap-out", "swap-in")):
        for _ in range(times):
            for command in (out, back):
                seconds[command].append(rig.timed(command, gang.name))
            gang.goes_on(time.monotonic())
    moved = sum(gpu["swap_moved_out_bytes"] for gpu in rig.job(gang.name)["gpus"])
    report.keep(disturbed=seconds, moved=moved)
    report.note("pauses and swap-outs at work", f"{times} and {times}", "none was refused")
    report.at_most("  pause, s, median", median(seconds["pause"]), MOST_PAUSE_S)
    out = median(seconds["swap-out"])
    report.note("  swap-out, swap-in, s, median", f"{out:.3f}, {median(seconds['swap-in']):.3f}",
                f"{moved / times / machine.count / out / 1e9:.1f} GB/s of each GPU")
    machine.judge_memory([gang])


def overlapping(machine):
    """Gangs on GPUs 0 to 3 and 2 to 5 of eight, and single jobs."""
    half = machine.count // 2
    machine.rig.cli("policy", "exclusive")
    gangs = [machine.gang("left", list(range(half))),
             machine.gang("right", list(range(half // 2, half // 2 + half)))]
    gangs += [machine.gang(f"single-{gpu}", [gpu])
              for gpu in sorted({0, half - 1, half, machine.count - 1})]
    at_work(gangs)
    gaps = longest_gaps(gangs, machine.seconds())
    machine.rig.cli("policy", "priority")
    machine.report.keep(gaps=gaps)
    machine.report.at_most(f"{len(gangs)} jobs on overlapping GPUs: longest without a step, s",
                           max(gaps.values()), MOST_GAP_S, "{:.2f}")
    machine.judge_memory(gangs)


def alternate(machine):
    """Each has 60 % of a capacity that two contexts fit into as well."""
    rig = machine.rig
    alone = machine.gang("measured", mib=1)
    at_work([alone])
    context = max(gpu["memory_used_bytes"] for gpu in rig.job("measured")["gpus"]) >> 20
    alone.end()
    mib = max(machine.options.mib, 2 * context)
    rig.monitor.terminate()
    rig.monitor.wait(timeout=20)
    rig.options.capacity = f"{int((context + mib) / 0.6)}MiB"
    rig.start_monitor()
    gangs = [machine.gang(name, mib=mib, oversubscribe=True) for name in ("one", "two")]
    at_work(gangs)
    before = [gang.steps()[0] for gang in gangs]
    gaps = longest_gaps(gangs, machine.seconds())
    made = [gang.steps()[0] - then for gang, then in zip(gangs, before)]
    machine.report.keep(alternate={"gaps": gaps, "made": made, "mib": mib})
    machine.report.judge("two gangs of 60 % of the capacity each, steps of each",
                         f"{made[0]}, {made[1]}", "both advance", min(made) > 0)
    machine.judge_memory(gangs)
    rig.monitor.terminate()
    rig.monitor.wait(timeout=20)
    rig.options.capacity = None
    rig.start_monitor()


def busy_part():
    """CPU time of the machine so far: (busy, all)."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return sum(fields) - fields[3] - fields[4], sum(fields)


def readable(machine, command):
    os.environ.update(COLUMNS=str(COLUMNS), LC_ALL="C.UTF-8")
    try:
        lines = machine.rig.cli(*command, timeout=60).stdout.splitlines()
    finally:
        del os.environ["COLUMNS"], os.environ["LC_ALL"]
    widest = max(map(len, lines), default=0)
    machine.report.judge(f"  {' '.join(command)}: lines, columns", f"{len(lines)}, {widest}",
                         f"{LINES}, {COLUMNS}", len(lines) <= LINES and widest <= COLUMNS)


def many(machine):
    """Eight gangs of all GPUs: the monitor's CPU time, and what a screen shows of them."""
    rig, report = machine.rig, machine.report
    gangs = [machine.gang(f"gang-{index}", mib=16) for index in range(8)]
    at_work(gangs)
    busy, whole = busy_part()
    begun, before = time.monotonic(), cpu_seconds(rig.monitor.pid)
    time.sleep(machine.seconds())
    used = (cpu_seconds(rig.monitor.pid) - before) / (time.monotonic() - begun)
    load = (busy_part()[0] - busy) / max(1, busy_part()[1] - whole)
    report.keep(cpu=used, load=load, load_average=os.getloadavg())
    report.note("ranks", f"{8 * machine.count} of 8 jobs", f"the machine was busy to {load:.0%}, "
                f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    report.at_most("  the monitor's CPU, % of a core", 100 * used, MOST_CPU, "{:.2f}")
    readable(machine, ("ps",))
    readable(machine, ("stats", "--interval", "1s"))
    machine.judge_memory(gangs)


def at_random(machine):
    rig, report = machine.rig, machine.report
    seed = machine.options.seed or random.SystemRandom().randrange(1, 1 << 30)
    rig.say(f"at random, --seed {seed}")
    gangs = [machine.gang(name, swappable=True) for name in ("this", "that")]
    at_work(gangs)
    disturber = Disturber(rig, seed, {gang.name: gang.process for gang in gangs})
    begun = time.monotonic()
    while time.monotonic() - begun < machine.options.random_seconds * machine.options.scale:
        disturber.one()
    rig.cli("policy", "priority")
    at_work(gangs)
    report.keep(seed=seed, done=disturber.done, refused=disturber.refused)
    report.note("commands at random", ", ".join(f"{n} {what}" for what, n in disturber.done.items()),
                f"{time.monotonic() - begun:.0f} s, seed {seed}")
    report.judge("  refused", str(disturber.refused[:3] or 0), "0", not disturber.refused)
    machine.judge_memory(gangs)


def tour(count):
    """GPUs to go to from the first on, by which each is reached from each other one."""
    out = []
    for low in range(count - 1):
        if low > 0:
            out.append(low)
        for high in range(low + 1, count):
            out += [high, low]
    return out


def tensors(machine, name, mib, **knobs):
    return machine.rig.start(name, "tensors.py", "--tensors", max(1, mib // PIECE_MIB),
                             "--bytes", PIECE_MIB << 20,
                             **knobs).ready(180)


def wrong_bits(job):
    job.send(do="check")
    return job.receive(120)["wrong"]


def migrate(machine):
    rig, report = machine.rig, machine.report
    job = tensors(machine, "moved", min(machine.options.mib, 1024), swappable=True, gpus=0)
    job.start()
    seconds, lost = [], []
    for to in tour(machine.count):
        seconds.append(rig.timed("migrate", job.name, "--to", to))
        there = [gpu["uuid"] for gpu in rig.job(job.name)["gpus"]]
        lost += [(to, there)] if there != [machine.uuids[to]] else []
    job.stop()
    wrong = wrong_bits(job)
    job.end()
    report.keep(moves=seconds, lost=lost)
    report.judge("moves from each GPU to each", f"{len(seconds) - len(lost)} of {len(seconds)}",
                 "all", not lost)
    report.note("  a move, s, median", f"{median(seconds):.2f}", f"longest {max(seconds):.2f}")
    report.judge("  every bit", str(wrong or "equal"), "equal", not wrong)


def parking(machine):
    """Each neighbour but one has more reserved than the one before it."""
    rig, report = machine.rig, machine.report
    emptiest = machine.count // 2
    mib = min(machine.options.mib, 1024)
    others = [tensors(machine, f"beside-{gpu}", PIECE_MIB, gpus=gpu,
                      memory=f"{(gpu + 1) * RESERVED_MIB}MiB")
              for gpu in range(1, machine.count) if gpu != emptiest]
    job = tensors(machine, "parked", mib, swappable=True, park="peer",
                  gpus=",".join(map(str, range(machine.count))))
    rig.cli("swap-out", job.name, timeout=60)
    said = wait_until(rig, job.name, lambda job: job["residency"] == "swapped", "swapped out")
    on = [gpu["parked_on"] for gpu in said["gpus"] if gpu.get("memory_parked_bytes")]
    rig.cli("swap-in", job.name, timeout=60)
    wrong = wrong_bits(job)
    for each in (job, *others):
        each.end()
    report.judge("parked on the emptiest GPU", str(on), f"[['{machine.uuids[emptiest]}']]",
                 on == [[machine.uuids[emptiest]]])
    report.judge("  every bit", str(wrong or "equal"), "equal", not wrong)


def run(rig, report: Report):
    ranks.one_gpu_each(4)
    machine = Machine(rig, report)
    chosen = rig.options.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        raise RigError(f"--only: no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    report.note("GPUs", str(machine.count))
    for part, play in zip(PARTS, (disturbed, overlapping, alternate, many, at_random, migrate,
                                  parking)):
        if part in chosen:
            rig.say(part)
            play(machine)
