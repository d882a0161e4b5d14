"""The cost of the preload library to an unmodified vLLM engine that is alone.

Engines with and without the library are up at the same time. Only one is asked at a time, in the
order A B B A. Two processes of one program differ by a percent, so there are two of
each sort. Tokens per second have 16 requests in flight; the first token is that of requests that
come one by one. Both have CUDA graphs.
"""

from rig import engines
from rig.report import Report, interval, median

TITLE = "The cost of the library to an engine that is alone"
LEAST_RATE, MOST_FIRST = 0.995, 1.01


def arguments(parser):
    parser.add_argument("--shape", default="qwen3-4b", help="or tiny, qwen3-0.6b, llama-3.1-8b")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--engines", type=int, default=2, help="of each sort")
    parser.add_argument("--requests", type=int, default=64, help="of one turn")
    parser.add_argument("--firsts", type=int, default=24, help="requests one by one of a turn")


def turn(rig, engine):
    o = rig.options
    many = engine.ask(90, requests=rig.counted(o.requests), in_flight=16, out=64, clear=True)
    single = engine.ask(60, requests=rig.counted(o.firsts), in_flight=1, out=8, seed=2, clear=True)
    return {"engine": engine.name, "rate": many["tokens_per_second"],
            "first_ms": median(single["first_ms"]), "token_ms": median(many["token_ms"]),
            "digests": many["digests"]}


def compare(report, turns, key, title, bound):
    """`bound` judges the quotient of the medians, with / without; the control is of one sort."""
    by = {sort: [each[key] for each in turns if each["engine"].startswith(sort)]
          for sort in ("with", "plain")}
    ratio = median(by["with"]) / median(by["plain"])
    pairs = [a / b for a, b in zip(by["with"], by["plain"])]
    bound(f"{title}, with / without", ratio)
    report.ends(interval(pairs), LEAST_RATE if key == "rate" else MOST_FIRST,
                f"{median(by['with']):.2f} / {median(by['plain']):.2f}")
    each = {name: median([turn[key] for turn in turns if turn["engine"] == name])
            for name in sorted({turn["engine"] for turn in turns})}
    report.note("  each engine", " ".join(f"{value:.2f}" for value in each.values()))


def run(rig, report: Report):
    o = rig.options
    started, turns = [], []
    report.keep(turns=turns)
    with engines.none_stays(rig, started):
        for number in range(o.engines):
            for sort, under in (("with", "switchyard"), ("plain", "plain")):
                started.append(engines.Engine(
                    rig, f"{sort}-{number}", "--shape", o.shape, "--cache-gib", 4,
                    "--utilization", 0.05, under=under, invariant=False))
        for engine in started:
            rig.say(f"{engine.name} is up: {engine.ready()}")
        for engine in started:
            turn(rig, engine)  # the first one has kernels to compile
        for number in range(o.rounds):
            for engine in started if number % 2 == 0 else reversed(started):
                turns.append(turn(rig, engine))
                rig.say(f"{engine.name}: {turns[-1]['rate']:.0f} tok/s, first "
                        f"{turns[-1]['first_ms']:.2f} ms")
    compare(report, turns, "rate", "tokens per second",
            lambda what, ratio: report.at_least(what, ratio, LEAST_RATE))
    compare(report, turns, "first_ms", "first token",
            lambda what, ratio: report.at_most(what, ratio, MOST_FIRST))
    compare(report, turns, "token_ms", "time per token", lambda what, ratio: report.note(
        what, f"{ratio:.3f}"))
