#!/bin/bash
# Looks at a built libswitchyard.so as the process that preloads it will.
#
#   scripts/check_shim_binary.sh LIBRARY [EXPORTS-MAP]
#
# It promises to export only the names of the version script, unversioned (a named version stops
# interposition). It runs nothing when loaded, and costs little in each program and each of its
# threads. It needs nothing but libc, libdl and libpthread, of glibc 2.28 or older. It holds no C++
# run time and has all resets for a forked child. It never prints, exits, aborts or catches a
# signal.
set -euo pipefail

library="$1"
map="${2:-$(dirname "$0")/../shim/exports.map}"
newest_glibc=2.28
bad=0
complain() {
  echo "$library: $*" >&2
  bad=1
}

# --- exports ---
exports="$(nm -D --defined-only "$library")"
mapfile -t patterns < <(sed 's|/\*.*\*/||; s|#.*||' "$map" | tr '{};' '\n\n\n' |
  awk '/local:/ {exit} {sub(/global:/, ""); for (i = 1; i <= NF; i++) print $i}')
[ "${#patterns[@]}" -gt 0 ] || complain "no exports are listed in $map"
while read -r _ type name; do
  listed=no
  for pattern in "${patterns[@]}"; do
    # shellcheck disable=SC2053  # the version script's patterns are globs
    if [[ "$name" == $pattern ]]; then listed=yes; fi
  done
  [ "$listed" = yes ] || complain "exports $name, which $map does not list"
  case "$name" in *@*) complain "exports $name with a version" ;; esac
  # glibc prints 'Relink ...' when a library relocated earlier binds to an ifunc of this one.
  [ "$type" != i ] || complain "exports $name as an ifunc"
done <<< "$exports"
for pattern in "${patterns[@]}"; do
  [[ "$pattern" == *['*?[']* ]] || grep -q " $pattern\$" <<< "$exports" ||
    complain "does not export $pattern, which $map lists"
done

# --- nothing runs when it is loaded ---
while read -r name size; do
  complain "has constructors or destructors ($name, 0x$size bytes)"
done < <(readelf -WS "$library" |
  sed -nE 's/^ *\[ *[0-9]+\] (\.(pre)?(init_array|fini_array)|\.ctors|\.dtors) +[A-Z_]+ +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+).*/\1 \4/p')

# --- what each program pays that loads it, with CUDA or without ---
at_most() {  # NUMBER BOUND WHAT
  [ "$1" -le "$2" ] || complain "$3: $1, at most $2"
}
# The stack of a thread has it, and the smallest one is 16 KiB. All libraries together share some
# 1.6 KiB where a program is audited, or where this one is opened late.
thread_bytes="$(readelf -lW "$library" | awk '$1 == "TLS" {print $6}')"
at_most "$((${thread_bytes:-0}))" 512 "bytes of storage in each thread"
# What the loader does before the program's first line.
relocations="$(readelf -rW "$library")"
at_most "$(grep -cE 'R_X86_64_(JUMP_SLOT|GLOB_DAT|COPY|64|DTPMOD64) ' <<< "$relocations" || true)" 90 \
  "symbols that the loader looks up"
at_most "$(grep -c R_X86_64_RELATIVE <<< "$relocations" || true)" 3500 \
  "addresses that the loader writes"

# --- what a forked child forgets (shim/reset.h) ---
entries="$(readelf -WS "$library" |
  sed -nE 's/^ *\[ *[0-9]+\] switchyard_resets +[A-Z_]+ +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+).*/\1/p')"
resets="$(grep -rhc --include='*.cpp' -E '^SWITCHYARD_(RESET|RENEW)\(' "$(dirname "$0")/../shim" |
  awk '{sum += $1} END {print sum}')"
[ "$((0x${entries:-0} / 16))" = "$resets" ] ||
  complain "holds $((0x${entries:-0} / 16)) resets for a forked child, and its sources have $resets"

# --- what it needs ---
while read -r needed; do
  case "$needed" in
    libc.so.6 | libdl.so.2 | libpthread.so.0 | ld-linux-x86-64.so.2) ;;
    *) complain "needs $needed" ;;
  esac
done < <(readelf -Wd "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
newest="$(readelf -WV "$library" | grep -oE 'Name: GLIBC_[0-9.]+' | sed 's/.*_//' | sort -V | tail -1)"
if [ "$(printf '%s\n' "$newest" "$newest_glibc" | sort -V | tail -1)" != "$newest_glibc" ]; then
  complain "needs GLIBC_$newest, newer than $newest_glibc:" \
    "$(nm -D --undefined-only "$library" | grep "GLIBC_$newest" | awk '{print $2}' | tr '\n' ' ')"
fi

# The loader of glibc 2.29 and older looks for a name only in the library that is named with it.
while read -r name file; do
  case "$name" in
    pthread_attr_destroy | pthread_attr_init | pthread_attr_setdetachstate | pthread_mutex_lock | \
      pthread_mutex_unlock | pthread_self | pthread_setcancelstate) home=libc.so.6 ;;
    pthread_*) home=libpthread.so.0 ;;
    dl*) home=libdl.so.2 ;;
    *) home=libc.so.6 ;;
  esac
  [ "$file" = "$home" ] || complain "needs $name of $file: glibc $newest_glibc has it in $home"
done < <({ readelf -WV "$library"; readelf -W --dyn-syms "$library"; } | awk '
  {for (i = 1; i < NF; i++) if ($i == "File:") file = $(i + 1)}
  / Name: .* Version: / {files["(" $NF ")"] = file}
  $7 == "UND" && $9 in files {sub(/@.*/, "", $8); print $8, files[$9]}')
grep -qE '\((RPATH|RUNPATH)\)' <<< "$(readelf -Wd "$library")" && complain "looks in folders of its own"

# --- what it calls ---
while read -r name; do
  case "$name" in
    _Z* | __cxa_begin_catch | __cxa_throw | __gxx_personality_v0 | __cxa_guard_acquire)
      complain "calls $name of the C++ run time" ;;
    exit | _exit | _Exit | abort | __assert_fail | quick_exit)
      complain "calls $name: it must never end the application" ;;
    atexit | on_exit | __cxa_atexit | __cxa_thread_atexit*)
      complain "calls $name: nothing of it may run at exit" ;;
    signal | sigaction | sigset | bsd_signal | __sysv_signal)
      complain "calls $name: signal handlers belong to the application" ;;
    close | pthread_testcancel)
      complain "calls $name, where a thread with a lock of ours may be cancelled: close_file()" ;;
    printf | puts | putchar | vprintf | __printf_chk | stdout)
      complain "uses $name: standard output belongs to the application" ;;
  esac
done < <(nm -D --undefined-only "$library" | awk '{print $NF}' | sed 's/@.*//')

exit "$bad"
