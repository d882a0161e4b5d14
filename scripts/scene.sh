# For scripts that play a monitor and jobs on the simulated GPU of a build folder: what they start,
# wait for and leave behind. They source this with the build folder in $build.
work="$(mktemp -d)"
started=()
end_all() {
  for pid in "${started[@]}"; do kill "$pid" 2> /dev/null || true; done
  wait
  rm -rf "$work"
}
trap end_all EXIT
unset LD_PRELOAD
export FAKECUDA_STATE="$work/gpu" SWITCHYARD_SOCKET="$work/m.sock" LC_ALL=C.UTF-8
export LD_LIBRARY_PATH="$build/fakecuda"

fail() {
  printf "$(basename "$0" .sh): %s\n" "$@" >&2
  exit 1
}
step() { echo "== $*"; }
start() { # LOG COMMAND...
  "${@:2}" > "$work/$1.log" 2>&1 &
  started+=("$!")
}
# Until COMMAND succeeds, for a minute at most.
await() { # WHAT COMMAND...
  for _ in $(seq 300); do
    if "${@:2}" > /dev/null 2>&1; then return 0; fi
    sleep 0.2
  done
  fail "$1 does not happen:" "$(tail -n 20 "$work"/*.log)"
}
