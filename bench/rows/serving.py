"""Services that wait for their CPU, and some that don't, beside three sorts of low work.

Services: a language model in eager mode and by CUDA graphs (first token, time per token), ResNet-50
in eager mode (batch 1), and `latency`'s replay. Low: GPT training, ResNet-50 training and copies.
Each service is asked alone, by the driver's default, under Switchyard (the same warm processes,
alternated) and, beside the first low, under MPS (its own). With `--by-slices` Switchyard also
serves without foreseen waits, so that one run compares both rules. Requests come one at a time,
each a random pause after the answer to the last. No job is ever to be worse off than by default.

The eager model answers with few tokens and has longer cells, because a 99th percentile of first
tokens needs many of them. The longest are beside GPT, where a bound holds for it.
"""

import time

from rig.process import WorkloadFailed, rate_between
from rig.report import Report, median, percentile
from rig.rig import RigError
from rows.latency import tiny, training_arguments

TITLE = "Services that wait for their CPU, beside low work"
# name, script, arguments, seconds between an answer and the next request, how long its cells are
# beside the others'
SERVICES = (
    ("lm-eager", "language.py", ["--mode", "eager", "--out", 8], 0.03, 2),
    ("lm-graph", "language.py", ["--mode", "graph"], 0.03, 1),
    ("resnet-eager", "networks.py", ["--mode", "eager", "--batch", 1], 0.01, 1),
    ("resnet-graph", "networks.py", ["--mode", "graph", "--batch", 4], 0.018, 1),
)
# name, script, arguments, how long the cells beside it are
LOWS = (
    ("gpt", "gpt.py", [], 1.3),
    ("resnet", "networks.py", ["--mode", "train", "--batch", 256], 1),
    ("copies", "copies.py", ["--mode", "saturate", "--bytes", 32 << 20], 0.6),
)
METRICS = ("first_ms", "token_ms", "latencies_ms")


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=2.5,
                        help="of a cell; those of the eager model, and beside GPT, are longer")
    parser.add_argument("--settle", type=float, default=1.5, help="before them, uncounted")
    parser.add_argument("--services", default="", help="only these, such as lm-eager,lm-graph")
    parser.add_argument("--lows", default="", help="only these, such as gpt")
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--slices", action="store_true",
                        help="one more column: Switchyard by slices alone, without gates")
    parser.add_argument("--by-slices", action="store_true",
                        help="one more column: Switchyard without foreseen waits")


def chosen(all_of_them, names):
    wanted = names.split(",") if names else [each[0] for each in all_of_them]
    return [each for each in all_of_them if each[0] in wanted]


def sizes(rig, script, given):
    if not tiny(rig):
        return given
    if script == "gpt.py":
        return training_arguments(rig)
    if script == "language.py":
        return [*given, "--layers", 1, "--width", 64, "--heads", 8, "--vocabulary", 100,
                "--length", 16, "--out", 4]
    return [*given[:2], "--batch", 1, "--size", 32, "--warm", 2]


def start(rig, under="switchyard", suffix="", hold=False):
    """({service: process}, {low: process}), not yet ready."""
    services = {name: rig.start(name + suffix, script, *sizes(rig, script, given), under=under,
                                hold=hold, priority="high")
                for name, script, given, *_ in chosen(SERVICES, rig.options.services)}
    lows = {name: rig.start(name + suffix, script, *sizes(rig, script, given), under=under,
                            hold=hold, priority="low")
            for name, script, given, _ in chosen(LOWS, rig.options.lows)
            if not tiny(rig) or script != "copies.py"}
    return services, lows


def ready(rig, processes):
    """Without those that could not start: a service that this machine lacks is left out."""
    for name, warm in list(processes.items()):
        try:
            warm.ready(150)
        except WorkloadFailed as failure:
            rig.say(f"{name} is left out: {failure}")
            del processes[name]


def ask(rig, name, service, part=1.0):
    think, longer = next(each[3:] for each in SERVICES if each[0] == name)
    return service.converse(rig.scaled(part * longer * rig.options.seconds), think, seed=1,
                            settle=rig.scaled(rig.options.settle))


def beside(rig, services, low, keys, cells, part=1.0):
    """All services beside one low, which runs all the while. `keys`: each column, and the commands
    that put it in force."""
    low_name = low.name.removesuffix("-mps")
    part *= next(each[3] for each in LOWS if each[0] == low_name)
    low.start()
    begun = []
    try:
        for name, service in services.items():
            for key, commands in keys:
                for command in commands:
                    rig.cli(*command)
                rig.say(f"{name} beside {low.name}: {key}")
                cell = ask(rig, name, service, part)
                cells[name][low_name][key] = cell
                begun.append(cell)
    finally:
        trained = low.stop()
    for cell in begun:
        cell["low"] = rate_between(trained, cell["begun"], cell["ended"])


def run_mps(rig, pair, cells):
    if not rig.start_mps():
        rig.say("no MPS control daemon here: its cells are left out")
        return
    everybody = [warm for part in pair for warm in part.values()]
    for warm in everybody:
        warm.send(init=True)
    for part in pair:
        ready(rig, part)
    services, lows = pair
    for low in list(lows.values())[:1]:
        beside(rig, {name: each for name, each in services.items() if name in cells}, low,
               [("mps", [])], cells, 0.7)


def measure(rig, cells, solo):
    services, lows = start(rig)
    mps = None if rig.options.no_mps else start(rig, "mps", "-mps", hold=True)
    for part in (services, lows, *(mps or ())):
        ready(rig, part)  # under MPS: holding
    for name in services:
        cells[name] = {"alone": [], **{low: {} for low in lows}}

    columns = [(key, [["backend", means], ["policy", "--waits", waits]])
               for key, means, waits in (("default", "none", "foreseen"),
                                         ("slices", "slice", "foreseen"),
                                         ("by_slices", "auto", "slices"),
                                         ("switchyard", "auto", "foreseen"))
               if getattr(rig.options, key, True)]

    def alone():
        for name, service in services.items():
            rig.say(f"{name} alone")
            cells[name]["alone"].append(ask(rig, name, service, 0.6))

    alone()
    for name, low in lows.items():
        rig.say(f"{name} alone")
        solo[name] = low.run(rig.scaled(3))["steps_per_second"]
        beside(rig, services, low, columns, cells)
    alone()
    if mps:
        try:
            run_mps(rig, mps, cells)
        except (WorkloadFailed, RigError) as failure:  # a comparison: the rest stands without it
            rig.say(f"MPS: {failure}")
    # Last: the profiler stays in the process.
    return {name: service.ask(do="kernel_ms")["kernel_ms"] for name, service in services.items()}


def values(cells, metric):
    return [value for cell in cells for value in cell.get(metric, [])]


def figures(cells, metric):
    got = values(cells, metric)
    return (median(got), percentile(got, 0.99)) if got else None


def metrics_of(cell):
    return [metric for metric in METRICS if cell.get(metric)
            and (metric != "latencies_ms" or "token_ms" not in cell)]


def show(pair):
    return f"{pair[0]:.2f}/{pair[1]:.2f}"


def others(cell, solo):
    return "".join(f", {key} {each['low'] / solo:.3f}" for key, each in cell.items()
                   if key not in ("default", "switchyard"))


def judge_cell(report, name, low, cell, alone, solo, kernel_ms):
    ours, default = cell["switchyard"], cell["default"]
    for metric in metrics_of(ours):
        got = {key: figures([each], metric) for key, each in cell.items()}
        by_default, mine = got["default"], got["switchyard"]
        bad = max(mine[0] / by_default[0], mine[1] / by_default[1])
        report.judge(f"{name} {metric} beside {low}",
                     f"{show(mine)} of {len(values([ours], metric))}",
                     "at most 1.02 x default: "
                     + ", ".join(f"{key} {show(each)}" for key, each in got.items()
                                 if key != "switchyard" and each)
                     + f"; alone {show(figures(alone, metric))}", bad <= 1.02)
    used = kernel_ms * ours["requests"] / 1e3 / (ours["ended"] - ours["begun"])
    left = min(default["low"] / solo, 1 - used)
    report.at_least(f"{name}: {low}, part of solo (default {default['low'] / solo:.3f}, "
                    f"left {1 - used:.3f}{others(cell, solo)})",
                    ours["low"] / solo, 0.97 * left)


def judge_promises(report, cells):
    """Eager beside GPT against alone, and by CUDA graphs."""
    for name, judge in (("lm-eager", lambda a, o: (o[0] <= 1.02 * a[0] and o[1] <= 1.05 * a[1])),
                        ("lm-graph", lambda a, o: o[1] <= a[1] + 0.2)):
        if name not in cells or "switchyard" not in cells[name].get("gpt", {}):
            continue
        alone = figures(cells[name]["alone"], "token_ms")
        ours = figures([cells[name]["gpt"]["switchyard"]], "token_ms")
        report.judge(f"{name} token_ms beside gpt", show(ours),
                     f"alone {show(alone)}: p50 1.02 x and p99 1.05 x" if name == "lm-eager"
                     else f"alone {show(alone)}: p99 at most 0.2 ms more", judge(alone, ours))
        if name == "lm-eager":
            alone = figures(cells[name]["alone"], "first_ms")
            ours = figures([cells[name]["gpt"]["switchyard"]], "first_ms")
            report.judge("lm-eager first_ms beside gpt", show(ours),
                         f"alone {show(alone)}: p99 1.05 x", ours[1] <= 1.05 * alone[1])


def judge_tokens(report, cells):
    """Every cell of a service has the same requests in the same order; some have fewer."""
    wrong, compared = 0, 0
    for kinds in cells.values():
        everywhere = [*kinds["alone"], *(cell for kind, columns in kinds.items()
                                         if kind != "alone" for cell in columns.values())]
        answers = [cell["tokens"] for cell in everywhere if "tokens" in cell]
        for other in answers[1:]:
            both = min(len(answers[0]), len(other))
            compared += both
            wrong += sum(a != b for a, b in zip(answers[0][:both], other[:both]))
    report.judge("answers that differ from the first cell's", f"{wrong} of {compared}", "none",
                 wrong == 0)


def run(rig, report: Report):
    cells, solo = {}, {}
    report.keep(cells=cells, solo=solo)
    kernel_ms = measure(rig, cells, solo)
    report.keep(kernel_ms=kernel_ms)
    for name, kinds in cells.items():
        report.note(f"{name}: GPU time of a request", f"{kernel_ms[name]:.2f} ms")
        for low in solo:
            if {"default", "switchyard"} <= kinds[low].keys():
                judge_cell(report, name, low, kinds[low], kinds["alone"], solo[low],
                           kernel_ms[name])
    judge_promises(report, cells)
    judge_tokens(report, cells)
