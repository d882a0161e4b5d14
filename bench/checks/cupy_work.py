"""CuPy: its pool, cuBLAS, cuFFT, a reduction, and a kernel compiled by NVRTC."""

import cupy
import numpy as np

from result import digest, say

SAXPY = cupy.RawKernel(r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
""", "saxpy")


def main():
    rng = np.random.default_rng(0)
    a = cupy.asarray(rng.standard_normal((512, 512), dtype=np.float32))
    y = cupy.asarray(rng.standard_normal(1 << 16, dtype=np.float32))
    x = cupy.asarray(rng.standard_normal(1 << 16, dtype=np.float32))
    for _ in range(10):
        SAXPY((256,), (256,), (np.float32(0.5), x, y, np.int32(1 << 16)))
    product = a @ a
    spectrum = cupy.abs(cupy.fft.fft(y))
    say({"saxpy": digest(cupy.asnumpy(y).tobytes()),
         "product": digest(cupy.asnumpy(product).tobytes()),
         "spectrum": digest(cupy.asnumpy(spectrum).tobytes()),
         "sum": float(y.sum())}, cupy=cupy.__version__)


if __name__ == "__main__":
    main()
