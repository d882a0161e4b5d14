#!/bin/bash
# Each kind of text with a sentence that has to be read twice: the check must name its line. It must
# pass tables, figures, code, quotes and questions.
#
#   language_bites.sh SOURCE
set -euo pipefail
source="$1"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
report="$tree/report"
expected="$tree/expected"
count=0

# $1: a file; $2: its text. Each has a folder of its own, but for those that stand beside folders.
write() {
  count=$((count + 1))
  case "$1" in */*) file="${1%/*}/$count/${1##*/}" ;; *) file="$1" ;; esac
  mkdir -p "$(dirname "$tree/$file")"
  printf '%s\n' "$2" > "$tree/$file"
}
# $3: the line that the check must name; $4: what it must say of it.
refused() {
  write "$1" "$2"
  echo "$file:$3: $4" >> "$expected"
}
passes() { write "$1" "$2"; }

ten='a b c d e f g h i j'
long="One $ten $ten k l m n o."  # 26 words
full="One $ten $ten k l m n."
clause='a clause is the subject'
page="docs/a"".md"  # check_docs.sh looks for pages that are named whole

refused shim/a.h "// $long" 1 '26 words'
refused shim/a.h $'int a;\n\n// A job waits. It\n// is told. Whoever comes is held.' 4 "$clause"
refused shim/a.h "int a;  // Who asks is told." 1 "$clause"
refused shim/a.h "// Good. (What was left is freed.)" 1 "$clause"
refused shim/a.cpp $'// - An item of a list.\n// - What it has left is freed.' 2 "$clause"
refused shim/a.def "// Whose end it is, is told." 1 "$clause"
refused shim/a.py "# $long" 1 '26 words'
refused shim/a.py $'"""Good.\n\nWho asks is told.\n"""' 3 "$clause"
refused shim/a.py $'def f():\n    """What is left, is freed."""' 2 "$clause"
refused shim/a.sh "true  # $long" 1 '26 words'
refused shim/CMakeLists.txt "# Who asks is told." 1 "$clause"
refused Makefile "# Who asks is told." 1 "$clause"
refused "$page" $'# Page\n\nA job waits.\nWho asks is told.' 4 "$clause"
refused "$page" $'* **Wait.** A job; '"${long,}" 1 '28 words'
refused "$page" $'1. One.\n   Two.\n2. What is left is freed.' 3 "$clause"
refused "$page" $'* One.\n\n  Who asks is told.' 3 "$clause"
refused "$page" $'```\ncode\n```\nWhoever asks is told.' 4 "$clause"
refused README.md "$long" 1 '26 words'

passes shim/a.h "// $full $full"
passes shim/a.h $'// The table:\n//\n//     row     '"$long"
passes shim/a.h $'//     Who     asks          → is told\n//             what it is asked'
passes shim/a.h "const char* text = \"// Who asks is told. $long\";"
passes shim/a.h $'int a;  // one two three four five six seven\nint b;  // '"$ten $ten"
passes shim/a.h "// It says \"$ten $ten $ten\". What is asked?"
passes shim/a.h "// It calls \`f($ten $ten $ten)\`, e.g. for $ten."
passes shim/a.py "text = '# Who asks is told.'"
passes "$page" $'| Who | asks |\n| --- | --- |\n| Who asks | is told |'
passes "$page" $'# Who asks is told\n\n**What was tried.** All.\n\n```\nWho asks is told.\n```'
passes "docs/measurements/$(basename "$page")" "Who asks is told. $long"
passes attic/a.h "// Who asks is told."
passes shim/a.txt "Who asks is told."

if "$source/scripts/check_language.py" "$tree" 2> "$report"; then
  echo "nothing was noticed"
  exit 1
fi
diff <(sort "$expected") <(sed -E 's/^([^:]*:[0-9]+: [^:]*):.*/\1/' "$report" | sort)
cut -d: -f1 "$expected" | while read -r file; do rm "$tree/$file"; done
"$source/scripts/check_language.py" "$tree"
