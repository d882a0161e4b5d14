#!/bin/bash
# Checks metrics, alert rules and the dashboard with Prometheus itself. It scrapes a monitor with two
# jobs on the simulated GPU, and evaluates the rules and the dashboard's queries. Nothing stays.
#
#   scripts/check_metrics.sh BUILD
#
# The programs of Prometheus are those of the machine, else those that scripts/bootstrap.sh fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
build="$(realpath "$1")"
export PATH="$PATH:$PWD/build/prometheus"
. scripts/scene.sh
rules="$PWD/packaging/prometheus/switchyard.rules.yml"
# An address of the machine's own that nobody else has.
host="127.$((1 + $$ / 65536 % 254)).$(($$ / 256 % 256)).$(($$ % 256))"
monitor_at="$host:9835" prometheus_at="$host:9090"

get() { python3 -c 'import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=10).read().decode())' "$1"; }
# The value of a query's first series; fails where there is none.
query() { # QUERY
  python3 - "http://$prometheus_at/api/v1/query" "$1" << 'PYTHON'
import json, sys, urllib.parse, urllib.request
url = sys.argv[1] + "?" + urllib.parse.urlencode({"query": sys.argv[2]})
try:
    answer = json.load(urllib.request.urlopen(url, timeout=10))
except OSError as error:
    sys.exit(str(error))
result = answer["data"]["result"]
if not result:
    sys.exit(1)
print(result[0]["value"][1])
PYTHON
}

step "alert rules and the dashboard's queries, by promtool"
promtool check rules "$rules"
scripts/dashboard_queries.py packaging/grafana/switchyard.json > "$work/queries.yml"
promtool check rules "$work/queries.yml"

step "a monitor with two jobs"
start monitor "$build/switchyardd" --persist --metrics "$monitor_at"
await "a scrape" get "http://$monitor_at/metrics" > /dev/null 2>&1
start a "$build/switchyard" run --name serve --priority high --memory 1GiB -- "$build/examples/serve"
start b "$build/switchyard" run --name train --limit 50% -- "$build/examples/train"
both_run() {
  get "http://$monitor_at/metrics" > "$work/page"
  [ "$(grep -c '^switchyard_job_state{.*state="running"} 1$' "$work/page")" = 2 ]
}
await "that both jobs run" both_run
# It ends with 1 for a page that it can't read, and with 3 for advice. A label of DCGM is no snake_case.
code=0
promtool check metrics < "$work/page" > "$work/advice" 2>&1 || code=$?
grep -v "label names should be written in 'snake_case' not 'camelCase'" "$work/advice" > "$work/other" || true
[ "$code" != 1 ] && [ ! -s "$work/other" ] || fail "promtool says of the page:" "$(cat "$work/advice")"
# Names that rules and dashboard use and no page has.
sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' "$work/page" | sort > "$work/names"
grep -ohE '\bswitchyard_[a-z_]+' packaging/grafana/switchyard.json "$rules" |
  sed -E 's/_bucket$//' | sort -u | comm -13 "$work/names" - > "$work/unknown"
[ ! -s "$work/unknown" ] || fail "no page has these: $(tr '\n' ' ' < "$work/unknown")"

step "Prometheus scrapes it"
cat > "$work/prometheus.yml" << YAML
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: ["$rules", "$work/queries.yml"]
scrape_configs: [{job_name: switchyard, static_configs: [{targets: ["$monitor_at"]}]}]
YAML
promtool check config "$work/prometheus.yml" > /dev/null
start prometheus prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
  --web.listen-address="$prometheus_at" --log.level=warn
has() { query "$1" > "$work/value" 2> /dev/null; }
await "a scrape by Prometheus" has 'up{job="switchyard"} == 1'
await "GPU time of both jobs" has \
  'count(switchyard_gpu_seconds_total{job_name=~"serve|train",priority!="",user!=""} > 0) == 2'
await "a rate" has 'sum(rate(switchyard_user_gpu_seconds_total[5s])) > 0'
healthy() {
  get "http://$prometheus_at/api/v1/rules" > "$work/rules"
  python3 - "$work/rules" << 'PYTHON'
import json, sys
rules = [rule for group in json.load(open(sys.argv[1]))["data"]["groups"] for rule in group["rules"]]
bad = [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"]
assert not bad, bad
sys.exit(any(rule["health"] != "ok" for rule in rules))
PYTHON
}
await "that all rules are evaluated" healthy
has 'ALERTS{alertname="SwitchyardDown"}' && fail "SwitchyardDown fires, and the monitor runs"

step "an alert follows its monitor"
kill "${started[0]}"
await "SwitchyardDown" has 'ALERTS{alertname="SwitchyardDown",alertstate="pending"}'
echo "check_metrics: all is well"
