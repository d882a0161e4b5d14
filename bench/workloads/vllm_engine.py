#!/usr/bin/env python3
"""An unmodified vLLM engine that answers requests of token ids, with weights that are drawn.

It says one line when it has started. From then on it answers each line on stdin with one line:

    {"ask": {"requests": n, "in_flight": k, "seed": s, "length": l, "out": o, "clear": bool}}
            n requests, k of them in flight all the while; digests of the answers, and the times.
            `rate` instead of `in_flight`: Poisson arrivals. `clear`: empties the prefix cache first.
            `fresh`: prompts of just this length that share nothing
    {"sleep": level}, {"wake": true}                  sleep mode
    {"info": true}

The prompts of a seed share eight beginnings, so that the prefix cache has hits. They are longer
than a step may take, so that prefills are in chunks. At the end of its input the engine is shut
down as vLLM does it, and the process ends with the interpreter's own end.

Times are of CLOCK_MONOTONIC. "first_ms" has the first token of each request, from the moment when
it was to begin; "token_ms" the time of each later token.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import harness
import vllm_shapes

BEGINNINGS = 8
FIRST_TOKEN = 16  # those before it mean something to a model
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
         "VLLM_DO_NOT_TRACK": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_HOST_IP": "127.0.0.1",
         "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "TOKENIZERS_PARALLELISM": "false"}


class Reweigh:
    """What vLLM adds to its worker: dummy weights are so small that all answers would be alike."""

    def reweigh(self):
        import torch
        with torch.no_grad():
            for number, (_, weight) in enumerate(self.model_runner.model.named_parameters()):
                generator = torch.Generator(device=weight.device).manual_seed(number)
                if weight.ndim < 2:
                    weight.fill_(1)
                else:
                    weight.normal_(0, 0.02, generator=generator)
        torch.cuda.synchronize()


def graphs(of_prefills):
    """CUDA graphs without Inductor, which would take a minute of every start. vLLM's default has
    some of prefills, too; without them a prefill waits for its CPU."""
    sizes = [1, 2, 4, 8, 16, 32]
    if not of_prefills:
        return {"mode": 0, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": sizes}
    return {"mode": 3, "backend": "eager", "cudagraph_mode": "FULL_AND_PIECEWISE",
            "cudagraph_capture_sizes": [*sizes, 64, 128, 256, 384, 512]}


class Engine:
    """vLLM behind three calls: add, step, and the settings of the command line."""

    def __init__(self, options, folder):
        for key, value in QUIET.items():
            os.environ.setdefault(key, value)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if options.one_process else "1"
        from vllm import LLM, SamplingParams
        from vllm.sampling_params import RequestOutputKind
        self.llm = LLM(
            model=str(vllm_shapes.write(options.shape, folder)), load_format="dummy",
            skip_tokenizer_init=True, generation_config="vllm", dtype="bfloat16", seed=0,
            max_model_len=options.longest, max_num_seqs=options.sequences,
            max_num_batched_tokens=options.batched, enable_prefix_caching=True,
            gpu_memory_utilization=options.utilization,
            kv_cache_memory_bytes=int(options.cache_gib * 2**30) or None,
            enable_sleep_mode=options.sleep, enforce_eager=options.eager,
            tensor_parallel_size=options.parallel,
            worker_extension_cls="vllm_engine.Reweigh",
            compilation_config=None if options.eager else graphs(options.prefill_graphs))
        self.llm.collective_rpc("reweigh")
        self.engine = self.llm.llm_engine
        self.params = lambda out: SamplingParams(
            temperature=0.0, max_tokens=out, ignore_eos=True, detokenize=False,
            output_kind=RequestOutputKind.DELTA)

    def about(self):
        import torch
        import vllm
        config = self.engine.vllm_config
        return {"vllm": vllm.__version__, "torch": torch.__version__,
                "graphs": str(config.compilation_config.cudagraph_mode),
                "blocks": config.cache_config.num_gpu_blocks,
                "block_size": config.cache_config.block_size}

    def add(self, name, prompt, out):
        self.engine.add_request(name, {"type": "token", "prompt_token_ids": prompt},
                                self.params(out))

    def step(self):
        """[(request, its new tokens, whether it is done)]"""
        return [(each.request_id, list(each.outputs[0].token_ids), each.finished)
                for each in self.engine.step()]

    def clear(self):
        self.llm.reset_prefix_cache()

    def sleep(self, level):
        self.llm.sleep(level=level)

    def wake(self):
        self.llm.wake_up()

    def close(self):
        self.engine.engine_core.shutdown()


class StandIn:
    """The same calls without vLLM and a GPU, to try a row; its figures mean nothing."""

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
    last = vllm_shapes.SHAPES[shape]["vocab_size"] - 1

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


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", help="cpu: a stand-in without vLLM")
    parser.add_argument("--shape", choices=vllm_shapes.SHAPES, default="tiny")
    parser.add_argument("--longest", type=int, default=2048, help="tokens in and out")
    parser.add_argument("--sequences", type=int, default=32, help="in flight, at most")
    parser.add_argument("--batched", type=int, default=512, help="tokens of one step, at most")
    parser.add_argument("--utilization", type=float, default=0.9, help="of the memory it sees")
    parser.add_argument("--cache-gib", type=float, default=0, help="instead of what it measures")
    parser.add_argument("--parallel", type=int, default=1, help="ranks")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--prefill-graphs", action="store_true", help="CUDA graphs of prefills, too")
    parser.add_argument("--sleep", action="store_true", help="sleep mode")
    parser.add_argument("--one-process", action="store_true", help="its core in this process")
    return parser.parse_args()


def main():
    options = parse()
    protocol = harness.Protocol()
    folder = Path(tempfile.mkdtemp(prefix="vllm-model-"))
    begun = time.monotonic()
    try:
        engine = (Engine if options.device == "cuda" else StandIn)(options, folder)
        protocol.say(ready=True, pid=os.getpid(), start_seconds=time.monotonic() - begun,
                     **engine.about())
        while (command := protocol.next()) is not None:
            protocol.say(**obey(engine, options, command))
        engine.close()
    except Exception as error:  # the driver shows it; a traceback goes to stderr
        protocol.say(error=f"{type(error).__name__}: {str(error)[:500]}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
