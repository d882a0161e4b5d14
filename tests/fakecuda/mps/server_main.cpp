// nvidia-cuda-mps-server of the simulated GPU. The control daemon starts it.
#include <dlfcn.h>
#include <unistd.h>

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return 1;
  const auto serve = reinterpret_cast<int (*)(int, int)>(dlsym(driver, "fakecuda_mps_serve"));
  return serve ? serve(STDIN_FILENO, STDOUT_FILENO) : 1;
}
