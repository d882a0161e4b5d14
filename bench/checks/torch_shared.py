"""PyTorch tensors shared between two processes by torch.multiprocessing, both ways. The child
writes the parent's, and the parent reads the child's own one.

Legacy IPC underneath: of memory that can leave, the library gives handles of its own.
"""

import torch
import torch.multiprocessing as multiprocessing

from result import say
from torch_setup import deterministic, tensor_digest

SIZES = (1000, 3 << 18, 48 << 20)  # floats: in a segment with others, 3 MiB, and several chunks


def child(received, sent):
    deterministic()
    tensors = received.get()
    digests = [tensor_digest(tensor) for tensor in tensors]
    for tensor in tensors:
        tensor.mul_(2)
    torch.cuda.synchronize()
    own = torch.arange(20 << 20, dtype=torch.float32, device="cuda")
    sent.put((digests, own))
    received.get()  # the parent has read it; till then it has to live
    del tensors, own


def main():
    deterministic()
    context = multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(there, back))
    process.start()
    tensors = [torch.rand(size, device="cuda") for size in SIZES]
    torch.cuda.synchronize()
    there.put(tensors)
    seen, of_child = back.get(timeout=100)
    values = {"seen": seen, "doubled": [tensor_digest(tensor) for tensor in tensors],
              "of_child": tensor_digest(of_child)}
    del of_child
    there.put(None)
    process.join(60)
    say({**values, "status": process.exitcode}, torch=torch.__version__)


if __name__ == "__main__":
    main()
