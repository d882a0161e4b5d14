"""What does it cost to be seen: history, metrics, events and a trace?

The same warm processes, under monitors that take turns. One keeps no history and nobody asks it.
The other keeps one, answers a scrape a second, and tells each event to a reader. Every five seconds
it is asked for a trace of the last minute. Processes outlive their monitor and join the next one.

There are two sorts of cells. One is a training, alone and beside a service. The other is
launch-bound work alone: the service's graph by itself, and a process that launches an empty kernel.
"""

import threading
import time
import urllib.request
from contextlib import contextmanager

from checks.rank_setup import free_port
from rig.process import rate_between
from rig.report import Report, interval, median, tail
from rig.rig import ACTIVITY_WINDOW, RigError
from rows.cost import empty_kernel
from rows.latency import service, training

TITLE = "What it costs to be seen"
MOST = 0.005  # of a rate, and of a time
JOINS_S = 20
EVERY_S = 1
SCRAPES_A_TRACE = 5


def arguments(parser):
    parser.add_argument("--only", choices=["trainings", "launches"], action="append")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=500, help="of each cell")
    parser.add_argument("--rate", type=float, default=50, help="requests per second")
    parser.add_argument("--solo-seconds", type=float, default=4, help="of each cell")
    parser.add_argument("--replay-seconds", type=float, default=2, help="of each cell")
    parser.set_defaults(high="graph", low="gpt", even=False)


def restart_monitor(rig, names, *options):
    rig.stop_monitor()
    rig.start_monitor(*options)
    until = time.monotonic() + JOINS_S
    while {job["name"] for job in rig.listing("ps")["jobs"]} < names:
        if time.monotonic() > until:
            raise RigError(f"{', '.join(sorted(names))} did not join the new monitor within "
                           f"{JOINS_S} s")
        time.sleep(0.1)
    time.sleep(rig.scaled(ACTIVITY_WINDOW))


class Readers:
    """All that may look at a monitor, until end()."""

    def __init__(self, rig, port):
        self.rig = rig
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.scrapes = self.traces = 0
        self.failed = ""
        self.ended = threading.Event()
        self.follower = rig.once("events", [rig.build / "switchyard", "events", "--follow"],
                                 under="plain", environment=rig.environment("switchyard"))
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            while not self.ended.wait(EVERY_S):
                with urllib.request.urlopen(self.url, timeout=5) as answer:
                    self.scrapes += b"switchyard_" in answer.read()
                if self.scrapes % SCRAPES_A_TRACE == 1:
                    self.rig.cli("trace", "-o", self.rig.scratch / "seen.pftrace")
                    self.traces += 1
        except (OSError, RigError) as error:
            self.failed = str(error)

    def end(self):
        self.ended.set()
        self.thread.join(20)
        if self.follower.poll() is not None:
            raise RigError(f"events --follow ended {self.follower.returncode} before its time")
        self.follower.terminate()
        self.follower.communicate(timeout=20)
        if self.failed or not self.traces:
            raise RigError(f"{self.scrapes} scrapes, {self.traces} traces: {self.failed}")


@contextmanager
def nobody_looks(rig, names):
    restart_monitor(rig, names, "--history", "none")
    yield


@contextmanager
def all_look(rig, names):
    port = free_port()
    restart_monitor(rig, names, "--metrics", f"127.0.0.1:{port}")
    readers = Readers(rig, port)
    try:
        yield
    finally:
        readers.end()


def measure_trainings(rig, high, low, _key, number):
    """A cell: the training by itself, and both."""
    o = rig.options
    low.start()
    begin, end = rig.window(o.solo_seconds, settle=ACTIVITY_WINDOW)
    served = high.serve(o.rate, rig.counted(o.requests), seed=number + 1)
    trained = low.stop()
    return {"alone": rate_between(trained, begin, end), "latencies_ms": served["latencies_ms"],
            "beside": rate_between(trained, served["begun"], served["ended"])}


def measure_launches(rig, high, _low, key, number):
    replays = high.run(rig.scaled(rig.options.replay_seconds))["steps_per_second"]
    empty = empty_kernel(rig, "switchyard", f"{key}-{number}")
    return {"replays": replays, "direct_ns": empty["direct_ns"], "added_ns": empty["added_ns"]}


def judge(report, what, found, smaller_is_better):
    check, bound = ((report.at_most, 1 + MOST) if smaller_is_better else
                    (report.at_least, 1 - MOST))
    check(f"{what}: seen / not", median(found), bound, "{:.4f}")
    report.ends(interval(found), bound, " ".join(f"{ratio:.4f}" for ratio in found))


def ratios(cells, figure):
    return [figure(on) / figure(off) for off, on in zip(cells["off"], cells["on"])]


def judge_trainings(report, cells):
    for what, key in (("training alone", "alone"), ("training beside the service", "beside")):
        judge(report, what, ratios(cells, lambda cell, key=key: cell[key]), False)
    for what, figure in (("p50", median), ("p99", tail)):
        judge(report, f"the service's {what}",
              ratios(cells, lambda cell, figure=figure: figure(cell["latencies_ms"])), True)
    for key, those in cells.items():
        times = [value for cell in those for value in cell["latencies_ms"]]
        report.note(f"{key}: p50 / p99", f"{median(times):.3f} / {tail(times):.3f} ms",
                    f"{len(times)} requests")


def judge_launches(report, cells):
    judge(report, "graph replay alone", ratios(cells, lambda cell: cell["replays"]), False)
    # A launch by the driver alone differs by a tenth from process to process. The library's part
    # is measured inside each, and all that can be seen of a launch passes through it.
    judge(report, "a launch of an empty kernel",
          [1 + (on["added_ns"] - off["added_ns"]) / off["direct_ns"]
           for off, on in zip(cells["off"], cells["on"])], True)
    for key, those in cells.items():
        report.note(f"{key}: a launch by the driver, added by the library",
                    f"{median([cell['direct_ns'] for cell in those]):.0f}, "
                    f"{median([cell['added_ns'] for cell in those]):.1f} ns",
                    f"{median([cell['replays'] for cell in those]):.2f} replays/s")


SORTS = {"trainings": (measure_trainings, judge_trainings),
         "launches": (measure_launches, judge_launches)}


def run(rig, report: Report):
    wanted = [sort for sort in SORTS if sort in (rig.options.only or SORTS)]
    low = training(rig, "train", priority="low") if "trainings" in wanted else None
    high = service(rig, "serve", priority="high")
    for warm in filter(None, (low, high)):
        warm.ready()
    # Of the stand-ins without a GPU nobody joins.
    names = {job["name"] for job in rig.listing("ps")["jobs"] if job["processes"]}
    cells = {sort: {"off": [], "on": []} for sort in wanted}
    report.keep(cells=cells)
    ways = (("off", nobody_looks), ("on", all_look))
    for number in range(rig.options.rounds):
        for key, way in ways if number % 2 == 0 else ways[::-1]:
            rig.say(f"round {number + 1}, {key}")
            with way(rig, names):
                for sort in wanted:
                    measure, _ = SORTS[sort]
                    cells[sort][key].append(measure(rig, high, low, key, number))
    for sort in wanted:
        _, judge_sort = SORTS[sort]
        judge_sort(report, cells[sort])
