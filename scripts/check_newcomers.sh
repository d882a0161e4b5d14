#!/bin/bash
# Runs the commands of docs/guide/start-apt.md and start-pip.md as they stand there, with the real apt
# and pip, and says how long they took. The simulated GPU stands in for the driver.
#
#   scripts/check_newcomers.sh BUILD [ROOT]    after make deb and make wheel
#
# It works in an overlay above ROOT, so nothing stays. ROOT is this machine's own file system, or one
# that debootstrap made. systemd does not run there, so the check starts the machine's monitor.
# scripts/check_containers.sh runs start-docker.md.
set -euo pipefail
cd "$(dirname "$0")/.."
build="$(realpath "$1")"
lower="$(realpath "${2:-/}")"
if [ -z "${SWITCHYARD_TEST_INSIDE:-}" ]; then
  work="$(mktemp -d)"
  trap 'rmdir "$work"' EXIT
  if [ "$(id -u)" -ne 0 ] || ! unshare --mount --pid --fork bash -c \
    "mount -t tmpfs tmpfs '$work' && mkdir '$work'/{u,w,r} && mount -t overlay overlay \
     -o 'lowerdir=$lower,upperdir=$work/u,workdir=$work/w' '$work/r'" 2> /dev/null; then
    echo "NOT CHECKED: the newcomers' pages. That needs root, unshare, and overlays"
    exit 0
  fi
  SWITCHYARD_TEST_INSIDE="$work" unshare --mount --pid --ipc --fork --kill-child \
    "$0" "$build" "$lower"
  exit
fi

work="$SWITCHYARD_TEST_INSIDE"
root="$work/root"
fail() {
  printf 'check_newcomers: %s\n' "$@" >&2
  exit 1
}
mount --make-rprivate /
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/work" "$root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$work/upper,workdir=$work/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for folder in tmp run dev/shm; do mount -t tmpfs tmpfs "$root/$folder"; done
# A clone after `make deb wheel`, and the driver.
clone=/root/clone
mkdir -p "$root$clone/build/packages" "$root/root/gpu"
cp "$build"/packages/*.{deb,whl} "$root$clone/build/packages"
cp "$build"/fakecuda/lib{cuda,nvidia-ml}.so.1 "$build/examples/train" "$root/root/gpu"
printf 'import os\nos.execv("/root/gpu/train", ["train"])\n' > "$root$clone/train.py"

cat > "$root/root/play" << 'PLAY'
# Reads commands and runs each, as a person types them into one shell.
set -euo pipefail
set -m
export LD_LIBRARY_PATH=/root/gpu FAKECUDA_STATE=/run/gpu DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cd /root/clone
sudo() { "$@"; }
make() { :; } # done
apt() { command apt -y -qq "$@" < /dev/null; }
fail() {
  echo "check_newcomers: $1" >&2
  exit 1
}
# As systemd does at the first connection; not a job of this shell.
start_monitor() {
  rm -f /usr/sbin/policy-rc.d
  (switchyardd --system --persist < /dev/null > /root/monitor.log 2>&1 &)
  for _ in $(seq 300); do
    if [ -S /run/switchyard/monitor.sock ]; then return; fi
    sleep 0.1
  done
  fail "no monitor: $(cat /root/monitor.log)"
}
comes() { # COMMAND: its job is listed
  local name program="${1%% *}"
  name="$(sed -n 's/.*--name \([a-z]*\).*/\1/p' <<< "$1")"
  for _ in $(seq 600); do
    if "$program" ps --json | grep -q "\"name\": \"$name\""; then return; fi
    sleep 0.1
  done
  fail "job $name did not come: $1"
}
taken() { printf '%s: %d.%d s\n' "$1" $((($2) / 1000)) $((($2) % 1000 / 100)); }
now() { date +%s%3N; }
while IFS= read -r command <&3; do
  echo "\$ $command"
  case "$command" in
    *"apt install"* | *"pip install"*) begin="$(now)" ;;
    *"apt purge"*) switchyard stop --force > /dev/null ;;
  esac
  case "$command" in
    *"&") eval "$command" > /root/job.log 2>&1 3<&-; comes "$command" ;;
    switchyard-demo) "$command" || true ;; # on a busy machine it may show no gain
    *) eval "$command" 3<&- || fail "'$command' ends with $?" ;;
  esac
  case "$command" in
    switchyard-demo) taken "from apt install to the demo's table" $(($(now) - begin)); start_monitor ;;
    env/bin/switchyard\ run*) taken "from pip install to switchyard run" $(($(now) - begin)) ;;
  esac
done 3< "$1"
PLAY

play() { # PAGE LEAST
  awk '/^```/ {inside = !inside; next} inside' "docs/guide/$1" |
    sed -e ':a' -e '/\\$/N' -e 's/\\\n *//' -e 'ta' > "$root/root/commands"
  [ "$(grep -c . "$root/root/commands")" -ge "$2" ] || fail "$1 has too few commands"
  [ "$(wc -l < "docs/guide/$1")" -le 40 ] || fail "$1 has more than 40 lines"
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$root" /bin/bash /root/play /root/commands > "$work/said" 2>&1 ||
    fail "$1:" "$(cat "$work/said")" "$(cat "$root/root/job.log" 2> /dev/null || true)"
  grep -E '^from ' "$work/said"
}
says() { grep -qE -- "$1" "$work/said" || fail "expected '$1', but it says:" "$(cat "$work/said")"; }

if chroot "$root" python3 -c 'import ensurepip' 2> /dev/null; then
  play start-pip.md 7
  says '^train +root +.* .*/2G'
  says '^train: limit none → 50%'
  [ ! -e "$root$clone/env/bin/switchyard" ] || fail "pip uninstall leaves the program"
else
  echo "NOT CHECKED: start-pip.md. There is no python3-venv in $lower"
fi
play start-apt.md 8
says '^both, Switchyard '
says '^chat +root .* high'
says '^train +root .* low'
[ ! -e "$root/usr/bin/switchyard" ] && [ ! -e "$root/usr/lib/switchyard" ] ||
  fail "apt purge leaves files"
echo "check_newcomers: all is well"
