"""PyTorch made deterministic, so that two runs of one check can be compared bit by bit."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402

from result import digest  # noqa: E402


def deterministic():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)


def tensor_digest(tensor):
    return digest(tensor.detach().float().cpu().contiguous().numpy().tobytes())


def model_digest(model):
    return digest(b"".join(parameter.detach().float().cpu().numpy().tobytes()
                           for parameter in model.parameters()))
