"""Three jobs whose work has deadlines: `deadline` against `fair` on the same arrivals.

Each job gets pieces of work at random moments, each to be done within the job's own time. A job's
`--deadline` is always that of its oldest unfinished piece; pieces of one job follow each other.
"""

import random
import select
import time

from rig.report import Report
from rig.rig import ACTIVITY_WINDOW

TITLE = "Missed deadlines of three jobs"
# name, steps of about 1 ms in a piece, allowed seconds, mean seconds between arrivals
JOBS = (("short", 80, 0.16, 0.4), ("middle", 200, 0.8, 0.8), ("long", 600, 4.0, 1.5))
FAR = 80000  # seconds; longer than any bench


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=30, help="of each policy")


def arrivals(seconds):
    """[(moment, index of the job), ...], the same at every call."""
    rng = random.Random(23)
    out = []
    for index, (_, _, _, between) in enumerate(JOBS):
        at = rng.expovariate(1 / between)
        while at < seconds:
            out.append((at, index))
            at += rng.expovariate(1 / between)
    return sorted(out)


class Board:
    """Each job's work, and the monitor's knowledge of it."""

    def __init__(self, rig, jobs):
        self.jobs = jobs
        self.monitor = rig.connect()
        self.queues = [[] for _ in jobs]  # (due, arrived), oldest first
        self.done = []
        self.since = []
        for job in jobs:
            self.tell(job.name, FAR)
            left = rig.job(job.name)["deadline_seconds"]
            self.since.append(time.monotonic() - (FAR - left))

    def tell(self, name, seconds):
        self.monitor.ask(op="set", target=name, deadline=f"{seconds:.3f}s")

    def announce(self, index):
        queue = self.queues[index]
        due = queue[0][0] - self.since[index] if queue else FAR
        self.tell(self.jobs[index].name, due)

    def begin(self, index):
        self.jobs[index].send(steps=JOBS[index][1])

    def arrive(self, index):
        now = time.monotonic()
        self.queues[index].append((now + JOBS[index][2], now))
        if len(self.queues[index]) == 1:
            self.announce(index)
            self.begin(index)

    def finish(self, index):
        ended = self.jobs[index].receive(5)["ended"]
        due, arrived = self.queues[index].pop(0)
        self.done.append({"job": JOBS[index][0], "took": ended - arrived, "late": ended > due})
        self.announce(index)
        if self.queues[index]:
            self.begin(index)

    def wait(self, until):
        """Takes what is finished until that moment; without one, until all is."""
        while until is None or time.monotonic() < until:
            busy = {job.process.stdout.fileno(): index for index, job in enumerate(self.jobs)
                    if self.queues[index]}
            if until is None and not busy:
                return
            left = 60 if until is None else max(0.0, until - time.monotonic())
            for fd in select.select(list(busy), [], [], left)[0]:
                self.finish(busy[fd])


def run(rig, report: Report):
    jobs = [rig.start(name, "loops.py") for name, *_ in JOBS]
    for job in jobs:
        job.ready()
    board = Board(rig, jobs)
    times = arrivals(rig.scaled(rig.options.seconds))
    done = {}
    for policy in ("fair", "deadline"):
        rig.cli("policy", policy)
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
        rig.say(policy)
        begun = time.monotonic()
        for moment, index in times:
            board.wait(begun + moment)
            board.arrive(index)
        board.wait(None)
        done[policy], board.done = board.done, []
    report.keep(done=done)
    late = {}
    for policy, pieces in done.items():
        late[policy] = sum(piece["late"] for piece in pieces)
        each = ", ".join(f"{name} {sum(p['late'] for p in pieces if p['job'] == name)}"
                         for name, *_ in JOBS)
        report.note(f"{policy}: missed", f"{late[policy]} of {len(pieces)}", each)
    report.judge("fewer misses than fair", str(late["deadline"]), f"below {late['fair']}",
                 late["deadline"] < late["fair"])
