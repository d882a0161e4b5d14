"""How true are the GPU seconds that Switchyard bills?

The truth of a job: its kernels, each of a fixed number of instructions, times what one of them
takes alone. That is measured before and after each cell. The jobs count their kernels themselves.
No job uses the time in which the GPU switches slices. So a billed sum may be some tenths of a
percent too high.

Slices come one after the other. So bill and truth are compared by their means over many cycles, at
both ends of a cell's window. `all of it` is the same work from before its first kernel until after
its last.

Where there are two GPUs, a gang of two ranks is billed, too: alone, and beside a job on each GPU.
The truth of a rank is its steps, times what a step takes while the gang is alone.
"""

import time

from rig.process import rate_between
from rig.report import Report, median
from rig.rig import ACTIVITY_WINDOW, RigError
from rig.samples import Samples
from rig.steps import Gang

TITLE = "GPU seconds that are billed, against those that were used"
GOAL = 1  # percent
EQUAL = 8
LIMIT = 20  # percent
SHARE = 4
SETTLES_S = 4  # NVML's samples and the history are of each second
KERNELS = 2  # in a group
BLOCKS = 8  # of 256 threads: all that a multiprocessor holds at once
# name, what is set of its jobs, means. Settings are in force in their cell alone: where nobody has a
# limit, for one, the monitor knows less of who works.
PLAIN = {}
LIMITED = {"limit": f"{LIMIT}%"}
PAIR = {"service": {"priority": "high"}, "job-1": {"priority": "low"}}
CELLS = (
    ("one alone", {"job-0": PLAIN}, "auto"),
    (f"{EQUAL} equal jobs", {f"job-{i}": PLAIN for i in range(EQUAL)}, "auto"),
    (f"two at {SHARE} : 1", {"job-0": {"share": SHARE}, "job-1": PLAIN}, "auto"),
    (f"a limit of {LIMIT} %, alone", {"job-0": LIMITED}, "auto"),
    (f"a limit of {LIMIT} %, beside another", {"job-0": LIMITED, "job-1": PLAIN}, "auto"),
    ("a service beside a low job", PAIR, "auto"),
    ("by gates: the same", PAIR, "gate"),
    ("the driver's default, two jobs", {"job-0": PLAIN, "job-1": PLAIN}, "none"),
)
RANKS = 2  # of the gang
GANG_KERNEL_US = 20_000  # beside it, the sum and the waits of a step are little
USUAL = {"share": 1, "limit": "none", "priority": "normal"}


def arguments(parser):
    parser.add_argument("--kernel", type=int, default=250,
                        help="microseconds of one warp's kernel; one that fills the GPU takes more")
    parser.add_argument("--seconds", type=float, default=7, help="of each cell's window")
    parser.add_argument("--edge-seconds", type=float, default=2,
                        help="at each end of it, over which the means are taken")
    parser.add_argument("--solo-seconds", type=float, default=2, help="of each time of one alone")
    parser.add_argument("--need", type=float, default=4, help="percent that the service needs")


class Bench:
    def __init__(self, rig):
        self.rig = rig
        program = [rig.program("kernel_rate"), rig.options.kernel, KERNELS, BLOCKS]
        self.jobs = {name: rig.start_program(name, program)
                     for name in (*(f"job-{i}" for i in range(EQUAL)), "service")}
        for job in self.jobs.values():
            job.ready()
        self.group_seconds = []  # of a group alone, in the order of the measurements

    def idle(self):
        time.sleep(self.rig.scaled(ACTIVITY_WINDOW))

    def bills(self, monitor):
        """(moment, {job: (GPU seconds, those that are estimated)})"""
        before = time.monotonic()
        jobs = monitor.ask(op="ps")["jobs"]
        return ((before + time.monotonic()) / 2,
                {job["name"]: (job["gpu_seconds"], job["gpu_seconds_estimated"]) for job in jobs})

    def measure_alone(self):
        """REQUIRES: the policy has forgotten the jobs of the cell before."""
        job = self.jobs[f"job-{len(self.group_seconds) % EQUAL}"]
        job.start()
        begin, end = self.rig.window(self.rig.options.solo_seconds, settle=0.5)
        self.group_seconds.append(1 / rate_between(job.stop(), begin, end))

    def edge(self, monitor, samples):
        """Bills at twenty moments a second."""
        until = time.monotonic() + self.rig.scaled(self.rig.options.edge_seconds)
        out = []
        while not out or time.monotonic() < until:
            out.append(self.bills(monitor))
            samples.look()
            time.sleep(0.05)
        return out

    def start(self, name):
        command = {"start": True}
        if name == "service":
            command["rate"] = self.rig.options.need / 100 / self.group_seconds[-1]
        self.jobs[name].ask(**command)

    def middle(self, samples):
        """Between the edges; the monitor is left alone."""
        until = time.monotonic() + self.rig.scaled(
            self.rig.options.seconds - 2 * self.rig.options.edge_seconds)
        while time.monotonic() < until:
            time.sleep(0.1)
            samples.look()

    def cell(self, name, knobs, means):
        self.rig.say(name)
        self.rig.means(means)
        names = tuple(knobs)
        for each, some in knobs.items():
            if some:
                self.rig.set(each, **some)
        self.idle()
        _, before = self.bills(self.rig.connect())
        for each in names:
            self.start(each)
        time.sleep(self.rig.scaled(2))
        samples = Samples()
        monitor = self.rig.connect()
        first = self.edge(monitor, samples)
        self.middle(samples)
        last = self.edge(self.rig.connect(), samples)
        for each in names:
            self.jobs[each].send(stop=True)
        figures = {each: self.jobs[each].receive(60) for each in names}
        self.idle()
        _, after = self.bills(self.rig.connect())
        self.rig.means("auto")
        for each, some in knobs.items():
            if some:
                self.rig.set(each, **{knob: USUAL[knob] for knob in some})
        return {"cell": name, "means": means, "alone_before": len(self.group_seconds),
                "seconds": last[-1][0] - first[0][0],
                "jobs": {each: {"first": progress(figures[each], each, first),
                                "last": progress(figures[each], each, last),
                                "all": [figures[each]["steps"],
                                        *differences(before[each], after[each])],
                                "nvml": samples.mean(self.jobs[each].pid)} for each in names}}


class GangBench:
    """The cells of a gang. REQUIRES: no other job works."""

    def __init__(self, rig, kernel_us):
        self.rig = rig
        self.gang = Gang(rig, "gang", RANKS, 16, kernel_us=GANG_KERNEL_US)
        program = [rig.program("kernel_rate"), kernel_us, KERNELS, BLOCKS]
        self.beside = [rig.start_program(f"beside-{gpu}", program, gpus=gpu)
                       for gpu in range(RANKS)]
        for job in self.beside:
            job.ready()
        self.step_seconds = None  # alone

    def look(self):
        """(moment, steps of all ranks, GPU seconds, those that are estimated)"""
        before, first = time.monotonic(), sum(self.gang.steps())
        for job in self.rig.connect().ask(op="ps")["jobs"]:
            if job["name"] == "gang":
                moment, steps = time.monotonic(), sum(self.gang.steps())
                return ((before + moment) / 2, (first + steps) / 2, job["gpu_seconds"],
                        job["gpu_seconds_estimated"])
        raise RigError("ps does not list the gang")

    def window(self):
        """Seconds, steps, GPU seconds and their estimated part, by means at both ends."""
        def edge():
            until = time.monotonic() + self.rig.scaled(self.rig.options.edge_seconds)
            rows = []
            while not rows or time.monotonic() < until:
                rows.append(self.look())
                time.sleep(0.05)
            return [sum(column) / len(rows) for column in zip(*rows)]

        first = edge()
        time.sleep(self.rig.scaled(self.rig.options.seconds - 2 * self.rig.options.edge_seconds))
        return differences(first, edge())

    def cell(self, name, works):
        self.rig.say(name)
        for job in self.beside if works else ():
            job.start()
        time.sleep(self.rig.scaled(ACTIVITY_WINDOW))
        seconds, steps, billed, estimated = self.window()
        for job in self.beside if works else ():
            job.stop()
        if not works:
            self.step_seconds = RANKS * seconds / steps
        if self.step_seconds < GANG_KERNEL_US * 1e-6 / 2:
            raise RigError(f"a step of the gang takes {1e3 * self.step_seconds:.2f} ms, and its "
                           f"kernel alone {GANG_KERNEL_US / 1e3:.0f}: build rank_steps anew")
        return {"cell": name, "steps": steps, "truth": steps * self.step_seconds,
                "billed": billed, "estimated": estimated}

    def run(self):
        self.gang.goes_on(time.monotonic())
        cells = [self.cell("a gang of two ranks, alone", False),
                 self.cell("a gang beside a job on each GPU", True)]
        said = self.gang.end()
        if said != "right":
            raise RigError(f"the gang's memory: {said}")
        return cells


def differences(before, after):
    return [later - earlier for earlier, later in zip(before, after)]


def progress(figures, name, edge):
    """[groups that were complete, GPU seconds, those that are estimated]: the means of an edge."""
    rows = [(rate_between(figures, figures["begun"], moment) * (moment - figures["begun"]),
             *bills[name]) for moment, bills in edge]
    return [sum(column) / len(rows) for column in zip(*rows)]


def job_figures(cell, name, group_seconds):
    """Truth, bill and its estimated part in seconds: of the window, and of all of it."""
    near = group_seconds[cell["alone_before"] - 1:cell["alone_before"] + 1]
    job = cell["jobs"][name]

    def figures(groups, billed, estimated):
        return {"truth": groups * sum(near) / len(near), "billed": billed, "estimated": estimated}

    return {"window": figures(*differences(job["first"], job["last"])),
            "all of it": figures(*job["all"])}


def error(figures):
    """In percent; a bill for nothing is wrong by all of it."""
    return 100 * (figures["billed"] / figures["truth"] - 1) if figures["truth"] > 0 else 100


def sum_of(those):
    return {key: sum(each[key] for each in those) for key in ("truth", "billed", "estimated")}


def judge_cell(report, cell):
    jobs = {name: job["figures"] for name, job in cell["jobs"].items()}
    window = {name: figures["window"] for name, figures in jobs.items()}
    whole = {name: figures["all of it"] for name, figures in jobs.items()}
    several = {"sum": sum_of(window.values())} if len(window) > 1 else {}
    equal = all(name.startswith("job") for name in window) and len(window) > 2
    shown = dict([max(window.items(), key=lambda one: abs(error(one[1])))]) if equal else window
    for name, figures in {**shown, **several}.items():
        report.note(f"{cell['cell']}: {name}",
                    f"{figures['billed']:.3f} s of {figures['truth']:.3f} s",
                    f"{error(figures):+.2f} %, "
                    f"{100 * figures['estimated'] / max(figures['billed'], 1e-9):.0f} % estimated")
        report.at_most("  error, %" + (", the worst of them" if equal and name != "sum" else ""),
                       abs(error(figures)), GOAL, "{:.2f}")
    report.note("  all of it", " ".join(f"{error(each):+.2f}" for each in whole.values()) + " %",
                f"sum {error(sum_of(whole.values())):+.2f} %")
    nvml = {name: job["nvml"] for name, job in cell["jobs"].items() if job["nvml"] is not None}
    if nvml:
        report.note("  NVML's samples", " ".join(f"{100 * part:.0f}" for part in nvml.values())
                    + " % of the time")


def judge_report(rig, report):
    """REQUIRES: no job works, nor did lately."""
    jobs = {job["name"]: job["gpu_seconds"] for job in rig.listing("ps")["jobs"]}
    rows = {row["name"]: row["gpu_seconds"] for row in rig.listing("report")["rows"]}
    off = [abs(rows.get(name, 0) - seconds) for name, seconds in jobs.items()]
    report.keep(report={"ps": jobs, "report": rows})
    report.at_most("report against ps, the worst job, s", max(off), 0.1, "{:.3f}")


def run_gang(rig, report):
    gpus = len(rig.listing("status")["gpus"])
    if gpus < RANKS:
        report.note("a gang of two ranks", "skipped", f"it needs {RANKS} GPUs, and here is {gpus}")
        return
    cells = GangBench(rig, rig.options.kernel).run()
    report.keep(gang=cells)
    for cell in cells:
        report.note(cell["cell"], f"{cell['billed']:.3f} s of {cell['truth']:.3f} s",
                    f"{error(cell):+.2f} %, {cell['steps']:.0f} steps, "
                    f"{100 * cell['estimated'] / max(cell['billed'], 1e-9):.0f} % estimated")
        report.at_most("  error, %", abs(error(cell)), GOAL, "{:.2f}")


def run(rig, report: Report):
    bench = Bench(rig)
    cells = []
    report.keep(cells=cells, group_seconds=bench.group_seconds)
    bench.measure_alone()
    for cell in CELLS:
        cells.append(bench.cell(*cell))
        bench.measure_alone()
    for cell in cells:
        for name, job in cell["jobs"].items():
            job["figures"] = job_figures(cell, name, bench.group_seconds)
    alone = [1e3 * seconds / KERNELS for seconds in bench.group_seconds]
    report.note("a kernel alone", f"{median(alone):.4f} ms",
                f"{min(alone):.4f} .. {max(alone):.4f}")
    for cell in cells:
        judge_cell(report, cell)
    time.sleep(SETTLES_S)
    judge_report(rig, report)
    run_gang(rig, report)
