"""`--guard 5%`: is an interferer answered within 4 iterations, and does the rate come back?

A GPT training guards itself against a job that computes without end, and one that copies without
end inside the GPU. Each works twice: with the guard, and without it. A job that takes no more than
the guard allows has nothing to be answered for. A job of small uploads works all along and disturbs
nobody, so it must never be taken for the interferer.

With --ddp the training is one of two ranks, and the two hogs work on the first GPU. A third hog
sums tensors between both GPUs without end. An evaluation of the training itself must raise no
alarm. Needs two GPUs.
"""

import bisect
import time

from rig import ranks
from rig.process import BENCH, python, rate_between
from rig.report import Report
from rig.rig import RigError
from rows.latency import training_arguments

TITLE = "A guarded training beside interferers"
GUARD = 0.05
GUARDED = f"{100 * GUARD:.0f}%"
MOST_ITERATIONS = 4
LEAST_BACK = 0.98
HOGS = {"compute-hog": ("loops.py", "--kernels", 20),
        "copy-hog": ("copies.py", "--mode", "inside", "--bytes", 1 << 30)}
BYSTANDER = "small-copies"
SMALL = ("copies.py", "--mode", "saturate", "--bytes", 4096, "--pieces", 100)
SETTLES_S = 4  # until the usual pace is that of undisturbed iterations alone
# Iterations of more than 25 ms, for shorter ones are judged together.
BATCH = 96
EVALUATION_STEPS = 200
AFTERWARDS_S = 3  # in which an alarm would follow an evaluation


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=6, help="of each window")
    parser.add_argument("--quiet", type=float, default=10, help="seconds without an interferer")
    parser.add_argument("--ddp", action="store_true", help="a training of two ranks")
    parser.add_argument("--no-hogs", action="store_true", help="only the time without interferers")


class OneGpu:
    """The GPT of bench/workloads."""

    def __init__(self, rig):
        self.training = rig.start("train", "gpt.py", *training_arguments(rig), guard=GUARDED)

    def begin(self):
        self.training.ready().start()

    def figures(self):
        return self.training.stop()


class TwoRanks:
    """counted_training.py, which never stops. The CPU waits for each step, so a step is launched
    when the one before is complete."""

    def __init__(self, rig):
        self.training = ranks.counting(rig, "train", "ddp", "--batch", BATCH, "--waits-every", 1,
                                       guard=GUARDED)

    def begin(self):
        self.training.ready(180)

    def evaluate(self):
        """(begin, end)"""
        return self.training.ask(evaluate=EVALUATION_STEPS)["evaluated"]

    def figures(self):
        moments = self.training.ask(ask=True)["moments"]
        self.training.end(0)
        return {"completions": moments}


def start_others(rig):
    """The hogs, which are ready; the bystander is at work."""
    o = rig.options
    gpus = "0" if o.ddp else None
    hogs = {} if o.no_hogs else {name: rig.start(name, *how, gpus=gpus)
                                 for name, how in HOGS.items()}
    if o.ddp and not o.no_hogs:
        hogs["nccl-hog"] = rig.start_program("nccl-hog",
                                             [python(), BENCH / "checks" / "reducing.py"])
    bystander = rig.start(BYSTANDER, *SMALL, gpus=gpus)
    for job in (*hogs.values(), bystander):
        job.ready()
    bystander.start()
    return hogs


def wait_until(rig, holds, seconds, what):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return time.monotonic()
        time.sleep(0.01)
    raise RigError(f"not within {seconds} s: {what}")


def log_of(rig):
    return (rig.scratch / "monitor.log").read_text(errors="replace")


def alarms(rig):
    return log_of(rig).count("guards itself")


def times_blamed(rig, name):
    return log_of(rig).count(f"since '{name}' has grown")


def alarms_in(rig, act):
    """(what `act` returns, alarms meanwhile)"""
    before = alarms(rig)
    done = act()
    return done, alarms(rig) - before


def guard_of(monitor):
    jobs = monitor.ask(op="ps")["jobs"]
    return next(job["guard"] for job in jobs if job["name"] == "train")


def answer_to(monitor, name):
    return next((answer for answer in guard_of(monitor)["answers"] if answer["name"] == name), None)


def settle(rig, monitor):
    wait_until(rig, lambda: guard_of(monitor)["state"] == "quiet", 30, "a known pace")
    time.sleep(rig.scaled(SETTLES_S))


def beside(rig, hog):
    """What happens beside one of them: moments, to be turned into rates later."""
    o = rig.options
    monitor = rig.connect()
    rig.set("train", guard="none")
    hog.start()
    time.sleep(rig.scaled(2))
    unguarded = rig.window(o.seconds)
    hog.stop()
    # With nobody there its usual rate is learnt again.
    rig.set("train", guard=GUARDED)
    settle(rig, monitor)
    begun = time.monotonic()
    hog.start()
    answered = guarded = None
    try:
        answered = wait_until(rig, lambda: answer_to(monitor, hog.name), 10, "an answer")
        wait_until(rig, lambda: guard_of(monitor)["state"] == "answering", 20, "the end of trials")
        guarded = rig.window(o.seconds)
    except RigError as error:
        rig.say(str(error))
    how = guard_of(monitor)
    hog.stop()
    wait_until(rig, lambda: not guard_of(monitor)["answers"], 15, "all is undone")
    return {"begun": begun, "answered": answered, "guarded": guarded, "unguarded": unguarded,
            "how": how}


def evaluate(rig, train):
    """(begin, end) of it; what it causes shortly afterwards counts as well."""
    span = train.evaluate()
    time.sleep(rig.scaled(AFTERWARDS_S))
    return span


def judge_alarms(report, what, span, count):
    report.judge(f"alarms {what}, {span[1] - span[0]:.1f} s", str(count), "none", count == 0)


def run(rig, report: Report):
    o = rig.options
    if o.ddp:
        ranks.one_gpu_each()
    hogs = start_others(rig)
    train = (TwoRanks if o.ddp else OneGpu)(rig)  # last, so that nobody grows beside it
    train.begin()
    settle(rig, rig.connect())
    alone, false_alarms = alarms_in(rig, lambda: rig.window(o.quiet))
    judge_alarms(report, "while alone", alone, false_alarms)
    if o.ddp:
        span, raised = alarms_in(rig, lambda: evaluate(rig, train))
        judge_alarms(report, "for its own evaluation", span, raised)
    seen = {name: beside(rig, hog) for name, hog in hogs.items()}
    figures = train.figures()
    report.keep(seen=seen, alone=alone, figures=figures)
    blamed = times_blamed(rig, BYSTANDER)
    report.judge(f"{BYSTANDER} taken for the interferer", f"{blamed} times", "never", blamed == 0)
    judge(report, figures, alone, seen)


def judge(report, figures, alone, seen):
    solo = rate_between(figures, *alone)
    report.note("alone", f"{solo:.2f} steps/s")
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
        answers = each["how"]["answers"]
        report.judge(f"{name}: held back", ", ".join(answer["name"] for answer in answers),
                     f"{name} alone", [answer["name"] for answer in answers] == [name])
        report.note(f"{name}: by", "; ".join(", ".join(answer["measures"]) for answer in answers))
        report.at_least(f"{name}: rate, of alone", rate_between(figures, *each["guarded"]) / solo,
                        LEAST_BACK)
