#!/bin/bash
# The checks that .ci/run has no time for. Laws have twenty times its seeds, and ten times those that
# it plays under asan. tsan runs over the tests of one thread, too. Each file is compiled by itself.
# Earlier versions run beside this one. The bench's programs are built, and the packages' bytes are
# made a second time in another folder. It takes hours.
#
#   scripts/night.sh BUILD JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
build="$1"
jobs="$2"

make "BUILD=$build" "JOBS=$jobs" all
failed=()
# Each file by itself: in a unit it may lack an #include that another one has.
scripts/configure.sh "$build/alone" -DSWITCHYARD_UNITY=OFF
cmake --build "$build/alone" -j "$jobs" || failed+=(alone)
export SWITCHYARD_TEST_BUDGET=7200
laws='*Law*:Simulator*:Crowd.*:Mixes.*:WholeRooms*'
for program in policy_test monitor_test shim_mover_test tests/system_test; do
  SWITCHYARD_TEST_SEEDS=20 "$build/$program" --gtest_brief=1 --gtest_filter="$laws" ||
    failed+=("$program")
done
for version in $(awk 'NR > 1 { print $1 }' VERSION); do
  scripts/compat.sh "$version" "$build" || failed+=("compat $version")
done
SWITCHYARD_TEST_SEEDS=10 scripts/sanitize.sh asan "$build/asan" "$jobs" || failed+=(asan)
scripts/sanitize.sh tsan "$build/tsan-night" "$jobs" -DSWITCHYARD_TSAN_ALL=ON || failed+=(tsan)
# Of all that packages hold; make packages has time for a part.
scripts/check_reproducible.sh "$build" switchyard_shim=libswitchyard.so switchyard=switchyard \
  switchyardd=switchyardd demo=demo/demo fakecuda=fakecuda/libcuda.so.1 \
  switchyard_pages=packaging/share/man/man1/switchyard-run.1 || failed+=(bytes)
if [ "${#failed[@]}" -gt 0 ]; then
  echo "night.sh: failed: ${failed[*]}" >&2
  exit 1
fi
