"""Two vLLM engines that start at once, each in its quota, both get the cache that they ask for.

vLLM measures free memory while it starts, and takes nearly all that it sees. Each engine sees its
quota of 45 % of the GPU as its GPU. So its cache must be that of an engine that starts alone in the
same quota. A third job takes and frees memory all the while, within what is left.
"""

import time

from rig import engines
from rig.process import BENCH, python
from rig.report import Report

TITLE = "Two engines that start at once, each in its quota"
QUOTA, NEIGHBOURS, LEAST = 0.45, 0.04, 0.98
CHURNS = 2000


def arguments(parser):
    parser.add_argument("--shape", default="qwen3-4b", help="or tiny, qwen3-0.6b, llama-3.1-8b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-neighbour", action="store_true", help="without the third job")


def start(rig, name):
    return engines.Engine(rig, name, "--shape", rig.options.shape, "--utilization", 0.9,
                          invariant=False, memory=engines.part_of_gpu(rig, QUOTA))


def up(rig, engine):
    """Its own words about itself, once it has answered a request as well."""
    about = engine.ready()
    engine.ask(60, requests=8, in_flight=8, out=8)
    return about


def together(rig, names):
    """[(its words about itself, why it failed, how it ended)] of engines started at once."""
    begun = time.monotonic()
    started = [start(rig, name) for name in names]
    said = []
    try:
        for engine in started:
            about, why = engines.attempt(rig, engine.name, lambda engine=engine: up(rig, engine))
            said.append([about, why, ""])
            rig.say(f"{engine.name}: {why or about} after {time.monotonic() - begun:.0f} s")
            if why:
                engines.keep_log(rig, engine.name)
        for each, engine in zip(said, started):
            if not each[1]:
                each[2], each[1] = engines.attempt(rig, engine.name, engine.end)
    finally:
        for engine in started:
            engine.abandon()
    return said


def churning(rig):
    """A job that takes and frees memory until it is ended."""
    job = rig.start_program("neighbour", [python(), BENCH / "checks" / "churn.py", "driver"],
                            memory=engines.part_of_gpu(rig, NEIGHBOURS))
    job.ready()
    for _ in range(CHURNS):
        job.send(churn=True)
    return job


def run(rig, report: Report):
    rounds = []
    (alone, why, _), = together(rig, ["alone"])
    report.keep(alone=alone, rounds=rounds)
    if why:
        report.judge("an engine alone in its quota", why[:60], "no failure", False)
        return
    report.note("an engine alone in its quota", f"{alone['blocks']} blocks",
                f"up after {alone['start_seconds']:.0f} s")
    neighbour = None
    if not rig.options.no_neighbour and rig.options.device == "cuda":
        neighbour = churning(rig)
    for number in range(rig.options.rounds):
        rounds.append(together(rig, [f"engine-{number}-{side}" for side in "ab"]))
    if neighbour:
        neighbour.end(0)
    everyone = [each for both in rounds for each in both]
    blocks = [about["blocks"] for about, why, _ in everyone if about and not why]
    good = [each for each in blocks if each >= LEAST * alone["blocks"]]
    report.judge("engines with the cache they ask for", f"{len(good)} of {len(everyone)}", "all",
                 len(good) == len(everyone))
    report.note("  blocks", " ".join(map(str, blocks)))
    ends = [end for _, _, end in everyone]
    report.judge("clean ends", f"{ends.count('clean')} of {len(ends)}", "all",
                 ends.count("clean") == len(ends))
    for failure in sorted({why for _, why, _ in everyone if why})[:2]:
        report.note("  failed", failure[:80])
