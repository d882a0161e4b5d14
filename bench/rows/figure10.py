"""SwitchFlow's Figure 10: two trainings with CPU-heavy input (JPEG decoding).

`exclusive` gives the GPU to one at a time while the other decodes. The baseline is a lock around
whole iterations (`--lock` of workloads/jpeg_training.py), without Switchyard.
"""

from rig.report import Report
from rows.latency import tiny
from rows.shares import idle, together

TITLE = "SwitchFlow's Figure 10: two trainings that decode their input"


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=12, help="of each cell")
    parser.add_argument("--settle-seconds", type=float, default=3)


def run(rig, report: Report):
    sizes = ["--batch", 2, "--size", 32, "--warm", 2] if tiny(rig) else []
    shared = [rig.start(f"jpeg-{i}", "jpeg_training.py", *sizes) for i in range(2)]
    lock = rig.scratch / "iteration.lock"
    locked = [rig.start(f"jpeg-locked-{i}", "jpeg_training.py", *sizes, "--lock", lock,
                        under="plain") for i in range(2)]
    for warm in (*shared, *locked):
        warm.ready(180)
    about = shared[0].run(rig.scaled(3))
    phases = shared[0].ask(info=True)
    report.note("one alone", f"{about['steps_per_second']:.2f} steps/s",
                f"decodes {phases['cpu_ms']:.0f} ms, trains {phases['gpu_ms']:.0f} ms")
    cells = {"lock": [], "exclusive": [], "default": []}
    report.keep(cells=cells, alone=about, phases=phases)
    columns = {"lock": (locked, None, None), "exclusive": (shared, "exclusive", "auto"),
               "default": (shared, "priority", "none")}
    for order in (list(columns), list(columns)[::-1]):
        for key in order:
            jobs, policy, means = columns[key]
            if policy:
                rig.cli("policy", policy)
                rig.means(means)
            idle(rig)
            rig.say(key)
            rates, _ = together(rig, jobs, rig.options.seconds / 2)
            cells[key].append(rates)
    sums = {key: sum(map(sum, rates)) / len(rates) for key, rates in cells.items()}
    for key, value in sums.items():
        report.note(f"{key}: sum", f"{value:.2f} steps/s",
                    " ".join(f"{a:.2f}+{b:.2f}" for a, b in cells[key]))
    report.at_least("exclusive over the lock", sums["exclusive"] / sums["lock"], 1.25)
