"""`pause --release --contexts` of a PyTorch process of 8 GiB that replays a CUDA graph, and `resume`.

It measures the memory in use on the GPU by NVML while the job is paused. It also measures both
commands, and the time until the first step after the resume has ended. After each round all values
are compared.
"""

import time

from rig.process import BENCH, python
from rig.report import Report
from rig.residency import used_bytes

TITLE = "Nothing left on the GPU"
LEFT_MIB, BACK_S = 16, 1.5


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=3)


def used_mib():
    return used_bytes() >> 20


def one_round(rig, job, before, contexts=True):
    out = rig.timed("pause", job.name, "--release", *(["--contexts"] if contexts else []))
    time.sleep(rig.scaled(0.5))
    left = used_mib() - before
    resumed = time.monotonic()
    back = rig.timed("resume", job.name)
    time.sleep(rig.scaled(1))
    said = job.ask(ask=True, timeout=100)
    after = [moment - resumed for moment in said["late"] if moment > resumed]
    return {"out": out, "left_mib": left, "back": back, "equal": said["equal"],
            "first_step": after[0] if after else None}


def run(rig, report: Report):
    before = used_mib()
    job = rig.start_program("job", [python(), BENCH / "checks" / "steady_graph.py"], swappable=True)
    job.ready(120)
    running = used_mib() - before
    rounds = [one_round(rig, job, before) for _ in range(rig.options.rounds)]
    without = one_round(rig, job, before, contexts=False)
    report.keep(rounds=rounds, without=without, running_mib=running)
    report.note("used while it runs", f"{running} MiB")
    report.at_most("left while it is paused, MiB, the most", max(r["left_mib"] for r in rounds),
                   LEFT_MIB, "{:.0f}")
    report.note("  with --release alone", f"{without['left_mib']} MiB")
    report.note("pause, s", ", ".join(f"{r['out']:.2f}" for r in rounds))
    report.note("resume, s", ", ".join(f"{r['back']:.2f}" for r in rounds))
    report.judge("a step again after the resume, s",
                 ", ".join(f"{r['first_step'] or -1:.2f}" for r in rounds), f"at most {BACK_S}",
                 all(r["first_step"] is not None and r["first_step"] <= BACK_S for r in rounds))
    report.judge("all values", f"{sum(r['equal'] for r in rounds)} of {len(rounds)}", "equal",
                 all(r["equal"] for r in (*rounds, without)))
