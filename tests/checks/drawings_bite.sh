#!/bin/bash
# A table that its enums contradict fails the check of drawn tables.
#
#   drawings_bite.sh SOURCE
set -euo pipefail
source="$1"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/monitor"
header="$tree/monitor/rule.h"

check() { "$source/scripts/check_drawings.py" "$tree"; }
draw() {
  cat > "$header" << 'EOF'
//     state    seen          → state    action
//     Waiting  there is room → Working  Begin
//              there is none → Waiting
//     Working  done          → Waiting  End
//
enum class State : std::uint8_t { kWaiting, kWorking };
enum class Action { kNothing, kBegin, kEnd };
EOF
}
# $1: an edit of the good header; $2: what the check must say of it.
refused() {
  draw
  sed -i "$1" "$header"
  if check 2> "$tree/report"; then
    echo "not noticed: $1"
    exit 1
  fi
  grep -q "$2" "$tree/report" || { cat "$tree/report"; exit 1; }
}

draw
check
refused 's/there is none →/there is none  →/' 'does not stand below'
refused 's/    Working  done          →/    Walking  done          →/' "no 'Walking'"
refused 's/kWaiting, kWorking/kWaiting, kWorking, kEnded/' 'kEnded is in no row'
refused 's/kBegin, kEnd/kBegin, kEnd, kStop/' 'kStop is in no row'
refused 's/  Begin$/  Begin → Waiting/' 'two rows have run together'
refused '/enum class State/d' 'no enum of this header'
rm "$header"
if check 2> /dev/null; then
  echo "a tree without a table was not noticed"
  exit 1
fi
