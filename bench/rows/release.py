"""`pause --release` and `resume` of a job that keeps the GPU busy over 40 GiB of its own.

It measures the time until the command's answer, and until NVML shows the memory free. It also
measures the answer of `resume`, and the end of the first kernel after it. After each round every
bit is compared. The monitor is asked by its socket, so that no program's start is timed. The first
round waits until as much of the host is pinned. The kernels write the values that were there.
Unchanged memory is copied all the same, unless --digest says that it is left out.
"""

import bisect
import time

from rig.report import Report, median
from rig.residency import FreedWatch, wait_for_pool
from rows.latency import tiny

TITLE = "pause --release and resume"
BOUND = 1.2
FIGURES = (("pause --release: until the answer", "answer"), ("  until NVML shows it free", "free"),
           ("resume: until the answer", "back"), ("  until a new kernel has run", "first_kernel"))


def arguments(parser):
    parser.add_argument("--gib", type=float, default=40, help="of device memory")
    parser.add_argument("--tensor-mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--digest", action="store_true", help="leave out what has not changed")


def sizes(rig):
    """(tensors, bytes of each)"""
    if tiny(rig):
        return 8, 4 << 20
    each = rig.options.tensor_mib << 20
    return max(1, int(rig.options.gib * (1 << 30)) // each), each


def one_round(rig, job, size):
    monitor = rig.connect()
    job.start()
    time.sleep(rig.scaled(1))
    watch = FreedWatch(size)
    paused = time.monotonic()
    monitor.ask(op="pause", target=job.name, release=True)
    answered = time.monotonic()
    freed = watch.moment(10)
    time.sleep(rig.scaled(0.5))
    resumed = time.monotonic()
    monitor.ask(op="resume", target=job.name)
    back = time.monotonic()
    time.sleep(rig.scaled(0.5))
    stamps = job.stop()["completions"]
    # Behind the held job stand kernels that have ended but aren't stamped yet, and the one that it
    # is recording. The first stamps after the resume are theirs.
    after = bisect.bisect_right(stamps, resumed) + job.about["ahead"] + 1
    job.send(do="check")
    check = job.receive(120)
    return {"answer": answered - paused, "free": freed and freed - paused, "back": back - resumed,
            "first_kernel": stamps[after] - resumed if after < len(stamps) else None,
            "kernels_while_away": bisect.bisect_left(stamps, resumed)
            - bisect.bisect_right(stamps, answered + 0.05), "check": check}


def run(rig, report: Report):
    count, each = sizes(rig)
    size = count * each
    job = rig.start("release", "tensors.py", "--tensors", count, "--bytes", each, swappable=True,
                    environment={"SWITCHYARD_SWAP_DIGEST": int(rig.options.digest)})
    job.ready(180)
    rig.say("until the host pool takes it")
    begun = time.monotonic()
    wait_for_pool(rig, job.name, size)
    pinned = time.monotonic() - begun
    rounds = []
    report.keep(bytes=size, pinned_after_seconds=pinned, rounds=rounds)
    for index in range(max(2, int(rig.options.rounds * rig.options.scale))):
        rounds.append(one_round(rig, job, size))
        rig.say(f"round {index + 1}: {rounds[-1]}")
    report.note("memory", f"{size / (1 << 30):.2f} GiB", f"{count} tensors; pinned {pinned:.1f} s "
                "after the job was ready")
    for what, key in FIGURES:
        times = [one[key] for one in rounds]
        if None in times:
            report.judge(what, "never", f"at most {BOUND} s", False)
            continue
        report.at_most(f"{what}, the longest of {len(times)}", max(times), BOUND, "{:.3f} s")
        report.note("    median", f"{median(times):.3f} s",
                    f"{size / median(times) / 1e9:.1f} GB/s, from the order to then")
    ran = sum(one["kernels_while_away"] for one in rounds)
    report.judge("kernels that ended while it was away", str(ran), "none", ran == 0)
    wrong = [f"round {index + 1}: {one['check']['wrong']}" for index, one in enumerate(rounds)
             if one["check"]["wrong"]]
    report.judge("every bit of every tensor, each round", "; ".join(wrong) or "equal", "equal",
                 not wrong)
