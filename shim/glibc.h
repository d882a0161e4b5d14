// Pins the versions of glibc's symbols, so that a library built here loads on glibc 2.28 and newer.
// Included before everything else by the compiler's -include. scripts/check_shim_binary watches the
// result. Until 2.34 these lived in libdl and libpthread, which is why both are NEEDED.
#pragma once

#ifdef __x86_64__
asm(".symver dladdr, dladdr@GLIBC_2.2.5");
asm(".symver dlclose, dlclose@GLIBC_2.2.5");
asm(".symver pthread_create, pthread_create@GLIBC_2.2.5");
asm(".symver pthread_join, pthread_join@GLIBC_2.2.5");
asm(".symver pthread_once, pthread_once@GLIBC_2.2.5");
asm(".symver pthread_sigmask, pthread_sigmask@GLIBC_2.2.5");
asm(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.2.5");
asm(".symver pthread_mutex_trylock, pthread_mutex_trylock@GLIBC_2.2.5");
asm(".symver pthread_rwlock_rdlock, pthread_rwlock_rdlock@GLIBC_2.2.5");
asm(".symver pthread_rwlock_wrlock, pthread_rwlock_wrlock@GLIBC_2.2.5");
asm(".symver pthread_rwlock_unlock, pthread_rwlock_unlock@GLIBC_2.2.5");
#else
#error "Switchyard is for Linux on x86-64"
#endif
