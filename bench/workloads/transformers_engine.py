#!/usr/bin/env python3
"""transformers' continuous batching as an engine, unmodified, with weights that are drawn.

engine_load.py has the lines that it obeys. The engine works in a thread of its own, as transformers
starts it, and uses CUDA graphs where it chooses to. Prompts share no memory here: transformers has
no call that empties its prefix cache, so a cell would find what the one before left.
"""

import queue

import engine_load
import shapes

BLOCK = 256       # tokens; transformers' own default
LOOK = 0.002      # seconds to wait for a token: an arrival may be due meanwhile
ATTENTION = "paged|sdpa"  # what needs no kernel from a hub


class Engine:
    """transformers behind the calls of engine_load."""

    def __init__(self, options, folder, device="cuda"):
        import torch
        from transformers import (AutoConfig, AutoModelForCausalLM, ContinuousBatchingConfig,
                                  GenerationConfig)
        config = AutoConfig.from_pretrained(shapes.write(options.shape, folder))
        with torch.device(device):
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16,
                                                          attn_implementation=ATTENTION).eval()
        engine_load.reweigh(self.model)
        cache = int(options.cache_gib * 2**30)
        self.manager = self.model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0,
                                               max_new_tokens=options.longest),
            continuous_batching_config=ContinuousBatchingConfig(
                block_size=BLOCK, max_batch_tokens=options.batched,
                max_requests_per_batch=options.sequences, allow_block_sharing=False,
                num_blocks=cache // (BLOCK * shapes.bytes_of_token(options.shape)) or None,
                use_cuda_graph=False if options.eager else None))
        self.manager.warmup()
        self.manager.start()
        self.had = {}  # of each request: its tokens that were told

    def about(self):
        import torch
        import transformers
        config = self.manager.continuous_batching_config
        return {"transformers": transformers.__version__, "torch": torch.__version__,
                "graphs": str(config.use_cuda_graph), "ahead": config.use_async_batching,
                "blocks": config.num_blocks, "block_size": config.block_size}

    def add(self, name, prompt, out):
        self.had[name] = 0
        if self.manager.add_request(prompt, request_id=name, max_new_tokens=out,
                                    streaming=True) is None:
            raise RuntimeError(f"transformers' engine takes no request: {self.fatal()}")

    def fatal(self):
        error = self.manager.background_thread_status.fatal_error
        return f"{type(error).__name__}: {error}" if error else "its thread has ended"

    def step(self):
        """[(request, its new tokens, whether it is done)]"""
        said = []
        wait = LOOK
        while (result := self.manager.get_result(timeout=wait)) is not None:
            if result.error:
                raise RuntimeError(f"request {result.request_id}: {result.error}")
            tokens = result.generated_tokens[self.had[result.request_id]:]
            self.had[result.request_id] += len(tokens)
            said.append((result.request_id, tokens, result.is_finished()))
            wait = 0.0
        if not said and not self.manager.is_running():
            raise RuntimeError(f"transformers' engine has ended: {self.fatal()}")
        return said

    def clear(self):
        pass

    def sleep(self, level):
        raise NotImplementedError("transformers' engine has no sleep mode")

    wake = sleep

    def close(self):
        self.manager.stop(timeout=20)


if __name__ == "__main__":
    engine_load.main(engine_load.parser().parse_args(), Engine)
