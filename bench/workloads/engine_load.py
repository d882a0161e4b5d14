"""The common part of engines of language models: their requests, the times of the answers, and the
lines by which a row talks to them.

An engine says one line when it has started. From then on it answers each line on stdin with one
line:

    {"ask": {"requests": n, "in_flight": k, "seed": s, "length": l, "out": o, "clear": bool}}
            n requests, k of them in flight all the while; digests of the answers, and the times.
            `rate` instead of `in_flight`: Poisson arrivals. `clear`: empties the prefix cache first.
            `fresh`: prompts of just this length that share nothing
    {"sleep": level}, {"wake": true}                  sleep mode
    {"info": true}

The prompts of a seed share eight beginnings, so that a prefix cache has hits. They are longer than
a step may take, so that prefills are in chunks. At the end of its input the engine is shut down,
and the process ends with the interpreter's own end.

Times are of CLOCK_MONOTONIC. "first_ms" has the first token of each request, from the moment when
it was to begin; "token_ms" the time of each later token.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import harness
import shapes

BEGINNINGS = 8
FIRST_TOKEN = 16  # those before it mean something to a model
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def reweigh(model):
    """Drawn weights that each engine has alike, large enough that answers differ."""
    import torch
    with torch.no_grad():
        for number, (_, weight) in enumerate(model.named_parameters()):
            generator = torch.Generator(device=weight.device).manual_seed(number)
            if weight.ndim < 2:
                weight.fill_(1)
            else:
                weight.normal_(0, 0.02, generator=generator)


class StandIn:
    """The same calls without an engine and a GPU, to try a row; its figures mean nothing."""

    def __init__(self, options, _):
        self.going = {}

    def about(self):
        return {"vllm": "none", "blocks": 1000, "block_size": 16}

    def add(self, name, prompt, out):
        self.going[name] = [sum(prompt), out]

    def step(self):
        time.sleep(0.0005)
        said = []
        for name, state in list(self.going.items()):
            state[0] = (state[0] * 6364136223846793005 + 1442695040888963407) % 2**64
            state[1] -= 1
            said.append((name, [state[0] % 2048], state[1] == 0))
            if state[1] == 0:
                del self.going[name]
        return said

    def clear(self):
        pass

    def sleep(self, level):
        pass

    def wake(self):
        pass

    def close(self):
        pass


def prompts(shape, count, length, seed, fresh):
    rng = random.Random(seed)
    last = shapes.SHAPES[shape]["vocab_size"] - 1

    def draw(tokens):
        return [rng.randint(FIRST_TOKEN, last) for _ in range(tokens)]

    if fresh:
        return [draw(length) for _ in range(count)]
    beginnings = [draw(length // 2) for _ in range(BEGINNINGS)]
    return [beginnings[number % BEGINNINGS] + draw(rng.randint(length // 4, length // 2))
            for number in range(count)]


class Asked:
    """One conversation: its requests, their answers and their times."""

    def __init__(self, engine, shape, requests, seed=1, length=768, out=32, in_flight=16,
                 rate=None, fresh=False):
        self.engine, self.out, self.in_flight = engine, out, in_flight
        self.prompts = prompts(shape, requests, length, seed, fresh)
        self.answers = [[] for _ in self.prompts]
        self.begun = [0.0] * requests
        self.last = [0.0] * requests
        self.first_ms, self.token_ms = [0.0] * requests, []
        rng, at = random.Random(seed), 0.0
        self.arrivals = [at := at + rng.expovariate(rate) for _ in self.prompts] if rate else None
        self.next, self.done = 0, 0

    def due(self, now):
        """Whether one more request is to begin, and the moment when it was to."""
        if self.next == len(self.prompts):
            return None
        if self.arrivals:
            at = self.zero + self.arrivals[self.next]
            return at if at <= now else None
        return now if self.next - self.done < self.in_flight else None

    def begin(self):
        while (at := self.due(time.monotonic())) is not None:
            self.begun[self.next] = at
            self.engine.add(f"{self.next}", self.prompts[self.next], self.out)
            self.next += 1

    def note(self, name, tokens, finished):
        number, now = int(name.split("-")[0]), time.monotonic()
        if tokens and not self.answers[number]:
            self.first_ms[number] = (now - self.begun[number]) * 1e3
        elif tokens:
            self.token_ms += [(now - self.last[number]) * 1e3 / len(tokens)] * len(tokens)
        self.last[number] = now
        self.answers[number] += tokens
        self.done += finished

    def run(self):
        self.zero = time.monotonic()
        while self.done < len(self.prompts):
            self.begin()
            if self.next == self.done:
                time.sleep(0.0002)  # nothing in flight: an arrival is still to come
                continue
            for each in self.engine.step():
                self.note(*each)
        seconds = time.monotonic() - self.zero
        tokens = sum(map(len, self.answers))
        return {"digests": [hashlib.sha256(json.dumps(each).encode()).hexdigest()[:16]
                            for each in self.answers],
                "different_tokens": len({token for each in self.answers for token in each}),
                "tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds,
                "first_ms": self.first_ms, "token_ms": self.token_ms,
                "begun": self.zero, "ended": self.zero + seconds}


def obey(engine, options, command):
    if "ask" in command:
        how = dict(command["ask"])
        if how.pop("clear", False):
            engine.clear()
        return Asked(engine, options.shape, **how).run()
    begun = time.monotonic()
    if "sleep" in command:
        engine.sleep(command["sleep"])
    elif "wake" in command:
        engine.wake()
    elif "info" not in command:
        return {"error": f"unknown command {command}"}
    return {"seconds": time.monotonic() - begun, **engine.about()}


def parser():
    """The options that each engine has."""
    made = argparse.ArgumentParser()
    made.add_argument("--device", default="cuda", help="cpu: a stand-in without the engine")
    made.add_argument("--shape", choices=shapes.SHAPES, default="tiny")
    made.add_argument("--longest", type=int, default=2048, help="tokens in and out")
    made.add_argument("--sequences", type=int, default=32, help="in flight, at most")
    made.add_argument("--batched", type=int, default=512, help="tokens of one step, at most")
    made.add_argument("--cache-gib", type=float, default=0, help="instead of what it measures")
    made.add_argument("--eager", action="store_true")
    return made


def main(options, make):
    """make(options, folder): the engine. The folder is there until the end, for its model."""
    protocol = harness.Protocol()
    folder = Path(tempfile.mkdtemp(prefix="model-"))
    for key, value in OFFLINE.items():
        os.environ.setdefault(key, value)
    begun, engine = time.monotonic(), None
    try:
        engine = (make if options.device == "cuda" else StandIn)(options, folder)
        protocol.say(ready=True, pid=os.getpid(), start_seconds=time.monotonic() - begun,
                     **engine.about())
        while (command := protocol.next()) is not None:
            protocol.say(**obey(engine, options, command))
        engine.close()
    except Exception as error:  # the row shows it, and the end of the log
        traceback.print_exc()
        protocol.say(error=f"{type(error).__name__}: {str(error)[:500]}")
        if engine:
            engine.close()  # its threads would keep the process
        sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
