"""Two trainings that don't fit together, each some 60 % of the capacity, with `--oversubscribe`.

The capacity is lowered by the monitor's own option. Two undisturbed runs first: without equal
losses there the comparison would say nothing. Then one beside the other without `--oversubscribe`,
which must end in the framework's out-of-memory error, and both together with it. How fast they take
turns is compared with what the link gives both ways at once, measured before.
"""

import subprocess
import time

from rig.process import BENCH, longest_gap, python
from rig.report import Report, median
from rig.turns import Watch, seconds_to_leave, times_out

TITLE = "Two trainings that don't fit together"
WINDOW = 30  # seconds in which both have to get on


def arguments(parser):
    # A step takes 44 ms alone (18.05 a second at batch 8, 47.6 at batch 2), some more where it is
    # deterministic. A turn comes every 3 s or so, because moving takes 0.1 s. So each is moved out
    # some nine times, and all four runs take some 200 s.
    parser.add_argument("--steps", type=int, help="of each training: 550, in JAX 500")
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--capacity", default="24GiB", help="that the monitor gives out")
    parser.add_argument("--whole", action="store_const", const=None, dest="capacity",
                        help="it gives out all of the GPU: wants a --batch that takes 60 %% of that, "
                        "--steps for three minutes, a longer --limit and a --host-pool")
    parser.add_argument("--host-pool", help="of the monitor: what both have away at a turn, each "
                        "in memory of its own, if not half of the host's is enough")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--expandable", action="store_true",
                      help="PyTorch's expandable segments: memory that it makes and maps itself")
    kind.add_argument("--stream-ordered", action="store_true",
                      help="PyTorch's memory from the driver's stream-ordered pool")
    kind.add_argument("--jax", nargs="?", const="pool", choices=("pool", "platform"),
                      help="a training in JAX, in a pool that it takes in advance, or each array "
                      "an allocation of its own")
    parser.add_argument("--pool-mib", type=int, default=14745, help="of each in JAX")


ALLOCATORS = {"expandable": "expandable_segments:True", "stream_ordered": "backend:cudaMallocAsync"}


def allocator(options):
    """PyTorch's, if it is not its own default."""
    return next((name for name in ALLOCATORS if getattr(options, name)), None)


def start(rig, name, times=1, **knobs):
    o = rig.options
    script, steps = ("together_jax.py", 500) if o.jax else ("together_training.py", 550)
    argv = [python(), BENCH / "checks" / script, times * (o.steps or steps), o.batch]
    if o.jax:
        argv.append(o.pool_mib if o.jax == "pool" else 0)
    conf = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator(o)]} if allocator(o) else {}
    return rig.start_program(name, argv, environment=conf, **knobs)


def finish(rig, training):
    result = training.receive(rig.options.limit)
    training.end()
    return result


def alone(rig, name):
    begun = time.monotonic()
    result = finish(rig, start(rig, name).ready(90))
    return {**result, "seconds": time.monotonic() - begun}


def refused(rig):
    """One beside another, neither of which may be moved."""
    holder = start(rig, "holder", times=3).ready(90)
    time.sleep(5)
    beside = start(rig, "beside")
    failed = False
    try:
        failed = beside.process.wait(timeout=60) != 0
    except subprocess.TimeoutExpired:
        pass  # not refused: it trains
    for training in (beside, holder):
        training.process.kill()
        training.process.wait(timeout=20)
    # A pool that had to be smaller is complained of, too, by one that then goes on.
    return failed and "out of memory" in beside.log.read_text(errors="replace").lower()


def together(rig, report):
    """({name: result}, seconds)"""
    begun = time.monotonic()
    pair = {name: start(rig, name, oversubscribe=True) for name in ("left", "right")}
    watch = Watch(rig)
    try:
        for training in pair.values():
            training.ready(90)
        ready = time.monotonic()
        results = {name: finish(rig, training) for name, training in pair.items()}
    finally:
        report.keep(turns=watch.end(), came=watch.came, seconds_to_leave=seconds_to_leave(rig),
                    swaps={name: times_out(rig, name) for name in pair})
    report.keep(ready=ready)
    return results, max(result["stamps"][-1] for result in results.values()) - begun


def run(rig, report: Report):
    o = rig.options
    kind = f"jax-{o.jax}" if o.jax else (allocator(o) or "").replace("_", "-")
    report.row += f"-{kind}" * bool(kind) + "-whole" * (not o.capacity)  # a file of its own
    rig.say("link")
    link = rig.run_once("link", [python(), BENCH / "checks" / "link.py", 1024, 10])
    undisturbed = []
    report.keep(link=link, alone=undisturbed)
    for index in range(2):
        rig.say(f"alone {index + 1}")
        undisturbed.append(alone(rig, f"alone-{index}"))
    rig.say("one beside the other")
    without = refused(rig)
    report.keep(refused=without)
    rig.say("together")
    results, seconds = together(rig, report)
    report.keep(together=results, seconds=seconds)
    judge(rig, report, undisturbed, without, results, seconds)


def judge(rig, report, undisturbed, without, results, seconds):
    report.note("reserved by each", f"{undisturbed[0]['reserved_bytes'] / (1 << 30):.1f} GiB",
                f"of {rig.options.capacity or 'the whole GPU'}"
                + (f", {undisturbed[0]['allocator']}" if "allocator" in undisturbed[0] else "")
                + (f", JAX {undisturbed[0]['jax']}, "
                   f"{undisturbed[0]['used_bytes'] / (1 << 30):.1f} GiB used"
                   if "jax" in undisturbed[0] else ""))
    report.judge("two undisturbed runs", undisturbed[0]["losses"][:12], "equal losses",
                 undisturbed[0]["losses"] == undisturbed[1]["losses"])
    report.judge("without --oversubscribe", "out of memory" if without else "not refused",
                 "out of memory", without)
    both = min(result["stamps"][-1] for result in results.values())
    for name, result in results.items():
        report.judge(f"{name}: losses", result["losses"][:12], "equal losses",
                     result["losses"] == undisturbed[0]["losses"])
        gap = longest_gap(result["stamps"], report.raw["ready"], both)
        report.at_most("  longest without a step", gap, WINDOW, "{:.1f} s")
        report.at_least("  times moved out", report.raw["swaps"][name], 5, "{:.0f}")
    total = sum(result["seconds"] for result in undisturbed)
    report.at_least("together over one after the other", total / seconds, 0.9)
    judge_turns(report, report.raw["link"], report.raw["turns"])


def judge_turns(report, link, turns):
    report.note("link: out, in, both at once",
                ", ".join(f"{link[way] / 1e9:.1f}" for way in ("out", "in", "both")) + " GB/s")
    if not turns:
        report.judge("turns in which one left and one came", "none", "some", False)
        return
    # The bytes that the one gave and the other got back. The time is that from the first chunk that
    # left to the last that arrived. To end the accepted work is no part of it, nor is the digest
    # before the first chunk. Unchanged memory is not copied, so the rate may exceed the link's.
    moved = sum(turn["out"] + turn["in"] for turn in turns)
    rate = moved / sum(turn["seconds"] for turn in turns)
    report.note("a turn, median",
                f"{1e3 * median([turn['seconds'] for turn in turns]):.0f} ms",
                f"{median([turn['out'] for turn in turns]) / 1e9:.2f} GB out, "
                f"{median([turn['in'] for turn in turns]) / 1e9:.2f} GB in, {len(turns)} turns")
    came = [sum(each) for each in zip(*(report.raw["came"][name] for name in report.raw["swaps"]))]
    report.note("  copied in, and came in the other's memory",
                ", ".join(f"{size / 1e9:.1f} GB" for size in came))
    if took := report.raw["seconds_to_leave"]:
        report.note("  from the order until it had left", f"{1e3 * median(took):.0f} ms",
                    "the end of its accepted work included")
    report.at_least(f"turns, {rate / 1e9:.1f} GB/s, over the link both ways", rate / link["both"],
                    0.9)
