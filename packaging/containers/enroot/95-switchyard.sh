#!/usr/bin/env bash
# A hook of enroot: a container that has a variable SWITCHYARD_* gets the library and the monitor of
# this machine. What the image preloads stays.
#
#   srun --container-image=IMAGE --container-env=SWITCHYARD_PRIORITY ...     (pyxis)
#   enroot start --env SWITCHYARD_PRIORITY=low NAME ...
#
# enroot gives it ENROOT_ROOTFS, and ENROOT_ENVIRON: a file of lines NAME=VALUE, of which the last
# one of a name holds. It needs a container with glibc 2.28 or newer.
set -eu

library=/usr/lib/switchyard
grep -q '^SWITCHYARD_' "$ENROOT_ENVIRON" || exit 0
last() { sed -n "s/^$1=//p" "$ENROOT_ENVIRON" | tail -n 1; } # NAME
is_on() { case "$(last "$1")" in "" | 0) return 1 ;; esac }   # NAME
if is_on SWITCHYARD_DISABLE; then exit 0; fi
if compgen -G "$ENROOT_ROOTFS/lib/ld-musl-*" > /dev/null; then
  why="switchyard: the image has musl, and the library needs glibc"
  if is_on SWITCHYARD_REQUIRE; then
    echo "$why; SWITCHYARD_REQUIRE refuses to start it unmanaged" >&2
    exit 1
  fi
  echo "$why; starting unmanaged" >&2
  exit 0
fi

enroot-mount --root "$ENROOT_ROOTFS" - << LIST
$library $library none x-create=dir,bind,ro,nosuid,nodev
/run/switchyard /run/switchyard none x-create=dir,bind,ro,nosuid,nodev,noexec
LIST
preloaded="$(last LD_PRELOAD)"
{
  echo "LD_PRELOAD=$library/libswitchyard.so${preloaded:+:$preloaded}"
  # Root of the host has another number in the container, so the socket must be named.
  grep -q '^SWITCHYARD_SOCKET=' "$ENROOT_ENVIRON" ||
    echo "SWITCHYARD_SOCKET=/run/switchyard/monitor.sock"
} >> "$ENROOT_ENVIRON"
