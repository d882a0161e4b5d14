#!/usr/bin/env python3
"""How soon a pause stops the GPU and a resume starts it, seen by a job that pauses itself.

A thread keeps launching. Behind each kernel of about 100 us another one writes its number into
pinned memory, which the main thread watches. The watcher asks the monitor by its socket, as the
command line does, so that no program's start is timed. Prints one JSON line.

    pause_times.py ROUNDS NAME-OF-THE-JOB
"""

import ctypes
import json
import os
import random
import sys
import threading
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH / "workloads")]

from driver_api import Driver  # noqa: E402
from rig.monitor import Monitor  # noqa: E402

QUEUE = 500  # pairs: 1,000 launches
FULL = 440   # the driver takes about 1,000 entries in all, the gate's own waits among them


class Job:
    def __init__(self):
        self.driver = Driver()
        self.busy, self.fill = self.driver.kernels("busy", "fill")
        self.stream = self.driver.stream()
        page = self.driver.pinned_memory(4096)
        self.word = ctypes.c_uint32.from_address(page.value)
        self.address = ctypes.c_uint64(page.value)
        self.launched = 0
        self.ended = False

    def launch(self, kernel, *arguments):
        self.driver.launch(kernel, self.stream, *arguments)

    def keep_launching(self):
        self.driver.check("cuCtxSetCurrent", self.driver.context)
        while not self.ended:
            if self.launched - self.word.value >= QUEUE:
                time.sleep(0.0001)
                continue
            self.launch(self.busy, ctypes.c_uint32(100))
            self.launched += 1
            self.launch(self.fill, self.address, ctypes.c_uint32(self.launched),
                        ctypes.c_uint64(1))

    def last_change(self, quiet):
        """When the word changed last, once it has not changed for `quiet` seconds."""
        seen, at = self.word.value, time.monotonic()
        while time.monotonic() - at < quiet:
            now = self.word.value
            if now != seen:
                seen, at = now, time.monotonic()
        return at

    def next_change(self):
        seen = self.word.value
        until = time.monotonic() + 5
        while self.word.value == seen:
            if time.monotonic() > until:
                raise SystemExit("no kernel ran within 5 s of the resume")
        return time.monotonic()


def one_round(job, monitor, name):
    until = time.monotonic() + 10
    while job.launched - job.word.value < FULL:
        if time.monotonic() > until:
            raise SystemExit(f"only {job.launched - job.word.value} pairs are queued")
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.01))
    begun = time.monotonic()
    before = job.word.value
    monitor.send(op="pause", target=name)
    stopped = job.last_change(0.2)
    after = job.word.value
    monitor.receive()
    resumed = time.monotonic()
    monitor.send(op="resume", target=name)
    started = job.next_change()
    monitor.receive()
    return {"stop_ms": (stopped - begun) * 1e3, "ran_meanwhile": after - before,
            "start_ms": (started - resumed) * 1e3}


def main():
    rounds = int(sys.argv[1])
    # The launching thread must get Python's lock from the watching one at once, not after 5 ms.
    sys.setswitchinterval(1e-5)
    name = sys.argv[2]
    job = Job()
    monitor = Monitor(os.environ["SWITCHYARD_SOCKET"])
    random.seed(11)
    thread = threading.Thread(target=job.keep_launching, daemon=True)
    thread.start()
    time.sleep(1)
    figures = {}
    for key, limit in (("unarmed", "100%"), ("armed", "99%")):
        monitor.ask(op="set", target=name, limit=limit)
        time.sleep(0.5)
        figures[key] = [one_round(job, monitor, name) for _ in range(rounds)]
    job.ended = True
    thread.join()
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
