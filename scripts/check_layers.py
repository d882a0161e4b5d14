#!/usr/bin/env python3
"""The include arrows, checked: a file of a layer includes only its own layer and those named here.

    include/switchyard  ←  shim, monitor, tools  ←  tests

Inside a wing, FLOORS orders the folders: a file includes its own folder and those below it. Headers
that include each other in a circle have no order.

`examples` and `bench` are programs of other people, in spirit: they include nothing of ours but the
loader of libcuda, which knows nothing of Switchyard. So does the conformance test. The simulator,
bench/simulate, plays the monitor's own policies, and tests play it.

    scripts/check_layers.py [ROOT]    ROOT: another tree (the check's own test uses it)
"""

import os
import re
import sys
from pathlib import Path

# The headers of ours for programs that know nothing of Switchyard.
LOADER = "include/switchyard/cuda_library.h"
CHECKPOINT = "include/switchyard/cuda_checkpoint.h"

# layer: the layers or files that it may include. The first that a path begins with is its own.
LAYERS = {
    "include/switchyard": ["include/switchyard"],
    "tests/conformance": ["tests/conformance", "tests/fakecuda", "examples/kernels", LOADER,
                          CHECKPOINT],
    "bench/simulate": ["include/switchyard", "monitor", "bench/simulate"],
    "shim": ["include/switchyard", "shim"],
    "monitor": ["include/switchyard", "monitor"],
    "tools": ["include/switchyard", "tools"],
    "tests": ["include/switchyard", "shim", "monitor", "tools", "tests", "bench/simulate",
              "examples/demo", "examples/kernels", "packaging/slurm"],
    "examples": ["examples", LOADER],
    "bench": ["bench", LOADER],
}

# wing: its folders, lowest first. A file that stands in the wing itself is a floor of its own.
FLOORS = {
    "shim": ["glibc", "no_copy", "no_cancel", "host_device", "lock", "thread", "clock", "wake_word", "reset",
             "own_fd", "log", "size_text", "dl", "table", "trampoline", "driver", "own_kernel", "entry",
             "thread_count", "client", "inside", "capture", "contexts", "memory", "checkpoint",
             "work_guard", "gate", "swap", "ipc", "island", "slices", "nvml", "nccl", "wiring", "rules",
             "doors"],
    "shim/swap": ["mover", "host", "memory", "transfer", "residency", "calls"],
    "monitor": ["platform", "policy", "core", "islands", "config", "accounting", "scheduling", "residency", "status",
                "statistics", "adaptation", "history", "timeline", "monitor", "charging", "joining", "reconfigure", "export",
                "control", "transport", "command_line", "options", "understand", "reload",
                "main"],
    "tools": ["entrypoint", "base", "backend", "cdi", "config", "jupyter", "trace",
              "policy", "ps", "report", "events", "run", "set", "stats", "status", "stop", "swap", "version",
              "doctor", "migrate", "pause", "why", "inspect", "top", "main"],
}

# A folder with more source files than this opens with a README.md.
MOST_UNEXPLAINED = 8

ROOTS = ("include", "shim", "monitor", "tools", "tests", "examples", "bench")
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]*)"')


def layer_of(path):
    return next((layer for layer in LAYERS if path.startswith(layer + "/")), None)


def target_of(path, name):
    """The file of ours that `path` means by `name`: beside it, above it, at the root or in include/."""
    here = os.path.dirname(path)
    for folder in (here, "", "include", os.path.dirname(here)):
        candidate = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(candidate):
            return candidate
    return None


def climbs(path, target):
    """Whether `target` stands on a higher floor of the wing, or `path` on none."""
    for wing, floors in FLOORS.items():
        if path.startswith(wing + "/"):
            own, other = (part[len(wing) + 1:].split("/")[0].split(".")[0] for part in (path, target))
            if own not in floors:
                return True
            if target.startswith(wing + "/") and floors.index(own) < (
                    floors.index(other) if other in floors else len(floors)):
                return True
    return False


def arrows():
    """(path, line, target) of each include of a file of ours."""
    for root in ROOTS:
        for file in sorted(Path(root).rglob("*")):
            if file.suffix not in (".h", ".cpp", ".c"):
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                found = INCLUDE.match(line)
                target = found and target_of(str(file), found.group(1))
                if target:
                    yield str(file), number, target


def circle(includes):
    """Files that include each other in a circle, in order; empty: there are none."""
    done, path = set(), []

    def visit(file):
        if file in path:
            return path[path.index(file):]
        if file in done:
            return []
        path.append(file)
        for target in includes.get(file, ()):
            found = visit(target)
            if found:
                return found
        path.pop()
        done.add(file)
        return []

    return next((found for found in map(visit, sorted(includes)) if found), [])


def unexplained():
    """Folders that have many files and no README.md."""
    for root in ROOTS:
        for folder in [Path(root), *(path for path in sorted(Path(root).rglob("*")) if path.is_dir())]:
            sources = [file for file in folder.glob("*") if file.suffix in (".h", ".cpp", ".c", ".py")]
            if len(sources) > MOST_UNEXPLAINED and not (folder / "README.md").is_file():
                yield str(folder)


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    problems, includes = [], {}
    for path, line, target in arrows():
        layer = layer_of(path)
        if not any((target + "/").startswith(allowed + "/") for allowed in LAYERS[layer]):
            problems.append(f"{path}:{line}: {layer} must not include {target} (LAYERS in {__file__})")
        elif climbs(path, target):
            problems.append(f"{path}:{line}: its folder must not include {target} "
                            f"(FLOORS in {__file__})")
        includes.setdefault(path, []).append(target)
    found = circle(includes)
    if found:
        problems.append("these include each other in a circle: " + " ".join(found))
    problems += [f"{folder}: more than {MOST_UNEXPLAINED} files want a README.md: what lives here, "
                 "what it may include, its locks" for folder in unexplained()]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
