#!/bin/bash
# The driver's checkpoint calls compile with a cuda.h that lacks them (before 12.8), and with one
# whose restore knows of no pairs (before 13.0). Both are made of this machine's, which has all. No
# other header of CUDA will do: NVIDIA's wheel lacks some.
#
#   older_headers.sh SOURCE-FOLDER BUILD-FOLDER CUDA-INCLUDE-FOLDER COMPILER
set -euo pipefail
source="$1" build="$2" cuda="$3" compiler="$4"
version="$(awk '/define CUDA_VERSION/ {print $3}' "$cuda/cuda.h")"
if [ "$version" -lt 13000 ]; then exit 0; fi # the build itself shows it
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# older VERSION PYTHON-EXPRESSION: a folder with a cuda.h of that version; the expression changes `s`.
older() {
  mkdir -p "$work/$1"
  python3 - "$cuda/cuda.h" "$work/$1/cuda.h" "$1" "$2" << 'PYTHON'
import re, sys
s = open(sys.argv[1]).read()
before = s
s = eval(sys.argv[4])
assert s != before, "cuda.h has changed: nothing was taken out"
s = re.sub(r"(define CUDA_VERSION) \d+", r"\1 " + sys.argv[3], s)
open(sys.argv[2], "w").write(s)
PYTHON
}
pair='typedef struct CUcheckpointGpuPair_st .*?CUcheckpointGpuPair;'
older 12080 "re.sub(r'CUcheckpointGpuPair \*gpuPairs;.*?\} CUcheckpointRestoreArgs;', 'cuuint64_t reserved[8]; } CUcheckpointRestoreArgs;', re.sub(r'$pair', '', s, flags=re.S), flags=re.S)"
older 12000 "re.sub(r'typedef (struct CUcheckpoint|enum CUprocessState).*?\} (CUcheckpoint\w+|CUprocessState);', '', re.sub(r'CUresult CUDAAPI cuCheckpoint\w+\([^)]*\);', '', s), flags=re.S)"

for each in 12080 12000; do
  for other in "$cuda"/*.h; do # also those of a folder that the compiler knows by itself
    other="$work/$each/$(basename "$other")"
    if ! [ -e "$other" ]; then echo '#error "only cuda.h is there"' > "$other"; fi
  done
  for file in shim/checkpoint/steps.cpp tests/fakecuda/checkpoint_calls.cpp tests/conformance/children.cpp; do
    "$compiler" -std=c++20 -fsyntax-only -I "$work/$each" -I "$source" -I "$source/include" \
      -I "$source/tests/fakecuda" -I "$build/shim/generated" "$source/$file" || {
      echo "older_headers: $file does not compile with a cuda.h of $each" >&2
      exit 1
    }
  done
done
