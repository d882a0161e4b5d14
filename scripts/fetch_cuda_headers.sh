#!/bin/bash
# Fetches the headers of CUDA into FOLDER, by pip, without root. cmake/FindCudaHeaders.cmake looks there.
#
#   scripts/fetch_cuda_headers.sh FOLDER [REQUIREMENTS]    REQUIREMENTS: other wheels (the test uses it)
#
# pip compares the wheel with the checksum in REQUIREMENTS, and honours PIP_INDEX_URL and its other
# settings. FOLDER appears only when the download was whole.
set -euo pipefail
folder="$1"
requirements="${2:-$(dirname "$0")/cuda-headers.txt}"

mkdir -p "$(dirname "$folder")"
part="$(mktemp -d "$folder.part.XXXXXX")"
trap 'rm -rf "$part"' EXIT
# The platform is named, so that any Python takes the wheel: only its headers are used.
PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
  --only-binary=:all: --platform manylinux2014_x86_64 --require-hashes \
  --target "$part/headers" --requirement "$requirements"
rm -rf "$folder"
mv "$part/headers" "$folder"
