#!/usr/bin/env python3
"""An unmodified vLLM engine that answers requests of token ids, with weights that are drawn.

engine_load.py has the lines that it obeys.
"""

import asyncio
import os
import queue
import threading

import engine_load
import shapes

LOOK = 0.002  # seconds to wait for a token: an arrival may be due meanwhile

QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0",
         "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


class Reweigh:
    """What vLLM adds to its worker: dummy weights are so small that all answers would be alike."""

    def reweigh(self):
        import torch
        engine_load.reweigh(self.model_runner.model)
        torch.cuda.synchronize()


def graphs(of_prefills):
    """CUDA graphs without Inductor, which would take a minute of every start. vLLM's default has
    some of prefills, too; without them a prefill waits for its CPU."""
    sizes = [1, 2, 4, 8, 16, 32]
    if not of_prefills:
        return {"mode": 0, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": sizes}
    return {"mode": 3, "backend": "eager", "cudagraph_mode": "FULL_AND_PIECEWISE",
            "cudagraph_capture_sizes": [*sizes, 64, 128, 256, 384, 512]}


def prepare(one_process=False):
    """The environment, before vLLM is imported."""
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if one_process else "1"


def settings(options, folder):
    """The arguments of each kind of engine."""
    return dict(
        model=str(shapes.write(options.shape, folder)), load_format="dummy",
        skip_tokenizer_init=True, generation_config="vllm", dtype="bfloat16", seed=0,
        max_model_len=options.longest, max_num_seqs=options.sequences,
        max_num_batched_tokens=options.batched, enable_prefix_caching=True,
        gpu_memory_utilization=options.utilization,
        kv_cache_memory_bytes=int(options.cache_gib * 2**30) or None,
        enable_sleep_mode=options.sleep, enforce_eager=options.eager,
        tensor_parallel_size=options.parallel,
        worker_extension_cls="vllm_engine.Reweigh",
        compilation_config={} if options.eager else graphs(options.prefill_graphs))


def sampling(out):
    """The likeliest tokens, `out` of them, told as they come."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind
    return SamplingParams(temperature=0.0, max_tokens=out, ignore_eos=True, detokenize=False,
                          output_kind=RequestOutputKind.DELTA)


def said_of(config):
    import torch
    import vllm
    return {"vllm": vllm.__version__, "torch": torch.__version__,
            "graphs": str(config.compilation_config.cudagraph_mode),
            "blocks": config.cache_config.num_gpu_blocks,
            "block_size": config.cache_config.block_size}


def tokens_of(output):
    """(request, its new tokens, whether it is done)"""
    return output.request_id, list(output.outputs[0].token_ids), output.finished


class Engine:
    """vLLM behind three calls: add, step, and the settings of the command line."""

    def __init__(self, options, folder):
        prepare(options.one_process)
        from vllm import LLM
        self.llm = LLM(**settings(options, folder))
        self.llm.collective_rpc("reweigh")
        self.engine = self.llm.llm_engine

    def about(self):
        return said_of(self.engine.vllm_config)

    def add(self, name, prompt, out):
        self.engine.add_request(name, {"type": "token", "prompt_token_ids": prompt}, sampling(out))

    def step(self):
        """[(request, its new tokens, whether it is done)]"""
        return [tokens_of(each) for each in self.engine.step()]

    def clear(self):
        self.llm.reset_prefix_cache()

    def sleep(self, level):
        self.llm.sleep(level=level)

    def wake(self):
        self.llm.wake_up()

    def close(self):
        self.engine.engine_core.shutdown()


class Replicas:
    """Replicas behind one front end, as `vllm serve --data-parallel-size` has them. Only vLLM's
    asynchronous engine knows them, so it has a thread of its own."""

    def __init__(self, options, folder):
        prepare()
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
        self.said = queue.SimpleQueue()
        self.tasks = set()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        given = AsyncEngineArgs(**settings(options, folder), data_parallel_size=options.replicas)

        async def make():
            return AsyncLLM.from_engine_args(given)

        self.engine = self.wait_for(make())
        self.wait_for(self.engine.collective_rpc("reweigh"))

    def wait_for(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def about(self):
        return said_of(self.engine.vllm_config)

    async def answer(self, name, prompt, out):
        try:
            async for each in self.engine.generate({"prompt_token_ids": prompt}, sampling(out),
                                                   name):
                self.said.put(tokens_of(each))
        except Exception as error:  # step() raises it in the thread that asks
            self.said.put(error)

    def add(self, name, prompt, out):
        def begin():
            task = self.loop.create_task(self.answer(name, prompt, out))
            self.tasks.add(task)  # a loop keeps no task alive
            task.add_done_callback(self.tasks.discard)

        self.loop.call_soon_threadsafe(begin)

    def step(self):
        """[(request, its new tokens, whether it is done)]"""
        try:
            said = [self.said.get(timeout=LOOK)]
            while not self.said.empty():
                said.append(self.said.get())
        except queue.Empty:
            return []
        for each in said:
            if isinstance(each, Exception):
                raise each
        return said

    def clear(self):
        self.wait_for(self.engine.reset_prefix_cache())

    def sleep(self, level):
        self.wait_for(self.engine.sleep(level))

    def wake(self):
        self.wait_for(self.engine.wake_up())

    def close(self):
        self.engine.shutdown()


def parse():
    parser = engine_load.parser()
    parser.add_argument("--utilization", type=float, default=0.9, help="of the memory it sees")
    parser.add_argument("--parallel", type=int, default=1, help="ranks")
    parser.add_argument("--replicas", type=int, default=1, help="behind one front end")
    parser.add_argument("--prefill-graphs", action="store_true", help="CUDA graphs of prefills, too")
    parser.add_argument("--sleep", action="store_true", help="sleep mode")
    parser.add_argument("--one-process", action="store_true", help="its core in this process")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = parse()
    engine_load.main(chosen, Replicas if chosen.replicas > 1 else Engine)
