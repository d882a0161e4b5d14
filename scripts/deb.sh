#!/bin/bash
# Makes the Debian packages of a build: FOLDER/switchyard_*.deb and FOLDER/switchyard-demo_*.deb.
#
#   scripts/deb.sh BUILD FOLDER
#
# The same build gives the same bytes. DEBFULLNAME and DEBEMAIL name the maintainer.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/release.sh
source scripts/release.sh
build="$(realpath "$1")"
mkdir -p "$2"
folder="$(realpath "$2")"

stage="$folder/debian-stage"
tree="$stage/switchyard-$VERSION"
rm -rf "$stage" "$folder"/switchyard*_*.{deb,changes,buildinfo}
mkdir -p "$tree"
cp -a packaging/debian "$tree/debian"
cp -a README.md CHANGELOG.md docs "$tree"
# A person's umask is not part of a package.
chmod -R u=rwX,go=rX "$stage"

maintainer="$(sed -n 's/^Maintainer: //p' packaging/debian/control)"
if [ -n "${DEBFULLNAME:-}" ] && [ -n "${DEBEMAIL:-}" ]; then
  maintainer="$DEBFULLNAME <$DEBEMAIL>"
  sed -i "s/^Maintainer: .*/Maintainer: $maintainer/" "$tree/debian/control"
fi
# CHANGELOG.md has one point for each change, which may go on in further lines.
{
  printf 'switchyard (%s) unstable; urgency=medium\n\n' "$VERSION"
  sed -n "/^## ${VERSION//./\\.} /,/^## /p" CHANGELOG.md | sed '/^## /d; /^$/d; s/^/  /'
  printf '\n -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
} > "$tree/debian/changelog"

umask 022
# -d: nothing is compiled here, so Debian's build-essential need not be there.
(cd "$tree" && env -u LD_PRELOAD LC_ALL=C.UTF-8 SWITCHYARD_BUILD="$build" \
  dpkg-buildpackage --build=binary --no-sign -d -tc > "$stage/log" 2>&1) || {
  tail -n 40 "$stage/log" >&2
  exit 1
}
mv "$stage"/*.deb "$stage"/*.changes "$stage"/*.buildinfo "$folder"
rm -rf "$stage"
echo "made $(cd "$folder" && echo switchyard*_"$VERSION"_*.deb)"
