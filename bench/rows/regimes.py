"""A server that changes what it does, twenty times at random, beside a GPT training.

It makes tokens kernel by kernel, or by replays of a CUDA graph alone. Kernel by kernel it waits for
its CPU, and its waits are foreseen. By replays it waits for the GPU, and the training gets the
shortest slice. `status` tells what the monitor sees, read all the while: each change must be
followed within a second, and nothing may swing after that.
"""

import random
import threading
import time

from rig.report import Report
from rows import serving
from rows.latency import tiny, training_arguments

TITLE = "A server that changes what it does"
FOLLOWED_S = 1.0
SEEN = {"eager": "foreseen", "replay": "waits for the GPU"}


def arguments(parser):
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.6, help="the shortest time between two")
    parser.add_argument("--seed", type=int, default=1)


class Watch(threading.Thread):
    """(moment, what the monitor says of the slice) in turns, until stopped."""

    def __init__(self, rig):
        super().__init__(daemon=True)
        self.rig, self.seen, self.ends = rig, [], threading.Event()

    def run(self):
        while not self.ends.wait(0.02):
            before = time.monotonic()
            gpu = self.rig.listing("status")["gpus"][0]
            self.seen.append((before, time.monotonic(), gpu["yield_reason"], gpu["yield_slice_us"]))

    def stop(self):
        self.ends.set()
        self.join()
        return self.seen


def play(rig, server):
    """The server's phases: (mode, begun, ended)."""
    o = rig.options
    choice = random.Random(o.seed)
    phases = []
    for number in range(o.changes):
        mode = ("eager", "replay")[number % 2]
        server.ask(do=mode)
        seconds = rig.scaled(o.seconds + choice.uniform(0, 1.5))
        begun = time.monotonic()
        server.converse(seconds, 0.005, seed=number + 1)
        phases.append((mode, begun, time.monotonic()))
    return phases


def look(seen, mode, begun, ended):
    """When the monitor last saw something else, and how often its mind changed after a second."""
    wanted = SEEN[mode]
    here = [each for each in seen if begun <= each[0] and each[1] <= ended]
    wrong = [after for _, after, reason, _ in here if wanted not in reason]
    late = [reason for before, _, reason, _ in here if before >= begun + FOLLOWED_S]
    swings = sum(a != b for a, b in zip(late, late[1:]))
    return max(wrong, default=begun) - begun, swings, len(here)


def run(rig, report: Report):
    size = serving.sizes(rig, "language.py", ["--mode", "either", "--out", 12])
    server = rig.start("server", "language.py", *size, priority="high")
    low = rig.start("train", "gpt.py", *(training_arguments(rig) if tiny(rig) else []),
                    priority="low")
    for warm in (server, low):
        warm.ready(150)
    low.start()
    watch = Watch(rig)
    watch.start()
    try:
        phases = play(rig, server)
    finally:
        seen = watch.stop()
        low.stop()
    figures = [(mode, *look(seen, mode, begun, ended)) for mode, begun, ended in phases]
    report.keep(seen=seen, phases=phases, figures=figures)
    report.note("times that the status was read", f"{len(seen)}")
    for mode in SEEN:
        took = [after for each, after, *_ in figures if each == mode]
        report.at_most(f"{mode}: slowest of {len(took)} changes to it, s", max(took), FOLLOWED_S)
    report.at_most("changes of its mind after a second", sum(each[2] for each in figures), 0,
                   "{:.0f}")
