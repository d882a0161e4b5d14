#!/bin/bash
# Makes the packages of a build and checks them: lintian, the units, and each way of installation. A
# job runs there on the simulated GPU. Then they are removed, and nothing may be left.
#
#   scripts/check_packages.sh BUILD
#
# It installs nothing on this machine, and needs neither a running systemd nor the network.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/release.sh
source scripts/release.sh
build="$(realpath "$1")"
packages="$build/packages"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
unset LD_PRELOAD LD_LIBRARY_PATH SWITCHYARD_SOCKET
export FAKECUDA_STATE="$work/gpu" LC_ALL=C.UTF-8

fail() {
  printf 'check_packages: %s\n' "$@" >&2
  exit 1
}
# Fails unless TEXT is empty.
nothing() { # WHAT TEXT
  [ -z "$2" ] || fail "$1:" "$2"
}
step() { echo "== $*"; }

# `switchyard run` of the programs in FOLDER, on the simulated GPU, under a monitor of its own.
runs_a_job() { # FOLDER
  local socket="$work/m.sock" said
  said="$(SWITCHYARD_SOCKET="$socket" LD_LIBRARY_PATH="$build/fakecuda" \
    "$1/switchyard" run --require --memory 1GiB -- "$build/examples/hungry" 2>&1 || true)"
  grep -q 'quota 1 GiB' <<< "$said" || fail "a job below $1 is not managed: $said"
  SWITCHYARD_SOCKET="$socket" "$1/switchyard" stop > /dev/null ||
    fail "the monitor of $1 can't be stopped"
}

# Made again by another user of another country, on a machine without build-essential, it has the same
# bytes.
mkdir "$work/bare"
printf '#!/bin/sh\necho "build-essential is missing"; exit 1\n' > "$work/bare/dpkg-checkbuilddeps"
chmod +x "$work/bare/dpkg-checkbuilddeps"
twice() { # COMMAND
  local first="$work/first" again="$work/again"
  rm -rf "$first" "$again"
  "$@" "$build" "$first" > /dev/null
  (umask 077 && PATH="$work/bare:$PATH" TZ=Asia/Tokyo LC_ALL=C HOME=/nowhere \
    "$@" "$build" "$again" > /dev/null)
  for file in "$first"/*.{deb,whl}; do
    [ ! -e "$file" ] || cmp "$file" "$again/$(basename "$file")" || fail "$* gives other bytes"
  done
  mkdir -p "$packages"
  cp -a "$first"/* "$packages"
}

step "the Debian packages"
rm -rf "$packages"
twice scripts/deb.sh
lintian --allow-root --fail-on error,warning "$packages"/*.changes ||
  fail "lintian: see above"

step "a root file system with the packages"
root="$work/root"
mkdir -p "$root/var/lib/dpkg" "$root/etc" "$root/run"
touch "$root/var/lib/dpkg/status"
dpkg_there() {
  fakeroot dpkg --root="$root" --log=/dev/null --force-depends --force-script-chrootless "$@" \
    > "$work/dpkg" 2>&1 || fail "dpkg $*: $(cat "$work/dpkg")"
}
listed() { (cd "$root" && find . -path ./var/lib -prune -o ! -type d -print | sort); }
listed > "$work/before"
dpkg_there --install "$packages"/switchyard_"$VERSION"_*.deb "$packages"/switchyard-demo_"$VERSION"_*.deb
scripts/check_shim_binary.sh "$root/usr/lib/switchyard/libswitchyard.so"
grep -q '^switchyard:' "$root/etc/group" || fail "there is no group switchyard"
[ -L "$root/etc/systemd/system/sockets.target.wants/switchyardd.socket" ] ||
  fail "the socket unit is not enabled"
[ ! -e "$root/etc/systemd/system/multi-user.target.wants/switchyardd.service" ] ||
  fail "the service is enabled: its socket starts it"
# Whether it shows a gain is `make demo`'s business: on a busy machine it may show none.
"$root/usr/bin/switchyard-demo" > "$work/demo" || [ $? = 1 ] || fail "the demo: $(cat "$work/demo")"
grep '^both, Switchyard' "$work/demo" || fail "the demo shows no table: $(cat "$work/demo")"
runs_a_job "$root/usr/bin"
"$root/usr/bin/switchyard" --version | grep -qF "$VERSION" || fail "the programs are not of $VERSION"

step "the file of settings"
settings="$root/etc/switchyard/switchyard.toml"
"$root/usr/bin/switchyard" config check "$settings" || fail "$settings: see above"
# The same with each line in force.
sed -E 's/^#(\[|[a-z])/\1/' "$settings" > "$work/settings.toml"
"$root/usr/bin/switchyard" config check "$work/settings.toml" || fail "$settings: see above"
grep -qx /etc/switchyard/switchyard.toml "$root/var/lib/dpkg/info/switchyard.conffiles" ||
  fail "an upgrade overwrites $settings"

step "manual pages and completions"
for page in "$root"/usr/share/man/man*/*; do
  nothing "man says of $page" \
    "$(MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 > /dev/null || true)"
done
for command in $("$root/usr/bin/switchyard" --help | awk '/^[Ss][Uu][Bb][Cc]/ {on = 1; next} /^[^ ]/ {on = 0} on && /^  [a-z]/ {print $1}'); do
  [ -e "$root/usr/share/man/man1/switchyard-$command.1.gz" ] || fail "$command has no manual page"
done
completion="$root/usr/share/bash-completion/completions/switchyard"
# shellcheck disable=SC2016
[ "$(bash -c '. "$1"; COMP_WORDS=(switchyard run --priority h); COMP_CWORD=3; _switchyard; echo "${COMPREPLY[*]}"' \
  _ "$completion")" = high ] || fail "bash completes nothing"
zsh -n "$root/usr/share/zsh/vendor-completions/_switchyard"
[ "$(fish --no-config -c "source '$root/usr/share/fish/vendor_completions.d/switchyard.fish'; \
  complete -C 'switchyard run --priority h'" | cut -f1)" = high ] || fail "fish completes nothing"

step "units"
analyze() { systemd-analyze --man=no "$@" > "$work/analyze" 2>&1 || fail "$*: $(cat "$work/analyze")"; }
units="$root/lib/systemd/system"
user_units="$root/usr/lib/systemd/user"
# It looks for the programs on this machine.
for unit in "$units"/switchyardd.{socket,service} "$user_units"/switchyardd.{socket,service}; do
  sed -i -E "s#^(ExecStart|ExecReload)=switchyardd#\1=$root/usr/bin/switchyardd#" "$unit"
done
analyze verify "$units"/switchyardd.{socket,service}
analyze verify "$user_units"/switchyardd.{socket,service}
analyze security --offline=true --threshold=30 "$units/switchyardd.service"
grep Overall "$work/analyze"
for unit in "$user_units"/*; do
  grep -qx 'ConditionPathExists=!/run/switchyard' "$unit" || fail "$unit starts beside root's monitor"
done

step "a monitor that starts at the first connection"
socket="$work/activated/monitor.sock"
mkdir -m 700 "$work/activated"
LD_LIBRARY_PATH="$build/fakecuda" systemd-socket-activate --listen="$socket" \
  --setenv=LD_LIBRARY_PATH --setenv=FAKECUDA_STATE \
  "$root/usr/bin/switchyardd" --socket "$socket" 2> "$work/activation" &
activated=$!
for _ in $(seq 200); do
  if [ -S "$socket" ]; then break; fi
  sleep 0.1
done
[ "$(tr '\0' ' ' < "/proc/$activated/cmdline" | cut -d' ' -f1)" = systemd-socket-activate ] ||
  fail "the monitor runs before anybody connects"
SWITCHYARD_SOCKET="$socket" "$root/usr/bin/switchyard" status --json | grep -q "\"pid\": $activated" ||
  fail "the socket starts no monitor: $(cat "$work/activation")"
kill "$activated"
wait "$activated" || fail "the activated monitor ends with $?"
[ -S "$socket" ] || fail "the monitor has removed a socket that is systemd's"

step "containers"
scripts/check_containers.sh "$root" "$build"

step "the packages' removal"
mkdir -p "$root/etc/cdi"
"$root/usr/bin/switchyard" cdi generate --output "$root/etc/cdi/switchyard.json" 2> /dev/null
dpkg_there --purge switchyard-demo switchyard
listed > "$work/after"
# Debian keeps groups of packages that are gone: files may still be theirs.
nothing "these are left" "$(comm -13 "$work/before" \
  <(grep -vxE './etc/(group|gshadow|passwd|shadow|\.pwd\.lock)-?' "$work/after"))"

step "an upgrade and the way back, while jobs run"
scripts/check_upgrade.sh "$build"

step "the wheel"
twice scripts/wheel.sh
wheel="$(echo "$packages"/switchyard-"$VERSION"-*.whl)"
files_of() { find "$1" ! -type d ! -path '*__pycache__*' | sort; }
for place in "$work/venv" "$work/a blank"; do
  python3 -m venv "$place"
  files_of "$place" > "$work/before"
  "$place/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-compile "$wheel"
  if [ "$place" = "$work/venv" ]; then
    runs_a_job "$place/bin"
  else
    code=0
    said="$("$place/bin/switchyard" run --require -- true 2>&1)" || code=$?
    [ "$code" = 125 ] || fail "a path with a blank is preloaded: $code"
    grep -q 'LD_PRELOAD takes no path with a blank' <<< "$said" || fail "of a path with a blank: $said"
  fi
  "$place/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes switchyard
  nothing "the wheel leaves" "$(comm -13 "$work/before" <(files_of "$place"))"
done

step "the newcomers' pages"
scripts/check_newcomers.sh "$build"

step "make install and make uninstall"
DESTDIR="$work/installed" scripts/install.sh install "$build" /usr/local > /dev/null
runs_a_job "$work/installed/usr/local/bin"
DESTDIR="$work/installed" scripts/install.sh uninstall "$build" /usr/local
nothing "these are left" "$(find "$work/installed" ! -type d)"

step "the same bytes in another folder"
scripts/check_reproducible.sh "$build" switchyard_shim=libswitchyard.so example_train=examples/train
echo "check_packages: all is well in $packages"
