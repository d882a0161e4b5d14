"""SwitchFlow's Figure 7 on today's stack: two trainings on one GPU, each way of sharing it.

One after the other, by the driver's default, by slices, in an island and under MPS. A figure is
what both do in one common window, each over its own rate alone, added up. One after the other is 1.
With `--capacity` the pairs run with `--oversubscribe` instead, by slices and in an island. Each pair
has to exceed it, and both of its jobs have to get on.
"""

import time

from rig.process import WorkloadFailed, rate_between
from rig.report import Report, median
from rig.turns import times_out
from rows.island import SYSTEMS, end
from rows.latency import tiny, training_arguments

TITLE = "SwitchFlow's Figure 7: two trainings on one GPU"
PAIRS = (("resnet50", "resnet50"), ("resnet50", "vgg16"), ("resnet50", "mobilenetv2"),
         ("vgg16", "lstm"), ("gpt", "resnet50"), ("gpt", "gpt"))
LEAST_OF_BEST = 0.98
TURNS_SECONDS = 32  # of a window in which jobs take turns: each has to get on in every 30 s


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
    parser.add_argument("--host-pool", default="40GiB", help="of the monitor, for what has no room")


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


def window(rig, jobs, seconds=None):
    """Steps per second of each."""
    for job in jobs:
        job.start()
    begin, end_of_it = rig.window(seconds or rig.options.seconds, rig.options.settle)
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
    jobs = {"slices": pair_of(rig, models, "plain")}
    jobs["default"] = jobs["slices"]
    environment = rig.island_environment()
    if environment:
        jobs["island"] = pair_of(rig, models, "island", co_run=True, environment=environment)
    with_mps = not (rig.options.no_mps or tiny(rig))
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


def exceed(rig, models, rates, needs):
    """The same of a pair that takes turns, of one system after the other. To `needs`: {system: bytes
    that both have together, and how often each was moved out}"""
    systems = {"slices": {}}
    environment = rig.island_environment()
    if environment:
        systems["island"] = {"co_run": True, "environment": environment}
    rates["solo"] = []
    for system, how in systems.items():
        rig.say(f"{'+'.join(models)}, {system}")
        jobs = pair_of(rig, models, system, oversubscribe=True, **how)
        for job in jobs:
            job.ready(150)
        if system == "slices":
            rates["solo"].append([window(rig, [job])[0] for job in jobs])
        rates[system] = [window(rig, jobs, TURNS_SECONDS) for _ in range(rig.options.rounds)]
        needs[system] = {
            "bytes": sum(gpu["memory_used_bytes"] for job in jobs
                         for gpu in rig.job(job.name)["gpus"]),
            "moved_out": [times_out(rig, job.name) for job in jobs]}
        end(jobs)


def over_alone(rates):
    solo = [median(each) for each in zip(*rates["solo"])]
    return {system: [of_alone(each, solo) for each in windows]
            for system, windows in rates.items() if system != "solo"}


def judge_turns(report, name, rates, needs, capacity):
    got = {system: median(each) for system, each in over_alone(rates).items()}
    for system, need in needs.items():
        slowest = min(rate for each in rates[system] for rate in each)
        report.judge(f"{name}, {system}: the slowest of both, steps/s", f"{slowest:.3f}",
                     f"more than 0; both over alone {got[system]:.3f}, moved out "
                     f"{' and '.join(map(str, need['moved_out']))} times", slowest > 0)
        report.at_least("  what both need, of the capacity", need["bytes"] / capacity, 1)


def judge(report, name, rates):
    got = {system: median(each) for system, each in over_alone(rates).items() if each}
    text = ", ".join(f"{system} {value:.3f}" for system, value in got.items())
    if "island" in got:
        best = max([1.0] + [got[system] for system in ("default", "mps") if system in got])
        report.judge(f"{name}: island over the best of default and MPS",
                     f"{got['island'] / best:.3f}", f"at least {LEAST_OF_BEST}; {text}",
                     got["island"] >= LEAST_OF_BEST * best)
    else:
        report.note(f"{name}: both over alone", text)


def run(rig, report: Report):
    kept, needs = {}, {}
    report.keep(rates=kept, needs=needs)
    for pair in chosen(rig.options):
        name = "+".join(pair)
        rig.say(name)
        kept[name] = {}
        try:
            if rig.options.capacity:
                needs[name] = {}
                exceed(rig, pair, kept[name], needs[name])
            else:
                measure(rig, pair, kept[name])
        except WorkloadFailed as failure:
            report.judge(name, failure.why, "no job fails", False)
            rig.say(str(failure))
            end(rig.warm)
            rig.stop_mps()
        else:
            if rig.options.capacity:
                capacity = rig.listing("status")["gpus"][0]["memory_capacity_bytes"]
                judge_turns(report, name, kept[name], needs[name], capacity)
            else:
                judge(report, name, kept[name])
