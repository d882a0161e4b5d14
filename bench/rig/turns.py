"""The turns of jobs that oversubscribe: when each began and ended, and how much moved.

Concept. The monitor's log has three moments. A job is told to give room, its memory has left, and
the other may have all of its own back. It does not say when the first byte left or the last one
arrived. So `ps` is asked all the time, too. On the way out the absent memory grows as each chunk
has left. On the way in it falls as soon as a copy is queued, so that tells nothing. There the end
is when the job is "resident". Neither says how much was copied: chunks that had not changed, or
were all zero, count as moved. Each question makes the monitor look, and ask NVML every 50 ms
instead of 200.

Threading: one thread of its own asks; what it has seen is read after end().
"""

import re
import struct
import threading
import time
from datetime import datetime

from rig.monitor import Refused

ASK_EVERY = 0.002  # a move takes some 100 ms
QUIET = 0.5        # nothing moves for so long: what had begun was no turn; a stay is longer
LINE = re.compile(r"^\[([^\]]+)\] .*job '([^']+)' (leaves|has left) its GPUs")


class Watch:
    """Asks `ps` until end()."""

    def __init__(self, rig):
        self.monitor = rig.connect()
        self.samples = []  # (asked, answered, {job: (bytes away, whether it is resident)})
        self.came = {}     # {job: (bytes copied in so far, bytes that came in another's memory)}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        try:
            while not self.ended.wait(ASK_EVERY):
                asked = time.monotonic()
                jobs = self.monitor.ask(op="ps")["jobs"]
                answered = time.monotonic()
                for job in jobs:  # a process that has ended is told of no more
                    told = [sum(gpu[key] for gpu in job["gpus"])
                            for key in ("swap_moved_in_bytes", "swap_taken_over_bytes")]
                    self.came[job["name"]] = max(self.came.get(job["name"], [0, 0]), told)
                self.samples.append((asked, answered, {
                    job["name"]: (sum(gpu["memory_swapped_bytes"] for gpu in job["gpus"]),
                                  job["residency"] == "resident") for job in jobs}))
        except (OSError, ValueError, Refused, struct.error):
            pass  # the monitor has ended: what was seen until then stays

    def end(self):
        self.ended.set()
        self.thread.join(10)
        return turns_in(self.samples)


def turns_in(samples):
    """Each time that one left while another, which was out, came back. It has the bytes out and in
    from the last sample that shows nothing leaving to the first that shows the other resident. So
    each takes too long by up to two samples, and never too short."""
    found, turn, last, before, changed_at = [], None, {}, 0.0, 0.0
    for asked, moment, jobs in samples:
        both = {name: (last[name], now) for name, now in jobs.items() if name in last}
        left = {name: now[0] - then[0] for name, (then, now) in both.items() if now[0] > then[0]}
        returned = [name for name, (then, now) in both.items() if now[1] and not then[1]]
        if turn and moment - changed_at > QUIET:
            turn = None
        if turn:
            turn["out"] += sum(left.values())
            turn["givers"].update(left)
            for name in returned:
                away = turn["away"].get(name, (0, True))[0]
                if away and turn["out"] and name not in turn["givers"]:
                    found.append({"returned": name, "seconds": moment - turn["begun"],
                                  "out": turn["out"], "in": away})
                    turn = None
                    break
        elif left:
            turn = {"begun": before, "away": last, "givers": set(left), "out": sum(left.values())}
        if any(then != now for then, now in both.values()):
            changed_at = moment
        last, before = jobs, asked
    return found


def seconds_to_leave(rig):
    """By the monitor's log: the time from each order to leave until all of it had left. The
    accepted work has to end first."""
    told, took = {}, []
    for line in (rig.scratch / "monitor.log").read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if not match:
            continue
        when = datetime.fromisoformat(match[1])
        if match[3] == "leaves":
            told[match[2]] = when
        elif match[2] in told:
            took.append((when - told.pop(match[2])).total_seconds())
    return took


def times_out(rig, name):
    """How often all that it was to give had left."""
    log = (rig.scratch / "monitor.log").read_text(errors="replace")
    return log.count(f"job '{name}' has left its GPUs")
