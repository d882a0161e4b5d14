"""`--guard 5%`: is an interferer answered within 4 iterations, and does the rate come back?

A GPT training guards itself against a job that computes without end, and one that copies without
end. Each works twice: with the guard, and without it. A job that takes no more than the guard
allows has nothing to be answered for.
"""

import bisect
import time

from rig.process import rate_between
from rig.report import Report
from rig.rig import RigError
from rows.latency import training_arguments

TITLE = "A guarded training beside interferers"
HOGS = {"compute-hog": ("loops.py", "--kernels", 20), "copy-hog": ("copies.py", "--mode",
                                                                  "saturate", "--bytes", 32 << 20)}
GUARD = 0.05
MOST_ITERATIONS = 4
LEAST_BACK = 0.98


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=6, help="of each window")
    parser.add_argument("--quiet", type=float, default=10, help="seconds without an interferer")


def wait_until(rig, holds, seconds, what):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return time.monotonic()
        time.sleep(0.01)
    raise RigError(f"not within {seconds} s: {what}")


def alarms(rig):
    return (rig.scratch / "monitor.log").read_text(errors="replace").count("guards itself")


def guard_of(monitor):
    jobs = monitor.ask(op="ps")["jobs"]
    return next(job["guard"] for job in jobs if job["name"] == "train")


def beside(rig, monitor, hog):
    """What happens beside one of them: moments, to be turned into rates later."""
    o = rig.options
    rig.set("train", guard="none")
    hog.start()
    time.sleep(rig.scaled(2))
    unguarded = rig.window(o.seconds)
    hog.stop()
    # With nobody there its usual rate is learnt again.
    rig.set("train", guard=f"{100 * GUARD:.0f}%")
    wait_until(rig, lambda: guard_of(monitor)["state"] == "quiet", 20, "a known pace")
    time.sleep(rig.scaled(4))
    begun = time.monotonic()
    hog.start()
    answered = guarded = None
    try:
        answered = wait_until(rig, lambda: guard_of(monitor)["answers"], 10, "an answer")
        wait_until(rig, lambda: guard_of(monitor)["state"] == "answering", 20, "the end of trials")
        guarded = rig.window(o.seconds)
    except RigError as error:
        rig.say(str(error))
    how = guard_of(monitor)
    hog.stop()
    wait_until(rig, lambda: not guard_of(monitor)["answers"], 15, "all is undone")
    return {"begun": begun, "answered": answered, "guarded": guarded, "unguarded": unguarded,
            "how": how}


def run(rig, report: Report):
    train = rig.start("train", "gpt.py", *training_arguments(rig), guard=f"{100 * GUARD:.0f}%")
    hogs = {name: rig.start(name, *how) for name, how in HOGS.items()}
    for job in (train, *hogs.values()):
        job.ready()
    monitor = rig.connect()
    train.start()
    wait_until(rig, lambda: guard_of(monitor)["state"] == "quiet", 30, "a known pace")
    alone = rig.window(rig.options.quiet)
    false_alarms = alarms(rig)
    seen = {name: beside(rig, monitor, hog) for name, hog in hogs.items()}
    figures = train.stop()
    report.keep(seen=seen, alone=alone, figures=figures)
    judge(report, figures, alone, false_alarms, seen)


def judge(report, figures, alone, false_alarms, seen):
    solo = rate_between(figures, *alone)
    report.note("alone", f"{solo:.2f} steps/s")
    report.judge("alarms while alone", str(false_alarms), "none", false_alarms == 0)
    for name, each in seen.items():
        lost = 1 - rate_between(figures, *each["unguarded"]) / solo
        report.note(f"{name}: missing without a guard", f"{100 * lost:.1f} %")
        if lost <= GUARD:
            report.judge(f"{name}: answered", "no" if each["answered"] is None else "yes",
                         "not needed", each["answered"] is None)
            continue
        if each["guarded"] is None:
            report.judge(f"{name}: answered", "no", "yes", False)
            continue
        stamps = figures["completions"]
        steps = (bisect.bisect_right(stamps, each["answered"])
                 - bisect.bisect_right(stamps, each["begun"]))
        report.judge(f"{name}: answered after", f"{steps} iterations",
                     f"at most {MOST_ITERATIONS}", steps <= MOST_ITERATIONS)
        measures = [", ".join(answer["measures"]) for answer in each["how"]["answers"]]
        report.note(f"{name}: by", "; ".join(measures))
        report.at_least(f"{name}: rate, of alone", rate_between(figures, *each["guarded"]) / solo,
                        LEAST_BACK)
