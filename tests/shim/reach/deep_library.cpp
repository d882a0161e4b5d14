// A library that looks names up and opens others, as seen from where it was opened.
#include <dlfcn.h>

extern "C" {
// Neither is a tail call: both find their caller by the return address.
void* reach_deep_look(void* handle, const char* name) {
  void* volatile found = dlsym(handle, name);
  return found;
}
void* reach_deep_open(const char* name) {
  void* volatile opened = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  return opened;
}
}
