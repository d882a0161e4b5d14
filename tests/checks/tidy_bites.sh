#!/bin/bash
# A made-up tree of two files that are compiled together: what is wrong in the second must be found.
set -euo pipefail
check="$1"
compiler="$2"
CLANG_TIDY="$(dirname "$check")/../build/lint-tools/bin/clang-tidy"
[ -x "$CLANG_TIDY" ] || exit 77 # until `make lint` has fetched it
export CLANG_TIDY

tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{scripts,monitor,shim,build/Unity}
cp "$check" "$tree/scripts/check_tidy.py"
cd "$tree"
git init -q .
cat > .clang-tidy << EOF
Checks: '-*,modernize-use-nullptr'
WarningsAsErrors: '*'
HeaderFilterRegex: 'monitor/.*'
EOF
echo 'InheritParentConfig: true' > shim/.clang-tidy
cat > build/compile_commands.json << EOF
[{"directory": "$tree/build", "file": "$tree/build/Unity/both.cxx",
  "command": "$compiler -std=c++20 -o monitor/both.o -c $tree/build/Unity/both.cxx"}]
EOF
printf '#include "%s"\n' "$tree/monitor/first.cpp" "$tree/monitor/second.cpp" > build/Unity/both.cxx
printf '#include <vector>\nint first() { return std::vector<int>(3)[0]; }\n' > monitor/first.cpp

# The second file is what is on the standard input.
expect() {
  local wanted="$1" says="$2" got=pass
  cat > monitor/second.cpp
  git add -A
  python3 scripts/check_tidy.py build 2 > report 2>&1 || got=fail
  if [ "$got" != "$wanted" ] || { [ -n "$says" ] && ! grep -qF "$says" report; }; then
    echo "should $wanted and say '$says':"
    cat monitor/second.cpp report
    exit 1
  fi
}
expect pass '' <<< 'int second() { return 2; }'
expect fail modernize-use-nullptr <<< 'int* second() { return 0; }'
expect fail "'move' is brought in and not used" <<< '#include <utility>
using std::move;
int second() { return 2; }'
expect fail "'s' is brought in and not used" <<< 'namespace s = std;
int second() { return 2; }'
echo 'int third() { return 3; }' > monitor/third.cpp
expect fail 'third.cpp: not in' <<< 'int second() { return 2; }'
