#!/bin/bash
# Installs the Debian packages under a real systemd, with its sandbox, and uses them. The socket starts
# the monitor, whose settings are read anew. A job of another user is changed and swapped out. Then
# come an upgrade under a paused job, `switchyard stop` and a purge. Before all that, a user has a
# monitor by the user's units, as on a machine without one of its own.
#
#   sudo scripts/try_systemd.sh BUILD      after make deb; prints what it did and ends with 0 or 1
#
# systemd is process 1 of a PID namespace whose root is this machine's under an overlay, so nothing
# stays. By hand: it needs root, Linux with overlays, and a /sys/fs/cgroup that systemd can use.
set -euo pipefail

# --- as process 1's only service, in the namespace ---
inside() {
  exec > /root/said 2>&1
  export LD_LIBRARY_PATH=/usr/lib/switchyard/fakecuda FAKECUDA_STATE=/run/gpu/state
  # The simulated GPU stands in for the driver, for two users.
  rm -f /usr/sbin/policy-rc.d
  mkdir -m 1777 /run/gpu
  mkdir -p /etc/systemd/system/switchyardd.service.d
  printf '[Service]\nEnvironment=LD_LIBRARY_PATH=%s FAKECUDA_STATE=%s\nReadWritePaths=/run/gpu\n' \
    "$LD_LIBRARY_PATH" "$FAKECUDA_STATE" > /etc/systemd/system/switchyardd.service.d/simulated.conf

  must() { echo "\$ $*"; "$@" || { echo "FAILED with $?: $*"; exit 1; }; }
  must_not() { echo "\$ ! $*"; if "$@"; then echo "FAILED: $*"; exit 1; fi; }
  active() { systemctl is-active --quiet "$@"; }

  must dpkg --install /root/packages/switchyard_*.deb /root/packages/switchyard-demo_*.deb
  must active switchyardd.socket
  must_not active switchyardd.service

  must systemctl disable --now switchyardd.socket
  rm -rf /run/switchyard
  useradd --create-home visitor
  visitor="$(id -u visitor)"
  user() {
    setpriv --reuid=visitor --regid=visitor --init-groups env HOME=/home/visitor \
      XDG_RUNTIME_DIR="/run/user/$visitor" "$@"
  }
  user_active() { user systemctl --user is-active --quiet "$@"; }
  must systemctl start "user@$visitor.service"
  must user systemctl --user set-environment "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" \
    FAKECUDA_STATE=/run/gpu/visitors
  must user systemctl --user enable --now switchyardd.socket
  must_not user_active switchyardd.service
  must user env FAKECUDA_STATE=/run/gpu/visitors switchyard run --require --memory 1GiB -- \
    /usr/lib/switchyard/examples/hungry
  must user_active switchyardd.service
  must user systemctl --user stop switchyardd.socket switchyardd.service
  must systemctl enable --now switchyardd.socket
  must user systemctl --user start switchyardd.socket
  must_not user_active switchyardd.socket
  must systemctl stop "user@$visitor.service"

  must switchyard status
  must active switchyardd.service
  must switchyard config check
  printf '[caps]\npriority = "normal"\n' > /etc/switchyard/switchyard.toml
  must systemctl reload switchyardd.service
  for _ in $(seq 100); do
    if switchyard config show | grep -q 'caps.priority .*normal'; then break; fi
    sleep 0.1
  done
  must_not setpriv --reuid=65534 --regid=65534 --clear-groups switchyard run --priority high -- true
  echo '[cap]' >> /etc/switchyard/switchyard.toml
  must_not systemctl reload switchyardd.service
  must active switchyardd.service
  sed -i '$d' /etc/switchyard/switchyard.toml
  chmod 666 /run/gpu/*
  setpriv --reuid=65534 --regid=65534 --clear-groups switchyard run --name theirs --swappable \
    --memory 1GiB --require -- /usr/lib/switchyard/examples/train > /root/theirs &
  for _ in $(seq 100); do
    if switchyard ps --json | grep -q '"name": "theirs"'; then break; fi
    sleep 0.1
  done
  must switchyard set theirs --limit 40%
  must switchyard pause theirs --release
  must switchyard resume theirs
  must_not switchyard stop
  must switchyard pause theirs
  before="$(systemctl show --property MainPID --value switchyardd.service)"
  must dpkg --install /root/packages/switchyard_*.deb
  must active switchyardd.socket switchyardd.service
  must_not [ "$before" = "$(systemctl show --property MainPID --value switchyardd.service)" ]
  for _ in $(seq 100); do
    if switchyard ps --json | grep -q '"name": "theirs"'; then break; fi
    sleep 0.1
  done
  must_not switchyard stop --force
  must switchyard resume theirs
  must switchyard set theirs --limit none
  must switchyard stop --force
  must_not active switchyardd.socket
  must_not active switchyardd.service
  must systemctl start switchyardd.socket
  for _ in $(seq 100); do
    if switchyard ps --json | grep -q '"name": "theirs"'; then break; fi
    sleep 0.1
  done
  must switchyard pause theirs
  must systemd-analyze security --threshold=30 switchyardd.service
  must dpkg --purge switchyard-demo switchyard
  # It is paused no more: it says something every 10 s.
  said="$(wc -l < /root/theirs)"
  for _ in $(seq 300); do
    if [ "$(wc -l < /root/theirs)" -gt "$said" ]; then break; fi
    sleep 0.1
  done
  must [ "$(wc -l < /root/theirs)" -gt "$said" ]
  kill %1
  must_not active switchyardd.socket
  must_not active switchyardd.service
  must_not [ -e /run/switchyard ]
  journalctl --unit switchyardd.service --no-pager | tail -n 30
  touch /root/good
}

# --- in the namespaces, before systemd ---
enter() { # PACKAGES WORK
  local root="$2/root"
  mount -t tmpfs tmpfs "$2"
  mkdir "$2/upper" "$2/work" "$root"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  for folder in run tmp; do mount -t tmpfs tmpfs "$root/$folder"; done
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  mkdir "$root/dev/shm" "$root/dev/pts"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666
  for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
  done
  ln -s /proc/self/fd "$root/dev/fd"
  mkdir -p "$root/root/packages"
  cp "$1"/switchyard*.deb "$root/root/packages"
  cp "$0" "$root/root/try_systemd.sh"
  printf '[Unit]\nAfter=basic.target\nRequires=basic.target\n[Service]\nType=oneshot\nExecStart=%s\nExecStopPost=%s\n' \
    '/bin/bash /root/try_systemd.sh --inside' '/bin/touch /root/ended' \
    > "$root/etc/systemd/system/try.service"
  rm -f "$root"/etc/systemd/system/*.wants/*
  {
    for _ in $(seq 240); do
      if [ -e "$root/root/ended" ]; then break; fi
      sleep 1
    done
    cat "$root/root/said"
    if [ -e "$root/root/good" ]; then echo "try_systemd: all is well"; fi
    # The namespace's first process takes no signal from inside.
    chroot "$root" systemctl --force --force poweroff
  } &
  exec chroot "$root" /usr/bin/env -i container=docker PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=try.service --log-target=null
}

case "$1" in
  --inside) inside ;;
  --enter) enter "$2" "$3" ;;
  *)
    work="$(mktemp -d)"
    trap 'rm -f "$work.said"; rmdir "$work"' EXIT
    # systemd's end is the namespace's, by a signal.
    timeout --kill-after=5 300 unshare --mount --pid --fork --ipc --uts --net --cgroup --kill-child \
      bash "$0" --enter "$(realpath "$1")/packages" "$work" > "$work.said" 2>&1 || true
    cat "$work.said"
    grep -qx 'try_systemd: all is well' "$work.said"
    ;;
esac
