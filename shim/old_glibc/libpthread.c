/* libpthread.so.0 of glibc 2.28, as far as the library calls it and libc.so.6 does not have it. For
 * the linker alone: nothing loads it. */
#define HAS(name)  \
  void name(void); \
  void name(void) {}

HAS(pthread_attr_setstacksize)
HAS(pthread_create)
HAS(pthread_join)
HAS(pthread_mutex_trylock)
HAS(pthread_once)
HAS(pthread_rwlock_rdlock)
HAS(pthread_rwlock_unlock)
HAS(pthread_rwlock_wrlock)
HAS(pthread_sigmask)
