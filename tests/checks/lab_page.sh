#!/bin/bash
# Runs the commands of docs/guide/lab.md as they stand there, on eight simulated GPUs: each must
# succeed, and say what the page promises. The package and systemd are other checks' (check_packages.sh,
# try_systemd.sh); here the monitor is started where the page restarts it.
#
#   lab_page.sh SOURCE BUILD
set -euo pipefail
source="$(realpath "$1")"
page="$source/docs/guide/lab.md"
build="$(realpath "$2")"
folder="$(mktemp -d)"
export SWITCHYARD_SOCKET="$folder/m.sock" FAKECUDA_STATE="$folder/gpu" FAKECUDA_DEVICES=8 LC_ALL=C.UTF-8
export LD_LIBRARY_PATH="$build/fakecuda" XDG_STATE_HOME="$folder" PATH="$folder:$build:$PATH"
# An address of the machine's own that nobody else has.
address="127.$((1 + $$ / 65536 % 254)).$(($$ / 256 % 256)).$(($$ % 256)):9835"
set -m # each job in a group of its own
# shellcheck disable=SC2046
end() { kill -- $(jobs -p | sed 's/^/-/') 2> /dev/null || true; wait 2> /dev/null || true; rm -rf "$folder"; }
trap end EXIT
cd "$folder"
exec 4>&2
fail() { printf 'lab_page: %s\n' "$@" >&4; exit 1; }
await() { # WHAT COMMAND...
  for _ in $(seq 600); do
    if "${@:2}" > /dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  fail "$1 does not happen" "$(cat said 2> /dev/null)"
}
printf '#!/bin/sh\nexec "%s/examples/train"\n' "$build" > python # the page's train.py and sweep.py
chmod +x python
sed -n '/^```toml/,/^```$/p' "$page" | sed '/^```/d' > lab.toml
grep -q '^\[caps\]' lab.toml || fail "the page has no caps"
sed '/^```toml/,/^```$/d' "$page" | awk '/^```/ {inside = !inside; next} inside' > commands
[ "$(wc -l < commands)" -ge 10 ] || fail "the page has too few commands"

started() { switchyard ps --json | grep -q "\"name\": \"$1\""; }
run() { # COMMAND
  local line="${1#sudo }"
  case "$line" in
    "apt install "*) ;; # its version is checked below
    # How slices work on the simulated GPUs depends on this machine's speed.
    "switchyard doctor") switchyard doctor --no-probe ;;
    "switchyard config check") switchyard config check lab.toml ;;
    "systemctl restart switchyardd")
      sed -i "s/127.0.0.1:9835/$address/" lab.toml
      chmod 644 lab.toml
      switchyard stop --force || true # the one that doctor started
      await "that its monitor ends" gone
      switchyardd --persist --config lab.toml 2> monitor.log &
      await "a monitor" test -S "$SWITCHYARD_SOCKET" ;;
    "switchyard run "*)
      local name="${line#*--name }"
      # The simulated GPUs have 4 GiB.
      eval "${line/20GiB/1GiB}" > "job-${name%% *}" 2>&1 &
      await "job ${name%% *}" started "${name%% *}" ;;
    curl*) await "metrics of both jobs" metrics ;;
    "switchyard report "*) await "a history" recorded "$line"; eval "$line" ;;
    *) eval "$line" ;;
  esac
}
gone() { [ ! -S "$SWITCHYARD_SOCKET" ]; }
recorded() { eval "$1" > history && ! grep -q '^nothing was recorded' history; }
metrics() {
  # Not each machine that builds has curl.
  python3 -c 'import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=10).read().decode())' \
    "http://$address/metrics" > page
  grep -q '^switchyard_gpu_seconds_total{gpu="0".*job_name="alice"' page &&
    grep -q '^switchyard_gpu_seconds_total{gpu="0".*job_name="sweep"' page
}

while IFS= read -r command <&3; do
  run "$command" > said 2>&1 || fail "failed: $command" "$(cat said)"
  case "$command" in
    "switchyard status") [ "$(grep -c 'GPU' said)" -ge 8 ] || fail "no eight GPUs:" "$(cat said)" ;;
    "switchyard why sweep") grep -q sweep said || fail "$command says:" "$(cat said)" ;;
    *"--by user"*) grep -q "$(id -un)" said || fail "$command says:" "$(cat said)" ;;
    *"--by gpu"*) [ "$(wc -l < said)" -ge 2 ] || fail "$command says:" "$(cat said)" ;;
    "sudo apt install "*) [[ "$command" == *"_$(head -n 1 "$source/VERSION")_"* ]] || fail "not this version: $command" ;;
  esac
done 3< commands
# A cap of the page holds.
switchyard config show | grep -q '20' || fail "no cap is in force:" "$(switchyard config show)"
