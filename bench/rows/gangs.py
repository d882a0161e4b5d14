"""Two trainings of two ranks each, on the same GPUs: disturbed at random, or too large together.

At random: pauses, resumes, swap-outs, swap-ins, priorities and policies, and one is killed and
started again. With --oversubscribe and a --capacity of 1.67 x one of them, they take turns. In both
cases their losses must be those of an undisturbed run. Needs two GPUs, or --one-gpu.
"""

import os
import random
import signal
import time

from rig import ranks
from rig.process import longest_gap
from rig.report import Report

TITLE = "Two trainings of two ranks each"
NAMES = ("left", "right")
LONGEST_GAP_S, LEAST_RATIO = 30, 0.85


def arguments(parser):
    parser.add_argument("--steps", type=int, default=6000, help="of each training")
    parser.add_argument("--gib", type=int, default=4, help="of ballast of each rank")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--fsdp", action="store_true", help="sharded by FSDP2, instead of DDP")
    parser.add_argument("--seed", type=int, default=0, help="0: a new one, which is printed")
    parser.add_argument("--oversubscribe", action="store_true", help="turns, nothing at random")
    parser.add_argument("--capacity", help="that the monitor gives out of each GPU")
    ranks.arguments(parser)


def start(rig, name, **knobs):
    o = rig.options
    return ranks.start(rig, name, "ddp_training.py", o.steps, "--gib", o.gib, "--width", o.width,
                       "--layers", o.layers, *(["--fsdp"] if o.fsdp else []), **knobs)


class Disturber:
    """Disturbs jobs at random. It counts commands, and those that a running job was refused."""

    def __init__(self, rig, seed, jobs):
        self.rig = rig
        self.jobs = jobs
        self.random = random.Random(seed)
        self.done = {}
        self.refused = []

    def there(self):
        return [name for name in NAMES if self.jobs[name].poll() is None]

    def do(self, *command):
        done = self.rig.cli(*command, check=False, timeout=60)
        self.done[command[0]] = self.done.get(command[0], 0) + 1
        time.sleep(0.1)  # a job that has just ended may be there for as long
        if done.returncode != 0 and (command[0] == "policy" or command[1] in self.there()):
            self.refused.append([list(map(str, command)), done.returncode, done.stderr.strip()])

    def one(self):
        name = self.random.choice(self.there() or NAMES)
        out, back = self.random.choice((("pause", "resume"), ("swap-out", "swap-in"),
                                        ("set", None), ("policy", None)))
        if out == "set":
            self.do("set", name, "--priority", self.random.choice(("high", "normal", "low")))
        elif out == "policy":
            self.do("policy", self.random.choice(("priority", "fair", "exclusive")))
        else:
            self.do(out, name)
            time.sleep(self.random.uniform(0, 1))
            self.do(back, name)
        time.sleep(self.random.uniform(0, 0.5))


def at_random(rig, report, alone):
    seed = rig.options.seed or random.SystemRandom().randrange(1, 1 << 30)
    rig.say(f"at random, --seed {seed}")
    jobs = {name: start(rig, name, swappable=True) for name in NAMES}
    disturber = Disturber(rig, seed, jobs)
    for job in jobs.values():
        ranks.ready(job)
    begun = time.monotonic()
    kill_after = begun + (alone["stamps"][-1] - alone["stamps"][0]) / 2  # both are at work then
    killed = False
    while any(job.poll() is None for job in jobs.values()):
        if not killed and time.monotonic() > kill_after and jobs["left"].poll() is None:
            killed = True
            for process in rig.job("left")["processes"]:
                os.kill(process["pid"], signal.SIGKILL)
            jobs["left"].wait(timeout=60)
            jobs["left"] = ranks.ready(start(rig, "left", swappable=True))
        disturber.one()
    results = {name: ranks.finish(rig, job, 60) for name, job in jobs.items()}
    report.keep(seed=seed, done=disturber.done, refused=disturber.refused)
    report.note("done at random", ", ".join(f"{n} {what}" for what, n in disturber.done.items()),
                f"{time.monotonic() - begun:.0f} s, seed {seed}")
    report.judge("one was killed and started again", str(killed), "True", killed)
    report.judge("refused", str(len(disturber.refused)), "0", not disturber.refused)
    for command, status, why in disturber.refused[:5]:
        report.note(f"  {' '.join(command)}", f"exit {status}", why)
    return results


def in_turns(rig, report, alone):
    rig.say("in turns")
    begun = time.monotonic()
    jobs = {name: start(rig, name, oversubscribe=True) for name in NAMES}
    for job in jobs.values():
        ranks.ready(job)
    ready = time.monotonic()
    results = {name: ranks.finish(rig, job, rig.options.limit) for name, job in jobs.items()}
    first = min(result["stamps"][-1] for result in results.values())
    report.judge("seconds in which both trained", f"{first - ready:.1f}", "some", first > ready)
    if first > ready:
        gap = max(longest_gap(result["stamps"], ready, first) for result in results.values())
        report.at_most("the longest time of these without a step, s", gap, LONGEST_GAP_S, "{:.1f}")
    report.at_least("one after the other, over both in turns",
                    len(NAMES) * alone["seconds"] / (time.monotonic() - begun), LEAST_RATIO)
    return results


def run(rig, report: Report):
    ranks.prepare(rig)
    rig.say("alone")
    begun = time.monotonic()
    alone = ranks.finish(rig, ranks.ready(start(rig, "alone", swappable=True)))
    alone["seconds"] = time.monotonic() - begun
    results = (in_turns if rig.options.oversubscribe else at_random)(rig, report, alone)
    for name, result in results.items():
        report.judge(f"losses and ballast of {name}", f"{rig.options.steps} steps",
                     "as in an undisturbed run", result["values"] == alone["values"])
