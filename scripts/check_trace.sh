#!/bin/bash
# Checks traces with Perfetto's own definitions: two jobs take turns at gates on the simulated GPU,
# one is paused, and `switchyard trace` draws them. Nothing stays.
#
#   scripts/check_trace.sh BUILD
#
# scripts/bootstrap.sh --packages fetches the definitions.
set -euo pipefail
cd "$(dirname "$0")/.."
build="$(realpath "$1")"
python="$PWD/build/perfetto/bin/python"
. scripts/scene.sh
cli() { "$build/switchyard" "$@"; }

step "two jobs take turns, and one is paused"
start monitor "$build/switchyardd" --persist --backend gate --policy exclusive
await "that a monitor answers" cli status
start a "$build/switchyard" run --name alpha -- "$build/examples/train"
start b "$build/switchyard" run --name beta -- "$build/examples/train"
waits() { [ "$(cli events --json | grep -c '"job begins"')" -ge 2 ] && cli ps | grep -q 'waiting: turn'; }
await "that one waits for its turn" waits
cli pause alpha > /dev/null
sleep 1
cli resume alpha > /dev/null
sleep 1

step "Perfetto's definitions decode the trace"
cli trace -o "$work/t.pftrace"
"$python" scripts/check_trace.py "$work/t.pftrace" alpha=running beta=running \
  'alpha=waiting: turn of beta' 'beta=waiting: turn of alpha' 'alpha=paused by' \
  alpha/state=running alpha/state=waiting alpha/state=paused beta/state=running

step "the page has the same slices"
cli trace --html -o "$work/t.html"
"$python" - "$work/t.html" << 'PYTHON'
import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page).group(1))
texts = {text for _, text in data["texts"]}
assert {"running", "waiting: turn of beta", "waiting: turn of alpha"} <= texts, texts
assert {lane["name"] for lane in data["lanes"]} >= {"alpha", "beta"}, data["lanes"]
for lane in data["lanes"]:
    assert lane["begin"] + sum(lane["spans"][::2]) <= data["span"], lane["name"]
PYTHON
echo "check_trace: all is well"
