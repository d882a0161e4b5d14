"""A notebook that idles gives its memory back to a job that waits for it, and takes it again.

`--idle-release`: 20 GiB of known contents, at work until another job with `--on-oom wait` wants as
much beside it, of which half is free. Then the notebook idles, its memory leaves by itself, and the
other gets what it waits for. When that has ended, the notebook's next call brings its memory back,
and every bit is compared. (A job that waits outside of turns is what most are; turns are the row
`together`.)
"""

import time

from rig.report import Report
from rig.residency import (on_gpu, reserve_all_but, used_bytes, wait_for_pool, wait_until,
                           wait_until_out)
from rows.latency import tiny

TITLE = "A notebook that idles lends its memory"


def arguments(parser):
    parser.add_argument("--gib", type=float, default=20, help="of each of the two")
    parser.add_argument("--tensor-mib", type=int, default=512)
    parser.add_argument("--idle-seconds", type=float, default=3, help="its --idle-release")


def sizes(rig):
    """(tensors, bytes of each)"""
    if tiny(rig):
        return 8, 4 << 20
    each = rig.options.tensor_mib << 20
    return max(2, int(rig.options.gib * (1 << 30)) // each), each


def lend(rig, notebook, borrower, size, figures):
    """Until the borrower has its memory."""
    rig.say("the borrower waits")
    wait_until(rig, "borrower", lambda job: job["state"] == "waiting", "waiting for memory", 60)
    # What it got already, and what NVML shows: after it has all, NVML shows less than both.
    had, used = on_gpu(rig, "borrower")["memory_used_bytes"], used_bytes()
    notebook.stop()
    idle = time.monotonic()
    wait_until_out(rig, "notebook", rig.options.idle_seconds + 60)
    figures["left_after"] = time.monotonic() - idle
    borrower.ready(60)
    figures["borrowed_after"] = time.monotonic() - idle
    borrowed = on_gpu(rig, "borrower")["memory_used_bytes"] - had
    figures["given_back_bytes"] = used + borrowed - used_bytes()
    figures["borrower_check"] = borrower.ask(do="check", timeout=60)
    figures["notebook_away"] = on_gpu(rig, "notebook")["memory_swapped_bytes"] / size


def come_back(notebook, figures):
    begun = time.monotonic()
    figures["steps"] = notebook.ask(steps=1, timeout=60)["steps"]
    figures["back_after"] = time.monotonic() - begun
    figures["check"] = notebook.ask(do="check", timeout=90)


def run(rig, report: Report):
    count, each = sizes(rig)
    size = count * each
    figures = {"bytes": size}
    report.keep(figures=figures)
    sized = ["--tensors", count, "--bytes", each]
    notebook = rig.start("notebook", "tensors.py", *sized,
                         idle_release=f"{rig.options.idle_seconds:g}s").ready(90)
    notebook.start()  # while its pool is pinned it shall not idle
    rig.say("until the host pool takes it")
    wait_for_pool(rig, "notebook", size, 60)
    # Where filling its memory took longer than it may idle, it had left.
    wait_until(rig, "notebook", lambda job: job["residency"] == "resident", "resident", 60)
    figures["reserved"] = reserve_all_but(rig, size // 2)
    borrower = rig.start("borrower", "tensors.py", *sized, on_oom="wait")
    lend(rig, notebook, borrower, size, figures)
    rig.say("the borrower ends")
    borrower.end()
    come_back(notebook, figures)
    judge(rig, report, figures)


def judge(rig, report, figures):
    size, idle = figures["bytes"], rig.options.idle_seconds
    report.note("memory of each", f"{size / (1 << 30):.2f} GiB", "half of it free beside the one")
    report.note("from the last work until it had left", f"{figures['left_after']:.2f} s",
                f"of which {idle:g} s by --idle-release")
    report.note("  until the other had its own, filled", f"{figures['borrowed_after']:.2f} s")
    report.at_least("given back by NVML, part of it", figures["given_back_bytes"] / size, 0.99)
    report.note("  by ps, while the other had it", f"{figures['notebook_away']:.3f}")
    wrong = figures["borrower_check"]["wrong"]
    report.judge("the one that waited: its memory", f"{wrong} differ" if wrong else "equal",
                 "equal", not wrong)
    report.note("the next call, until its kernel had run", f"{figures['back_after']:.3f} s",
                f"{size / figures['back_after'] / 1e9:.1f} GB/s")
    wrong = figures["check"]["wrong"]
    report.judge("every bit of the notebook", f"{wrong} differ" if wrong else "equal",
                 "equal, and it goes on", not wrong and figures["steps"] == 1)
