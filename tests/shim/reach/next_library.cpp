// A library that looks the next definition of a name up, seen from its own place in the order.
#include <dlfcn.h>

extern "C" {
const char* reach_marker() { return REACH_NAME; }
void* REACH_FUNCTION(const char* name) {
  // Not a tail call: dlsym finds its caller by the return address.
  void* volatile found = dlsym(RTLD_NEXT, name);
  return found;
}
}
