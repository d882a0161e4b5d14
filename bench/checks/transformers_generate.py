"""transformers' generate with a static cache: the decoding step is compiled and replayed as a CUDA
graph. The model is tiny and its weights are random, so nothing is downloaded."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch  # noqa: E402
import transformers  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from result import say  # noqa: E402
from torch_setup import deterministic  # noqa: E402


def main():
    deterministic()
    config = LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=512,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                         max_position_embeddings=256, pad_token_id=0)
    model = LlamaForCausalLM(config).cuda().eval()
    prompt = torch.randint(2, 1000, (2, 16), device="cuda")

    def generate():
        with torch.no_grad():
            return model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                                  min_new_tokens=32, max_new_tokens=32,
                                  cache_implementation="static")

    def generate_and_count():
        for _ in range(3):  # compiled, recorded, replayed
            tokens = generate()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
            again = generate()
        return tokens, again, sum(event.count for event in profiled.key_averages()
                                  if event.key in ("cudaGraphLaunch", "cuGraphLaunch"))

    tokens, again, graphs = generate_and_count()
    how = "by generate itself"
    if graphs == 0:  # a version that doesn't compile by itself
        model.forward = torch.compile(model.forward, mode="reduce-overhead")
        tokens, again, graphs = generate_and_count()
        how = "by torch.compile of forward"
    assert graphs > 0, "generate did not replay any CUDA graph, so the check shows nothing"
    say({"tokens": tokens.tolist(), "again": again.tolist()}, graph_launches=graphs, compiled=how,
        transformers=transformers.__version__)


if __name__ == "__main__":
    main()
