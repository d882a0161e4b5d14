"""Processes of a bench: workloads that stay warm and obey line commands, and one-shot checks.

Every wait has a limit. A workload that dies or stays silent raises WorkloadFailed with the end of
its log. The Rig that owns it ends everything that it started.

Threading: one thread; commands to several workloads are sent first and answered afterwards.
"""

import bisect
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
WORKLOADS = BENCH / "workloads"


class WorkloadFailed(RuntimeError):
    """`why` says it without the name and the end of the log."""

    def __init__(self, name, why, log=None):
        super().__init__(f"workload {name}: {why}"
                         + (f"; its log ends:\n{tail(log)}" if log else ""))
        self.why = why


def tail(path, lines=15):
    try:
        return "\n".join(Path(path).read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"


class Warm:
    """One workload process. `command` is the whole argv, wrapper included."""

    def __init__(self, name, command, environment, log):
        self.name = name
        self.log = log
        self.buffer = b""
        self.about = {}
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors)

    @property
    def pid(self):
        return self.about.get("pid", self.process.pid)

    def fail(self, why):
        raise WorkloadFailed(self.name, why, self.log)

    def send(self, **command):
        try:
            self.process.stdin.write((json.dumps(command) + "\n").encode())
            self.process.stdin.flush()
        except OSError as error:
            self.fail(f"could not be told {command}: {error}")

    def receive(self, timeout):
        until = time.monotonic() + timeout
        fd = self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0:
                self.fail(f"silent for {timeout:.0f} s")
            if select.select([fd], [], [], left)[0]:
                data = os.read(fd, 1 << 20)
                if not data:
                    self.fail(f"ended with status {self.process.wait(timeout=10)}")
                self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            self.fail(answer["error"])
        return answer

    def ask(self, timeout=60, **command):
        self.send(**command)
        return self.receive(timeout)

    def ready(self, timeout=120):
        self.about = self.receive(timeout)
        return self

    def run(self, seconds):
        return self.ask(run=seconds, timeout=seconds + 60)

    def start(self):
        return self.ask(start=True)

    def stop(self):
        return self.ask(stop=True)

    def serve(self, rate, requests, **more):
        return self.ask(serve={"rate": rate, "requests": requests, **more},
                        timeout=3 * requests / rate + 60)

    def converse(self, seconds, think, **more):
        return self.ask(converse={"seconds": seconds, "think": think, **more},
                        timeout=seconds + more.get("settle", 0) + 60)

    def end(self, patience=10):
        """Seconds until it is killed."""
        if self.process.poll() is not None:
            return
        try:
            self.process.stdin.close()  # end of input is the order to quit
            self.process.wait(timeout=patience)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(timeout=10)


def python():
    return sys.executable


def longest_gap(stamps, begun, ended):
    """The longest time within [begun, ended] without a stamp, in seconds."""
    inside = [begun] + [stamp for stamp in stamps if begun <= stamp <= ended] + [ended]
    return max(later - earlier for earlier, later in zip(inside, inside[1:]))


def rate_between(figures, begin, end):
    """Steps per second of a started-and-stopped workload within [begin, end].

    The stamps of the completions are interpolated, so a step that straddles the window's edge
    counts with the part that lies inside."""

    stamps = figures["completions"]

    def progress(moment):
        done = bisect.bisect_right(stamps, moment)
        if done == len(stamps):
            return done
        before = stamps[done - 1] if done else figures["begun"]
        return done + max(0.0, (moment - before) / (stamps[done] - before))

    return (progress(end) - progress(begin)) / (end - begin)
