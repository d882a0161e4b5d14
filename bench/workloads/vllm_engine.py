#!/usr/bin/env python3
"""An unmodified vLLM engine that answers requests of token ids, with weights that are drawn.

engine_load.py has the lines that it obeys.
"""

import os

import engine_load
import shapes

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


class Engine:
    """vLLM behind three calls: add, step, and the settings of the command line."""

    def __init__(self, options, folder):
        for key, value in QUIET.items():
            os.environ.setdefault(key, value)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if options.one_process else "1"
        from vllm import LLM, SamplingParams
        from vllm.sampling_params import RequestOutputKind
        self.llm = LLM(
            model=str(shapes.write(options.shape, folder)), load_format="dummy",
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


def parse():
    parser = engine_load.parser()
    parser.add_argument("--utilization", type=float, default=0.9, help="of the memory it sees")
    parser.add_argument("--parallel", type=int, default=1, help="ranks")
    parser.add_argument("--prefill-graphs", action="store_true", help="CUDA graphs of prefills, too")
    parser.add_argument("--sleep", action="store_true", help="sleep mode")
    parser.add_argument("--one-process", action="store_true", help="its core in this process")
    return parser.parse_args()


if __name__ == "__main__":
    engine_load.main(parse(), Engine)
