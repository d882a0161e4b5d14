"""A step as one CUDA graph, as PyTorch's documentation captures it."""

import torch

WARM = 3  # steps on a side stream, which create what must not be created in a capture


def captured(step, errors="global"):
    """The graph. The steps that warm it up are made; the one that is captured is not. `errors`: the
    capture_error_mode."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=errors):
        step()
    return graph
