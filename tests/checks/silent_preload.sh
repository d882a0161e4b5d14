#!/bin/bash
# Preloaded into programs that have nothing to do with CUDA, the library changes nothing: the same
# output, no libcuda, no socket.
set -euo pipefail
library="$(realpath "$1")"
export SWITCHYARD_LOG=debug SWITCHYARD_PRIORITY=high

for program in "ls /" "cat /proc/self/comm" "bash -c 'echo \$((6 * 7)); exit 0'" "sort /etc/passwd"; do
  plain="$(bash -c "$program" 2>&1)"
  loaded="$(LD_PRELOAD="$library" bash -c "$program" 2>&1)"
  if [ "$plain" != "$loaded" ]; then
    printf 'preloaded, "%s" prints something else:\n%s\n' "$program" "$loaded"
    exit 1
  fi
done

maps="$(LD_PRELOAD="$library" cat /proc/self/maps)"
grep -q libswitchyard <<< "$maps" || { echo "the library was not loaded at all"; exit 1; }
if grep -qE 'libcuda|libnvidia-ml|libstdc' <<< "$maps"; then
  echo "loading the library brought others with it:"
  grep -oE '/[^ ]*lib(cuda|nvidia-ml|stdc)[^ ]*' <<< "$maps" | sort -u
  exit 1
fi
# What a program pays: the library's segments, and those of libdl and libpthread, where they are
# libraries of their own.
before="$(cat /proc/self/maps | wc -l)"
more=$(($(wc -l <<< "$maps") - before))
if [ "$more" -gt 18 ]; then
  printf 'loading the library makes %s more mappings, at most 18:\n%s\n' "$more" "$maps"
  exit 1
fi
if LD_PRELOAD="$library" bash -c 'ls -l /proc/$$/fd' | grep -q socket; then
  echo "a socket is open in a shell"
  exit 1
fi
