"""A vLLM engine of several GPUs: the same tokens as natively, the cost, and swaps.

The GPUs are ranks of one model, or with `--replicas` replicas of it behind one front end. One
engine runs natively and one under Switchyard, with `--swappable`, on the same GPUs. They are asked
in turns. Ranks exchange by vLLM's own all-reduce, whose buffers other ranks have mapped. These stay
on the GPU when the engine is swapped out, and the row says how much that is. Answers are compared
where one request is in flight, because a crowd's batches differ from run to run.
"""

from rig import engines, ranks
from rig.report import Report, interval, median

TITLE = "A vLLM engine of several GPUs"
LEAST_RATE, ONE_BY_ONE = 0.995, 12


def arguments(parser):
    parser.add_argument("--shape", default="qwen3-4b", help="or tiny, qwen3-0.6b, llama-3.1-8b")
    parser.add_argument("--ranks", type=int, default=2, help="or replicas")
    parser.add_argument("--replicas", action="store_true", help="data-parallel")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--moves", type=int, default=2, help="swapped out and in")


def turn(rig, engine):
    crowd = engine.ask(90, requests=rig.counted(64), in_flight=16, out=64, clear=True)
    alone = engine.ask(90, requests=ONE_BY_ONE, in_flight=1, seed=2, clear=True)
    return {"rate": crowd["tokens_per_second"], "digests": alone["digests"],
            "first_ms": median(alone["first_ms"])}


def moved(rig, engine):
    """Bytes that stayed on each GPU, and seconds of both ways, of each move."""
    out = []
    for _ in range(rig.options.moves):
        seconds = [rig.timed("swap-out", engine.name)]
        stays = [gpu["memory_resident_bytes"] for gpu in rig.job(engine.name)["gpus"]]
        seconds.append(rig.timed("swap-in", engine.name))
        out.append({"seconds": seconds, "stays": stays})
    return out


def run(rig, report: Report):
    o = rig.options
    if o.device == "cuda":
        ranks.one_gpu_each(o.ranks)
    report.row += "-replicas" * o.replicas  # a file of its own
    given = ("--shape", o.shape, "--cache-gib", 2, "--utilization", 0.05,
             "--replicas" if o.replicas else "--parallel", o.ranks)
    pair = {"plain": engines.Engine(rig, "plain", *given, under="plain"),
            "with": engines.Engine(rig, "with", *given, swappable=True)}
    turns = {name: [] for name in pair}
    report.keep(turns=turns)
    with engines.none_stays(rig, pair.values()):
        for name, engine in pair.items():
            rig.say(f"{name} is up: {engine.ready()}")
            turn(rig, engine)  # it compiles
        for number in range(o.rounds):
            for name in sorted(pair, reverse=number % 2 == 1):
                turns[name].append(turn(rig, pair[name]))
        moves = moved(rig, pair["with"]) if o.moves and o.device == "cuda" else []
        after = turn(rig, pair["with"])
        ends = [engines.attempt(rig, name, engine.end) for name, engine in pair.items()]
    judge(report, turns, moves, after, ends)


def judge(report, turns, moves, after, ends):
    reference = turns["plain"][0]["digests"]
    said = [digest for each in (*turns["with"], after) for digest in each["digests"]]
    equal = sum(a == b for a, b in zip(said, reference * (len(said) // len(reference))))
    report.judge("answers equal to the native engine's", f"{equal} of {len(said)}", "all",
                 equal == len(said))
    natively = [each["digests"] == reference for each in turns["plain"]]
    report.note("  the native engine repeats its own", f"{sum(natively)} of {len(natively)} rounds")
    ratios = [a["rate"] / b["rate"] for a, b in zip(turns["with"], turns["plain"])]
    report.at_least("tokens per second, with / without", median(ratios), LEAST_RATE)
    report.ends(interval(ratios), LEAST_RATE)
    firsts = [a["first_ms"] / b["first_ms"] for a, b in zip(turns["with"], turns["plain"])]
    report.note("first token, with / without", f"{median(firsts):.3f}")
    if moves:
        report.keep(moves=moves)
        report.note("swapped out and in, s", ", ".join("{:.2f} {:.2f}".format(*each["seconds"])
                                                       for each in moves))
        report.note("  stays on each GPU, MiB", ", ".join(str(each >> 20)
                                                          for each in moves[0]["stays"]))
    report.judge("clean ends", str([end or why for end, why in ends]), "all",
                 all(end == "clean" for end, _ in ends))
