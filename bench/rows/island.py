"""Jobs in an island, and a service outside that does not feel them.

The jobs are two GPT trainings, or four eager language models that answer without a pause. They run
by the driver's default, by slices, in an island (`run --co-run`) and under MPS. Beside them is
nothing, or ResNet-50 by graph replay outside. With `--language` an eager language model, and one by
graphs, stand outside an island of two trainings as well. Default and slices are the same warm
processes, and all but MPS take turns in each round. MPS comes last, because its server keeps slices
from the GPU while it is there.
"""

import time

from rig.process import WorkloadFailed, rate_between
from rig.report import Report, median, percentile
from rig.rig import ACTIVITY_WINDOW
from rows import serving
from rows.latency import service, tiny, training_arguments

TITLE = "Islands, and a service outside"
SYSTEMS = {"default": "none", "slices": "auto", "island": "auto"}
LANGUAGE = {"lm-eager": ["--mode", "eager", "--out", 8], "lm-graph": ["--mode", "graph"]}
MOST_BUSY = 0.3  # the GPU's part of an engine that counts as host-bound


def arguments(parser):
    parser.add_argument("--sorts", default="gpt,engines", help="of jobs, such as gpt")
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4, help="of the trainings")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each rate")
    parser.add_argument("--settle", type=float, default=1.5, help="before it, uncounted")
    parser.add_argument("--rate", type=float, default=50, help="requests per second")
    parser.add_argument("--requests", type=int, default=1000, help="of each cell")
    parser.add_argument("--think", type=float, default=0.03, help="of language models outside")
    parser.add_argument("--language", action="store_true", help="these stand outside as well")
    parser.add_argument("--no-mps", action="store_true")
    parser.set_defaults(high="graph", even=False)


class Trainings:
    """Steps of each in one common window."""

    count = 2

    def __init__(self, rig, system, **how):
        sizes = training_arguments(rig, rig.options.batch)
        self.rig = rig
        self.all = [rig.start(f"gpt-{system}-{i}", "gpt.py", *sizes, **how)
                    for i in range(self.count)]

    def rates(self, count, meanwhile):
        """What the first `count` do, in all and each, while `meanwhile` goes on."""
        jobs = self.all[:count]
        for job in jobs:
            job.start()
        time.sleep(self.rig.scaled(self.rig.options.settle))
        begin = time.monotonic()
        cell = meanwhile()
        end = time.monotonic()
        for job in jobs:
            job.send(stop=True)
        return cell, [rate_between(job.receive(60), begin, end) for job in jobs]


class Engines:
    """Answers of each, one after the other without a pause."""

    def __init__(self, rig, system, **how):
        self.rig = rig
        self.count = rig.options.engines
        sizes = serving.sizes(rig, "language.py", LANGUAGE["lm-eager"])
        self.all = [rig.start(f"engine-{system}-{i}", "language.py", *sizes, **how)
                    for i in range(self.count)]

    def rates(self, count, meanwhile):
        o = self.rig.options
        engines = self.all[:count]
        seconds = self.rig.scaled(max(o.seconds, o.requests / o.rate))
        for seed, engine in enumerate(engines, 1):
            engine.send(converse={"seconds": seconds, "think": 0, "seed": seed,
                                  "settle": self.rig.scaled(o.settle)})
        time.sleep(self.rig.scaled(o.settle))
        cell = meanwhile()
        answers = [engine.receive(seconds + 60) for engine in engines]
        return cell, [each["requests"] / (each["ended"] - each["begun"]) for each in answers]


SORTS = {"gpt": Trainings, "engines": Engines}


def island_environment(rig):
    """Where the daemon's program is, and a folder for what the island has."""
    program = rig.mps_program()
    if program is None:
        return None
    run = rig.scratch / "run"
    run.mkdir(mode=0o700, exist_ok=True)
    return {"PATH": rig.path_with(program), "XDG_RUNTIME_DIR": run}


class Row:
    def __init__(self, rig, sort):
        self.rig = rig
        kind = SORTS[sort]
        self.jobs = {"default": kind(rig, "plain", priority="low")}
        self.jobs["slices"] = self.jobs["default"]
        environment = island_environment(rig)
        if environment:
            self.jobs["island"] = kind(rig, "island", priority="low", co_run=True,
                                       environment=environment)
        self.clients = None if rig.options.no_mps or tiny(rig) else kind(
            rig, "mps", under="mps", hold=True)
        self.cells = {"alone": [], "one": [], **{name: [] for name in (*self.jobs, "mps")}}

    def ready(self):
        everybody = {id(each): each for each in (*self.jobs.values(), self.clients) if each}
        for part in everybody.values():
            for warm in part.all:
                warm.ready(150)

    def quiet(self):
        time.sleep(self.rig.scaled(self.rig.options.seconds))

    def serve(self, high, seed):
        o = self.rig.options
        return lambda: high.serve(o.rate, self.rig.counted(o.requests), seed=seed)

    def cell(self, jobs, high, seed):
        time.sleep(self.rig.scaled(ACTIVITY_WINDOW))
        _, rates = jobs.rates(jobs.count, self.quiet)
        time.sleep(self.rig.scaled(ACTIVITY_WINDOW))
        served, beside = jobs.rates(jobs.count, self.serve(high, seed))
        return {"rates": rates, "beside": beside, "latencies_ms": served["latencies_ms"]}

    def round(self, high, seed):
        self.rig.means("auto")
        self.cells["alone"].append(self.serve(high, seed)())
        one = self.jobs["slices"]
        self.cells["one"].append(one.rates(1, self.quiet)[1][0])
        for name in (name for name in SYSTEMS if name in self.jobs):
            self.rig.means(SYSTEMS[name])
            self.rig.say(f"{name}, round {seed}")
            self.cells[name].append(self.cell(self.jobs[name], high, seed))
        self.rig.means("auto")

    def mps(self):
        """The service is a client, too."""
        rig = self.rig
        high = service(rig, "serve-mps", under="mps", hold=True)
        high.ready()
        if not rig.start_mps():
            return rig.say("no MPS control daemon here: its cells are left out")
        try:
            for warm in (*self.clients.all, high):
                warm.send(init=True)
            for warm in (*self.clients.all, high):
                warm.ready(150)
            for seed in range(1, rig.options.rounds + 1):
                rig.say(f"mps, round {seed}")
                self.cells["mps"].append(self.cell(self.clients, high, seed))
        except WorkloadFailed as failure:  # it is a comparison: the others' figures stand
            rig.say(f"MPS: {failure}")


def tail_of(cells):
    return percentile([value for cell in cells for value in cell["latencies_ms"]], 0.99)


def sums(cells, key):
    return median([sum(cell[key]) for cell in cells])


def judge(report, sort, cells):
    one = median(cells["one"])
    alone = tail_of(cells["alone"])
    report.note(f"{sort}: one alone", f"{one:.2f}/s", f"service alone p99 {alone:.3f} ms")
    for name in (*SYSTEMS, "mps"):
        if cells[name]:
            report.note(f"{sort}, {name}: all over one alone",
                        f"{sums(cells[name], 'rates') / one:.3f}",
                        f"beside the service {sums(cells[name], 'beside') / one:.3f}, its p99 "
                        f"{tail_of(cells[name]):.3f} ms")
    if not cells["island"]:
        return
    together = sums(cells["island"], "rates") / one
    report.at_most(f"{sort}: p99 of the service outside, ms", tail_of(cells["island"]),
                   alone + 0.15)
    if sort == "gpt":
        report.at_least("gpt: island over one alone", together, 1.05)
        report.at_least("gpt: the same beside the service", sums(cells["island"], "beside") / one,
                        1.04)
        if cells["mps"]:
            report.at_least("gpt: island over MPS", together * one / sums(cells["mps"], "rates"),
                            0.99)
        return
    report.at_least("engines: island over one alone", together, 2.5)
    each = [rate for cell in cells["island"] for rate in cell["rates"]]
    report.at_least("engines: slowest over quickest", min(each) / max(each), 0.9)


def outside(rig, report, row):
    """Language models outside of the island of trainings, and what one has by default."""
    for name, given in LANGUAGE.items():
        high = rig.start(name, "language.py", *serving.sizes(rig, "language.py", given),
                         priority="high").ready(150)
        ask = lambda high=high: high.converse(  # noqa: E731
            rig.scaled(2 * rig.options.seconds), rig.options.think, seed=1)
        alone = ask()
        rig.means("none")
        _, default = row.jobs["default"].rates(1, ask)
        rig.means("auto")
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
        cell, rates = row.jobs["island"].rates(2, ask)
        report.keep(**{name: {"alone": alone, "island": cell, "rates": rates, "default": default}})
        for metric in ("first_ms", "token_ms"):
            for part, bound in ((0.5, 1.02), (0.99, 1.05)):
                report.at_most(f"{name}: {metric} p{round(100 * part)} over alone",
                               percentile(cell[metric], part) / percentile(alone[metric], part),
                               bound)
        report.at_least(f"{name}: trainings over one by default", sum(rates) / default[0], 1.05)
        high.end()


def host_bound(rig, report, row):
    engine = row.jobs["default"].all[0]
    busy = engine.ask(do="kernel_ms")["kernel_ms"] / 1e3 * median(row.cells["one"])
    report.at_most("engines: the GPU's part of one alone", busy, MOST_BUSY)


def run(rig, report: Report):
    high = service(rig, "serve", priority="high")
    high.ready()
    for sort in rig.options.sorts.split(","):
        row = Row(rig, sort)
        report.keep(**{sort: row.cells})
        row.ready()
        for seed in range(1, rig.options.rounds + 1):
            row.round(high, seed)
        if sort == "engines" and not tiny(rig):
            host_bound(rig, report, row)
        if sort == "gpt" and rig.options.language and "island" in row.jobs:
            outside(rig, report, row)
        if row.clients:
            row.mps()
            rig.stop_mps()
        judge(report, sort, row.cells)
        for part in {id(each): each for each in (*row.jobs.values(), row.clients) if each}.values():
            for warm in part.all:
                warm.end()
