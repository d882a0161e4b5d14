"""1,000 connections of another user that claim all that can be claimed, beside a job of root's.

Where the monitor may open few files, some of them are refused; `--users` has as many of each of
several. Root asks all the time, and its job must keep its monitor. The monitor's memory is its own
(RssAnon): a client's page is the client's memory, too. Needs root, to play two users; no GPU: the
simulated one will do.
"""

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

from rig.report import Report
from rig.rig import RigError

TITLE = "Many connections of a stranger"
STRANGER = 65534
GONE_WITHIN = 10  # seconds until what they had must be back


def arguments(parser):
    parser.add_argument("--connections", type=int, default=1000, help="of each user")
    parser.add_argument("--users", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20, help="of each part")


def own_megabytes(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def may_join(pid):
    """So many of one user: 3/16 of the monitor's descriptors, of which a connection takes eight."""
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[1] * 3 // 16 // 8


def asked(rig, seconds, watch):
    """Seconds of each answer to root, by request, for so long."""
    monitor = rig.connect()
    requests = {"policy": {"op": "policy"}, "version": {"op": "version"},
                "ps, a part": {"op": "ps", "after": 0}}
    times = {name: [] for name in requests}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, request in requests.items():
            begun = time.monotonic()
            answer = monitor.ask(**request)
            times[name].append(time.monotonic() - begun)
        watch(answer["jobs"][0])  # the oldest
        time.sleep(0.05)
    return times


def tell(report, what, times):
    for name, each in times.items():
        each = sorted(1e3 * one for one in each)
        report.note(f"{what}: {name}", f"{each[len(each) // 2]:.1f} ms",
                    f"most {each[-1]:.1f} ms of {len(each)} answers")


def run(rig, report: Report):
    o = rig.options
    if os.geteuid() != 0:
        raise RigError("needs root, to play another user")
    rig.scratch.chmod(0o711)
    program = shutil.copy(rig.build / "tests" / "jobs" / "job_strangers", rig.scratch)
    job = rig.start_program("mine", [rig.program("kernel_rate"), 100, 10])
    job.ready()
    job.start()
    seconds = rig.scaled(o.seconds)
    quiet = asked(rig, seconds / 2, lambda _: None)
    before, peak = own_megabytes(rig.monitor.pid), 0.0
    uuid = rig.listing("status")["gpus"][0]["uuid"]
    strangers = [subprocess.Popen(
        [program, str(rig.socket), str(o.connections), uuid], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, user=user, group=user, extra_groups=[])
        for user in range(STRANGER, STRANGER - o.users, -1)]
    lost = 0

    def watch(oldest):
        nonlocal peak, lost
        peak = max(peak, own_megabytes(rig.monitor.pid))
        lost += oldest["name"] != "mine" or len(oldest["processes"]) != 1

    try:
        joined = [int(each.stdout.readline().split()[1]) for each in strangers]
        attacked = asked(rig, seconds, watch)
    finally:
        for each in strangers:
            each.stdin.close()
        for each in strangers:
            each.wait(timeout=60)
    until = time.monotonic() + GONE_WITHIN
    while len(rig.listing("ps")["jobs"]) > 1 and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)
    after = own_megabytes(rig.monitor.pid)
    rejoined = (rig.scratch / "monitor.log").read_text().count("joined job 'mine'") - 1
    job.send(stop=True)
    job.receive(60)
    report.keep(quiet=quiet, attacked=attacked, before=before, peak=peak, after=after)
    wanted = min(o.connections, may_join(rig.monitor.pid))
    report.judge("connections of each user, the others refused", " ".join(map(str, joined)),
                 f"{o.connections} asked for, {wanted} allowed",
                 all(0.95 * wanted <= each <= o.connections for each in joined))
    tell(report, "before", quiet)
    tell(report, "beside them", attacked)
    worst = max(max(each) for each in attacked.values())
    report.at_most("slowest answer to root, ms", 1e3 * worst, 100, "{:.1f}")
    report.judge("root's job kept its monitor", str(lost + rejoined), "0 times lost",
                 lost + rejoined == 0)
    report.at_most("monitor's own memory beside them, MiB more", peak - before, 64, "{:.1f}")
    report.at_most("after they have gone, MiB more", after - before, 8, "{:.1f}")
