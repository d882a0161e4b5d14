"""What does the library, with its table of NCCL's calls, cost a DDP training of two ranks? And what
do statistics cost, while somebody asks for them?

Warm trainings take turns: without the library, with it, with it while `switchyard stats --watch`
asks for this one, and with memory that can be swapped (rig/warm_ranks.py). Needs two GPUs.
"""

import subprocess

from rig import ranks, warm_ranks
from rig.report import Report, interval, median

TITLE = "The library and statistics beside a DDP training"
MODES = ("gpt64", "resnet128")
# name: how it is started
VARIANTS = {"plain": {"under": "plain"}, "library": {}, "asked": {}, "swappable": {"swappable": True}}
# one variant, the variant that it is compared with, and the bound of their ratio
COMPARED = (("library", "plain", 0.995), ("asked", "library", 0.995), ("swappable", "library", None))


def arguments(parser):
    parser.add_argument("--modes", default=",".join(MODES), help="only these")
    parser.add_argument("--rounds", type=int, default=8, help="of all turns")
    parser.add_argument("--turn-steps", type=int, default=40, help="of a turn")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="only these")
    parser.add_argument("--processes", type=int, default=1, help="of each variant")


def measure(rig, mode, rates):
    o = rig.options
    variants = {name: VARIANTS[name] for name in o.variants.split(",")}
    jobs = warm_ranks.start(rig, mode, variants, o.processes)
    asks = [subprocess.Popen([rig.build / "switchyard", "stats", job.name, "--watch"],
                             env=rig.environment("switchyard"), stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
            for name, job in jobs if name == "asked"]
    try:
        warm_ranks.measure(jobs, o.rounds, o.turn_steps, rates)
    finally:
        for each in asks:
            each.terminate()
            each.wait(10)
        warm_ranks.end(jobs)


def judge(report, mode, rates):
    for name, each in rates.items():
        report.note(f"{mode}, {name}: steps/s", f"{median(each):.2f}")
    for name, other, bound in COMPARED:
        if name not in rates or other not in rates:
            continue
        ratios = warm_ranks.ratios(rates, name, other)
        low, high = interval(ratios)
        what = f"{mode}: {name}, over {other}"
        if bound is None:
            report.note(what, f"{median(ratios):.4f}", f"{low:.4f} .. {high:.4f}")
            continue
        report.at_least(what, median(ratios), bound, "{:.4f}")
        report.ends((low, high), bound, form="{:.4f}")


def run(rig, report: Report):
    ranks.one_gpu_each()
    kept = {}
    report.keep(rates=kept)
    for mode in rig.options.modes.split(","):
        rig.say(mode)
        measure(rig, mode, kept.setdefault(mode, {}))
        judge(report, mode, kept[mode])
