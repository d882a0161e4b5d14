"""What does the library, with its table of NCCL's calls, cost a DDP training of two ranks? And what
do statistics cost, while somebody asks for them?

Warm trainings take turns: without the library, with it, with it while `switchyard stats --watch`
asks for this one, and with memory that can be swapped. A rate is that of the median step: the host
takes CPUs away at times, which makes single steps longer. Two processes of one program may differ
by more than what is asked; with --processes 2 there are two of each. Needs two GPUs.
"""

import subprocess

from rig import ranks
from rig.process import BENCH, python
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


def start(rig, mode):
    """(variant, job), all that are to be compared"""
    argv = [python(), BENCH / "checks" / "ordered_training.py", mode]
    jobs = [(name, rig.start_program(f"{mode}-{name}-{number}", argv, **VARIANTS[name]))
            for number in range(rig.options.processes)
            for name in rig.options.variants.split(",")]
    for _, job in jobs:
        job.ready(180)
    return jobs


def rates_of(rig, jobs):
    rates = {name: [] for name, _ in jobs}
    for index in range(rig.options.rounds):
        turn = {}
        for place, (_, job) in list(enumerate(jobs))[::1 if index % 2 == 0 else -1]:
            turn[place] = job.ask(steps=rig.options.turn_steps, timeout=120)["usual_rate"]
        for place, (name, _) in enumerate(jobs):
            rates[name].append(turn[place])
    return rates


def measure(rig, mode):
    jobs = start(rig, mode)
    asks = [subprocess.Popen([rig.build / "switchyard", "stats", job.name, "--watch"],
                             env=rig.environment("switchyard"), stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
            for name, job in jobs if name == "asked"]
    try:
        return rates_of(rig, jobs)
    finally:
        for each in asks:
            each.terminate()
            each.wait(10)
        for _, job in jobs:
            job.end(30)


def judge(report, mode, rates):
    for name, each in rates.items():
        report.note(f"{mode}, {name}: steps/s", f"{median(each):.2f}")
    for name, other, bound in COMPARED:
        if name not in rates or other not in rates:
            continue
        ratios = [one / two for one, two in zip(rates[name], rates[other])]
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
        kept[mode] = measure(rig, mode)
        judge(report, mode, kept[mode])
