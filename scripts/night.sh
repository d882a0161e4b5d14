#!/bin/bash
# The checks that .ci/run has no time for. Laws have twenty times its seeds, which are three times
# as many under asan as there. tsan runs over the tests of one thread, too. The bench's programs
# are built. It takes hours.
#
#   scripts/night.sh BUILD JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
build="$1"
jobs="$2"

make "BUILD=$build" "JOBS=$jobs" all
export SWITCHYARD_TEST_BUDGET=7200
laws='*Law*:Simulator*:Crowd.*:Mixes.*:WholeRooms*'
failed=()
for program in policy_test monitor_test shim_mover_test tests/system_test; do
  SWITCHYARD_TEST_SEEDS=20 "$build/$program" --gtest_brief=1 --gtest_filter="$laws" ||
    failed+=("$program")
done
SWITCHYARD_TEST_SEEDS=3 scripts/sanitize.sh asan "$build/asan" "$jobs" || failed+=(asan)
scripts/sanitize.sh tsan "$build/tsan-night" "$jobs" -DSWITCHYARD_TSAN_ALL=ON || failed+=(tsan)
if [ "${#failed[@]}" -gt 0 ]; then
  echo "night.sh: failed: ${failed[*]}" >&2
  exit 1
fi
