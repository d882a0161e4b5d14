"""Warm trainings of two ranks that take turns (checks/ordered_training.py), so that what the host
does at a time meets all of them.

Two processes of one program may differ by more than two variants do. So a row may start several
processes of each variant.

Threading: one thread.
"""

from rig.process import BENCH, python


def start(rig, mode, variants, processes, *more):
    """[(variant, job), ...]. `variants`: of each name, how it is started; `more`: of the script."""
    argv = [python(), BENCH / "checks" / "ordered_training.py", mode, *more]
    jobs = [(name, rig.start_program(f"{mode}-{name}-{number}", argv, **how))
            for number in range(processes) for name, how in variants.items()]
    for _, job in jobs:
        job.ready(180)
    return jobs


def end(jobs):
    for _, job in jobs:
        job.end(30)


def measure(jobs, rounds, steps, rates):
    """To `rates`, which are kept also where the row's limit comes first. Each variant has steps per
    second by the median step, of each round each of its processes. The host takes CPUs away at
    times, which makes single steps longer."""
    rates.update({name: [] for name, _ in jobs})
    for index in range(rounds):
        turn = {}
        for place, (_, job) in list(enumerate(jobs))[::1 if index % 2 == 0 else -1]:
            turn[place] = job.ask(steps=steps, timeout=120)["usual_rate"]
        for place, (name, _) in enumerate(jobs):
            rates[name].append(turn[place])


def ratios(rates_of, name, other):
    """Those of one variant over those of another, turn by turn."""
    return [one / two for one, two in zip(rates_of[name], rates_of[other])]
