"""PipeSwitch's Figures 7, 8 and 9 as ablations of swapping, on models of the sizes of its own.

Chunk size, pools of pinned memory, copies that overlap with mapping, and an early start over mapped
memory of the host. Also a warm process against one that starts, and one that leaves while another
comes. bench/ablation makes the library's own calls, and those of the other ways, which take turns;
nothing of Switchyard runs beside it. The default is the best where nothing else is faster by more
than a twentieth, out and in together. The early start is a prototype and says whether it is worth
to be built.
"""

import json

from rig.report import Report, median, spread
from rows.latency import tiny

TITLE = "PipeSwitch's Figures 7, 8 and 9: ablations of swapping"
BOUND = 1.05
PARTS = (("chunk", "chunks of 32 MiB"), ("pool", "a pool pinned beforehand"),
         ("pipeline", "copying while mapping"))


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--starts", type=int, default=4, help="of new processes, for each model")
    parser.add_argument("--mib", type=int, nargs="+", default=[80, 240, 440], help="of the models")


def measure(rig):
    o = rig.options
    rounds, starts = (max(2, int(number * o.scale)) for number in (o.rounds, o.starts))
    models = [32] if tiny(rig) else o.mib
    output = rig.output_of("ablation", [rig.program("swap_ablation"), rounds, starts, *models],
                           timeout=180 if tiny(rig) else 85)
    return [json.loads(line) for line in output.splitlines()]


def both_ways(cell):
    """Milliseconds out and in, for each round."""
    return [out + back for out, back in zip(cell["out_ms"], cell["in_ms"])]


def rates(cell):
    return ", ".join(f"{cell['mib'] * 1.048576 / median(cell[way]):.1f}"
                     for way in ("out_ms", "in_ms"))


def text(values):
    return f"{median(values):.2f} ±{spread(values):.2f}"


def judge_moves(report, mib, cells):
    default = next(cell for cell in cells if cell["part"] == "default")
    report.note(f"{mib} MiB, the default: out, in",
                f"{text(default['out_ms'])}, {text(default['in_ms'])} ms",
                f"{rates(default)} GB/s; the others:")
    for cell in cells:
        if cell is not default:
            report.note(f"  {cell['part']}: {cell['way']}",
                        f"{text(cell['out_ms'])}, {text(cell['in_ms'])} ms",
                        f"{rates(cell)} GB/s")
    for part, what in PARTS:
        best = min((cell for cell in cells if cell["part"] in (part, "default")),
                   key=lambda cell: median(both_ways(cell)))
        ratio = median(both_ways(default)) / median(both_ways(best))
        report.judge(f"  {what}, over the best", f"{ratio:.3f}",
                     f"at most {BOUND:.2f}: {best['way']}", ratio <= BOUND)
    wrong = [cell["way"] for cell in cells if not cell["right"]]
    report.judge("  what came back", ", ".join(wrong) or "equal", "equal", not wrong)


def note_early(report, cells):
    """One line for each load of the largest model; all others are in the file."""
    for cell in cells:
        if "unsupported" in cell:
            report.note("early start", "unsupported", cell["unsupported"])
    loads = {}
    for cell in cells:
        if "unsupported" not in cell:
            loads.setdefault((cell["reads"], cell["ratio"]), {})[cell["way"]] = cell
    for (reads, ratio), ways in loads.items():
        arrived = ways["all arrived"]
        runs = median(arrived["first_ms"]) - median(arrived["resident_ms"])
        report.note(f"  computing {ratio:g} x copying, weights read {reads} x",
                    ", ".join(f"{way} {median(cell['first_ms']):.1f}"
                              for way, cell in ways.items()) + " ms",
                    ", ".join(f"{median(cell['resident_ms']):.1f}" for cell in ways.values())
                    + f" ms; {runs:.1f} ms where all is there")
    wrong = [cell["way"] for cell in cells if not cell.get("right", True)]
    report.judge("  what the kernels read", ", ".join(wrong) or "the model", "the model", not wrong)


def note_starts(report, mib, cells):
    ways = {cell["way"]: cell for cell in cells}
    warm, new = ways.get("warm"), ways["new process"]
    if warm is None:
        report.note(f"{mib} MiB, a new process", "unsupported", new["unsupported"])
        return
    report.note(f"{mib} MiB, a request at one that is warm and away",
                f"{text(warm['first_ms'])} ms",
                f"a new process {text(new['first_ms'])} ms, after the end of the one before "
                f"{text(new['stop_ms'])} ms")


def note_pairs(report, cells):
    """Two processes' use of both ways of the link while one leaves and the other comes."""
    took = {cell["way"]: median([max(both) for both in zip(cell["out_ms"], cell["in_ms"])])
            for cell in cells}
    for cell in cells:
        part = took["copies alone"] / took[cell["way"]]
        report.note(f"  {cell['way']}", f"{part:.3f} of that rate", f"{rates(cell)} GB/s")


def run(rig, report: Report):
    cells = measure(rig)
    report.keep(cells=cells)
    models = {mib: [cell for cell in cells if cell["mib"] == mib]
              for mib in dict.fromkeys(cell["mib"] for cell in cells if cell["part"] != "pair")}

    def of(mib, *parts):
        return [cell for cell in models[mib] if cell["part"] in parts]

    pairs = [cell for cell in cells if cell["part"] == "pair"]
    for mib in models:
        judge_moves(report, mib, of(mib, "default", "chunk", "pool", "device", "pipeline"))
    report.note(f"early start, {max(models)} MiB: until the result", "", "and until all is there")
    note_early(report, of(max(models), "early"))
    for mib in models:
        note_starts(report, mib, of(mib, "start"))
    report.note("one leaves while another comes", f"{pairs[0]['mib']} MiB each", "out, in")
    note_pairs(report, pairs)
