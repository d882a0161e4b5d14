"""Islands for a row: their members, which check results, the monitor's events, and the MPS servers.

Threading: one thread.
"""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from rig.process import WorkloadFailed
from rig.rig import RigError

TOLD_WITHIN = 10.0  # seconds until all that failed is told; a dead server is felt after 4.5 s


class Xids:
    """Those that the kernel has logged since; None: it shows its log to nobody here."""

    def __init__(self):
        self.log = None
        with suppress(OSError):
            self.log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.log, 0, os.SEEK_END)

    def seen(self):
        if self.log is None:
            return None
        found = []
        with suppress(OSError):  # EAGAIN: there is no more
            while True:
                text = os.read(self.log, 8192).decode(errors="replace")
                found += [int(number) for number in re.findall(r"NVRM: Xid [^:]*: (\d+)", text)]
        return found


class Events:
    """Of the monitor that runs, from now on."""

    def __init__(self, rig):
        self.monitor = rig.connect()
        self.last = self.monitor.ask(op="events", seconds=0)["last"]
        self.told = []

    def look(self):
        more = True
        while more:
            answer = self.monitor.ask(op="events", since=self.last)
            self.told += answer["events"]
            self.last, more = answer["last"], answer["more"]

    def of(self, names, kind, timeout=TOLD_WITHIN):
        """{name: text} of these jobs, once all have one of that kind, or in the end."""
        until = time.monotonic() + timeout
        while True:
            self.look()
            found = {event["name"]: event["text"] for event in self.told
                     if event["kind"] == kind and event["name"] in names}
            if len(found) == len(names) or time.monotonic() > until:
                return found
            time.sleep(0.05)


class Island:
    """Its members work from when they are there until they are told to stop."""

    def __init__(self, rig, name="default"):
        self.rig = rig
        self.name = name
        self.environment = rig.island_environment()
        if self.environment is None:
            raise RigError("no MPS control daemon here: nvidia-cuda-mps-control is not found")
        self.members = []
        self.begun = 0

    def begin(self, **knobs):
        self.begun += 1
        member = self.rig.start(f"{self.name}-{self.begun}", "words.py", co_run=self.name,
                                environment=self.environment, **knobs)
        self.members.append(member)
        return member

    def fill(self):
        fresh = [self.begin() for _ in range(self.rig.options.members - len(self.members))]
        for member in fresh:
            member.ready(60)
            member.start()

    def server(self):
        """The PID of its server; None: it has none."""
        for job in self.rig.listing("ps")["jobs"]:
            if job["island_server"] and job["island"] == self.name and job["processes"]:
                return job["processes"][0]["pid"]
        return None


def results(job):
    """Stops it; the answer tells its steps, and how many it checked."""
    job.send(stop=True)
    stamps = job.receive(60)
    return {**stamps, **job.ask(do="results")}


def ends_by_itself(job, timeout):
    """Whether it fails, as it must."""
    with suppress(WorkloadFailed):
        while True:
            job.receive(timeout)
    with suppress(OSError):
        job.process.stdin.close()
    until = time.monotonic() + timeout
    while job.process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    return job.process.poll() not in (None, 0)


def servers_of(folder):
    """PIDs of MPS daemons and servers whose folders are below it."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            is_mps = (process / "comm").read_text().startswith("nvidia-cuda-mps")
            if is_mps and str(folder).encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found
