#!/usr/bin/env python3
"""Training by the rewards of groups of answers (GRPO), with a vLLM engine in the same process.

Concept. Each iteration goes through what trainers with a colocated engine do. The engine answers
each prompt a number of times and sleeps: its weights go to the host, its cache is dropped. The
trainer takes one step by the answers' rewards, each compared with its group. The engine wakes and
gets the new weights. An answer's reward is its share of even tokens, so that no other model is
needed.

    {"iterations": n}      answers with the reward and the loss of each, and its seconds

The seeds are fixed. So two runs that compute the same say the same.

Threading: one thread.
"""

import gc
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import engine_load
import harness
import shapes
import vllm_engine

PROMPTS, GROUP = 4, 8        # a batch: prompts, and answers of each
PROMPT, ANSWER = 64, 64      # tokens
RATE = 1e-5


class Loop:
    def __init__(self, options, folder):
        vllm_engine.prepare(one_process=True)
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
        from vllm import LLM
        self.torch = torch
        self.llm = LLM(**vllm_engine.settings(options, folder))
        with torch.device("cuda"):
            self.model = AutoModelForCausalLM.from_config(
                AutoConfig.from_pretrained(folder), dtype=torch.bfloat16,
                attn_implementation="sdpa")
        engine_load.reweigh(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        self.prompts = engine_load.prompts(options.shape, PROMPTS, PROMPT, 1, fresh=True)
        self.number = 0
        self.hand_over()

    def hand_over(self):
        """The trainer's weights become the engine's."""
        self.llm.apply_model(lambda model: model.load_weights(
            (name, each.data) for name, each in self.model.named_parameters()))
        self.llm.reset_prefix_cache()

    def answers(self):
        """Those of each prompt, next to each other."""
        from vllm import SamplingParams
        self.number += 1
        how = SamplingParams(n=GROUP, temperature=1.0, seed=self.number, max_tokens=ANSWER,
                             ignore_eos=True, detokenize=False)
        said = self.llm.generate([{"prompt_token_ids": each} for each in self.prompts], how,
                                 use_tqdm=False)
        return [list(answer.token_ids) for each in said
                for answer in sorted(each.outputs, key=lambda one: one.index)]

    def advantages(self, answers):
        torch = self.torch
        rewards = torch.tensor([sum(token % 2 == 0 for token in each) / len(each)
                                for each in answers], device="cuda")
        groups = rewards.view(PROMPTS, GROUP)
        apart = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        return rewards.mean().item(), apart.flatten()

    def train(self, answers, advantages):
        torch = self.torch
        whole = torch.tensor([self.prompts[number // GROUP] + each
                              for number, each in enumerate(answers)], device="cuda")
        logits = self.model(whole[:, :-1]).logits[:, PROMPT - 1:].float()
        chosen = torch.log_softmax(logits, -1).gather(2, whole[:, PROMPT:, None]).squeeze(2)
        loss = -(chosen.mean(1) * advantages).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def iteration(self):
        begun = time.monotonic()
        answers = self.answers()
        self.llm.sleep(level=1)
        reward, advantages = self.advantages(answers)
        loss = self.train(answers, advantages)
        gc.collect()
        self.torch.cuda.empty_cache()
        self.llm.wake_up()
        self.hand_over()
        return {"reward": reward, "loss": loss, "tokens": sum(map(sum, answers)),
                "seconds": time.monotonic() - begun}


def main(options):
    protocol = harness.Protocol()
    folder = Path(tempfile.mkdtemp(prefix="model-"))
    for key, value in engine_load.OFFLINE.items():
        os.environ.setdefault(key, value)
    begun = time.monotonic()
    try:
        loop = Loop(options, folder)
        protocol.say(ready=True, pid=os.getpid(), start_seconds=time.monotonic() - begun)
        while (command := protocol.next()) is not None:
            protocol.say(iterations=[loop.iteration() for _ in range(command["iterations"])])
        loop.llm.llm_engine.engine_core.shutdown()
    except Exception as error:  # the row shows it, and the end of the log
        traceback.print_exc()
        protocol.say(error=f"{type(error).__name__}: {str(error)[:500]}")
        sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    chosen = vllm_engine.parse()
    chosen.sleep = True
    main(chosen)
