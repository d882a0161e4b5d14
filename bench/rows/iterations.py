"""`switchyard stats` says how many iterations a second a training makes: is it right, and what does
it cost?

A training of each sort counts its own steps; `stats` is asked over the same seconds. No framework
helps it: it sees launches only. ddp and fsdp2 are trainings of two ranks; what `stats` says of their
communication is noted. With --cost the rates while somebody asks and while nobody does alternate, in
one process. The monitor measures for a minute after each question, so that takes about a minute
a pair.
"""

import bisect
import json
import time

from rig import ranks
from rig.report import Report, interval, median

TITLE = "Iterations per second, by stats and by the script"
MODES = ("plain", "resnet", "graph", "compile")
OF_RANKS = ("ddp", "fsdp2")
MOST_OFF, LEAST_RATE = 0.01, 0.995
ASKED_FOR = 61  # seconds; monitor/statistics/progress.h and communication.h
SAID = ("communication_state", "communication_ratio", "communication_hidden_ratio",
        "communication_peers_ratio", "communication_ranks", "waited_for_rank", "slowest_rank")


def modes_of(text):
    modes = text.split(",")
    if not set(modes) <= {*MODES, *OF_RANKS}:
        raise ValueError
    return modes


def arguments(parser):
    parser.add_argument("--seconds", type=int, default=10, help="that are compared")
    parser.add_argument("--learn", type=int, default=7, help="that stats learns for first")
    parser.add_argument("--modes", type=modes_of, default=list(MODES),
                        help=f"only these, of {', '.join((*MODES, *OF_RANKS))}; the last two want "
                             "two GPUs")
    ranks.arguments(parser)
    parser.add_argument("--cost", type=int, default=0, metavar="PAIRS",
                        help="how often the rate with and without questions is compared "
                             "(--limit 900 for six)")


def asked(rig, name, seconds):
    said = rig.cli("stats", name, "--interval", f"{seconds}s", "--json", timeout=seconds + 20)
    return json.loads(said.stdout)["jobs"][0]


def rate_within(moments, begin, end):
    first, last = bisect.bisect_left(moments, begin), bisect.bisect_left(moments, end) - 1
    return (last - first) / (moments[last] - moments[first])


def own_rate(job, begin, end):
    return rate_within(job.ask(ask=True)["moments"], begin, end)


def start(rig, mode):
    where = []
    if mode in OF_RANKS:
        ranks.prepare(rig)
        where = ["--one-gpu"] if rig.options.one_gpu else []
    return ranks.counting(rig, mode, mode, *where).ready(180)


def compare(rig, mode, job):
    asked(rig, mode, rig.options.learn)
    begin = time.monotonic()
    told = asked(rig, mode, rig.options.seconds)
    end = time.monotonic()
    return {"own": own_rate(job, begin, end), "told": told.get("iterations_per_second") or 0,
            **{key: told.get(key) for key in SAID}}


def rate_asked(rig, mode, job):
    asked(rig, mode, rig.options.learn)
    begin = time.monotonic()
    asked(rig, mode, rig.options.seconds)
    return own_rate(job, begin, time.monotonic())


def rate_unasked(rig, job, last_asked):
    time.sleep(max(0, last_asked + ASKED_FOR - time.monotonic()))
    begin = time.monotonic()
    time.sleep(rig.options.seconds)
    return own_rate(job, begin, time.monotonic())


def cost(rig, mode, job):
    """Pairs of rates, in the order A B B A, so that each wait for silence serves two."""
    pairs, last_asked = [], time.monotonic()
    for index in range(rig.options.cost):
        pair = {}
        for which in ("asked", "unasked") if index % 2 == 0 else ("unasked", "asked"):
            if which == "unasked":
                pair[which] = rate_unasked(rig, job, last_asked)
            else:
                pair[which] = rate_asked(rig, mode, job)
                last_asked = time.monotonic()
        pairs.append(pair)
    return pairs


def judge_rate(report, mode, rate):
    off = rate["told"] / rate["own"] - 1
    report.judge(f"{mode}: stats, the script's own", f"{rate['told']:.2f}, {rate['own']:.2f} /s",
                 f"within {100 * MOST_OFF:.0f} %: {100 * off:+.2f} %", abs(off) <= MOST_OFF)
    if mode in OF_RANKS:
        parts = [rate[key] for key in SAID[1:4]]
        report.note(f"{mode}: communication; hidden of it; waiting for peers",
                    "; ".join("-" if part is None else f"{100 * part:.1f} %" for part in parts),
                    rate["communication_state"] or "")


def judge_cost(report, mode, pairs):
    ratios = [pair["asked"] / pair["unasked"] for pair in pairs]
    report.at_least(f"{mode}: rate while stats is asked, over that without", median(ratios),
                    LEAST_RATE, "{:.4f}")
    low, high = interval(ratios)
    report.note("  95 % of the median", f"{low:.4f} .. {high:.4f}")


def run(rig, report: Report):
    rates, costs = {}, {}
    report.keep(rates=rates, costs=costs)
    for mode in rig.options.modes:
        rig.say(mode)
        job = start(rig, mode)
        rates[mode] = compare(rig, mode, job)
        judge_rate(report, mode, rates[mode])
        if rig.options.cost:
            rig.say(f"{mode}: cost")
            costs[mode] = cost(rig, mode, job)
            judge_cost(report, mode, costs[mode])
        job.end(0)
