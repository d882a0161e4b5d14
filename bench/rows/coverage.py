"""Does every launch pass the library? The profiler's (CUPTI's) counts against the shim's.

For eager PyTorch, torch.compile (Triton) and cuBLASLt the kernels that ran must equal the launches
that the shim counted. For graph replay the graph launches must.
"""

from rig.report import Report

TITLE = "Coverage: the profiler's counts and the shim's"


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=3)


def counted(rig, name):
    gpus = rig.job(name)["gpus"]
    return {key: sum(gpu[key] for gpu in gpus) for key in ("launches", "graph_launches", "copies")}


def run(rig, report: Report):
    job = rig.start("coverage", "profiled.py").ready()
    for kind, what in (("eager", "eager training"), ("compile", "torch.compile (Triton)"),
                       ("cublaslt", "cuBLASLt"), ("graph", "graph replay")):
        rig.say(what)
        job.ask(warm=kind, timeout=150)
        rounds = []
        for _ in range(rig.options.rounds):
            before = counted(rig, "coverage")
            seen = job.ask(count=kind)
            after = counted(rig, "coverage")
            rounds.append({"profiler": seen, "shim": {k: after[k] - before[k] for k in after}})
        report.keep(**{kind: rounds})
        pairs = [(r["profiler"]["graph_launches"], r["shim"]["graph_launches"]) if kind == "graph"
                 else (r["profiler"]["kernels"], r["shim"]["launches"]) for r in rounds]
        unit = "graph launches" if kind == "graph" else "kernels"
        report.judge(what, " ".join(f"{a}={b}" if a == b else f"{a}/{b}" for a, b in pairs),
                     f"{unit} of profiler = shim", all(a == b and a > 0 for a, b in pairs))
