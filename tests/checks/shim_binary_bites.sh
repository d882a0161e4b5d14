#!/bin/bash
# A library that breaks every promise: the check must complain of each.
set -euo pipefail
check="$1"
compiler="$2"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > bad.cpp << 'SOURCE'
#include <pthread.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
extern "C" {
std::string text(std::getenv("HOME") != nullptr ? "a" : "b");
void unlisted() { std::signal(SIGTERM, SIG_IGN); }
void listed() { std::puts(text.c_str()); std::exit(1); }
void waits(pthread_t thread) { pthread_join(thread, nullptr); }
thread_local char large[1024];
#define TEN(x) x, x, x, x, x, x, x, x, x, x
const char* many[] = {TEN(TEN(TEN(TEN("a"))))};
}
SOURCE
for i in $(seq 100); do
  echo "extern \"C\" { void needed_$i(); void (*at_$i)() = needed_$i; }"
done >> bad.cpp
echo '{ global: listed; absent; local: *; };' > exports.map
"$compiler" -std=c++20 -shared -fPIC bad.cpp -o libbad.so -Wl,-rpath,/nowhere
if "$check" libbad.so exports.map 2> report; then
  echo "the check passed a library that breaks every promise"
  exit 1
fi
for complaint in 'exports unlisted' 'does not export absent' 'has constructors' 'needs libstdc++' \
  'calls exit' 'calls signal' 'uses puts' 'at exit' \
  'holds 0 resets' 'bytes of storage in each thread: 10' 'the loader looks up: 1' \
  'the loader writes: 10' 'needs pthread_join of libc.so.6' 'looks in folders of its own'; do
  grep -q -- "$complaint" report || { echo "no complaint: $complaint"; cat report; exit 1; }
done
