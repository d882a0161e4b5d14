"""Two vLLM engines of one model on one GPU, each way of sharing it, in a closed loop.

Each has so many requests in flight, 2048 tokens in and 256 out. One engine with the GPU to itself
and as many requests is "own". A figure is what both do together, over twice that. Default and
slices are the same warm engines. The island's engines are a pair of their own. The fractions of MPS
come last, each engine with half of the GPU's processors.

In `one` an engine is high and the other low, by slices. The high one's first token is judged
against alone.
"""

import threading
import time

from rig import engines
from rig.process import WorkloadFailed
from rig.report import Report, percentile
from rig.rig import ACTIVITY_WINDOW

TITLE = "Two vLLM engines on one GPU"
LENGTH, OUT_TOKENS = 2048, 256
POINTS = 0.04  # that an island has to be above the fractions of MPS, of a GPU of their own
MOST_FIRST = 1.1
COMMON = ("--longest", LENGTH + OUT_TOKENS + 64, "--batched", 2048, "--utilization", 0.05)


def arguments(parser):
    parser.add_argument("--shape", default="qwen3-4b", help="or tiny, qwen3-0.6b, llama-3.1-8b")
    parser.add_argument("--in-flight", default="2,4,8,16", help="requests; 32 needs 12 GiB more")
    parser.add_argument("--cache-gib", type=float, default=6, help="of each engine")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-mps", action="store_true")


def start(rig, sort, **how):
    return [engines.Engine(rig, f"{sort}-{side}", "--shape", rig.options.shape, "--cache-gib",
                           rig.options.cache_gib, *COMMON, invariant=False, **how)
            for side in "ab"]


def ready(rig, pair):
    for engine in pair:
        rig.say(f"{engine.name} is up: {engine.ready()}")


def ask(rig, engine, in_flight, seed):
    requests = in_flight * max(2, 8 // in_flight)
    return engine.ask(150, requests=rig.counted(requests) if rig.options.scale < 1 else requests,
                      in_flight=in_flight, length=LENGTH, out=OUT_TOKENS, seed=seed, clear=True,
                      fresh=True)


def both(rig, pair, in_flight, seed):
    """What each says of one conversation at the same time."""
    said, failed = [None, None], []

    def one(at, engine):
        try:
            said[at] = ask(rig, engine, in_flight, 2 * seed + at)
        except WorkloadFailed as failure:
            failed.append(failure)

    threads = [threading.Thread(target=one, args=each) for each in enumerate(pair)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return said


def rate(cell):
    return sum(each["tokens_per_second"] for each in cell)


def note(cells, system, in_flight, cell):
    cells.setdefault(system, {}).setdefault(in_flight, []).append(cell)


def numbers(rig):
    return [int(each) for each in rig.options.in_flight.split(",")]


def measure(rig, plain, island, cells):
    for seed in range(1, rig.options.rounds + 1):
        for count in numbers(rig):
            rig.means("auto")
            note(cells, "own", count, [ask(rig, plain[0], count, 2 * seed)])
            for system, pair, means in (("default", plain, "none"), ("slices", plain, "auto"),
                                        ("island", island, "auto")):
                if pair is None:
                    continue
                rig.say(f"{system}, {count} in flight, round {seed}")
                rig.means(means)
                note(cells, system, count, both(rig, pair, count, seed))
            rig.set(plain[0].name, priority="high")
            rig.set(plain[1].name, priority="low")
            time.sleep(rig.scaled(ACTIVITY_WINDOW))
            note(cells, "one", count, both(rig, plain, count, seed))
            for engine in plain:
                rig.set(engine.name, priority="normal")
    rig.means("auto")


def by_fractions(rig, cells):
    if not rig.start_mps():
        return rig.say("no MPS control daemon here: its cells are left out")
    pair = start(rig, "mps", under="mps", more={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": 50})
    try:
        ready(rig, pair)
        for engine in pair:
            ask(rig, engine, max(numbers(rig)), 1)
        for seed in range(1, rig.options.rounds + 1):
            for count in numbers(rig):
                rig.say(f"mps, {count} in flight, round {seed}")
                note(cells, "mps", count, both(rig, pair, count, seed))
    except WorkloadFailed as failure:  # it is a comparison: the others' figures stand
        rig.say(f"MPS: {failure}")
    finally:
        for engine in pair:
            engine.abandon()
        rig.stop_mps()


def best(cells):
    """The median over rounds, of an even number the upper one."""
    return percentile([rate(cell) for cell in cells], 0.5)


def judge(report, cells, count):
    own = best(cells["own"][count])
    part = {system: best(kinds[count]) / own / 2 for system, kinds in cells.items()
            if system != "own" and count in kinds}
    report.note(f"{count} in flight: of a GPU of their own",
                ", ".join(f"{system} {value:.3f}" for system, value in part.items()),
                f"one alone {own:.0f} tokens/s")
    if {"island", "mps"} <= part.keys():
        report.at_least("  island", part["island"], part["mps"] + POINTS)
    first = [percentile([value for cell in cells[system][count] for value in cell[0]["first_ms"]],
                        0.5) for system in ("one", "own")]
    report.at_most("  first token of a high one over alone", first[0] / first[1], MOST_FIRST)


def run(rig, report: Report):
    cells = {}
    report.keep(cells=cells)
    environment = rig.island_environment()
    plain = start(rig, "plain")
    island = start(rig, "island", co_run=True, more=environment) if environment else None
    started = [*plain, *(island or ())]
    with engines.none_stays(rig, started):
        ready(rig, started)
        for engine in started:
            ask(rig, engine, max(numbers(rig)), 1)  # the first one has kernels to compile
        measure(rig, plain, island, cells)
    if not rig.options.no_mps and rig.options.device == "cuda":
        by_fractions(rig, cells)
    for count in numbers(rig):
        judge(report, cells, count)
