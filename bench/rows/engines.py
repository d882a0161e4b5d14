"""An unmodified vLLM answers the same under Switchyard as without it, in each mode of both.

Each mode is an engine of its own: 200 requests, 16 of them in flight, then some one by one with an
empty prefix cache. Several engines start at once, and are asked one after another. All have the
same weights. `VLLM_BATCH_INVARIANT=1` is to keep the rest of a batch out of an answer, and does so
for most. So the native engine is asked twice. Where it does not repeat itself, only the requests
asked one by one are judged, because their batches are always the same.

A mode that fails loses nothing of the others. The end of its log is kept as engines-MODE.txt.
"""

from dataclasses import dataclass, field

from rig import engines
from rig.process import WorkloadFailed
from rig.report import Report, percentile
from rig.rig import RigError
from rows.latency import training_arguments

TITLE = "An unmodified vLLM engine, in each mode"
REQUESTS, ONE_BY_ONE, IN_FLIGHT = 200, 12, 16
MOST_LOGS, MOVES = 6, 2


@dataclass
class Mode:
    name: str
    act: str = "ask"
    under: str = "switchyard"
    arguments: tuple = ()
    knobs: dict = field(default_factory=dict)
    like: str = "native"  # whose answers they must be
    fixed_cache: bool = True  # without: as much as vLLM's own profiling finds


MODES = (
    (Mode("native", "twice", "plain"),
     Mode("native-again", under="plain"),
     Mode("native-eager", under="plain", arguments=("--eager",)),
     Mode("native-sleep", "doze", under="plain", arguments=("--sleep",)),
     Mode("run"),
     Mode("run-eager", arguments=("--eager",), like="native-eager"),
     Mode("one-process", arguments=("--one-process",)),
     Mode("memory", knobs={"memory": 0.15}, fixed_cache=False)),
    (Mode("swappable", "move", knobs={"swappable": True}),
     Mode("swap-quota", "move", knobs={"swappable": True, "memory": 0.1}),
     Mode("high", "beside", knobs={"priority": "high"}),
     Mode("gates", "gates", knobs={"priority": "high"}),
     Mode("sleep", "doze", arguments=("--sleep",), like="native-sleep"),
     Mode("sleep-quota", "doze", arguments=("--sleep",), knobs={"memory": 0.1},
          like="native-sleep")),
)


def arguments(parser):
    parser.add_argument("--shape", default="qwen3-0.6b", help="or tiny, qwen3-4b, llama-3.1-8b")
    parser.add_argument("--only", default="", help="only these modes, and native: run,memory")
    parser.add_argument("--variant", action="store_true", help="without VLLM_BATCH_INVARIANT")


def chosen(options):
    wanted = options.only.split(",") if options.only else None
    groups = [[mode for mode in group
               if not wanted or mode.name in ("native", *wanted)] for group in MODES]
    return [group for group in groups if group]


def start(rig, mode):
    more = (("--cache-gib", 2, "--utilization", 0.05) if mode.fixed_cache
            else ("--utilization", 0.85))
    knobs = dict(mode.knobs)
    if "memory" in knobs:
        knobs["memory"] = engines.part_of_gpu(rig, knobs["memory"])
    return engines.Engine(rig, mode.name, "--shape", rig.options.shape, *more, *mode.arguments,
                          under=mode.under, invariant=not rig.options.variant, **knobs)


def ask(rig, engine):
    """The crowd, then one by one."""
    answers = engine.ask(90, requests=rig.counted(REQUESTS), in_flight=IN_FLIGHT, clear=True)
    alone = engine.ask(60, requests=ONE_BY_ONE, in_flight=1, seed=2, clear=True)
    return {"crowd": answers, "alone": alone}


def twice(rig, engine):
    first = ask(rig, engine)
    return {**first, "again": ask(rig, engine)}


def move(rig, engine):
    """Swapped out and in while requests are in flight; the times of the crowd have that in them."""
    with engines.moving(rig, engine.name, MOVES) as moved:
        answers = ask(rig, engine)
    return {**answers, "moved": moved}


def beside(rig, engine):
    low = rig.start(f"low-{engine.name}", "gpt.py", *training_arguments(rig), priority="low")
    try:
        low.ready()
        low.start()
        answers = ask(rig, engine)
        trained = low.stop()
    finally:
        low.end()
    return {**answers, "low_steps_per_second": trained["steps_per_second"]}


def gates(rig, engine):
    rig.means("gate")
    try:
        return beside(rig, engine)
    finally:
        rig.means("auto")


def doze(rig, engine):
    before = ask(rig, engine)
    slept = engine.tell(sleep=1)["seconds"]
    woken = engine.tell(wake=True)["seconds"]
    return {**ask(rig, engine), "before": before, "sleep_seconds": slept, "wake_seconds": woken}


ACTS = {"ask": ask, "twice": twice, "move": move, "beside": beside, "gates": gates, "doze": doze}


def play(rig, group, cells):
    """Starts a group at once; asks one engine after another; ends all."""
    started = [(mode, start(rig, mode)) for mode in group]
    try:
        for mode, engine in started:
            play_one(rig, mode, engine, cells)
    finally:
        for _, engine in started:
            engine.abandon()


def play_one(rig, mode, engine, cells):
    cell = cells[mode.name] = {"mode": mode, "failure": "", "end": ""}

    def whole():
        cell["about"] = engine.ready()
        rig.say(f"{mode.name} is up: {cell['about']}")
        cell.update(ACTS[mode.act](rig, engine))
        return engine.end()

    ended, why = engines.attempt(rig, mode.name, whole)
    cell["failure"], cell["end"] = why, ended or ""
    if ended != "clean":
        engine.abandon()
        if sum(each["end"] != "clean" for each in cells.values()) <= MOST_LOGS:
            engines.keep_log(rig, mode.name)
    rig.say(f"{mode.name}: {why or ended}")


def equal(cell, other, part):
    """(equal answers, compared)"""
    both = list(zip(cell[part]["digests"], other[part]["digests"]))
    return sum(a == b for a, b in both), len(both)


def repeats(cells, name):
    """Whether an engine of the native sort answers the same in another order of batches."""
    cell = cells.get("native", {})
    if "again" not in cell:
        return False
    same, of = equal(cell, cell["again"], "crowd")
    return same == of


def show(values):
    return f"{percentile(values, 0.5):.1f}/{percentile(values, 0.99):.1f}" if values else "-"


def judge(report, cells):
    whole = repeats(cells, "native")
    for name, cell in cells.items():
        reference = cells.get(cell["mode"].like, {})
        if cell["failure"]:
            report.judge(name, cell["failure"][:60], "no failure", False)
            continue
        crowd = cell["crowd"]
        figures = (f"{crowd['tokens_per_second']:.0f} tok/s {show(crowd['first_ms'])} "
                   f"{show(crowd['token_ms'])} {cell['end']}")
        if "crowd" not in reference:
            report.judge(name, "not compared", figures, False)
            continue
        parts = [part for part in (cell, cell.get("before"), cell.get("again")) if part]
        same = {part: [equal(each, reference, part) for each in parts]
                for part in ("crowd", "alone")}
        judged = same["crowd"] + same["alone"] if whole else same["alone"]
        good = all(a == b for a, b in judged) and cell["end"] == "clean"
        report.judge(name, " ".join(f"{sum(a for a, _ in each)}/{sum(b for _, b in each)}"
                                    for each in same.values()), figures, good)


def run(rig, report: Report):
    cells = {}
    report.keep(cells=cells)
    for group in chosen(rig.options):
        try:
            play(rig, group, cells)
        except RigError as error:  # the time is over: what there is is judged
            rig.say(f"{error}")
            report.judge("time", "over", f"{rig.options.limit:.0f} s", False)
            break
    report.note("mode", "equal: crowd, one by one", "first ms p50/p99, each later ms, end")
    judge(report, cells)
