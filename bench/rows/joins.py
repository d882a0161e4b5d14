"""1,000 random joins, leaves, kills and `set`s: never two short slices on the GPU at one instant.

The jobs are loops of short kernels. The slices in force are read from the libraries' own log of
slice calls that the driver accepted. A process' slices end when it says that it leaves, or when it
is killed.
"""

import json
import os
import random
import re
import select
import time

from rig.monitor import Refused
from rig.report import Report

TITLE = "Random joins, leaves, kills and sets"
SHORT_BELOW_US = 1000  # abi::kShortBelowUs
# A change lies between two moments of CLOCK_MONOTONIC, before and after the driver's call.
ACCEPTED = re.compile(r"switchyard\[(\d+)\] debug: slice: (\d+) us on compute group (\w+) .*"
                      r" uuid (\w+), (\d+) to (\d+) ns$")


def arguments(parser):
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=8, help="at most at once")
    parser.add_argument("--seed", type=int, default=0, help="0: a new one, which is printed")
    parser.add_argument("--rate", type=float, default=16, help="events per second")


class Crowd:
    def __init__(self, rig, rng, log):
        self.rig = rig
        self.rng = rng
        self.environment = {"SWITCHYARD_LOG": f"debug:{log}"}
        self.monitor = rig.connect()
        self.jobs = []
        self.leaving = []
        self.said = {}  # name: when it was told to leave, and what it has said since
        self.longest = 0.0
        self.failed = 0
        self.ends = {}  # process: when its slices stopped to count
        self.counts = dict.fromkeys(("join", "leave", "kill", "set"), 0)

    def join(self):
        name = f"job-{self.counts['join']}"
        priority = self.rng.choice(("high", "normal", "low", "low", "low"))
        program = [self.rig.program("kernel_rate"), self.rng.choice((20, 100, 400)), 5]
        job = self.rig.start_program(name, program, environment=self.environment,
                                     priority=priority)
        job.send(start=True)  # it reads that once it is ready
        self.jobs.append(job)

    def take(self):
        return self.jobs.pop(self.rng.randrange(len(self.jobs)))

    def leave(self):
        """Told and not waited for: behind highs that never rest it takes its time."""
        job = self.take()
        job.send(stop=True)
        job.send(quit=True)
        self.leaving.append(job)
        self.said[job.name] = (time.monotonic(), b"")

    def see_off(self):
        """Takes note of who has left. They say much at the end, so somebody must listen."""
        for job in list(self.leaving):
            fd = job.process.stdout.fileno()
            while select.select([fd], [], [], 0)[0]:
                data = os.read(fd, 1 << 20)
                told, said = self.said[job.name]
                self.said[job.name] = (told, said + data)
                if not data:
                    self.gone(job, told, said.decode().strip().splitlines())
                    break

    def gone(self, job, told, lines):
        self.failed += job.process.wait(timeout=30) != 0
        self.ends[job.process.pid] = json.loads(lines[-1])["bye"] if lines else told
        self.longest = max(self.longest, time.monotonic() - told)
        self.leaving.remove(job)

    def see_all_off(self, seconds):
        until = time.monotonic() + seconds
        while self.leaving and time.monotonic() < until:
            self.see_off()
            time.sleep(0.05)
        return [job.name for job in self.leaving]

    def kill(self):
        job = self.take()
        self.ends[job.process.pid] = time.monotonic()
        job.process.kill()
        job.process.wait(timeout=30)

    def set(self):
        job = self.rng.choice(self.jobs)
        knob, value = self.rng.choice((("priority", self.rng.choice(("high", "normal", "low"))),
                                       ("share", str(self.rng.choice((0.25, 1, 4))))))
        try:
            self.monitor.ask(op="set", target=job.name, **{knob: value})
        except Refused:  # it has not joined yet
            return False
        return True

    def one(self):
        kind = self.rng.choices(("join", "leave", "kill", "set"), (2, 1, 1, 4))[0]
        if kind == "join" and len(self.jobs) >= self.rig.options.jobs:
            kind = self.rng.choice(("leave", "kill"))
        if len(self.jobs) < 2:
            kind = "join"
        if getattr(self, kind)() is not False:
            self.counts[kind] += 1


def short_times(log, ends, now):
    """[(begin, end, process), ...]: when a compute group had a short slice, at the longest."""
    out, since = [], {}
    for line in log.read_text().splitlines():
        found = ACCEPTED.search(line)
        if not found:
            continue
        process, us = int(found[1]), int(found[2])
        group = (process, found[3], found[4])
        short = us < SHORT_BELOW_US
        if short and group not in since:
            since[group] = int(found[5]) / 1e9
        elif not short and group in since:
            out.append((since.pop(group), int(found[6]) / 1e9, process))
    out += [(begin, ends.get(group[0], now), group[0]) for group, begin in since.items()]
    return sorted(span for span in out if span[0] < span[1])


def overlaps(spans):
    """Pairs of consecutive spans of which the second begins before an earlier one has ended."""
    out, last = [], None
    for span in spans:
        if last is not None and span[0] < last[1]:
            out.append((last, span))
        if last is None or span[1] > last[1]:
            last = span
    return out


def run(rig, report: Report):
    o = rig.options
    seed = o.seed or random.SystemRandom().randrange(1, 1 << 30)
    rig.say(f"seed {seed}")
    log = rig.scratch / "slices.log"
    crowd = Crowd(rig, random.Random(seed), log)
    events = max(20, int(o.events * o.scale))
    begun = time.monotonic()
    while (count := sum(crowd.counts.values())) < events:
        crowd.see_off()
        crowd.one()
        due = begun + (count + 1) / o.rate
        time.sleep(max(0.0, due - time.monotonic()))
    elapsed = time.monotonic() - begun
    now = time.monotonic()
    stuck = crowd.see_all_off(60)
    listed = rig.listing("ps")["jobs"]
    spans = short_times(log, crowd.ends, now)
    both = overlaps(spans)
    report.keep(seed=seed, counts=crowd.counts, spans=spans, overlaps=both, jobs=listed)
    report.note("events", str(sum(crowd.counts.values())),
                ", ".join(f"{count} {kind}s" for kind, count in crowd.counts.items())
                + f", {elapsed:.0f} s, seed {seed}")
    report.judge("who was told to leave left", ", ".join(stuck) or "yes",
                 f"yes; the longest took {crowd.longest:.1f} s", not stuck and not crowd.failed)
    report.judge("times with a short slice", str(len(spans)), "at least 50",
                 len(spans) >= 50 * o.scale)
    report.note("in all", f"{sum(end - begin for begin, end, _ in spans):.1f} s")
    worst = max((min(a[1], b[1]) - b[0] for a, b in both), default=0)
    report.judge("two at one instant", str(len(both)),
                 "none" if not both else f"none; the longest for {1e3 * worst:.2f} ms", not both)
