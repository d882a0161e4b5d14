"""A training of two ranks at high beside one at low, on the same GPUs: does the high one keep its
step, and what is left for the low one?

Over what links the GPUs, and over a slow network (NCCL's sockets over loopback). Cells alternate in
the same warm processes: one alone while the other is paused, both by the driver's default, both
under Switchyard. Needs two GPUs.
"""

from rig.process import BENCH, python, rate_between
from rig.ranks import RANKS, SOCKETS
from rig.report import Report, interval, median
from rig.residency import nvml
from rig.rig import ACTIVITY_WINDOW

TITLE = "High DDP beside low DDP"
CLASSES = ("high", "low")
MOST_STEP, LEAST_SUM = 1.05, 0.97


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=4, help="of all cells")
    parser.add_argument("--seconds", type=float, default=6, help="of each window")
    parser.add_argument("--nets", default="links,sockets", help="only these")


def start(rig, net, priority):
    command = [python(), BENCH / "checks" / "counted_training.py", "ddp"]
    return rig.start_program(f"{priority}-{net}", command, priority=priority,
                             environment=SOCKETS if net == "sockets" else {})


def alone(rig, job, other):
    rig.cli("pause", other.name)
    span = rig.window(rig.options.seconds, settle=1)
    rig.cli("resume", other.name)
    return {job: span}


def beside(rig, jobs, means):
    rig.means(means)
    span = rig.window(rig.options.seconds, settle=ACTIVITY_WINDOW)
    return {job: span for job in jobs.values()}


def one_round(rig, jobs):
    high, low = (jobs[name] for name in CLASSES)
    return {"alone": {**alone(rig, high, low), **alone(rig, low, high)},
            "default": beside(rig, jobs, "none"), "switchyard": beside(rig, jobs, "auto")}


def rates_of(spans, figures):
    """{"alone": {"high": steps per second, ...}, ...} of one round."""
    return {cell: {name: rate_between(figures[job], *span)
                   for job, span in of.items() for name in CLASSES if job.name.startswith(name)}
            for cell, of in spans.items()}


def measure(rig, net):
    jobs = {name: start(rig, net, name) for name in CLASSES}
    for job in jobs.values():
        job.ready(180)
    spans = []
    for index in range(rig.options.rounds):
        rig.say(f"{net} {index + 1}")
        spans.append(one_round(rig, jobs))
    figures = {job: {"completions": job.ask(ask=True)["moments"]} for job in jobs.values()}
    for job in jobs.values():
        job.end(0)
    return [rates_of(each, figures) for each in spans]


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
    nvml(RANKS - 1)  # says so if there is none
    kept = {}
    report.keep(rates=kept)
    for net in rig.options.nets.split(","):
        kept[net] = measure(rig, net)
        judge(report, net, kept[net])
