"""Language models of the engines by their shape alone: a configuration file, written at run time, and
weights that are drawn. Nothing is downloaded."""

import json

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False,
    "hidden_act": "silu", "head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000, "max_position_embeddings": 40960, "vocab_size": 151936,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False,
    "hidden_act": "silu", "mlp_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "bos_token_id": 1, "eos_token_id": 2,
}
SHAPES = {
    "tiny": {**LLAMA, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
             "vocab_size": 2048},
    "qwen3-0.6b": {**QWEN3, "hidden_size": 1024, "intermediate_size": 3072,
                   "num_hidden_layers": 28, "num_attention_heads": 16},
    "qwen3-4b": {**QWEN3, "hidden_size": 2560, "intermediate_size": 9728,
                 "num_hidden_layers": 36, "num_attention_heads": 32},
    "llama-3.1-8b": {**LLAMA, "hidden_size": 4096, "intermediate_size": 14336,
                     "num_hidden_layers": 32, "num_attention_heads": 32,
                     "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
                     "max_position_embeddings": 131072,
                     "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
                                      "high_freq_factor": 4.0, "rope_type": "llama3",
                                      "original_max_position_embeddings": 8192}},
}


def write(shape, folder):
    """The folder that an engine takes for a model."""
    (folder / "config.json").write_text(json.dumps(SHAPES[shape], indent=1))
    return folder


def bytes_of_token(shape):
    """What a token takes of the KV cache, in bf16."""
    s = SHAPES[shape]
    return 2 * 2 * s["num_hidden_layers"] * s["num_key_value_heads"] * s["head_dim"]
