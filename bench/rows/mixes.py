"""Servers that wait for their CPU, where there is more than one of a sort, or no slices.

An eager language model beside three GPT trainings of batch 4, and two such models beside one
training. One beside one by gates alone (`backend gate`), and, with `--mps`, under an MPS daemon.
Each by the driver's default and under Switchyard, on the same warm processes. Bounds as in
`serving`.
"""

from rig.process import rate_between
from rig.report import Report
from rows import serving
from rows.latency import tiny, training_arguments

TITLE = "Eager servers: several trainings, two servers, gates alone"
ANSWER = ["--mode", "eager", "--out", 8]
# name, how many servers, how many trainings, what Switchyard may use
MIXES = (("one server, three trainings", 1, 3, "auto"),
         ("two servers, one training", 2, 1, "auto"),
         ("gates alone", 1, 1, "gate"))


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=6, help="of a cell")
    parser.add_argument("--settle", type=float, default=2, help="before it, uncounted")
    parser.add_argument("--mps", action="store_true", help="also under an MPS daemon")
    parser.set_defaults(think=0.03)


def training(rig, name, under):
    size = training_arguments(rig) if tiny(rig) else ["--batch", 4]
    return rig.start(name, "gpt.py", *size, under=under, priority="low")


def start(rig, servers, trainings, under="switchyard", suffix=""):
    highs = [rig.start(f"server-{i}{suffix}", "language.py",
                       *serving.sizes(rig, "language.py", ANSWER), under=under, priority="high")
             for i in range(servers)]
    lows = [training(rig, f"train-{i}{suffix}", under) for i in range(trainings)]
    for warm in (*highs, *lows):
        warm.ready(150)
    return highs, lows


def ask(rig, highs, part=1.0):
    """One conversation with each server, at the same time, as one cell."""
    o = rig.options
    seconds, settle = rig.scaled(part * o.seconds), rig.scaled(o.settle)
    for seed, high in enumerate(highs, 1):
        high.send(converse={"seconds": seconds, "think": o.think, "seed": seed, "settle": settle})
    answers = [high.receive(seconds + settle + 60) for high in highs]
    cell = {metric: serving.values(answers, metric) for metric in ("first_ms", "token_ms")}
    return {**cell, "requests": sum(each["requests"] for each in answers),
            "begun": max(each["begun"] for each in answers),
            "ended": min(each["ended"] for each in answers)}


def beside(rig, highs, lows, columns):
    cells = {}
    for low in lows:
        low.start()
    try:
        for key, means in columns:
            rig.means(means)
            rig.say(key)
            cells[key] = ask(rig, highs)
            cells[key]["status"] = rig.listing("status")["gpus"][0]["yield_reason"]
    finally:
        rig.means("auto")
        for low in lows:
            low.send(stop=True)
        trained = [low.receive(60) for low in lows]
    for cell in cells.values():
        cell["lows"] = [rate_between(each, cell["begun"], cell["ended"]) for each in trained]
        cell["low"] = sum(cell["lows"])
    return cells


def judge(report, name, cell, alone, solo, kernel_ms):
    serving.judge_cell(report, name, "gpt", cell, alone, solo, kernel_ms)
    report.note(f"{name}: lows, steps/s",
                "; ".join(f"{key} " + " / ".join(f"{rate:.1f}" for rate in cell[key]["lows"])
                          for key in ("default", "switchyard")), cell["switchyard"]["status"])


def run(rig, report: Report):
    highs, lows = start(rig, 2, 3)
    cells = {}
    report.keep(cells=cells)
    alone = [ask(rig, highs[:1], 0.6)]
    together = [ask(rig, highs, 0.6)]
    solo = lows[0].run(rig.scaled(3))["steps_per_second"]
    for name, servers, trainings, means in MIXES:
        rig.say(name)
        cells[name] = beside(rig, highs[:servers], lows[:trainings],
                             [("default", "none"), ("switchyard", means)])
    if rig.options.mps and rig.start_mps():
        rig.say("under MPS")
        pair = start(rig, 1, 1, "both", "-mps")
        cells["under MPS"] = beside(rig, *pair, [("default", "none"), ("switchyard", "auto")])
    alone.append(ask(rig, highs[:1], 0.6))
    kernel_ms = highs[0].ask(do="kernel_ms")["kernel_ms"]
    report.note("GPU time of a request", f"{kernel_ms:.2f} ms")
    for name, cell in cells.items():
        judge(report, name, cell, together if "two" in name else alone, solo, kernel_ms)
