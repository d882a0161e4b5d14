"""The cost of the preload library for a job that has the GPU to itself.

Two sorts of warm processes, one under `switchyard run` and one without, alternate on the idle GPU
and on the same CPUs. Their order is A B B A, so that drift cancels. The figure is the median of the
ratios of the pairs. Two processes of one program differ, launch-bound ones by several percent
(memory layout, and a shared host's CPUs). So there are several of each sort, and the median is
taken over processes. A third sort, again without the library, shows the error of the method itself.
Where that is too little, `cold` measures a launch inside one process, through the library's entry
and through the driver's own address in turns. It does so after so much other memory was touched,
and multiplies.
"""

import os
from dataclasses import dataclass

from rig.report import Report, interval, median, spread
from rows.latency import tiny, training_arguments

TITLE = "Cost of the library, alone on the GPU"


def arguments(parser):
    parser.add_argument("--only", choices=["gpt", "eager", "graph", "empty", "cold"],
                        action="append")
    parser.add_argument("--processes", type=int, default=2,
                        help="of each sort, GPT training (17 GiB each) and graph replay")
    parser.add_argument("--gpt-turns", type=int, default=3, help="for each three processes")
    parser.add_argument("--eager-processes", type=int, default=12, help="of each of three sorts")
    parser.add_argument("--eager-turns", type=int, default=18, help="for each three processes")
    parser.add_argument("--graph-pairs", type=int, default=6, help="for each pair of processes")
    parser.add_argument("--empty-pairs", type=int, default=12, help="pairs of processes")
    parser.add_argument("--cold-pairs", type=int, default=5, help="pairs of processes, each size")


def cpus():
    """The same few CPUs for both sorts; away from CPU 0, where interrupts go."""
    have = sorted(os.sched_getaffinity(0))
    return ",".join(map(str, have[4:10] if len(have) >= 12 else have))


def start_sorts(rig, name, script, arguments, processes):
    """[(with, without), ...], not yet ready."""
    pin = ["--pin", cpus()]
    return [(rig.start(f"{name}-with-{i}", script, *arguments, *pin),
             rig.start(f"{name}-without-{i}", script, *arguments, *pin, under="plain"))
            for i in range(processes)]


def alternate(rig, pairs_of_processes, pairs, seconds, figure):
    """Ratios with / without, pair by pair."""
    ratios = []
    for with_it, without in pairs_of_processes:
        for warm in (with_it, without):
            warm.run(rig.scaled(0.5))
        for turn in range(pairs):
            order = (with_it, without) if turn % 2 == 0 else (without, with_it)
            rate = {warm.name: warm.run(rig.scaled(seconds))[figure] for warm in order}
            ratios.append({"with": rate[with_it.name], "without": rate[without.name],
                           "ratio": rate[with_it.name] / rate[without.name],
                           "process": with_it.name})
    return ratios


def judge_ratio(report, what, key, pairs, bound=0.995):
    ratios = [pair["ratio"] for pair in pairs]
    low, high = interval(ratios)
    report.keep(**{key: pairs})
    report.note(f"{what}: rate without", f"{median([p['without'] for p in pairs]):.2f} steps/s",
                f"{len(pairs)} pairs")
    report.at_least(f"{what}: with / without", median(ratios), bound, "{:.4f}")
    report.note("  95 % of the median, spread", f"{low:.4f} .. {high:.4f}",
                f"spread of pairs {spread(ratios):.4f}")


@dataclass
class Sort:
    """Work of which there are three processes each: with the library, and twice without it."""
    what: str
    script: str
    arguments: list
    pin: str
    processes: int  # times three
    turns: int
    seconds: float  # of a turn
    figure: str


def start_threes(rig, name, sort):
    """[{"with", "without", "again"}, ...], not yet ready."""
    return [{side: rig.start(f"{name}-{side}-{i}", sort.script, *sort.arguments, "--pin", sort.pin,
                             **({} if side == "with" else {"under": "plain"}))
             for side in ("with", "without", "again")}
            for i in range(sort.processes)]


def ready(groups):
    for group in groups:
        for warm in group:
            warm.ready(180)


def run_threes(rig, report, key, sort, threes):
    """One ratio and one control ratio for each three processes; each is a median over its turns."""
    orders = [("with", "without", "again"), ("again", "without", "with"),
              ("without", "with", "again"), ("again", "with", "without")]
    turns = max(3, int(sort.turns * rig.options.scale))
    cells = []
    report.keep(**{key: cells})
    for three in threes:
        for warm in three.values():
            warm.run(rig.scaled(0.5))
        rates = []
        for turn in range(turns):
            rates.append({side: three[side].run(rig.scaled(sort.seconds))[sort.figure]
                          for side in orders[turn % len(orders)]})
        cells.append({
            "ratio": median([2 * r["with"] / (r["without"] + r["again"]) for r in rates]),
            "control": median([r["again"] / r["without"] for r in rates]),
            "without": median([r["without"] for r in rates]), "rates": rates})
        rig.say(f"  {cells[-1]['ratio']:.4f}, control {cells[-1]['control']:.4f}")
    report.note(f"{sort.what}: rate without",
                f"{median([c['without'] for c in cells]):.2f} steps/s",
                f"{len(cells)} x 3 processes, {turns} turns each")
    for ratio in ("ratio", "control"):
        values = [cell[ratio] for cell in cells]
        low, high = interval(values)
        if ratio == "ratio":
            report.at_least(f"{sort.what}: with / without", median(values), 0.995, "{:.4f}")
        else:
            report.note("  without / without, the control", f"{median(values):.4f}", "1 by right")
        report.note("  95 % of the median, spread", f"{low:.4f} .. {high:.4f}",
                    f"spread of processes {spread(values):.4f}")


def empty_kernel(rig, under, index, *sizes):
    # Two CPUs: on one alone the library's service thread could only run instead of the loop.
    argv = ["taskset", "-c", ",".join(cpus().split(",")[:2]), rig.program("empty_kernel"), *sizes]
    return rig.run_once(f"empty-{under}-{index}", argv, under=under)


def run_empty(rig, report):
    sides = {"switchyard": [], "plain": []}
    for index in range(max(2, int(rig.options.empty_pairs * rig.options.scale))):
        order = ("switchyard", "plain") if index % 2 == 0 else ("plain", "switchyard")
        for under in order:
            sides[under].append(empty_kernel(rig, under, index))
    report.keep(empty=sides)
    added = [one["added_ns"] for one in sides["switchyard"]]
    control = [one["added_ns"] for one in sides["plain"]]
    without = median([one["direct_ns"] for one in sides["plain"]])
    low, high = interval(added)
    report.note("empty kernel: ns per launch, driver alone", f"{without:.0f} ns")
    report.at_most("empty kernel: added ns per launch", median(added), 30, "{:.1f}")
    report.note("  95 % of the median, spread", f"{low:.1f} .. {high:.1f} ns",
                f"spread of {len(added)} processes {spread(added):.1f} ns")
    report.note("  the same without the library", f"{median(control):.1f} ns", "0 by right")


# A launch's cost when the program's own work has filled the caches in between. An eager framework
# touches some hundred KiB between two launches, and none touches 4 MiB.
COLD_KIB = (256, 1024, 4096)
COLD_BATCHES = 244  # at least: with 4 MiB a launch scatters by a microsecond
COLD_LAUNCHES = 20  # of a batch
EAGER_LAUNCHES = 175  # in a step of ResNet-50, as `coverage` counts


def run_cold(rig, report):
    step_ns = 1e9 / warm_eager_rate(rig)
    cells = {kib: {"switchyard": [], "plain": []} for kib in COLD_KIB}
    report.keep(cold=cells)
    for index in range(max(2, int(rig.options.cold_pairs * rig.options.scale))):
        for kib, sides in cells.items():
            for under in ("switchyard", "plain"):
                batches = max(COLD_BATCHES, 250_000 // kib)
                sides[under].append(
                    empty_kernel(rig, under, f"{kib}-{index}", batches, COLD_LAUNCHES, kib))
    report.note("eager ResNet-50 batch 8, a step", f"{step_ns / 1e6:.3f} ms",
                f"{EAGER_LAUNCHES} launches")
    for kib, sides in cells.items():
        added = median([one["added_ns"] for one in sides["switchyard"]])
        control = median([one["added_ns"] for one in sides["plain"]])
        report.note(f"added per launch after {kib} KiB", f"{added:.1f} ns",
                    f"{control:.1f} ns without the library, 0 by right; "
                    f"{median([one['direct_ns'] for one in sides['plain']]):.0f} ns in all")
        report.at_least("  eager step: with / without", 1 - EAGER_LAUNCHES * added / step_ns, 0.995,
                        "{:.4f}")


def warm_eager_rate(rig):
    small = ["--batch", 1, "--size", 32, "--warm", 2] if tiny(rig) else ["--batch", 8]
    warm = rig.start("eager-step", "networks.py", "--mode", "eager", *small, under="plain").ready()
    rate = max(warm.run(rig.scaled(1))["fast_steps_per_second"] for _ in range(3))
    warm.end()
    return rate


def run(rig, report: Report):
    o = rig.options
    wanted = set(o.only or ["gpt", "eager", "graph", "empty", "cold"])
    small = ["--batch", 1, "--size", 32, "--warm", 2]
    several = 1 if tiny(rig) else o.processes
    # A shared host's CPU wanders by tens of percent over seconds, and neighbours in time meet the
    # same. So launch-bound work takes turns every 60 ms. Such a process measures its CPU. It has
    # one for itself, and one for what else wants to run.
    sorts = {
        "eager": Sort("eager ResNet-50 batch 8", "networks.py",
                      ["--mode", "eager", *(small if tiny(rig) else ["--batch", 8])],
                      ",".join(cpus().split(",")[:2]), 1 if tiny(rig) else o.eager_processes,
                      o.eager_turns, 0.06, "fast_steps_per_second"),
        "gpt": Sort("GPT training", "gpt.py", training_arguments(rig), cpus(), several,
                    o.gpt_turns, 3, "steps_per_second"),
    }
    pairs = start_sorts(rig, "graph", "networks.py",
                        ["--mode", "graph", *(small if tiny(rig) else ["--batch", 4])],
                        several) if "graph" in wanted else []
    ready(pairs)
    for key, sort in sorts.items():
        if key not in wanted:
            continue
        rig.say(sort.what)
        # One sort after the other: together they don't fit into the memory.
        group = start_threes(rig, key, sort)
        ready([three.values() for three in group])
        run_threes(rig, report, key, sort, group)
        for three in group:
            for warm in three.values():
                warm.end()
    if pairs:
        what = "ResNet-50 graph replay"
        rig.say(what)
        turns = max(2, int(o.graph_pairs * o.scale))
        judge_ratio(report, what, "graph",
                    alternate(rig, pairs, turns, 1.0, "steps_per_second"))
        for pair in pairs:
            for warm in pair:
                warm.end()
    if "empty" in wanted:
        rig.say("empty kernel")
        run_empty(rig, report)
    if "cold" in wanted:
        rig.say("launches with cold caches")
        run_cold(rig, report)
