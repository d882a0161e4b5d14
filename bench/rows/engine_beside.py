"""An engine beside a training: the first token, the time per token, and what the training keeps.

vLLM, or with `--engine transformers` the continuous batching of transformers. The training is a
GPT, a ResNet-50, or two GPTs in an island. In each round each load of the warm engine is asked
alone, by the driver's default, and in each configuration of Switchyard: `latency` (the engine high,
the training low) and `throughput` (both low, with a short slice). A load is a number of requests in
flight, or Poisson arrivals at two thirds of what the engine does alone. The cells of one load stand
next to each other, so a drift of the clock meets all of them.

The engine's own part of the GPU is what Switchyard bills while it is alone. That is NVML's figure,
up to a second late, so short cells know it badly.
"""

import time
from dataclasses import dataclass

from rig import engines
from rig.process import WorkloadFailed, rate_between
from rig.report import Report, median, percentile
from rig.rig import ACTIVITY_WINDOW, RigError
from rows.latency import tiny, training_arguments

TITLE = "An engine beside a training"
# Name: the means of enforcement, the priority of the engine beside a training of low, and how the
# engine's waits for its CPU are served.
CONFIGURATIONS = {"default": ("none", None, "foreseen"), "latency": ("auto", "high", "foreseen"),
                  "throughput": ("auto", "low", "foreseen"), "slices": ("auto", "high", "slices")}
USUAL_SLICE = "25ms"
POISSON = "poisson"


@dataclass
class Kind:
    script: str
    arguments: tuple
    out: int    # tokens of an answer,
    waves: int  # and answers of each request in flight, at least: a cell is to take seconds


ENGINES = {"vllm": Kind("vllm_engine.py", ("--utilization", 0.05), 64, 4),
           "transformers": Kind("transformers_engine.py", (), 24, 2)}
# Of each metric: the most that p50 and p99 may be over alone, in the configuration for latency.
LATENCY_BOUNDS = {"token_ms": (1.02, 1.05), "first_ms": (1.05, 1.10)}
NEVER_WORSE = 1.02  # than the default, in the configuration for throughput
LEAST_LEFT = 0.97


def arguments(parser):
    parser.add_argument("--engine", choices=ENGINES, default="vllm")
    parser.add_argument("--shape", default="qwen3-4b", help="or tiny, qwen3-0.6b, llama-3.1-8b")
    parser.add_argument("--lows", default="gpt,resnet50",
                        help="of gpt, resnet50 and island, one after the other")
    parser.add_argument("--loads", default=f"2,8,32,{POISSON}", help="requests in flight")
    parser.add_argument("--slice", default="4ms", help="in the configuration for throughput")
    parser.add_argument("--share", type=float, default=1, help="the engine's weight, for throughput")
    parser.add_argument("--minimum", default="2%", help="what high jobs leave to the training")
    parser.add_argument("--by-slices", action="store_true",
                        help="cells for latency where no wait is foreseen, too")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.5, help="of a cell, about")
    parser.add_argument("--eager-prefills", action="store_true",
                        help="vLLM: CUDA graphs of decodes alone")


class Low:
    """What trains beside the engine: one job, or two in an island."""

    def __init__(self, rig, name):
        self.name = name
        if name == "gpt":
            self.jobs = [rig.start(name, "gpt.py", *training_arguments(rig), priority="low")]
        elif name == "resnet50":
            self.jobs = [rig.start(name, "networks.py", "--mode", "train", "--batch",
                                   2 if tiny(rig) else 128, priority="low")]
        elif name == "island":
            environment = rig.island_environment()
            if environment is None:
                raise RigError("--lows island: no nvidia-cuda-mps-control here")
            self.jobs = [rig.start(f"{name}-{i}", "gpt.py", *training_arguments(rig, 4),
                                   priority="low", co_run=True, environment=environment)
                         for i in range(2)]
        else:
            raise RigError(f"--lows: {name} is none of gpt, resnet50 and island")

    def ready(self):
        for job in self.jobs:
            job.ready(150)

    def start(self):
        for job in self.jobs:
            job.start()

    def stop(self):
        """What each did."""
        for job in self.jobs:
            job.send(stop=True)
        return [job.receive(60) for job in self.jobs]

    def alone(self, seconds):
        """Steps per second of the first, alone."""
        return self.jobs[0].run(seconds)["steps_per_second"]

    def end(self):
        for job in self.jobs:
            job.end()


class Load:
    """Requests of one kind. How many make a cell follows from what the engine does alone."""

    def __init__(self, name, kind):
        self.name = name
        self.kind = kind
        self.how = {} if name == POISSON else {"in_flight": int(name)}
        self.requests = kind.waves * self.how.get("in_flight", 8)

    def ask(self, rig, engine, seed):
        return engine.ask(120, requests=rig.counted(self.requests), seed=seed, clear=True,
                          out=self.kind.out, **self.how)

    def fit(self, rig, said):
        """For cells of the length that was asked for."""
        per_second = len(said["first_ms"]) / said["seconds"]
        self.requests = max(self.requests, int(rig.options.seconds * per_second))
        return per_second


def warm_up(rig, engine, loads):
    """Compiles kernels, and finds how many requests make a cell."""
    most = 0
    for load in loads:
        if load.name == POISSON:
            load.how = {"rate": 2 / 3 * most}
        load.ask(rig, engine, 1)
        most = max(most, load.fit(rig, load.ask(rig, engine, 1)))


def alone(rig, engine, load, seed):
    """With the part of the GPU's time that the engine had."""
    before = rig.job(engine.name)["gpu_seconds"]
    begun = time.monotonic()
    said = load.ask(rig, engine, seed)
    seconds = time.monotonic() - begun
    said["gpu_part"] = min(1.0, (rig.job(engine.name)["gpu_seconds"] - before) / seconds)
    return said


def beside(rig, engine, low, load, seed, configuration):
    means, priority, waits = CONFIGURATIONS[configuration]
    rig.cli("policy", "--waits", waits)
    if priority:
        rig.set(engine.name, priority=priority)
    for_throughput = configuration == "throughput"
    rig.set(engine.name, share=rig.options.share if for_throughput else 1)
    rig.slice(rig.options.slice if for_throughput else USUAL_SLICE)
    rig.means(means)
    low.start()
    try:
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
        said = load.ask(rig, engine, seed)
        said["yields"] = yields(rig)
    finally:
        trained = low.stop()
    said["low"] = sum(rate_between(each, said["begun"], said["ended"]) for each in trained)
    rig.means("auto")
    return said


def yields(rig):
    """By what the engine is served: the slice of the training in microseconds, and why."""
    gpu = rig.listing("status")["gpus"][0]
    why = gpu["not_foreseen_reason"] or gpu["yield_reason"]
    return f"{gpu['yield_slice_us']} us, {why}"


def measure(rig, engine, low, loads, cells):
    """cells: {load: {configuration: [cell]}}"""
    names = [name for name in CONFIGURATIONS if name != "slices" or rig.options.by_slices]
    for seed in range(1, rig.options.rounds + 1):
        for load in loads:
            kinds = cells.setdefault(load.name, {name: [] for name in ("alone", *names)})
            kinds["alone"].append(alone(rig, engine, load, seed))
            for name in names:
                rig.say(f"beside {low.name}, {load.name}, {name}, round {seed}")
                kinds[name].append(beside(rig, engine, low, load, seed, name))


def beside_one(rig, engine, name, loads, solos, cells):
    """All cells beside one kind of training; why there are no more, if it failed."""
    low = None
    try:
        low = Low(rig, name)
        low.ready()
        solos[name] = low.alone(rig.scaled(3))
        measure(rig, engine, low, loads, cells)
    except WorkloadFailed as failure:  # beside others it may work
        rig.say(str(failure))
        return failure.why
    finally:
        if low:
            low.end()
    return ""


def together(cells, metric):
    return [value for cell in cells for value in cell[metric]]


def pair(cells, metric):
    values = together(cells, metric)
    return percentile(values, 0.5), percentile(values, 0.99)


def over_alone(kinds, name, metric):
    return [mine / before
            for mine, before in zip(pair(kinds[name], metric), pair(kinds["alone"], metric))]


def show(figures):
    return f"{figures[0]:.2f}/{figures[1]:.2f}"


def judge_latency(report, what, kinds):
    for each in sorted({cell["yields"] for cell in kinds["latency"]}):
        report.note(f"{what}: the training's slice, for latency", each)
    for metric, bounds in LATENCY_BOUNDS.items():
        over = over_alone(kinds, "latency", metric)
        report.judge(f"{what}: {metric} over alone, for latency", show(over),
                     f"at most {show(bounds)}; alone {show(pair(kinds['alone'], metric))}, default "
                     f"{show(pair(kinds['default'], metric))} ms",
                     all(mine <= bound for mine, bound in zip(over, bounds)))


def low_rate(cells):
    return median([cell["low"] for cell in cells])


def tell_slices(report, what, kinds, solo):
    """The other end of the frontier."""
    for metric in LATENCY_BOUNDS:
        report.note(f"{what}: {metric} over alone, where no wait is foreseen",
                    show(over_alone(kinds, "slices", metric)),
                    f"the training {low_rate(kinds['slices']) / solo:.3f} of solo")


def judge_throughput(report, what, kinds, solo):
    worst = max(mine / theirs for metric in LATENCY_BOUNDS
                for mine, theirs in zip(pair(kinds["throughput"], metric),
                                        pair(kinds["default"], metric)))
    report.at_most(f"{what}: worst of four figures over default's, for throughput", worst,
                   NEVER_WORSE)
    used = median([cell["gpu_part"] for cell in kinds["alone"]])
    left = min(low_rate(kinds["default"]) / solo, 1 - used)
    report.at_least(f"{what}: training for throughput, of solo (left {left:.3f}, default "
                    f"{low_rate(kinds['default']) / solo:.3f}, for latency "
                    f"{low_rate(kinds['latency']) / solo:.3f})",
                    low_rate(kinds["throughput"]) / solo, LEAST_LEFT * left)
    rates = {name: median([cell["tokens_per_second"] for cell in kinds[name]]) for name in kinds}
    report.note(f"{what}: tokens per second", ", ".join(f"{name} {rate:.0f}"
                                                        for name, rate in rates.items()))


def run(rig, report: Report):
    o = rig.options
    figures, solos = {}, {}
    report.keep(cells=figures, solo=solos)
    kind = ENGINES[o.engine]
    report.row += f"-{o.engine}" * (o.engine != "vllm")  # a file of its own
    more = ["--prefill-graphs"] if o.engine == "vllm" and not o.eager_prefills else []
    engine = engines.Engine(rig, "engine", "--shape", o.shape, "--cache-gib", 8, *kind.arguments,
                            *more, script=kind.script, invariant=False, priority="high")
    rig.cli("policy", "--minimum", o.minimum)
    with engines.none_stays(rig, [engine]):
        rig.say(f"the engine is up: {engine.ready()}")
        loads = [Load(name, kind) for name in o.loads.split(",")]
        warm_up(rig, engine, sorted(loads, key=lambda load: load.name == POISSON))
        for name in o.lows.split(","):
            figures[name] = {}
            try:
                failure = beside_one(rig, engine, name, loads, solos, figures[name])
            except RigError as error:  # the time is over: what there is is judged
                report.judge(name, str(error), "no failure", False)
                break
            if failure:
                report.judge(name, failure, "no failure", False)
    for name, cells in figures.items():
        for load, kinds in cells.items():
            if not all(kinds.values()):
                continue  # the time was over
            what = f"{name}, {load}" + ("" if load == POISSON else " in flight")
            judge_latency(report, what, kinds)
            judge_throughput(report, what, kinds, solos[name])
            if o.by_slices:
                tell_slices(report, what, kinds, solos[name])
