#!/usr/bin/env python3
"""The speed of the link to the host: so many bytes out, in, and both at once. Each copy is from or
to pinned memory, on a stream of its own. Prints one line with bytes per second, the median of the
rounds. For both: the bytes out and in, over the time until the later was done.

    link.py MIB ROUNDS
"""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

from driver_api import SIZE, Driver  # noqa: E402


def main():
    size, rounds = int(sys.argv[1]) << 20, int(sys.argv[2])
    driver = Driver()
    ways = {way: (driver.device_memory(size), driver.pinned_memory(size), driver.stream())
            for way in ("out", "in")}

    def once(*which):
        begun = time.monotonic()
        for way in which:
            device, host, stream = ways[way]
            if way == "out":
                driver.check("cuMemcpyDtoHAsync_v2", host, device, SIZE(size), stream)
            else:
                driver.check("cuMemcpyHtoDAsync_v2", device, host, SIZE(size), stream)
        for way in which:
            driver.check("cuStreamSynchronize", ways[way][2])
        return len(which) * size / (time.monotonic() - begun)

    rates = {"out": [], "in": [], "both": []}
    once("out", "in")  # the first copies are slower
    for _ in range(rounds):
        rates["out"].append(once("out"))
        rates["in"].append(once("in"))
        rates["both"].append(once("out", "in"))
    print(json.dumps({way: statistics.median(values) for way, values in rates.items()}), flush=True)


if __name__ == "__main__":
    main()
