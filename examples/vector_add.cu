// A CUDA Runtime program that knows nothing of Switchyard: adds two vectors again and again.
//
//   nvcc -O2 -o vector_add examples/vector_add.cu
//   build/switchyard run --name adder --memory 2GiB -- ./vector_add 10
//
// The argument is how many seconds to go on (5 when it is left out). libcudart is linked statically
// by default; with -cudart shared it works as well.
#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void add(const float* a, const float* b, float* sum, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

static void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "vector_add: %s: %s\n", call, cudaGetErrorString(result));
  std::exit(1);
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const int count = 1 << 24;
  const size_t bytes = count * sizeof(float);
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  std::printf("this job sees %zu MiB of device memory, %zu MiB free\n", total_bytes >> 20,
              free_bytes >> 20);

  std::vector<float> host(count);
  for (int i = 0; i < count; ++i) host[i] = static_cast<float>(i % 1000);
  float *a = nullptr, *b = nullptr, *sum = nullptr;
  check(cudaMalloc(&a, bytes), "cudaMalloc");
  check(cudaMalloc(&b, bytes), "cudaMalloc");
  check(cudaMalloc(&sum, bytes), "cudaMalloc");
  check(cudaMemcpy(a, host.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpy(b, host.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");

  const auto begun = std::chrono::steady_clock::now();
  std::chrono::duration<double> elapsed{};
  long launches = 0;
  do {
    for (int i = 0; i < 100; ++i) add<<<count / 256, 256>>>(a, b, sum, count);
    check(cudaGetLastError(), "add<<<>>>");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    launches += 100;
    elapsed = std::chrono::steady_clock::now() - begun;
  } while (elapsed.count() < seconds);

  check(cudaMemcpy(host.data(), sum, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (int i = 0; i < count; ++i) {
    if (host[i] != 2.0f * static_cast<float>(i % 1000)) {
      std::fprintf(stderr, "vector_add: element %d is %g\n", i, host[i]);
      return 1;
    }
  }
  std::printf("%ld additions of %d elements, %.0f a second, all right\n", launches, count,
              launches / elapsed.count());
  check(cudaFree(a), "cudaFree");
  check(cudaFree(b), "cudaFree");
  check(cudaFree(sum), "cudaFree");
  return 0;
}
