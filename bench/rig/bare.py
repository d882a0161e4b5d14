"""Slices of jobs without anything else: the preload bench/bare_slices.c, told by a file for each job.

A job's processes answer in files of their own. At no moment do two jobs have short slices: longer
ones are in force before shorter ones are asked for, as the monitor does it.

Threading: one thread.
"""

import time

from rig.process import WorkloadFailed

DRIVERS_OWN_US = 2048
HIGH_US, LOW_US = 10000, 20
PATIENCE = 5  # seconds


def file_of(scratch, name):
    return scratch / f"{name}.slice"


def environment(scratch, name):
    return {"BARE_SLICES": file_of(scratch, name)}


def preloaded(library, argv):
    """Before whatever the launcher preloads, so it is added inside."""
    return ["sh", "-c", 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', library, *argv]


def bring(scratch, slices):
    """Raises before it lowers."""
    for name, us in sorted(slices.items(), key=lambda each: -each[1]):
        file = file_of(scratch, name)
        part = file.with_suffix(".new")
        part.write_text(f"{us}\n")
        part.replace(file)
        confirm(name, file, us)


def confirm(name, file, us):
    """Until each process that has channel groups has set them."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        said = [[int(word) for word in each.read_text().split()]
                for each in file.parent.glob(f"{file.name}.*[0-9]")]
        if said and all(each[0] == us for each in said):
            break
        time.sleep(0.02)
    else:
        raise WorkloadFailed(name, f"a slice of {us} us is not in force after {PATIENCE} s")
    if any(refused for _, _, refused in said):
        raise WorkloadFailed(name, f"the driver refused slices of {us} us: {said}")
