#!/bin/bash
# Runs the commands of docs/guide/containers.md and start-docker.md as they stand there, on the
# simulated GPU. Then it gives the entrypoint two images: one with musl, one that preloads jemalloc.
#
#   scripts/check_containers.sh ROOT BUILD     ROOT: the packages' files below it
#
# podman reads the devices and makes the container's description. crun does not work on each machine,
# so `unshare` makes the namespaces. Mounts, variables and command are those of the description.
# Nothing is left on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
root="$(realpath "$1")"
build="$(realpath "$2")"
version="$(podman --version | grep -oE '[0-9]+' | head -n 1)"
if [ "$version" -lt 4 ]; then
  echo "NOT CHECKED: containers. podman $version reads no devices of version 0.5.0"
  exit 0
fi
if [ -z "${SWITCHYARD_TEST_INSIDE:-}" ]; then
  if [ "$(id -u)" -ne 0 ] || ! unshare --mount --pid --fork true 2> /dev/null; then
    echo "NOT CHECKED: containers. That needs root, and unshare of mount and PID namespaces"
    exit 0
  fi
  SWITCHYARD_TEST_INSIDE=1 exec unshare --mount --ipc --pid --fork --kill-child "$0" "$root" "$build"
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mount -t proc proc /proc
# Where podman looks for devices, and for a monitor nobody does: both are this check's alone.
mount -t tmpfs tmpfs /run
mkdir -p /run/cdi "$work/machine" "$work/image"
if [ -d /etc/cdi ]; then mount -t tmpfs tmpfs /etc/cdi; fi
unset LD_PRELOAD SWITCHYARD_SOCKET
export LC_ALL=C.UTF-8
fail() {
  printf 'check_containers: %s\n' "$@" >&2
  exit 1
}
step() { echo "== $*"; }
says() { # TEXT PATTERN
  grep -qF -- "$2" <<< "$1" || fail "expected '$2', but it says: $1"
}

# A root file system of this machine's files.
image="$work/image"
add() { # PROGRAM [PLACE]
  local place="$image${2:-$1}"
  mkdir -p "$(dirname "$place")"
  cp -L "$1" "$place"
  { ldd "$1" 2> /dev/null || true; } | grep -oE '/[^ :]+' | while read -r file; do
    mkdir -p "$image$(dirname "$file")"
    cp -nL "$file" "$image$file"
  done
}
# The simulated GPU is known by the path of its file, so that has one path everywhere.
mkdir -p "$image"/{proc,dev,sys,tmp,etc,run/switchyard,usr/lib/switchyard} "$image$work/machine"
add /bin/sh
add "$(command -v env)" /bin/env
add "$root/usr/lib/switchyard/libswitchyard.so" /tmp/library
for driver in libcuda.so.1 libnvidia-ml.so.1; do add "$build/fakecuda/$driver" "/driver/$driver"; done
for program in hungry serve train; do add "$build/examples/$program" "/bin/$program"; done
# What the guide calls a training takes all memory that it gets, and says what else it was given. With a
# name it goes on: that is the page's.
mkdir -p "$image/usr/bin"
cat > "$image/bin/python" << 'JOB'
#!/bin/sh
echo "$1: priority ${SWITCHYARD_PRIORITY:-none}, preloaded $LD_PRELOAD"
case "${SWITCHYARD_NAME:-}" in chat) exec serve ;; train) exec train ;; esac
exec hungry
JOB
chmod +x "$image/bin/python"

cat > "$work/record" << RECORD
#!/bin/bash
while [ \$# -gt 0 ]; do
  if [ "\$1" = --bundle ] || [ "\$1" = -b ]; then cp "\$2/config.json" "$work/config.json"; fi
  shift
done
exit 1
RECORD
chmod +x "$work/record"
cat > "$work/play" << 'PLAY'
"""Makes the container of a description: those of its mounts that are folders and files of the host,
its variables, and its command."""
import json, os, sys
about = json.load(open(sys.argv[1]))
image, machine = sys.argv[2:]
lines = ["set -e", f"mount -t proc proc {image}/proc", f"mount --rbind /dev {image}/dev",
         f"mount --bind {machine} {image}{machine}"]
for each in about["mounts"]:
    if "bind" not in each["options"] and "rbind" not in each["options"]:
        continue
    if not each["destination"].startswith(("/run/switchyard", "/usr/lib/switchyard")):
        continue
    place = image + each["destination"]
    folder = place if os.path.isdir(each["source"]) else os.path.dirname(place)
    flags = ",".join(o for o in each["options"] if o in ("ro", "nosuid", "nodev", "noexec"))
    lines.append(f"mkdir -p {folder}; [ -e {place} ] || : > {place}")
    lines.append(f"mount --bind {each['source']} {place}; mount -o remount,bind,{flags} {place}")
# The variables are the container's alone: here, the library would not be found.
lines.append(f'exec chroot {image} /bin/env -i "$@"')
os.execvp("unshare", ["unshare", "--mount", "--pid", "--ipc", "--net", "--uts", "--fork",
                      "--kill-child", "/bin/sh", "-c", "\n".join(lines), "sh",
                      *about["process"]["env"], "LD_LIBRARY_PATH=/driver", "PATH=/bin",
                      f"FAKECUDA_STATE={machine}/gpu", *about["process"]["args"]])
PLAY
# The guide's `podman run`. The GPU is the simulated one, and the paths of the host are this check's.
run() { # WORD...
  local words=() word
  for word in "$@"; do
    case "$word" in
      /usr/lib/switchyard:*) word="$root$word" ;;
      SWITCHYARD_MEMORY=40GiB) word=SWITCHYARD_MEMORY=1GiB ;; # the simulated GPU has 4
      IMAGE) words+=(--rootfs) word="$image" ;;
      nvidia.com/gpu=0) word=/dev/null ;;
    esac
    words+=("$word")
  done
  rm -f "$work/config.json"
  command podman --root "$work/store" --runroot "$work/runroot" --storage-driver vfs \
    --cgroup-manager cgroupfs --events-backend file --runtime "$work/record" \
    run --rm --network host --ipc none --log-driver k8s-file "${words[@]}" > "$work/podman" 2>&1 || true
  [ -e "$work/config.json" ] || fail "podman takes no '$*': $(cat "$work/podman")"
  python3 -B "$work/play" "$work/config.json" "$image" "$work/machine" 2>&1
}

step "the host of containers"
FAKECUDA_STATE="$work/machine/gpu" LD_LIBRARY_PATH="$build/fakecuda" \
  "$root/usr/bin/switchyardd" --system --persist 2> "$work/monitor.log" &
for _ in $(seq 300); do
  if [ -S /run/switchyard/monitor.sock ]; then break; fi
  sleep 0.1
done
[ -S /run/switchyard/monitor.sock ] || fail "no monitor: $(cat "$work/monitor.log")"

# Each command of the guide comes here, as one line.
managed=0
guide() { # COMMAND
  local line="${1#sudo }" said
  case "$line" in
    "systemctl "*) ;; # by hand (scripts/try_systemd.sh); the monitor runs already
    "switchyard cdi generate --output /etc/cdi/switchyard.json")
      "$root/usr/bin/switchyard" cdi generate --output /run/cdi/switchyard.json ;;
    "podman run "*)
      # shellcheck disable=SC2046
      said="$(run $(xargs printf '%s\n' <<< "${line#podman run }"))"
      says "$said" "preloaded /usr/lib/switchyard/libswitchyard.so"
      case "$line" in
        *low*) says "$said" "train.py: priority low" ;;
        *high*) says "$said" "serve.py: priority high" ;;
        *) fail "of which priority is this: $line" ;;
      esac
      says "$said" "hungry: got"
      case "$line" in *MEMORY=*) says "$said" "quota 1 GiB" ;; esac
      managed=$((managed + 1))
      [ "$(grep -c 'hungry.* joined job' "$work/monitor.log")" = "$managed" ] ||
        fail "the job is not managed: $line: $said" ;;
    "cp /usr/share/switchyard/containers/95-switchyard.sh /etc/enroot/hooks.d/")
      mkdir -p "$work/hooks.d"
      cp "$root/usr/share/switchyard/containers/95-switchyard.sh" "$work/hooks.d/" ;;
    "SWITCHYARD_PRIORITY=low /usr/share/switchyard/containers/switchyard-apptainer "*)
      said="$(PATH="$work/bin:$PATH" SWITCHYARD_PRIORITY=low \
        "$root/usr/share/switchyard/containers/switchyard-apptainer" --writable-tmpfs IMAGE python train.py)"
      [ "$said" = "exec --nv --bind=/usr/lib/switchyard:/usr/lib/switchyard:ro --bind=/run/switchyard:/run/switchyard:ro --writable-tmpfs IMAGE /usr/lib/switchyard/switchyard-entrypoint python train.py" ] ||
        fail "apptainer is asked for: $said" ;;
    *)
      fail "a command of the guide that nothing runs: $line" ;;
  esac
}

step "the guide of containers"
mkdir "$work/bin"
printf '#!/bin/sh\necho "$@"\n' > "$work/bin/apptainer"
printf '#!/bin/sh\n[ "$1 $2 $3" = "--root $ENROOT_ROOTFS -" ] && cat > "$ENROOT_ROOTFS/mounts"\n' > "$work/bin/enroot-mount"
chmod +x "$work/bin"/*
awk '/^```/ {inside = !inside; next} inside' docs/guide/containers.md |
  sed -e ':a' -e '/\\$/N' -e 's/\\\n *//' -e 'ta' > "$work/commands"
[ "$(grep -c . "$work/commands")" -ge 7 ] || fail "the guide has too few commands"
[ "$(awk '/^```/ {inside = !inside; next} inside' docs/guide/containers.md | wc -l)" -le 40 ] ||
  fail "the guide has more than 40 lines of commands"
while read -r line <&3; do guide "$line"; done 3< "$work/commands"
[ -e "$work/hooks.d/95-switchyard.sh" ] && [ -e /run/cdi/switchyard.json ] ||
  fail "the guide lacks commands"

step "the page on Docker"
# podman reads the words, which are Docker's, too. A job goes on until it is killed.
comes() { # NAME
  for _ in $(seq 300); do
    if "$root/usr/bin/switchyard" ps --json | grep -q "\"name\": \"$1\""; then return; fi
    sleep 0.1
  done
  fail "job $1 did not come: $(cat "$work/page.$1")"
}
gone() {
  for _ in $(seq 300); do
    if [ -z "$("$root/usr/bin/switchyard" ps -q)" ]; then return; fi
    sleep 0.1
  done
  fail "jobs are left: $("$root/usr/bin/switchyard" ps)"
}
page() { # COMMAND
  local line="${1#sudo }" name
  case "$line" in
    "cd build/packages" | "apt install ./switchyard_*.deb" | "apt purge switchyard") ;; # check_newcomers.sh
    "switchyard cdi generate "*) ;; # the guide's
    "docker run "*" &")
      name="$(sed -n 's/.*SWITCHYARD_NAME=\([a-z]*\).*/\1/p' <<< "$line")"
      line="${line% &}"
      # shellcheck disable=SC2046
      run $(xargs printf '%s\n' <<< "${line#docker run }") > "$work/page.$name" 2>&1 &
      comes "$name" ;;
    "switchyard ps -o wide" | "switchyard why train")
      # shellcheck disable=SC2086
      "$root/usr/bin/"$line > "$work/said" || fail "$line: $(cat "$work/said")"
      says "$(cat "$work/said")" train ;;
    "docker rm --force chat train")
      # SIGTERM would not do: a namespace's first process takes no signal that it has no handler for.
      # shellcheck disable=SC2046
      kill -KILL $("$root/usr/bin/switchyard" ps --format '{pids}')
      gone ;;
    "rm /etc/cdi/switchyard.json") ;;
    *) fail "a command of start-docker.md that nothing runs: $line" ;;
  esac
}
awk '/^```/ {inside = !inside; next} inside' docs/guide/start-docker.md |
  sed -e ':a' -e '/\\$/N' -e 's/\\\n *//' -e 'ta' > "$work/commands"
[ "$(wc -l < docs/guide/start-docker.md)" -le 40 ] || fail "start-docker.md has more than 40 lines"
[ "$(grep -c 'docker run' "$work/commands")" = 2 ] || fail "start-docker.md runs no two containers"
while read -r line <&3; do page "$line"; done 3< "$work/commands"
grep -q 'serve.py: priority high' "$work/page.chat" || fail "chat: $(cat "$work/page.chat")"
grep -q 'train.py: priority low' "$work/page.train" || fail "train: $(cat "$work/page.train")"

step "devices that podman refuses"
sed 's/"env"/"envs"/' /run/cdi/switchyard.json > /run/cdi/other.json
mv /run/cdi/switchyard.json "$work/"
(run --device switchyard.io/job=low IMAGE true) > "$work/said" 2>&1 && fail "podman takes any file"
says "$(cat "$work/said")" "unresolvable CDI devices"
rm /run/cdi/other.json
mv "$work/switchyard.json" /run/cdi/

step "an image that preloads jemalloc"
jemalloc="$(ldconfig -p | sed -n 's/.*libjemalloc\.so\.2 .*=> //p' | head -n 1)"
add "$jemalloc"
entrypoint=(-v /usr/lib/switchyard:/usr/lib/switchyard:ro -v /run/switchyard:/run/switchyard:ro
  --entrypoint /usr/lib/switchyard/switchyard-entrypoint)
said="$(run "${entrypoint[@]}" -e LD_PRELOAD="$jemalloc" -e MALLOC_CONF=stats_print:true \
  -e SWITCHYARD_MEMORY=1GiB -e SWITCHYARD_REQUIRE=1 IMAGE hungry)"
says "$said" "Begin jemalloc statistics"
says "$said" "quota 1 GiB"

step "an image with musl"
cat > "$work/musl.c" << 'PROGRAM'
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  printf("musl, preloaded %s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "nothing");
  return 3;
}
PROGRAM
musl-gcc "$work/musl.c" -o "$image/bin/musl"
loader="$(ldd "$image/bin/musl" 2> /dev/null | grep -o '/lib/ld-musl[^ ]*' | head -n 1 || true)"
loader="${loader:-/lib/ld-musl-x86_64.so.1}"
cp -L "$loader" "$image$loader"
# With the device alone it does not start. Behind the entrypoint it does.
said="$(run --device switchyard.io/job=low IMAGE musl)" && fail "musl takes the library: $said"
code=0
said="$(run --device switchyard.io/job=low --entrypoint /usr/lib/switchyard/switchyard-entrypoint IMAGE musl)" || code=$?
says "$said" "'musl' runs on musl, and the library needs glibc; starting unmanaged"
says "$said" "musl, preloaded nothing"
[ "$code" = 3 ] || fail "the program's status is 3, and not $code"
code=0
run "${entrypoint[@]}" -e SWITCHYARD_REQUIRE=1 IMAGE musl > /dev/null || code=$?
[ "$code" = 125 ] || fail "with SWITCHYARD_REQUIRE it ends with $code"

step "the hook of enroot"
hook() { # LINE...
  printf '%s\n' "$@" > "$work/environ"
  rm -f "$work/bundle/mounts"
  PATH="$work/bin:$PATH" ENROOT_ROOTFS="$work/bundle" ENROOT_ENVIRON="$work/environ" \
    "$work/hooks.d/95-switchyard.sh" 2>&1
}
mkdir -p "$work/bundle/lib"
hook HOME=/ > /dev/null
[ "$(cat "$work/environ")" = HOME=/ ] && [ ! -e "$work/bundle/mounts" ] ||
  fail "the hook changes a container that asks for nothing"
hook SWITCHYARD_PRIORITY=low LD_PRELOAD=/a.so
says "$(tail -n 2 "$work/environ")" "LD_PRELOAD=/usr/lib/switchyard/libswitchyard.so:/a.so"
says "$(cat "$work/bundle/mounts")" "/run/switchyard /run/switchyard none"
hook SWITCHYARD_DISABLE=1 SWITCHYARD_DISABLE=0 > /dev/null
says "$(cat "$work/environ")" "LD_PRELOAD=/usr/lib/switchyard/libswitchyard.so"
hook SWITCHYARD_DISABLE=0 SWITCHYARD_DISABLE=1 > /dev/null
[ ! -e "$work/bundle/mounts" ] || fail "the hook changes a container that is to have nothing"
touch "$work/bundle/lib/ld-musl-x86_64.so.1"
says "$(hook SWITCHYARD_PRIORITY=low SWITCHYARD_REQUIRE=0)" "the image has musl"
if hook SWITCHYARD_REQUIRE=1 > "$work/said"; then fail "the hook lets a refused container start"; fi
says "$(cat "$work/said")" "SWITCHYARD_REQUIRE refuses"
echo "check_containers: all is well"
