"""A GRPO loop with a vLLM engine in the trainer's process: the same course as natively, the cost.

The loop runs twice natively, and once under Switchyard with a quota and `--swappable`, in turns.
Its engine sleeps while the trainer works, and gets new weights after each step. In the last turn
the job is swapped out and in meanwhile. Where the native loop repeats itself, rewards, tokens and
losses must be its own to the last bit.
"""

import math

from rig import engines
from rig.report import Report, interval, median

TITLE = "A GRPO loop with an engine of its own"
QUOTA, LEAST_RATE, MOVES = 0.25, 0.99, 2
COURSE = ("reward", "tokens", "loss")


def arguments(parser):
    parser.add_argument("--shape", default="qwen3-0.6b", help="or tiny, qwen3-4b, llama-3.1-8b")
    parser.add_argument("--host-pool", default="48GiB", help="for what is swapped out")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=3, help="of a turn")


def course(iterations):
    return [tuple(each[name] for name in COURSE) for each in iterations]


def run(rig, report: Report):
    o = rig.options
    given = ("--shape", o.shape, "--cache-gib", 2, "--utilization", 0.05)
    how = {"native": {"under": "plain"}, "again": {"under": "plain"},
           "with": {"swappable": True, "memory": engines.part_of_gpu(rig, QUOTA)}}
    loops, said = [], {name: [] for name in how}
    report.keep(turns=said)
    with engines.none_stays(rig, loops):
        loops += [engines.Engine(rig, name, *given, script="vllm_grpo.py", **knobs)
                  for name, knobs in how.items()]
        for loop in loops:
            loop.ready()
        for _ in range(o.turns):
            for loop in loops:
                said[loop.name].append(loop.tell(120, iterations=o.iterations)["iterations"])
        with engines.moving(rig, "with", MOVES) as moved:
            last = loops[-1].tell(180, iterations=o.iterations)["iterations"]
        for loop in loops[:-1]:
            said[loop.name].append(loop.tell(120, iterations=o.iterations)["iterations"])
        said["with"].append(last)
        report.keep(moved=moved)
        ends = [engines.attempt(rig, loop.name, loop.end) for loop in loops]
    judge(report, said, moved, ends)


def judge(report, said, moved, ends):
    courses = {name: [each for turn in turns for each in course(turn)]
               for name, turns in said.items()}
    repeats = courses["native"] == courses["again"]
    same = sum(a == b for a, b in zip(courses["native"], courses["with"]))
    of = len(courses["native"])
    losses = [loss for *_, loss in courses["with"]]
    report.note("the native loop repeats itself", "yes" if repeats else "no")
    report.judge("iterations equal to the native loop's", f"{same} of {of}",
                 "all" if repeats else "not judged: natively they vary, too",
                 same == of or not repeats)
    report.judge("losses that are numbers", str(sum(map(math.isfinite, losses))), f"all of {of}",
                 all(map(math.isfinite, losses)))
    # The first turn warms up; in the last the job was moved.
    seconds = {name: [each["seconds"] for turn in turns[1:-1] for each in turn]
               for name, turns in said.items()}
    ratios = [mine / theirs for mine, theirs in zip(seconds["native"], seconds["with"])]
    report.at_least("iterations per second, with / without", median(ratios), LEAST_RATE)
    report.ends(interval(ratios), LEAST_RATE)
    both = [a / b for a, b in zip(seconds["native"], seconds["again"])]
    report.note("  without / without", f"{median(both):.3f}")
    report.note("swapped out and in meanwhile, s",
                ", ".join(f"{seconds:.2f}" for _, _, seconds, _ in moved))
    report.judge("clean ends", str([end or why for end, why in ends]), "all",
                 all(end == "clean" for end, _ in ends))
