/* libdl.so.2 of glibc 2.28, as far as the library calls it. For the linker alone: nothing loads it. */
#define HAS(name)  \
  void name(void); \
  void name(void) {}

HAS(dladdr)
HAS(dlclose)
HAS(dlvsym)
