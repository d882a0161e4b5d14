#!/bin/bash
# Fetches a wheel from an index of its own, in a folder: the right one is taken and found by CMake, also
# beside older headers. One with another checksum is refused and leaves nothing.
#
#   cuda_headers_fetched.sh SOURCE-FOLDER
set -euo pipefail
source="$1"
python3 -m pip --version > /dev/null 2>&1 || exit 77 # pip is installed only where headers lack

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
wheel="$work/index/nvidia_cuda_runtime-13.0.96-py3-none-any.whl"
mkdir "$work/index"
python3 - "$wheel" << 'PYTHON'
import sys, zipfile
info = "nvidia_cuda_runtime-13.0.96.dist-info/"
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("nvidia/cu13/include/cuda.h", "#define CUDA_VERSION 13000\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: nvidia-cuda-runtime\nVersion: 13.0.96\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "")
PYTHON
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/index" PIP_CONFIG_FILE=/dev/null

fetch() {
  printf 'nvidia-cuda-runtime==13.0.96 --hash=sha256:%s\n' "$1" > "$work/requirements.txt"
  "$source/scripts/fetch_cuda_headers.sh" "$work/build/cuda-headers" "$work/requirements.txt"
}

if fetch "$(printf '0%.0s' {1..64})" > "$work/refused" 2>&1; then
  echo "a wheel with another checksum was taken" >&2
  exit 1
fi
grep -q 'THESE PACKAGES DO NOT MATCH THE HASHES' "$work/refused" || {
  cat "$work/refused" >&2
  exit 1
}
if [ -n "$(ls -A "$work/build")" ]; then
  echo "a refused wheel left files behind: $(ls -A "$work/build")" >&2
  exit 1
fi

# CMake looks in build/ of the tree that its module lies in; what this machine has is hidden.
mkdir "$work/cmake"
sed "s|/usr/local/cuda|/nonexistent|; s|/usr/include|$work/older|" \
  "$source/cmake/FindCudaHeaders.cmake" > "$work/cmake/FindCudaHeaders.cmake"
finds() {
  (cd "$work" && env -u CUDA_HOME -u VIRTUAL_ENV HOME=/nonexistent \
    PATH="$(dirname "$(command -v cmake)")" "$@" cmake -P cmake/FindCudaHeaders.cmake 2>&1)
}
# must_find VERSION [VARIABLE=VALUE]
must_find() {
  local version="$1" found
  shift
  found="$(finds env "$@")" || true
  [[ "$found" == *"($version)"* ]] || {
    echo "CMake does not find the headers of $version: $found" >&2
    exit 1
  }
}
if finds > /dev/null; then
  echo "CMake finds headers of this machine: the test shows nothing" >&2
  exit 1
fi
mkdir -p "$work/older" "$work/chosen/include"
echo '#define CUDA_VERSION 12000' > "$work/older/cuda.h"
echo '#define CUDA_VERSION 12080' > "$work/chosen/include/cuda.h"
must_find 12000
fetch "$(sha256sum "$wheel" | cut -d' ' -f1)"
must_find 13000
must_find 12080 CUDA_HOME="$work/chosen"
