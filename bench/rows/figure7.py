"""SwitchFlow's Figure 7 on today's stack: two trainings on one GPU, each way of sharing it.

One after the other, by the driver's default, by slices, in an island and under MPS. A figure is
what both do in one common window, each over its own rate alone, added up. One after the other is 1.
With `--capacity` the pairs that exceed it run with `--oversubscribe` instead, and have to get on.
"""

import time

from rig.process import WorkloadFailed, rate_between
from rig.report import Report, median
from rows.island import SYSTEMS, end
from rows.latency import tiny, training_arguments

TITLE = "SwitchFlow's Figure 7: two trainings on one GPU"
PAIRS = (("resnet50", "resnet50"), ("resnet50", "vgg16"), ("resnet50", "mobilenetv2"),
         ("vgg16", "lstm"), ("gpt", "resnet50"), ("gpt", "gpt"))
LEAST_OF_BEST = 0.98


def arguments(parser):
    parser.add_argument("--pairs", default="", help="only these, such as vgg16+lstm,gpt+gpt")
    parser.add_argument("--batch", type=int, default=32, help="of the networks; GPT has 4")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each window")
    parser.add_argument("--settle", type=float, default=2.5,
                        help="before it, uncounted: until the jobs before count as idle")
    parser.add_argument("--rounds", type=int, default=2,
                        help="of all cells of a pair, 27 s each; the rest of a pair takes 40 s")
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
    for job in jobs:
        job.start()
    begin, end_of_it = rig.window(rig.options.seconds, rig.options.settle)
    for job in jobs:
        job.send(stop=True)
    return [rate_between(job.receive(60), begin, end_of_it) for job in jobs]


def of_alone(rates, solo):
    return sum(rate / alone for rate, alone in zip(rates, solo))


def one_round(rig, jobs, rates):
    rig.means("auto")
    rates["solo"].append([window(rig, [job])[0] for job in jobs["slices"]])
    for name in (name for name in SYSTEMS if name in jobs):
        rig.means(SYSTEMS[name])
        rates[name].append(window(rig, jobs[name]))
    rig.means("auto")


def under_mps(rig, clients, rates):
    if not rig.start_mps():
        return
    try:
        for warm in clients:
            warm.send(init=True)
        for warm in clients:
            warm.ready(150)
        for _ in range(rig.options.rounds):
            rates["mps"].append(window(rig, clients))
    except WorkloadFailed as failure:  # it is a comparison: the others' figures stand
        rig.say(f"MPS: {failure}")
    end(clients)
    rig.stop_mps()


def measure(rig, models, rates):
    """To `rates`: {system: [[steps per second of each], ...]}"""
    knobs = {"oversubscribe": True} if rig.options.capacity else {}
    jobs = {"slices": pair_of(rig, models, "plain", **knobs)}
    if not rig.options.capacity:
        jobs["default"] = jobs["slices"]  # else their memory would not fit
    environment = rig.island_environment()
    if environment:
        jobs["island"] = pair_of(rig, models, "island", co_run=True, environment=environment,
                                 **knobs)
    with_mps = not (rig.options.no_mps or rig.options.capacity or tiny(rig))
    clients = pair_of(rig, models, "mps", under="mps", hold=True) if with_mps else []
    others = [*jobs["slices"], *jobs.get("island", [])]
    for warm in (*others, *clients):
        warm.ready(150)
    rates.update({name: [] for name in ("solo", *jobs, "mps")})
    for _ in range(rig.options.rounds):
        one_round(rig, jobs, rates)
    end(others)  # the GPU has not the memory for all
    if clients:
        under_mps(rig, clients, rates)


def over_alone(rates):
    solo = [median(each) for each in zip(*rates["solo"])]
    return {system: [of_alone(each, solo) for each in windows]
            for system, windows in rates.items() if system != "solo"}


def judge(report, name, rates, exceeds):
    got = {system: median(each) for system, each in over_alone(rates).items() if each}
    text = ", ".join(f"{system} {value:.3f}" for system, value in got.items())
    if exceeds:
        slowest = min(rate for windows in rates.values() for each in windows for rate in each)
        report.judge(f"{name}: the slowest of both, steps/s", f"{slowest:.3f}",
                     f"more than 0; both over alone {text}", slowest > 0)
    elif "island" in got:
        best = max([1.0] + [got[system] for system in ("default", "mps") if system in got])
        report.judge(f"{name}: island over the best of default and MPS",
                     f"{got['island'] / best:.3f}", f"at least {LEAST_OF_BEST}; {text}",
                     got["island"] >= LEAST_OF_BEST * best)
    else:
        report.note(f"{name}: both over alone", text)


def run(rig, report: Report):
    kept = {}
    report.keep(rates=kept)
    for pair in chosen(rig.options):
        name = "+".join(pair)
        rig.say(name)
        kept[name] = {}
        try:
            measure(rig, pair, kept[name])
        except WorkloadFailed as failure:
            report.judge(name, failure.why, "no job fails", False)
            rig.say(str(failure))
            end(rig.warm)
            rig.stop_mps()
        else:
            judge(report, name, kept[name], bool(rig.options.capacity))
