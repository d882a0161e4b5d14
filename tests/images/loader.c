// The loader of an image: instead of the program that asks for it, it says that it ran, and what is
// preloaded. It is linked statically, so it is a static program, too.
#include <stddef.h>

// Gives run() the stack as the kernel made it.
__asm__(".globl _start\n_start:\n  mov %rsp, %rdi\n  and $-16, %rsp\n  call run\n");

static long call(long number, long first, const void* second, size_t third) {
  long result = 0;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third)
                   : "rcx", "r11", "memory");
  return result;
}

static void print(const char* text) {
  size_t length = 0;
  while (text[length] != '\0') ++length;
  call(1, 1, text, length);
}

static const char* behind(const char* text, const char* start) {
  while (*start != '\0' && *text == *start) ++text, ++start;
  return *start == '\0' ? text : NULL;
}

// argc, the arguments, a null, the environment, a null.
__attribute__((noreturn, used)) void run(char** stack) {
  print("ran");
  char** entry = stack + 1 + (long)stack[0] + 1;
  for (; *entry != NULL; ++entry) {
    const char* preloaded = behind(*entry, "LD_PRELOAD=");
    if (preloaded != NULL) print(" with "), print(preloaded);
  }
  print("\n");
  call(60, 9, NULL, 0);
  __builtin_unreachable();
}
