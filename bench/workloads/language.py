#!/usr/bin/env python3
"""A server of a language model: transformers' Llama of 1.1 billion parameters in bf16, with random
weights, so that nothing is downloaded. A request is 384 tokens in and 24 tokens out, greedily. Each
token names the next by construction (Language.chain), so that equal prompts have equal answers.

`--mode eager`: transformers' own generate with a growing cache; every kernel is launched by Python.
`--mode graph`: a static cache; a token is one replay of a CUDA graph.
`--mode either`: now the one, now the other, as it is told between two conversations.

A conversation's answer has the latencies and three lists. "first_ms" counts from the moment when
the request was to begin. "token_ms" has the time of each later token, "tokens" the tokens of each
request.
"""

import inspect
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache  # noqa: E402

import harness  # noqa: E402
from torch_work import Torch  # noqa: E402

PROMPTS = 8
FIRST_TOKEN = 3  # those before it end a text or fill it up


class Stamps:
    """What generate calls a streamer: it is given the prompt, then each token, on the CPU."""

    def __init__(self):
        self.at, self.tokens, self.prompted = [], [], False

    def put(self, value):
        if not self.prompted:
            self.prompted = True
            return
        self.at.append(time.perf_counter())
        self.tokens.append(int(value.reshape(-1)[0]))

    def end(self):
        pass


class Language(Torch):
    unit = "requests"
    mode = ""

    def __init__(self, options):
        super().__init__(options)
        self.name = f"language-{self.mode}"
        self.answers, self.firsts, self.gaps = [], [], []
        self.asked = 0

    def build(self):
        o = self.options
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=o.vocabulary, hidden_size=o.width,
                             intermediate_size=o.width * 11 // 4, num_hidden_layers=o.layers,
                             num_attention_heads=o.heads, num_key_value_heads=max(1, o.heads // 8),
                             max_position_embeddings=2048, pad_token_id=0,
                             tie_word_embeddings=False)
        self.model = LlamaForCausalLM(config).to(self.device, torch.bfloat16).eval()
        self.chain()
        self.prompts = [torch.randint(FIRST_TOKEN, o.vocabulary, (1, o.length), device=self.device)
                        for _ in range(PROMPTS)]

    @torch.no_grad()
    def chain(self):
        """Of random weights the best logits are nearly equal, and which one is found hangs on the
        order in which kernels add. Here the head has each token's embedding in the row of the next
        token. The layers add a variance of about 0.5 each to the embedding's 1. So with 22 layers
        of width 2,048 the next token's logit is about 590, and the best of the others about 190."""
        vocabulary = self.options.vocabulary
        order = torch.arange(vocabulary, device=self.device)
        order[FIRST_TOKEN:] = FIRST_TOKEN + torch.randperm(vocabulary - FIRST_TOKEN,
                                                           device=self.device)
        embedding = self.model.get_input_embeddings().weight
        embedding.normal_()
        self.model.get_output_embeddings().weight[order] = embedding

    def prepare(self):
        self.build()
        for _ in range(self.options.warm):
            self.request()
        self.synchronize()

    def answer(self, prompt):
        """Stamps of the tokens."""
        raise NotImplementedError

    def request(self):
        self.asked += 1
        with torch.no_grad():
            self.answer(self.prompts[self.asked % PROMPTS])

    def request_number(self, index, scheduled):
        if index == 0:
            self.answers = []
        with torch.no_grad():
            stamps = self.answer(self.prompts[index % PROMPTS])
        self.answers.append(stamps.tokens)
        self.firsts.append((stamps.at[0] - scheduled) * 1e3)
        self.gaps += [(b - a) * 1e3 for a, b in zip(stamps.at, stamps.at[1:])]

    def count_from_here(self):
        self.firsts, self.gaps = [], []

    def figures(self):
        return {"first_ms": [round(value, 4) for value in self.firsts],
                "token_ms": [round(value, 4) for value in self.gaps], "tokens": self.answers}


class Eager(Language):
    mode = "eager"

    def answer(self, prompt):
        stamps = Stamps()
        self.model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                            min_new_tokens=self.options.out, max_new_tokens=self.options.out,
                            streamer=stamps)
        return stamps


class Graph(Language):
    """The mask is made by hand, of the positions alone. The CPU makes the model's own anew for each
    token, which no graph can hold."""

    mode = "graph"

    def build(self):
        super().build()
        o = self.options
        self.room = o.length + o.out
        self.cache = StaticCache(config=self.model.config, max_cache_len=self.room)
        self.columns = torch.arange(self.room, device=self.device)
        self.places = torch.arange(o.length, device=self.device)
        self.token = torch.zeros((1, 1), dtype=torch.long, device=self.device)
        self.position = torch.zeros((1, 1), dtype=torch.long, device=self.device)
        parameters = inspect.signature(self.model.model.forward).parameters
        self.wants_position = "cache_position" in parameters  # before transformers 5.4

    def forward(self, tokens, positions):
        """The next token, on the GPU."""
        mask = self.columns <= positions.reshape(-1, 1)
        more = {"cache_position": positions.reshape(-1)} if self.wants_position else {}
        logits = self.model(input_ids=tokens, position_ids=positions.reshape(1, -1),
                            attention_mask=mask[None, None], past_key_values=self.cache,
                            use_cache=True, **more).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    def restart(self):
        # In place: the graph has the addresses. Stale entries are masked.
        for layer in self.cache.layers:
            length = getattr(layer, "cumulative_length", None)
            if torch.is_tensor(length):
                length.zero_()

    def decode(self):
        self.token.copy_(self.forward(self.token, self.position))
        self.position.add_(1)

    @torch.no_grad()
    def prepare(self):
        self.build()
        self.prefill(self.prompts[0])
        if self.on_gpu:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.decode()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.decode()
            self.replay = self.graph.replay
        else:
            self.replay = self.decode
        for _ in range(self.options.warm):
            self.request()
        self.synchronize()

    def prefill(self, prompt):
        self.restart()
        self.token.copy_(self.forward(prompt, self.places))
        self.position.fill_(prompt.shape[1])

    def answer(self, prompt):
        stamps = Stamps()
        stamps.prompted = True
        self.prefill(prompt)
        stamps.put(self.token.cpu())
        for _ in range(self.options.out - 1):
            self.replay()
            stamps.put(self.token.cpu())
        return stamps


class Either(Graph):
    """`do` "eager": kernel by kernel. `do` "replay": tokens by the graph alone, without a prompt."""

    mode = "either"
    eager = True

    def do(self, what):
        if what not in ("eager", "replay"):
            return super().do(what)
        self.eager = what == "eager"
        return {"mode": what}

    def answer(self, prompt):
        if self.eager:
            return Eager.answer(self, prompt)
        stamps = Stamps()
        stamps.prompted = True
        self.restart()
        self.position.zero_()
        for _ in range(self.options.out):
            self.replay()
            stamps.put(self.token.cpu())
        return stamps


MODES = {"eager": Eager, "graph": Graph, "either": Either}


def arguments(parser):
    parser.add_argument("--mode", choices=sorted(MODES), default="eager")
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--length", type=int, default=384, help="tokens in")
    parser.add_argument("--out", type=int, default=24, help="tokens out")
    parser.add_argument("--warm", type=int, default=4)


if __name__ == "__main__":
    harness.main(lambda o: MODES[o.mode](o), arguments)
