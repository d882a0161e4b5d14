#!/usr/bin/env python3
"""The bench's own arithmetic: what a figure is, and when a bound is decided.

    tests/checks/bench_figures.py SOURCE
"""

import random
import sys
import types
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1))
sys.path.insert(0, str(ROOT / "bench"))
sys.dont_write_bytecode = True

from rig.ranks import rate_of_whole  # noqa: E402
from rig.report import Report, interval, stretches, tail, tail_ratio  # noqa: E402
from rows import ddp_shares, latency, noise, provision, shares  # noqa: E402


def queue(seed, requests, added):
    """Latencies of Poisson arrivals at one server; `added`: by what starts a busy period."""
    rng, at, free, out = random.Random(seed), 0.0, 0.0, []
    for _ in range(requests):
        at += rng.expovariate(50)
        end = max(at, free) + 1.2e-3 + (added if free <= at else 0)
        free = end
        out.append(1e3 * (end - at))
    return out


class Tail(unittest.TestCase):
    def test_is_the_mean_around_the_percentile(self):
        self.assertAlmostEqual(tail([float(value) for value in range(1000)]), 989.5)
        self.assertEqual(tail([3.0]), 3.0)

    def test_nearly_all_intervals_of_a_ratio_have_what_many_more_requests_show(self):
        def pairs(seeds, requests):
            return [pair for seed in seeds for pair in stretches(
                queue(seed, requests, 0), queue(seed, requests, 0.2e-3))]
        truth = tail_ratio(pairs(range(1000, 1010), 20000))
        found = [interval(pairs(range(4 * run, 4 * run + 4), 600), tail_ratio, draws=200)
                 for run in range(20)]
        self.assertGreaterEqual(sum(low <= truth <= high for low, high in found), 17)
        self.assertLess(max(high - low for low, high in found), 0.02)


def every_twentieth(first, rate, changes_at, rate_then, until=20.0):
    """Moments at which a training had made twenty steps more."""
    out = [first]
    while out[-1] < until:
        out.append(out[-1] + 20 / rate)
        if out[-1] > changes_at:
            before = max(0.0, changes_at - out[-2])
            out[-1] = out[-2] + before + (20 - before * rate) / rate_then
    return out


class StepRate(unittest.TestCase):
    FIRST = (-5.0, -4.7, -4.1, -3.9, -3.3)

    def test_what_follows_a_window_does_not_count(self):
        for first in self.FIRST:
            for then in (21.8, 7.3):
                stamps = every_twentieth(first, 14.3, 6, then)
                self.assertAlmostEqual(20 * rate_of_whole(stamps, 0, 6), 14.3)

    def test_nothing_need_follow_a_window(self):
        for first in self.FIRST:
            stamps = [stamp for stamp in every_twentieth(first, 7.3, 20, 7.3) if stamp < 6.1]
            self.assertAlmostEqual(20 * rate_of_whole(stamps, 0, 6), 7.3)

    def test_of_a_slow_one_what_is_known_beside_the_window_counts(self):
        stamps = every_twentieth(-5, 2, 20, 2)
        self.assertAlmostEqual(20 * rate_of_whole(stamps, 0, 6), 2)


class SmallestWeight(unittest.TestCase):
    def test_larger_weights_that_give_less_do_not_count(self):
        rates = {0.5: [78, 79], 1: [99, 98], 2: [100, 100], 4: [97, 96], 8: [94, 94]}
        self.assertEqual(provision.smallest_within(rates), 1)

    def test_it_is_the_first_of_those_that_give_the_same(self):
        self.assertEqual(provision.smallest_within({0.25: [50], 0.5: [100], 1: [100]}), 0.5)


class MeasuredSteps(unittest.TestCase):
    def test_they_are_the_half_that_is_slower_by_all_turns(self):
        for halves in ([(102, 100), (99, 100), (104, 100)], [(100, 102), (100, 99), (100, 104)]):
            ratios = noise.slower_over_faster(halves)
            for ratio, right in zip(ratios, (100 / 102, 100 / 99, 100 / 104)):
                self.assertAlmostEqual(ratio, right)


class Verdict(unittest.TestCase):
    def setUp(self):
        self.report = Report("row", "title", types.SimpleNamespace())

    def test_a_bound_inside_the_interval_is_not_decided(self):
        self.report.ends((1.0, 1.2), 1.1)
        self.report.ends((1.0, 1.09), 1.1)
        self.assertEqual([line[2] for line in self.report.lines], ["not decided", ""])

    def test_a_share_is_decided_where_all_of_its_interval_is_near_or_far(self):
        for measured in ([50.2, 49.9, 50.4], [49.0, 50.7, 52.4], [53.0, 53.2, 52.4]):
            ddp_shares.judge_share(self.report, "equal", measured, 50)
        verdicts = [line[3] for line in self.report.lines[::2]]
        self.assertEqual(verdicts, ["PASS", "PASS", "MISS"])
        undecided = ["not decided" in line[2] for line in self.report.lines[1::2]]
        self.assertEqual(undecided, [False, True, False])

    def test_training_is_compared_with_its_own_round(self):
        served = [{"latencies_ms": [1.0] * 100, "solo_steps_per_second": solo,
                   "training_steps_per_second": 0.9 * solo} for solo in (10, 20, 11)]
        latency.judge(self.report, dict.fromkeys(("alone", "bare", "switchyard"), served), 0.95)
        self.assertEqual(self.report.misses, 1)
        self.assertIn(("switchyard: training over solo", "0.900", "at least 0.950", "MISS"),
                      self.report.lines)

    def test_a_shared_window_is_compared_with_its_neighbours(self):
        cell = {"rates": [5.0, 5.0], "solos_before": 1}
        self.assertAlmostEqual(shares.sum_over_solo(cell, [9.9, 10.1, 20.0]), 100)
        self.assertAlmostEqual(shares.sum_over_solo(cell, [8.0]), 125)  # none came after


if __name__ == "__main__":
    unittest.main()
