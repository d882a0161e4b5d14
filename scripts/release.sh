# Sourced: what this version is called, and its date for everything that is packaged. The version is
# the first line of VERSION. Its date is the one that CHANGELOG.md gives it, at midnight, so that the
# sources alone decide about the bytes of a package.
#
# shellcheck shell=bash
release_root="$(dirname "${BASH_SOURCE[0]}")/.."
VERSION="$(head -n 1 "$release_root/VERSION")"
# "## 0.2.0 (2026-11-27)"
release_date="$(sed -n "s/^## ${VERSION//./\\.} (\([0-9-]*\))\$/\1/p" "$release_root/CHANGELOG.md")"
if [ -z "$VERSION" ] || [ -z "$release_date" ]; then
  echo "release.sh: CHANGELOG.md has no heading '## $VERSION (YYYY-MM-DD)', the first line of VERSION" >&2
  exit 1
fi
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(date -u -d "$release_date" +%s)}"
export VERSION SOURCE_DATE_EPOCH
