"""Two trainings of ranks on the same GPUs: disturbed at random, or too large together.

At random: pauses, resumes, swap-outs, swap-ins, priorities and policies, and one is killed and
started again. With --oversubscribe and a --capacity of 1.67 x one of them, they take turns. In both
cases their losses must be those of an undisturbed run. Needs a GPU for each rank of a training, or
--one-gpu.
"""

import os
import random
import signal
import subprocess
import time

from rig import ranks
from rig.process import longest_gap
from rig.report import Report

TITLE = "Two trainings of ranks"
NAMES = ("left", "right")
LONGEST_GAP_S, LEAST_RATIO = 30, 0.85


def arguments(parser):
    parser.add_argument("--steps", type=int, default=3000, help="of each training")
    parser.add_argument("--seconds", type=float, default=120, help="at random, at least")
    parser.add_argument("--gib", type=int, default=4, help="of ballast of each rank")
    parser.add_argument("--gpt", action="store_true",
                        help="a GPT of 370 million parameters, instead of linear layers")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--fsdp", action="store_true", help="sharded by FSDP2, instead of DDP")
    parser.add_argument("--seed", type=int, default=0, help="0: a new one, which is printed")
    parser.add_argument("--oversubscribe", action="store_true", help="turns, nothing at random")
    parser.add_argument("--capacity", help="that the monitor gives out of each GPU")
    ranks.arguments(parser)
    ranks.number_argument(parser)


def start(rig, name, **knobs):
    o = rig.options
    linears = ("--layers", o.layers, "--width", o.width, "--batch", o.batch)
    return ranks.start(rig, name, "ddp_training.py", o.steps, "--gib", o.gib,
                       *(ranks.GPT if o.gpt else linears), *(["--fsdp"] if o.fsdp else []), **knobs)


class Disturber:
    """Disturbs jobs at random. It counts commands, and those that a running job was refused."""

    def __init__(self, rig, seed, jobs):
        self.rig = rig
        self.jobs = jobs
        self.random = random.Random(seed)
        self.done = {}
        self.refused = []

    def there(self):
        return [name for name, job in self.jobs.items() if job.poll() is None]

    def do(self, *command):
        done = self.rig.cli(*command, check=False, timeout=60)
        self.done[command[0]] = self.done.get(command[0], 0) + 1
        if done.returncode != 0 and (command[0] == "policy" or not self.ends(command[1])):
            self.refused.append([list(map(str, command)), done.returncode, done.stderr.strip()])

    def ends(self, name):
        """Whether it ends. Its ranks destroy their contexts up to two seconds before torchrun ends."""
        try:
            return name not in self.jobs or self.jobs[name].wait(timeout=3) is not None
        except subprocess.TimeoutExpired:
            return False

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


def killed_and_started_again(rig, jobs):
    for process in rig.job("left")["processes"]:
        os.kill(process["pid"], signal.SIGKILL)
    jobs["left"].wait(timeout=60)
    jobs["left"] = ranks.ready(start(rig, "left", swappable=True))


def at_random(rig, report):
    """Disturbs both for --seconds. A training that ends before is started again.

    All runs of each, to be compared with the undisturbed one."""
    seed = rig.options.seed or random.SystemRandom().randrange(1, 1 << 30)
    rig.say(f"at random, --seed {seed}")
    seconds = rig.options.seconds * rig.options.scale
    jobs = {name: start(rig, name, swappable=True) for name in NAMES}
    disturber = Disturber(rig, seed, jobs)
    results = {name: [] for name in NAMES}
    for job in jobs.values():
        ranks.ready(job)
    begun = time.monotonic()
    killed = False
    while jobs:
        disturber.one()
        passed = time.monotonic() - begun
        for name in list(jobs):
            if jobs[name].poll() is not None:
                results[name].append(ranks.finish(rig, jobs.pop(name), 60))
                if passed < seconds:
                    jobs[name] = ranks.ready(start(rig, name, swappable=True))
        if not killed and passed > seconds / 2 and "left" in disturber.there():
            killed = True
            killed_and_started_again(rig, jobs)
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
    jobs = {name: start(rig, name, oversubscribe=True) for name in NAMES}
    for job in jobs.values():
        ranks.ready(job)
    ready = time.monotonic()
    results = {name: ranks.finish(rig, job, rig.options.limit) for name, job in jobs.items()}
    first = min(result["stamps"][-1] for result in results.values())
    last = max(result["stamps"][-1] for result in results.values())
    begun = min(result["stamps"][0] for result in results.values())
    report.keep(alone=alone["stamps"],
                in_turns={name: result["stamps"] for name, result in results.items()})
    report.judge("seconds in which both trained", f"{first - ready:.1f}", "some", first > ready)
    if first > ready:
        gap = max(longest_gap(result["stamps"], ready, first) for result in results.values())
        report.at_most("the longest time of these without a step, s", gap, LONGEST_GAP_S, "{:.1f}")
    report.at_least("one after the other, over both in turns, their starts not counted",
                    len(NAMES) * (alone["stamps"][-1] - alone["stamps"][0]) / (last - begun),
                    LEAST_RATIO)
    return {name: [result] for name, result in results.items()}


def run(rig, report: Report):
    ranks.prepare(rig)
    rig.say("alone")
    alone = ranks.finish(rig, ranks.ready(start(rig, "alone", swappable=True)))
    oversubscribe = rig.options.oversubscribe
    results = in_turns(rig, report, alone) if oversubscribe else at_random(rig, report)
    for name, runs in results.items():
        equal = sum(result["values"] == alone["values"] for result in runs)
        report.judge(f"runs of {name}, {rig.options.steps} steps, with losses and ballast as alone",
                     f"{equal} of {len(runs)}", "all", equal == len(runs) > 0)
