#!/bin/bash
# Makes the Python wheel of a build: FOLDER/switchyard-VERSION-py3-none-PLATFORM.whl.
#
#   scripts/wheel.sh BUILD FOLDER
#
# The same build gives the same bytes. scripts/bootstrap.sh --wheel fetches auditwheel.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/release.sh
source scripts/release.sh
umask 022
exec python3 -B packaging/wheel/make_wheel.py "$1" "$2" build/packaging-tools/bin/auditwheel
