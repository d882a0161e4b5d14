#!/bin/bash
# Installs a build below PREFIX, or removes what that installs.
#
#   scripts/install.sh install|uninstall BUILD PREFIX      DESTDIR is respected
#
# Where root does it on the running system, the group is made, the units are stopped before they go,
# and systemd reads its units anew.
set -euo pipefail
verb="$1"
build="$2"
prefix="$3"

running_system=no
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" -eq 0 ]; then running_system=yes; fi
has_systemd() { [ "$running_system" = yes ] && [ -d /run/systemd/system ]; }

case "$verb" in
  install)
    cmake --install "$build" --prefix "$prefix"
    if [ "$running_system" = yes ] && command -v systemd-sysusers > /dev/null; then
      systemd-sysusers "$prefix/lib/sysusers.d/switchyard.conf"
    fi
    ;;
  uninstall)
    if has_systemd; then
      systemctl disable --now switchyardd.socket switchyardd.service 2> /dev/null || true
    fi
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    DESTDIR="$work/root" cmake --install "$build" --prefix "$prefix" > /dev/null
    (cd "$work/root" && find . ! -type d -printf '/%P\n') > "$work/files"
    while read -r file; do
      rm -f "${DESTDIR:-}$file"
    done < "$work/files"
    # Folders that are empty now, but for those that every system has.
    sed 's|/[^/]*$||' "$work/files" | sort -ru | while read -r folder; do
      while true; do
        case "${folder#"$prefix"}" in "" | /bin | /lib | /share | /share/man) break ;; esac
        rmdir "${DESTDIR:-}$folder" 2> /dev/null || break
        folder="${folder%/*}"
      done
    done
    ;;
  *)
    echo "install.sh: '$verb' is neither install nor uninstall" >&2
    exit 2
    ;;
esac
if has_systemd; then systemctl daemon-reload; fi
