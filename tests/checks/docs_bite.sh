#!/bin/bash
# A tree with one fault of each kind: check_docs.sh must name each, and pass without them. The chart's
# and the command line's checks must notice a changed file, too.
#
#   docs_bite.sh SOURCE-FOLDER BUILD-FOLDER
set -euo pipefail
source="$1"
build="$2"
check="$source/scripts/check_docs.sh"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p docs/guide shim
wide="$(printf 'word %.0s' {1..25})"

good() {
  printf '# The project\n\n[guide](docs/guide/start.md#two-words-here)\n' > README.md
  {
    printf '# Start\n\n## Two words, here\n\n[back](../../README.md#the-project)\n'
    printf '| %s |\n' "$wide"
    printf '```text\n%s [no link](nowhere.md)\n```\n' "$wide"
    printf '[a short text](../../README.md?%s)\n' "$(printf 'x%.0s' {1..120})" | sed 's/?x*//'
  } > docs/guide/start.md
  echo '// see docs/guide/start.md' > shim/good.cpp
}
good
"$check" "$tree"

bites() {
  if "$check" "$tree" 2> report; then
    echo "not noticed: $1"
    exit 1
  fi
  grep -qF -- "$1" report || { echo "no complaint: $1"; cat report; exit 1; }
  rm -f docs/extra.md shim/bad.cpp CHANGELOG.md
  good
}
echo '[x](docs/none.md)' >> README.md
bites 'README.md:4: the link docs/none.md leads to no file'
echo '<img src="docs/none.svg">' >> README.md
bites 'README.md:4: the link docs/none.svg leads to no file'
echo '[x](docs/guide/start.md#three)' >> README.md
bites 'README.md:4: docs/guide/start.md has no heading for #three'
echo '[x](#three)' >> docs/guide/start.md
bites 'docs/guide/start.md has no heading for #three'
echo 'alone' > docs/extra.md
bites 'docs/extra.md: no other page links to it'
echo '// see docs/none.md' > shim/bad.cpp
bites 'shim/bad.cpp:1: docs/none.md does not exist'
echo 'see `shim/bad.cpp`, not `shim/good.cpp`.' >> docs/guide/start.md
bites 'shim/bad.cpp does not exist'
echo "$wide" >> docs/guide/start.md
bites 'wider than 100 columns'
echo "| $wide |" >> README.md
bites 'README.md:4: wider than 100 columns'
echo "* $(printf 'x%.0s' {1..77})" > CHANGELOG.md
bites 'CHANGELOG.md:1: wider than 78 columns'
for _ in {1..120}; do echo >> README.md; done
bites 'README.md: more than 120 lines'
"$check" "$tree"

# A changed option is noticed by the check of the command line's page.
cp "$source/docs/reference/cli.md" cli.md
CLI_REFERENCE_PAGE=cli.md "$source/scripts/cli_reference.sh" "$build" --check
sed -i 's/--idle-release/--idle-relief/' cli.md
if CLI_REFERENCE_PAGE=cli.md "$source/scripts/cli_reference.sh" "$build" --check 2> report; then
  echo "a changed option was not noticed"
  exit 1
fi
grep -q 'is not what --help says' report

# So are a changed schema, a changed chart, and a figure that was never recorded.
command -v python3 > /dev/null || exit 0
cp -r "$source/docs/reference" reference
python3 "$source/scripts/json_reference.py" --check reference
sed -i 's/"launches"/"starts"/' reference/job.schema.json
if python3 "$source/scripts/json_reference.py" --check reference 2> report; then
  echo "a changed schema was not noticed"
  exit 1
fi
grep -q 'is not what the schemas say' report
mkdir -p bench/chart
cp "$source/bench/chart/latency.json" bench/chart/
mkdir -p docs/measurements
cp "$source/docs/latency.svg" docs/
cp "$source/docs/measurements/earlier.md" docs/measurements/
draw() { python3 "$source/bench/chart/draw.py" --root "$tree" "$@"; }
draw --check
sed -i 's/2\.303/1.303/' bench/chart/latency.json
if draw --check 2> report; then
  echo "a changed figure was not noticed"
  exit 1
fi
grep -q 'is not what its figures draw' report
grep -q 'has no p99 of 1.303 ms' report
mkdir -p bench/results
cp "$source"/bench/results/* bench/results/
cp "$source/docs/measurements.md" docs/
page() { python3 "$source/bench/results/page.py" --root "$tree" "$@"; }
page --check
sed -i 's/| kept |/| **missed** |/' docs/measurements.md
if page --check 2> report; then
  echo "a changed verdict was not noticed"
  exit 1
fi
grep -q 'is not what bench/results says' report
