"""SwitchFlow's Figure 7 on today's stack: two trainings on one GPU, each way of sharing it.

One after the other, by the driver's default, by slices, in an island and under MPS. A figure is
what both do in one common window, each over its own rate alone, added up. One after the other is 1.
With `--capacity` the pairs that exceed it run with `--oversubscribe` instead, and have to get on.
"""

import time

from rig.process import WorkloadFailed, rate_between
from rig.report import Report, median
from rig.rig import ACTIVITY_WINDOW
from rows.island import SYSTEMS, island_environment
from rows.latency import tiny, training_arguments

TITLE = "SwitchFlow's Figure 7: two trainings on one GPU"
PAIRS = (("resnet50", "resnet50"), ("resnet50", "vgg16"), ("resnet50", "mobilenetv2"),
         ("vgg16", "lstm"), ("gpt", "resnet50"), ("gpt", "gpt"))
LEAST_OF_BEST = 0.98


def arguments(parser):
    parser.add_argument("--pairs", default="", help="only these, such as vgg16+lstm,gpt+gpt")
    parser.add_argument("--batch", type=int, default=32, help="of the networks; GPT has 4")
    parser.add_argument("--seconds", type=float, default=3, help="of each window")
    parser.add_argument("--settle", type=float, default=1.5, help="before it, uncounted")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--capacity", help="that the monitor gives out, so that pairs exceed it")


def chosen(options):
    wanted = options.pairs.split(",") if options.pairs else ["+".join(pair) for pair in PAIRS]
    return [pair for pair in PAIRS if "+".join(pair) in wanted]


def training(rig, model, name, **how):
    if model == "gpt":
        return rig.start(name, "gpt.py", *training_arguments(rig, 4), **how)
    small = ["--batch", 2, "--size", 32, "--warm", 2] if tiny(rig) else ["--batch",
                                                                        rig.options.batch]
    return rig.start(name, "networks.py", "--mode", "train", "--model", model, *small, **how)


def pair_of(rig, models, suffix, **how):
    return [training(rig, model, f"{model}-{suffix}-{i}", **how) for i, model in enumerate(models)]


def window(rig, jobs):
    """Steps per second of each."""
    time.sleep(rig.scaled(ACTIVITY_WINDOW))
    for job in jobs:
        job.start()
    begin, end = rig.window(rig.options.seconds, rig.options.settle)
    for job in jobs:
        job.send(stop=True)
    return [rate_between(job.receive(60), begin, end) for job in jobs]


def of_alone(rates, solo):
    return sum(rate / alone for rate, alone in zip(rates, solo))


def measure(rig, models):
    """{system: [sum over alone]}"""
    knobs = {"oversubscribe": True} if rig.options.capacity else {}
    plain = pair_of(rig, models, "plain", **knobs)
    environment = island_environment(rig)
    jobs = {"default": plain, "slices": plain}
    if environment:
        jobs["island"] = pair_of(rig, models, "island", co_run=True, environment=environment,
                                 **knobs)
    with_mps = not (rig.options.no_mps or rig.options.capacity or tiny(rig))
    clients = pair_of(rig, models, "mps", under="mps", hold=True) if with_mps else []
    everybody = [*plain, *jobs.get("island", []), *clients]
    for warm in everybody:
        warm.ready(150)
    cells = {name: [] for name in (*jobs, "mps")}
    rig.means("auto")
    solo = [median([window(rig, [job])[0] for _ in range(2)]) for job in plain]
    for _ in range(rig.options.rounds):
        for name in (name for name in SYSTEMS if name in jobs):
            if name == "default" and rig.options.capacity:
                continue  # its memory would not fit
            rig.means(SYSTEMS[name])
            cells[name].append(of_alone(window(rig, jobs[name]), solo))
    rig.means("auto")
    if clients and rig.start_mps():
        try:
            for warm in clients:
                warm.send(init=True)
            for warm in clients:
                warm.ready(150)
            cells["mps"] = [of_alone(window(rig, clients), solo) for _ in range(rig.options.rounds)]
        except WorkloadFailed as failure:
            rig.say(f"MPS: {failure}")
        rig.stop_mps()
    for warm in everybody:
        warm.end()
    return cells


def judge(report, name, cells, exceeds):
    got = {system: median(values) for system, values in cells.items() if values}
    text = ", ".join(f"{system} {value:.3f}" for system, value in got.items())
    if "island" not in got:
        return report.note(f"{name}: both over alone", text)
    if exceeds:
        report.judge(f"{name}: both get on in the capacity", text, "more than 0",
                     min(got.values()) > 0)
        return None
    best = max([1.0] + [got[system] for system in ("default", "mps") if system in got])
    return report.judge(f"{name}: island over the best of default and MPS",
                        f"{got['island'] / best:.3f}", f"at least {LEAST_OF_BEST}; {text}",
                        got["island"] >= LEAST_OF_BEST * best)


def run(rig, report: Report):
    cells = {}
    report.keep(cells=cells)
    for pair in chosen(rig.options):
        name = "+".join(pair)
        rig.say(name)
        cells[name] = measure(rig, pair)
        judge(report, name, cells[name], bool(rig.options.capacity))
