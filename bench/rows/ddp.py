"""A training of two ranks at high beside one at low, on the same GPUs. Does the high one keep its
step, and what is left for the low one?

Over what links the GPUs, and over a slow network (NCCL's sockets over loopback). Cells alternate in
the same warm processes: one alone while the other is paused, both by the driver's default, both
under Switchyard. Needs two GPUs.
"""

from rig import ranks
from rig.report import Report, interval, median
from rig.rig import ACTIVITY_WINDOW

TITLE = "High DDP beside low DDP"
CLASSES = ("high", "low")
MOST_STEP, LEAST_SUM = 1.05, 0.97


def arguments(parser):
    ranks.batch_argument(parser)
    parser.add_argument("--rounds", type=int, default=4, help="of all cells")
    parser.add_argument("--seconds", type=float, default=6, help="of each window")
    parser.add_argument("--nets", default="links,sockets", help="only these")


def start(rig, net, priority):
    return ranks.counting(rig, f"{priority}-{net}", "ddp", "--batch", rig.options.batch,
                          environment=ranks.SOCKETS if net == "sockets" else {}, priority=priority)


def alone(rig, other):
    rig.cli("pause", other.name)
    span = rig.window(rig.options.seconds, settle=1)
    rig.cli("resume", other.name)
    return span


def beside(rig, means):
    rig.means(means)
    return rig.window(rig.options.seconds, settle=ACTIVITY_WINDOW)


def one_round(rig, jobs):
    """(cell, class, span)"""
    cells = [("alone", name, alone(rig, jobs[other]))
             for name, other in zip(CLASSES, reversed(CLASSES))]
    for cell, means in (("default", "none"), ("switchyard", "auto")):
        span = beside(rig, means)
        cells += [(cell, name, span) for name in CLASSES]
    return cells


def measure(rig, net):
    """Of each round: {"alone": {"high": steps per second, ...}, ...}"""
    rig.means("none")  # beside a high one at work the low one would take minutes to begin
    jobs = {name: start(rig, net, name) for name in CLASSES}
    for job in jobs.values():
        job.ready(180)
    rig.means("auto")
    spans = []
    for index in range(rig.options.rounds):
        rig.say(f"{net} {index + 1}")
        spans += one_round(rig, jobs)
    rounds = [{"alone": {}, "default": {}, "switchyard": {}} for _ in range(rig.options.rounds)]
    for name, job in jobs.items():
        own = [(cell, span) for cell, whose, span in spans if whose == name]
        rates = ranks.step_rates(job, [span for _, span in own])
        for number, ((cell, _), rate) in enumerate(zip(own, rates)):
            rounds[number // len(rounds[0])][cell][name] = rate
    for job in jobs.values():
        job.end(0)
    return rounds


def parts(rounds, cell, name):
    """Of its own rate alone, in each round."""
    return [each[cell][name] / each["alone"][name] for each in rounds]


def judge(report, net, rounds):
    for name in CLASSES:
        report.note(f"{net}: {name} alone",
                    f"{median([each['alone'][name] for each in rounds]):.2f} steps/s")
    for cell in ("default", "switchyard"):
        high, low = (median(parts(rounds, cell, name)) for name in CLASSES)
        report.note(f"{net}, {cell}: a step of high, over alone; low, of its rate alone",
                    f"{1 / high:.3f}; {low:.3f}", f"together {high + low:.3f}")
    steps = [1 / each for each in parts(rounds, "switchyard", "high")]
    report.at_most(f"{net}: a step of high, over alone", median(steps), MOST_STEP)
    report.ends(interval(steps), MOST_STEP)
    sums = [sum(pair) for pair in zip(*(parts(rounds, "switchyard", name) for name in CLASSES))]
    report.at_least(f"{net}: both together, of one after the other", median(sums), LEAST_SUM)
    report.ends(interval(sums), LEAST_SUM)


def run(rig, report: Report):
    ranks.one_gpu_each()
    kept = {}
    report.keep(rates=kept)
    for net in rig.options.nets.split(","):
        kept[net] = measure(rig, net)
        judge(report, net, kept[net])
