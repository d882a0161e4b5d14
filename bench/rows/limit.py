"""`--limit 30%` on a loop of 100 us kernels: alone, beside an equal loop, beside a training.

The job's rate over every 2 s window (in steps of 50 ms) is compared with its own rate alone and
without a limit.
"""

import time

from rig.process import rate_between
from rig.report import Report
from rig.rig import ACTIVITY_WINDOW
from rows.latency import training_arguments

TITLE = "A ceiling of 30 %"
LIMIT = 30
WINDOW = 2.0


def arguments(parser):
    parser.add_argument("--kernel", type=int, default=100, help="microseconds of a kernel, about")
    parser.add_argument("--seconds", type=float, default=16, help="of each cell")


def loop(rig, name, **knobs):
    program = rig.program("kernel_rate")
    return rig.start_program(name, [program, rig.options.kernel, 2], **knobs)


def windows(figures, begin, end):
    moments = [begin + 0.05 * i for i in range(int((end - begin - WINDOW) / 0.05))]
    return [rate_between(figures, moment, moment + WINDOW) for moment in moments]


def run(rig, report: Report):
    limited = loop(rig, "limited")
    other = loop(rig, "other")
    training = rig.start("train", "gpt.py", *training_arguments(rig))
    for warm in (limited, other, training):
        warm.ready()
    cells = {}
    report.keep(cells=cells)

    def cell(name, neighbour):
        started = [job for job in (limited, neighbour) if job is not None]
        for job in started:
            job.start()
        time.sleep(rig.scaled(3))
        begin = time.monotonic()
        time.sleep(rig.scaled(rig.options.seconds))
        end = time.monotonic()
        for job in started:
            job.send(stop=True)
        figures = [job.receive(60) for job in started]
        cells[name] = windows(figures[0], begin, end)
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
        return cells[name], [rate_between(figure, begin, end) for figure in figures]

    rig.say("solo")
    _, (solo,) = cell("solo", None)
    rig.set("limited", limit=f"{LIMIT}%")
    report.note("without a limit, alone", f"{2 * solo:.0f} kernels/s")
    for name, neighbour in (("alone", None), ("beside an equal loop", other),
                            ("beside a training", training)):
        rig.say(name)
        rates, _ = cell(name, neighbour)
        got = [100 * rate / solo for rate in rates]
        report.judge(f"{name}: every 2 s window", f"{min(got):.1f} .. {max(got):.1f} %",
                     f"{LIMIT - 2} .. {LIMIT + 2} %",
                     min(got) >= LIMIT - 2 and max(got) <= LIMIT + 2)
