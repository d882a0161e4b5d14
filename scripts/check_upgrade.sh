#!/bin/bash
# Upgrades the packages and goes back, while twenty jobs run on the simulated GPU: the scenes of
# tests/system/upgrade_test.cpp. Then the commands of "Upgrade" and "Undo" in
# docs/guide/installation.md run as they stand there, and nothing may be left.
#
#   scripts/check_upgrade.sh BUILD      after make deb
#
# The next version is made up: this package with the library and the monitor of tests/successors. dpkg
# is the real one, under overlays that end with this check's mount namespace. A script plays systemd:
# scripts/try_systemd.sh does the same for one job under the real one.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/release.sh
source scripts/release.sh
build="$(realpath "$1")"
if [ -z "${SWITCHYARD_TEST_INSIDE:-}" ]; then
  if [ "$(id -u)" -ne 0 ] || ! unshare --mount --pid --fork true 2> /dev/null; then
    echo "NOT CHECKED: the upgrade. That needs root, and unshare of mount and PID namespaces"
    exit 0
  fi
  cmake --build "$build" -j "$(nproc)" --target system_test successor_more_shim \
    successor_more_monitor > /dev/null
  SWITCHYARD_TEST_INSIDE=1 exec unshare --mount --ipc --pid --fork --kill-child "$0" "$build"
fi
fail() {
  printf 'check_upgrade: %s\n' "$@" >&2
  exit 1
}
mount -t proc proc /proc
work="$(mktemp -d)"
trap 'rm -rf "$work.log"; umount -l "$work"; rmdir "$work"' EXIT
mount -t tmpfs tmpfs "$work"

# The made-up next version.
next="$VERSION+next"
mkdir "$work/packages"
cp "$build/packages/switchyard_${VERSION}_amd64.deb" "$work/packages/this.deb"
dpkg-deb --raw-extract "$work/packages/this.deb" "$work/next"
cp "$build/successors/more/switchyardd" "$work/next/usr/bin"
cp "$build/successors/more/libswitchyard.so" "$work/next/usr/lib/switchyard"
sed -i "s/^Version: .*/Version: $next/" "$work/next/DEBIAN/control"
rm "$work/next/DEBIAN/md5sums"
dpkg-deb --root-owner-group -Znone --build "$work/next" "$work/packages/next.deb" > /dev/null
rm -rf "$work/next"

mkdir "$work/lower"
mount --rbind / "$work/lower"
# What the packages change lies in an upper folder, and is seen by this check alone.
for folder in usr etc var; do
  mkdir -p "$work/upper/$folder" "$work/work/$folder"
  mount -t overlay overlay \
    -o "lowerdir=/$folder,upperdir=$work/upper/$folder,workdir=$work/work/$folder" "/$folder"
done
mount -t tmpfs tmpfs /run
rm -f /usr/sbin/policy-rc.d
# Nobody reads manuals here.
printf '#!/bin/sh\n' > /usr/bin/mandb
cp scripts/played_systemd.py "$work/systemctl"
mount --bind "$work/systemctl" "$(readlink -f "$(command -v systemctl)")"
if dpkg-query --show switchyard > /dev/null 2>&1; then dpkg --purge switchyard-demo switchyard; fi
rm -rf /var/lib/switchyard /etc/switchyard
# Lists the upper folders, less those that are below them, the databases of dpkg, apt and groups, and
# the folders of init-system-helpers.
left() {
  (cd "$work/upper" && find . \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/log \
    -o -path ./var/cache \) -prune -o ! -type c -print) |
    grep -vxE './etc/(group|gshadow|passwd|shadow|\.pwd\.lock)-?' |
    grep -vxE './var/lib/systemd/deb-systemd-(user-)?helper-enabled(/[a-z.-]*\.wants)?' |
    while read -r path; do
      [ -d "$work/lower/$path" ] || echo "$path"
    done | sort
}
left > "$work/before"

scripts/played_systemd.py > "$work.log" 2>&1 &
for _ in $(seq 100); do
  if [ -d /run/systemd/system ]; then break; fi
  sleep 0.1
done
SWITCHYARD_TEST_PACKAGES="$work/packages" "$build/tests/system_test" --gtest_brief=1 \
  --gtest_filter='Packages/*' | tee "$work/said" || fail "the service said: $(cat "$work.log")"
if ! grep -q 'PASSED' "$work/said" || grep -q '0 tests ran\|0 tests from' "$work/said"; then
  fail "no scene was played"
fi

# The guide's commands. In its folder ./build/packages is the next version, and ./older is this one.
mkdir -p "$work/guide/build/packages" "$work/guide/older"
cp "$work/packages/next.deb" "$work/guide/build/packages/switchyard_${next}_amd64.deb"
cp "$work/packages/this.deb" "$work/guide/older/switchyard_${VERSION}_amd64.deb"
drop_ins=/etc/systemd/system/switchyardd.service.d
mkdir -p "$drop_ins"
export LD_LIBRARY_PATH="$build/fakecuda" FAKECUDA_STATE="$work/gpu"
printf '[Service]\nEnvironment=LD_LIBRARY_PATH=%s FAKECUDA_STATE=%s\n' "$LD_LIBRARY_PATH" \
  "$FAKECUDA_STATE" > "$drop_ins/simulated.conf"
# There is no network, and nobody who answers.
printf 'APT::Get::Assume-Yes "yes";\nAPT::Install-Recommends "no";\nAPT::Sandbox::User "root";\n' \
  > /etc/apt/apt.conf.d/99check
sudo() { "$@"; }
guide() { # HEADING: runs what stands below it
  sed -n "/^### $1\$/,/^##* /p" docs/guide/installation.md |
    awk '/^```/ {inside = !inside; next} inside' > "$work/commands"
  [ -s "$work/commands" ] || fail "the guide has no commands below $1"
  while read -r line; do
    echo "\$ $line"
    (cd "$work/guide" && eval "$line" < /dev/null) > "$work/said" 2>&1 ||
      fail "the guide's command '$line' ended with $?: $(cat "$work/said")"
  done < "$work/commands"
}
dpkg --install "$work/packages/this.deb" > "$work/said" 2>&1 || fail "$(cat "$work/said")"
guide Upgrade
guide Undo
unset LD_LIBRARY_PATH
rm -r "$drop_ins" /etc/apt/apt.conf.d/99check

left > "$work/after"
more="$(comm -13 "$work/before" "$work/after")"
[ -z "$more" ] || fail "these are left:" "$more"
[ ! -e /run/switchyard ] || fail "/run/switchyard is left"
kill %1
