#!/bin/bash
# The documents, checked. Links, their anchors and named files lead somewhere, every page of docs/
# is linked from another, and lines are at most 100 columns wide.
#
# Tables and fenced blocks may be wider, for they hold output and figures as they are. The target of a
# link does not count either. README.md is the first page that people see: none of its lines may be
# wider, and it has at most 120 lines.
#
#   scripts/check_docs.sh [ROOT]    ROOT: another tree (the check's own test uses it)
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
bad=0
complain() {
  echo "check_docs: $1" >&2
  bad=1
}

find . \( -name .git -o -name build -o -name third_party \) -prune -o -name '*.md' -print |
  sed 's|^\./||' | sort > "$work/pages"

# The text of a page outside its fenced blocks, as LINE:TEXT.
prose() {
  awk '/^[ ]*(```|~~~)/ {fence = !fence; next} !fence {print NR ":" $0}' "$1"
}

# The anchors of a page, as GitHub makes them of its headings.
anchors_of() {
  prose "$1" | sed -nE 's/^[0-9]+:#+ +//p' | sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g; s/[ ]+$//' |
    tr '[:upper:]' '[:lower:]' | LC_ALL=C.UTF-8 sed -E 's/[^[:alnum:] _-]//g; s/ /-/g' |
    awk '{n = seen[$0]++; print n ? $0 "-" n : $0}'
}

# The links of a page, one LINE:TARGET each: [text](target), [name]: target, src="target".
links_of() {
  prose "$1" | sed -E 's/`[^`]*`//g' | awk '{
    line = $0; sub(/:.*/, "", line); text = substr($0, length(line) + 2)
    while (match(text, /\]\([^) ]+/)) {
      print line ":" substr(text, RSTART + 2, RLENGTH - 2); text = substr(text, RSTART + RLENGTH)
    }
    if (match(text, /^\[[^]]+\]: +[^ ]+/)) {
      target = substr(text, RSTART, RLENGTH); sub(/^\[[^]]+\]: +/, "", target); print line ":" target
    }
    while (match(text, /src="[^"]+"/)) {
      print line ":" substr(text, RSTART + 5, RLENGTH - 6); text = substr(text, RSTART + RLENGTH)
    }
  }'
}

: > "$work/linked"
while read -r page; do
  while IFS=: read -r line target; do
    case "$target" in http://* | https://* | mailto:*) continue ;; esac
    file="${target%%#*}"
    anchor=""
    case "$target" in *'#'*) anchor="${target#*#}" ;; esac
    if [ -z "$file" ]; then
      path="$page"
    else
      path="$(realpath -m --relative-to=. "$(dirname "$page")/$file")"
    fi
    if [ ! -e "$path" ]; then
      complain "$page:$line: the link $target leads to no file"
      continue
    fi
    [ "$path" = "$page" ] || echo "$path" >> "$work/linked"
    if [ -n "$anchor" ] && [ -f "$path" ] && ! anchors_of "$path" | grep -qxF -- "$anchor"; then
      complain "$page:$line: $path has no heading for #$anchor"
    fi
  done < <(links_of "$page")
done < "$work/pages"

while read -r page; do
  case "$page" in docs/*) ;; *) continue ;; esac
  grep -qxF -- "$page" "$work/linked" || complain "$page: no other page links to it"
done < "$work/pages"

# Sources and messages name documents, too.
grep -rnoE '\bdocs/[A-Za-z0-9_/-]+\.(md|json|svg)\b' --exclude-dir=build --exclude-dir=.git \
  --exclude-dir=third_party --include='*.cpp' --include='*.h' --include='*.py' --include='*.sh' \
  --include='*.def' --include='CMakeLists.txt' --include=Makefile . > "$work/named" || true
while IFS=: read -r file line document; do
  case "$file" in */docs_bite.sh) continue ;; esac
  [ -e "$document" ] || complain "${file#./}:$line: $document does not exist"
done < "$work/named"

# Pages name files of the repository outside of links, too.
folders="$(find . -mindepth 1 -maxdepth 1 -type d ! -name '.*' ! -name build -printf '%f|')"
while read -r page; do
  while IFS=: read -r line path; do
    path="${path%.}"
    [ -e "$path" ] || complain "$page:$line: $path does not exist"
  done < <(prose "$page" | sed -E 's/\]\([^)]*\)/]/g' |
    grep -oE "^[0-9]+:|(^|[^A-Za-z0-9_/.-])(${folders%|})/[A-Za-z0-9_/.-]*[A-Za-z0-9_-]" |
    awk '/^[0-9]+:$/ {line = $0; next} {sub(/^[^A-Za-z]/, ""); print line $0}')
done < "$work/pages"

# Wide lines. A table's row begins with '|'.
wide() { LC_ALL=C.UTF-8 grep -E '^[0-9]+:.{101,}' | cut -d: -f1; }
while read -r page; do
  if [ "$page" = README.md ]; then
    [ "$(wc -l < README.md)" -le 120 ] || complain "README.md: more than 120 lines"
    lines="$(awk '{print NR ":" $0}' README.md | wide || true)"
  else
    lines="$(prose "$page" | grep -vE '^[0-9]+:[ ]*\|' | sed -E 's/\]\([^)]*\)/]/g' | wide || true)"
  fi
  for line in $lines; do complain "$page:$line: wider than 100 columns"; done
done < "$work/pages"
# It goes into a Debian changelog, whose lines are indented by two and have 80 columns at most.
for line in $(awk 'length > 78 {print NR}' CHANGELOG.md 2> /dev/null); do
  complain "CHANGELOG.md:$line: wider than 78 columns"
done
exit "$bad"
