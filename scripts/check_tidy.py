#!/usr/bin/env python3
"""clang-tidy, as .clang-tidy says, over what we ship: shim, monitor, tools and the examples.

    scripts/check_tidy.py BUILD [JOBS] [FILE...]

Every header of ours that these include is checked with them. The tests are held by the compiler's
warnings, the sanitizers and the formatter: over them it costs ten minutes and has found tastes, not
faults. The programs of the bench, which no test builds, are compiled.

Most of a file's time goes into headers. So the files of a folder are checked as one unit, as they
are compiled (cmake/Unity.cmake, which says how a missing #include is found there). And clang-tidy
finds a `using` that nobody uses only in a file by itself; in a unit its name is looked for. With
FILE, only these are checked, each by itself.

A unit that passed is not looked at again until something that it includes, .clang-tidy, or the
version of clang-tidy changes.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("shim", "monitor", "tools", "examples")
ONLY_COMPILED = ("bench",)
TIDY = os.environ.get("CLANG_TIDY", str(ROOT / "build/lint-tools/bin/clang-tidy"))
# In a unit, an #include of a .cpp file is how it is made, and a `using` is looked for by its name.
ONLY_ALONE = "-bugprone-suspicious-include,-misc-unused-using-decls"
BROUGHT_IN = re.compile(r"^\s*(?:using\s+(?:\w*::)+(\w+)|namespace\s+(\w+)\s*=[^;]*);", re.M)
INCLUDED = re.compile(r'^#include "(.*\.cpp)"$', re.M)


class Unit:
    """One clang-tidy run: a file to check, the sources in it, and how they are compiled."""

    def __init__(self, file, sources, compiler, flags, folder):
        self.file, self.sources, self.folder = file, sources, folder
        self.compiler, self.flags = compiler, flags

    def run(self, words, **how):
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True, **how)


def units_of(build, wings):
    """The units of the sources in `wings`. Those that tests compile once more are left out."""
    found = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        folder = Path(entry["directory"])
        out = words.index("-o")
        wing = words[out + 1].split("/")[0]
        file = (folder / entry["file"]).resolve()
        sources = [file]
        if build in file.parents and "Unity" in file.parts:
            sources = [Path(name).resolve() for name in INCLUDED.findall(file.read_text())]
        own = wing in wings and ROOT / wing in sources[0].parents
        if not own or file.suffix not in (".cpp", ".cxx"):
            continue
        flags = [word for at, word in enumerate(words[1:], 1)
                 if at not in (out, out + 1) and word not in ("-c", entry["file"])]
        # ccache stands before the compiler where there is one.
        while not re.search(r"(g\+\+|clang\+\+|c\+\+)[-.\d]*$", words[0]):
            words.pop(0)
            flags.pop(0)
        found.append(Unit(file, sources, words[0], flags, folder))
    return found


def key_of(unit, options):
    """Names what the check would see: the text with its headers, and what is checked."""
    text = unit.run([unit.compiler, *unit.flags, "-E", "-P", str(unit.file)]).stdout
    config = "".join((ROOT / name).read_text() for name in (".clang-tidy", "shim/.clang-tidy"))
    config += unit.run([TIDY, "--version"]).stdout
    return hashlib.sha256((text + config + " ".join(options)).encode()).hexdigest()[:32]


def tidy(unit, passed):
    """True: nothing was found, now or when the same text was looked at before."""
    options = []
    if "Unity" in unit.file.parts:
        options = [f"--checks={ONLY_ALONE}", f"--config-file={ROOT}/.clang-tidy"]
    mark = passed / key_of(unit, options)
    if mark.exists():
        return True
    done = unit.run([TIDY, "--quiet", *options, str(unit.file), "--", *unit.flags])
    if done.returncode == 0:
        mark.touch()
        return True
    noise = re.compile(r"^\d+ warnings? (generated|treated)")
    said = [line for line in done.stderr.splitlines() if not noise.match(line)]
    print(done.stdout + "\n".join(said), flush=True)
    return False


def compiles(unit):
    done = unit.run([unit.compiler, *unit.flags, "-fsyntax-only", str(unit.file)])
    if done.returncode != 0:
        print(f"{unit.file}: does not compile\n{done.stderr}", flush=True)
    return done.returncode == 0


def uses_what_it_brings_in(source):
    """Whether each name that a `using` or an alias brings into the source is written elsewhere."""
    text = re.sub(r"//.*", "", source.read_text())
    names = [one or other for one, other in BROUGHT_IN.findall(text)]
    unused = [name for name in names if len(re.findall(rf"\b{name}\b", text)) == 1]
    for name in unused:
        print(f"{source.relative_to(ROOT)}: '{name}' is brought in and not used", flush=True)
    return not unused


def single_units(units, paths):
    """Each of the files by itself."""
    return [Unit(path, [path], unit.compiler, unit.flags, unit.folder)
            for path in paths for unit in units if path in unit.sources]


def main():
    build = Path(sys.argv[1]).resolve()
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    passed = build / "tidy"
    passed.mkdir(exist_ok=True)
    units = units_of(build, SHIPPED)
    tracked = subprocess.run(["git", "ls-files", *(f"{wing}/*.cpp" for wing in SHIPPED)], cwd=ROOT,
                             capture_output=True, text=True, check=True).stdout.split()
    wanted = [Path(name).resolve() for name in sys.argv[3:]] or [ROOT / name for name in tracked]
    known = {source for unit in units for source in unit.sources}
    missing = [path for path in wanted if path not in known]
    for path in missing:
        print(f"{path}: not in {build}/compile_commands.json; no target builds it, or it is stale")
    if missing:
        return 1
    together = [unit for unit in units if len(unit.sources) > 1]
    compiled = units_of(build, ONLY_COMPILED)
    if sys.argv[3:]:
        units, together, compiled = single_units(units, wanted), [], []
    with ThreadPoolExecutor(jobs) as pool:
        # The longest first, so that none of them is left for the end.
        work = [pool.submit(tidy, unit, passed)
                for unit in sorted(units, key=lambda unit: -len(unit.sources))]
        work += [pool.submit(compiles, unit) for unit in compiled]
        good = [each.result() for each in work]
    good += [uses_what_it_brings_in(source) for unit in together for source in unit.sources]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
