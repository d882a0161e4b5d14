"""Jobs in an island, and a service outside that does not feel them.

The jobs are two GPT trainings, or four eager language models that answer without a pause. They run
by the driver's default, by slices, in an island (`run --co-run`) and under MPS. Beside them is
nothing, or ResNet-50 by graph replay outside. The sort `language` has an eager language model, and
one by graphs, outside an island of two trainings. Default and slices are the same warm processes,
and all but MPS take turns in each round. MPS comes last and alone, because its server keeps slices
from the GPU while it is there.
"""

import time

from rig.process import WorkloadFailed, rate_between
from rig.report import Report, median, percentile
from rig.rig import ACTIVITY_WINDOW, RigError
from rows import serving
from rows.latency import service, tiny, training_arguments

TITLE = "Islands, and a service outside"
SYSTEMS = {"default": "none", "slices": "auto", "island": "auto"}
LANGUAGE = {"lm-eager": ["--mode", "eager", "--out", 8], "lm-graph": ["--mode", "graph"]}
METRICS = ("first_ms", "token_ms")
MOST_OVER = ((0.5, 1.02), (0.99, 1.05))  # of these percentiles alone
MOST_BUSY = 0.3  # the GPU's part of an engine that counts as host-bound
MOST_OVER_MS = 0.15
UNCOUNTED = 50   # requests, at the begin of a cell (workloads/harness.py)


def arguments(parser):
    parser.add_argument("--sorts", default="gpt,engines",
                        help="of gpt, engines and language; each takes some six minutes")
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4, help="of the trainings")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of each rate")
    parser.add_argument("--settle", type=float, default=1.5, help="before it, uncounted")
    parser.add_argument("--rate", type=float, default=50, help="requests per second")
    parser.add_argument("--requests", type=int, default=1000,
                        help="of each cell alone, and beside the island")
    parser.add_argument("--compared", type=int, default=250,
                        help="of each cell by default, by slices and under MPS")
    parser.add_argument("--think", type=float, default=0.03, help="of language models outside")
    parser.add_argument("--talk", type=float, default=10, help="seconds of each of their cells")
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

    def rates(self, count, meanwhile, _):
        """What the first `count` do while `meanwhile` goes on, and what that says."""
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

    def rates(self, count, meanwhile, seconds):
        """The same. They go on for `seconds`."""
        engines = self.all[:count]
        settle = self.rig.scaled(self.rig.options.settle)
        for seed, engine in enumerate(engines, 1):
            engine.send(converse={"seconds": seconds, "think": 0, "seed": seed, "settle": settle})
        time.sleep(settle)
        cell = meanwhile()
        answers = [engine.receive(seconds + 60) for engine in engines]
        return cell, [each["requests"] / (each["ended"] - each["begun"]) for each in answers]


SORTS = {"gpt": Trainings, "engines": Engines, "language": Trainings}


class Row:
    def __init__(self, rig, sort):
        self.rig = rig
        kind = SORTS[sort]
        self.jobs = {"default": kind(rig, "plain", priority="low")}
        self.jobs["slices"] = self.jobs["default"]
        environment = rig.island_environment()
        if environment:
            self.jobs["island"] = kind(rig, "island", priority="low", co_run=True,
                                       environment=environment)
        self.clients = self.served = None
        if sort != "language" and not (rig.options.no_mps or tiny(rig)):
            self.clients = kind(rig, "mps", under="mps", hold=True)
            self.served = service(rig, f"serve-mps-{sort}", under="mps", hold=True)
        self.cells = {"alone": [], "one": [], **{name: [] for name in (*self.jobs, "mps")}}

    def ready(self):
        for warm in (*self.outside_mps(), *self.of_mps()):
            warm.ready(150)

    def outside_mps(self):
        return [warm for name, part in self.jobs.items() if name != "slices" for warm in part.all]

    def of_mps(self):
        return [*self.clients.all, self.served] if self.clients else []

    def quiet(self, jobs, count):
        seconds = self.rig.scaled(self.rig.options.seconds)
        return jobs.rates(count, lambda: time.sleep(seconds), seconds)[1]

    def serve(self, high, requests, seed):
        return high.serve(self.rig.options.rate, self.rig.counted(requests), seed=seed)

    def cell(self, jobs, high, requests, seed):
        time.sleep(self.rig.scaled(ACTIVITY_WINDOW))
        rates = self.quiet(jobs, jobs.count)
        seconds = (self.rig.counted(requests) + UNCOUNTED) / self.rig.options.rate
        served, beside = jobs.rates(jobs.count, lambda: self.serve(high, requests, seed), seconds)
        return {"rates": rates, "beside": beside, "latencies_ms": served["latencies_ms"]}

    def round(self, high, seed):
        o = self.rig.options
        self.rig.say(f"alone, round {seed}")
        self.cells["alone"].append(self.serve(high, o.requests, seed))
        time.sleep(self.rig.scaled(ACTIVITY_WINDOW))
        self.cells["one"].append(self.quiet(self.jobs["slices"], 1)[0])
        for name in (name for name in SYSTEMS if name in self.jobs):
            self.rig.means(SYSTEMS[name])
            self.rig.say(f"{name}, round {seed}")
            requests = o.requests if name == "island" else o.compared
            self.cells[name].append(self.cell(self.jobs[name], high, requests, seed))
        self.rig.means("auto")

    def mps(self):
        """The service is a client, too."""
        rig = self.rig
        if not rig.start_mps():
            rig.say("no MPS control daemon here: its cells are left out")
            return
        try:
            for warm in self.of_mps():
                warm.send(init=True)
            for warm in self.of_mps():
                warm.ready(150)
            for seed in range(1, rig.options.rounds + 1):
                rig.say(f"mps, round {seed}")
                self.cells["mps"].append(self.cell(self.clients, self.served,
                                                   rig.options.compared, seed))
        except WorkloadFailed as failure:  # it is a comparison: the others' figures stand
            rig.say(f"MPS: {failure}")
        end(self.of_mps())
        rig.stop_mps()


def end(processes):
    for warm in processes:
        warm.end()


def tail_of(cells):
    return percentile([value for cell in cells for value in cell["latencies_ms"]], 0.99)


def sums(cells, key):
    return median([sum(cell[key]) for cell in cells])


def judge(report, sort, cells):
    one = median(cells["one"])
    alone = tail_of(cells["alone"])
    each = [tail_of([cell]) for cell in cells["alone"]]
    report.note(f"{sort}: one alone", f"{one:.2f}/s", f"service alone p99 {alone:.3f} ms, of each "
                f"round {' '.join(f'{value:.3f}' for value in each)}")
    for name in (*SYSTEMS, "mps"):
        if cells.get(name):
            report.note(f"{sort}, {name}: all over one alone",
                        f"{sums(cells[name], 'rates') / one:.3f}",
                        f"beside the service {sums(cells[name], 'beside') / one:.3f}, its p99 "
                        f"{tail_of(cells[name]):.3f} ms")
    if not cells.get("island"):
        return
    together = sums(cells["island"], "rates") / one
    report.at_most(f"{sort}: p99 of the service outside, ms", tail_of(cells["island"]),
                   alone + max(MOST_OVER_MS, max(each) - min(each)))
    if sort == "gpt":
        report.at_least("gpt: island over one alone", together, 1.05)
        report.at_least("gpt: the same beside the service", sums(cells["island"], "beside") / one,
                        1.04)
        if cells["mps"]:
            report.at_least("gpt: island over MPS", together * one / sums(cells["mps"], "rates"),
                            0.99)
        return
    report.at_least("engines: island over one alone", together, 2.5)
    worst = min(min(cell["rates"]) / max(cell["rates"]) for cell in cells["island"])
    report.at_least("engines: slowest over quickest", worst, 0.9)


def host_bound(rig, report, row):
    engine = row.jobs["default"].all[0]
    busy = engine.ask(do="kernel_ms")["kernel_ms"] / 1e3 * median(row.cells["one"])
    report.at_most("engines: the GPU's part of one alone", busy, MOST_BUSY)


def outside(rig, row, name, high, seed, cells):
    """One round of a language model outside of the island of trainings, and what one training has
    beside it by default."""
    seconds = rig.scaled(rig.options.talk)

    def ask():
        return high.converse(seconds, rig.options.think, seed=seed)

    rig.say(f"{name}, round {seed}")
    time.sleep(rig.scaled(ACTIVITY_WINDOW))
    alone = ask()
    rig.means("none")
    default, one = row.jobs["default"].rates(1, ask, seconds)
    rig.means("auto")
    time.sleep(rig.scaled(ACTIVITY_WINDOW))
    island, both = row.jobs["island"].rates(2, ask, seconds)
    cells.append({"alone": alone, "default": default, "island": island, "one": one, "both": both})


def percentile_of(cells, system, metric, part):
    return percentile([value for cell in cells for value in cell[system][metric]], part)


def judge_language(report, name, cells):
    for metric in METRICS:
        for part, bound in MOST_OVER:
            alone, default, island = (percentile_of(cells, system, metric, part)
                                      for system in ("alone", "default", "island"))
            each = [percentile_of([cell], "alone", metric, part) for cell in cells]
            report.note(f"{name}: {metric} p{round(100 * part)}, ms",
                        f"{island:.3f}", f"alone {alone:.3f}, beside one by default {default:.3f}")
            report.at_most("  over alone", island / alone, max(bound, max(each) / min(each)))
    report.at_least(f"{name}: trainings over one by default",
                    median([sum(cell["both"]) / cell["one"][0] for cell in cells]), 1.05)


def language(rig, report):
    highs = {name: rig.start(name, "language.py", *serving.sizes(rig, "language.py", given),
                             priority="high") for name, given in LANGUAGE.items()}
    row = Row(rig, "language")
    row.ready()
    if "island" not in row.jobs:
        raise RigError("no MPS control daemon here")
    cells = {name: [] for name in highs}
    report.keep(language=cells)
    for high in highs.values():
        high.ready(150)
    for seed in range(1, rig.options.rounds + 1):
        for name, high in highs.items():
            outside(rig, row, name, high, seed, cells[name])
    for name, each in cells.items():
        judge_language(report, name, each)
    end([*highs.values(), *row.outside_mps()])


def jobs_of(rig, report, sort, high):
    row = Row(rig, sort)
    report.keep(**{sort: row.cells})
    row.ready()
    if not high.about:
        high.ready(150)
    for seed in range(1, rig.options.rounds + 1):
        row.round(high, seed)
    if sort == "engines" and not tiny(rig):
        host_bound(rig, report, row)
    end(row.outside_mps())  # the GPU has not the memory for all
    if row.clients:
        row.mps()
    judge(report, sort, row.cells)


def run(rig, report: Report):
    sorts = rig.options.sorts.split(",")
    if unknown := set(sorts) - set(SORTS):
        raise RigError(f"--sorts: none is {', '.join(sorted(unknown))}")
    high = service(rig, "serve", priority="high") if set(sorts) != {"language"} else None
    for sort in sorts:
        if sort == "language":
            language(rig, report)
        else:
            jobs_of(rig, report, sort, high)
