"""Two trainings that don't fit together, each some 60 % of the capacity, with `--oversubscribe`.

The capacity is lowered by the monitor's own option. Two undisturbed runs first: without equal
losses there the comparison would say nothing. Then one beside the other without `--oversubscribe`,
which must end in the framework's out-of-memory error, and both together with it.
"""

import json
import time

from rig.process import BENCH, python
from rig.report import Report
from rig.rig import RigError

TITLE = "Two trainings that don't fit together"
WINDOW = 30  # seconds in which both have to get on


def arguments(parser):
    parser.add_argument("--steps", type=int, default=900, help="of each training")
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--capacity", default="24GiB", help="that the monitor gives out")


def start(rig, name, **knobs):
    o = rig.options
    argv = [python(), BENCH / "checks" / "together_training.py", o.steps, o.batch]
    return rig.once(name, argv, under="switchyard", **knobs)


def ready(process, name):
    if not process.stdout.readline():
        raise RigError(f"{name} ended: {process.log.read_text()[-600:]}")


def finish(process, name):
    line = process.stdout.readline()
    if process.wait(timeout=200) != 0 or not line:
        raise RigError(f"{name} ended {process.returncode}: {process.log.read_text()[-600:]}")
    return json.loads(line)


def alone(rig, name):
    begun = time.monotonic()
    process = start(rig, name)
    ready(process, name)
    return {**finish(process, name), "seconds": time.monotonic() - begun}


def refused(rig, first):
    """One beside `first`, neither of which may be moved."""
    process = start(rig, "beside")
    process.wait(timeout=120)
    return "out of memory" in process.log.read_text().lower()


def times_out(rig, name):
    return (rig.scratch / "monitor.log").read_text().count(f"job '{name}' has left its GPUs")


def longest_gap(stamps, begun, ended):
    inside = [begun] + [stamp for stamp in stamps if begun <= stamp <= ended] + [ended]
    return max(later - earlier for earlier, later in zip(inside, inside[1:]))


def run(rig, report: Report):
    undisturbed = []
    for index in range(2):
        rig.say(f"alone {index + 1}")
        undisturbed.append(alone(rig, f"alone-{index}"))
    rig.say("one beside the other")
    holder = start(rig, "holder")
    ready(holder, "holder")
    time.sleep(5)
    without = refused(rig, holder)
    holder.kill()
    holder.wait()
    rig.say("together")
    begun = time.monotonic()
    pair = {name: start(rig, name, oversubscribe=True) for name in ("left", "right")}
    for name, process in pair.items():
        ready(process, name)
    results = {name: finish(process, name) for name, process in pair.items()}
    ended = max(result["stamps"][-1] for result in results.values())
    moved = {name: times_out(rig, name) for name in pair}
    report.keep(alone=undisturbed, together=results, swaps=moved, seconds=ended - begun)
    report.note("reserved by each", f"{undisturbed[0]['reserved_bytes'] / (1 << 30):.1f} GiB",
                f"of {rig.options.capacity}")
    report.judge("two undisturbed runs", undisturbed[0]["losses"][:12], "equal losses",
                 undisturbed[0]["losses"] == undisturbed[1]["losses"])
    report.judge("without --oversubscribe", "out of memory" if without else "not refused",
                 "out of memory", without)
    both = min(result["stamps"][-1] for result in results.values())
    first = max(result["stamps"][0] for result in results.values())
    for name, result in results.items():
        report.judge(f"{name}: losses", result["losses"][:12], "equal losses",
                     result["losses"] == undisturbed[0]["losses"])
        report.at_most("  longest without a step", longest_gap(result["stamps"], first, both),
                       WINDOW, "{:.1f} s")
        report.at_least("  times moved out", moved[name], 5, "{:.0f}")
    total = sum(result["seconds"] for result in undisturbed)
    report.at_least("together over one after the other", total / (ended - begun), 0.9)
