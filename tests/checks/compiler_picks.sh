#!/bin/bash
# Made-up compilers: for a sanitizer clang++ 14 comes first, where it has the run times; else it is
# the compiler of every other build. A person's choice wins.
set -euo pipefail
pick="$1/scripts/pick_compiler.sh"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
export PATH="$tree:$PATH"
unset CXX

# NAME MACROS REFUSED: a compiler that has these macros, and refuses a call with these words in it.
add() {
  cat > "$tree/$1" << EOF
#!/bin/bash
cat > /dev/null
case "\$*" in
  *-dM*) printf '#define %s\n' $2 ;;
  *$3*) exit 1 ;;
esac
EOF
  chmod +x "$tree/$1"
}
expect() { # WANTED WORDS...
  local wanted="$1" got
  shift
  got="$("$pick" "$@")" || true
  [ "$got" = "$wanted" ] || { echo "pick_compiler.sh $*: '$got' instead of '$wanted'"; exit 1; }
}

clang="'__GNUC__ 4' '__clang_major__"
add g++-13 "'__GNUC__ 13'" refuses-nothing
add clang++-14 "$clang 14'" refuses-nothing
expect g++-13
expect clang++-14 --sanitizer
CXX=g++-13 expect g++-13 --sanitizer

# Without the run time of one of them, or too old.
for lacks in -fsanitize=address -fsanitize=thread; do
  add clang++-14 "$clang 14'" "$lacks"
  expect g++-13 --sanitizer
done
add clang++-14 "$clang 13'" refuses-nothing
expect g++-13 --sanitizer
