#!/bin/bash
# `make deb` fetches nothing of the Python Package Index, and `make wheel` asks for no debhelper.
#
#   bootstrap_fetches.sh SOURCE-FOLDER
set -euo pipefail
source="$(realpath "$1")"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT

mkdir -p "$tree"/{scripts,cmake,packaging/wheel,programs,build,cuda/include}
cp "$source"/scripts/{bootstrap,pick_compiler}.sh "$tree/scripts"
cp "$source/cmake/FindCudaHeaders.cmake" "$tree/cmake"
cp "$source/packaging/wheel/requirements.txt" "$tree/packaging/wheel"
echo '#define CUDA_VERSION 13000' > "$tree/cuda/include/cuda.h"
if [ -d "$source/build/tomlplusplus" ]; then ln -s "$source/build/tomlplusplus" "$tree/build"; fi

# Nothing is fetched or installed here: these programs only note what they were asked for.
cat > "$tree/programs/note" << 'NOTE'
#!/bin/bash
echo "$(basename "$0") $*" >> "$NOTED"
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && ln -s "$0" "$3/bin/python"; fi
NOTE
chmod +x "$tree/programs/note"
for program in python3 apt-get sudo tmux; do ln -s note "$tree/programs/$program"; done
export NOTED="$tree/noted" PATH="$tree/programs:$PATH" CUDA_HOME="$tree/cuda"
bootstrap() {
  : > "$NOTED"
  "$tree/scripts/bootstrap.sh" "$@" > "$tree/said" 2>&1 || true
}
fail() {
  printf '%s\n' "$@" "$(cat "$tree/said" "$NOTED")" >&2
  exit 1
}

bootstrap --deb
! grep -q 'venv\|pip' "$NOTED" || fail "for the Debian packages an environment of Python was made:"
bootstrap --wheel
grep -q 'venv build/packaging-tools' "$NOTED" || fail "auditwheel was not fetched for the wheel:"
! grep -q 'debhelper' "$NOTED" || fail "the wheel asks for debhelper:"
