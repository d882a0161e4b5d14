#!/bin/bash
# Makes sure that what the build needs is installed, and says nothing when it is.
#
#   scripts/bootstrap.sh            what building and testing need
#   scripts/bootstrap.sh --lint     what `make lint` and `make format` need, too
#   scripts/bootstrap.sh --sanitizer what makes `make asan` and `make tsan` quicker, too
#   scripts/bootstrap.sh --deb      what `make deb` needs, too
#   scripts/bootstrap.sh --wheel    what `make wheel` needs, too
#   scripts/bootstrap.sh --packages both, and what `make packages` tries them with
#
# Missing packages come from the distribution (Debian 12, Ubuntu 22.04 and 24.04), without a
# question. The headers of CUDA come from a package that is new enough, else from NVIDIA's wheel by
# pip into build/. The network is touched only where something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'bootstrap: %s\n' "$@" >&2
  exit 1
}

has() { command -v "$1" > /dev/null 2>&1; }

has_header() { echo "#include <$1>" | "$compiler" -std=c++20 -E -x c++ - > /dev/null 2>&1; }

# The compiler decides where headers are looked for, so it comes before them.
missing=()
compiler="$(scripts/pick_compiler.sh --quiet || true)"
[ -n "$compiler" ] || missing+=(g++)
has cmake || missing+=(cmake)
has ninja || missing+=(ninja-build)
while read -r header package; do
  if [ -z "$compiler" ] || ! has_header "$header"; then missing+=("$package"); fi
done << 'LIST'
cstdlib           g++
gtest/gtest.h     libgtest-dev
boost/asio.hpp    libboost-dev
spdlog/spdlog.h   libspdlog-dev
fmt/core.h        libfmt-dev
CLI/CLI.hpp       libcli11-dev
nlohmann/json.hpp nlohmann-json3-dev
sqlite3.h         libsqlite3-dev
ncursesw/curses.h libncurses-dev
LIST
has python3 || missing+=(python3)
# The terminal in which tests look at `switchyard top`.
has tmux || missing+=(tmux)
lints=no
makes_deb=no
makes_wheel=no
checks_packages=no
case "${1:-}" in
  --lint) lints=yes ;;
  --deb) makes_deb=yes ;;
  --wheel) makes_wheel=yes ;;
  --packages) makes_deb=yes makes_wheel=yes checks_packages=yes ;;
esac
if [ "$lints" = yes ]; then
  has clang-format-14 || missing+=(clang-format-14)
fi
if [ "$makes_deb" = yes ]; then
  has dh || missing+=(debhelper)
  has dpkg-buildpackage || missing+=(dpkg-dev)
  has fakeroot || missing+=(fakeroot)
fi
if [ "$makes_wheel" = yes ] || [ "$lints" = yes ]; then
  python3 -c 'import ensurepip' 2> /dev/null || missing+=(python3-venv)
fi
if [ "$checks_packages" = yes ]; then
  while read -r program package; do
    has "$program" || missing+=("$package")
  done << 'LIST'
lintian                 lintian
man                     man-db
systemd-analyze         systemd
systemd-socket-activate systemd
zsh                     zsh
fish                    fish
podman                  podman
musl-gcc                musl-tools
ip                      iproute2
LIST
  ldconfig -p | grep 'libjemalloc\.so\.2' > /dev/null || missing+=(libjemalloc2)
  # Its daemons are tried; none is started here.
  slurm=()
  while read -r program package; do
    has "$program" || slurm+=("$package")
  done << 'LIST'
slurmctld slurmctld
slurmd    slurmd
srun      slurm-client
munged    munge
LIST
  [ -e /usr/include/slurm/spank.h ] || slurm+=(libslurm-dev)
fi

as_root=()
apt_ready=no
# Finds a way to install packages, or ends with the command that a person with the right may type.
prepare_apt() {
  [ "$apt_ready" = no ] || return 0
  local command="apt-get install --no-install-recommends $*"
  has apt-get || fail "missing: $*" \
    "this system has no apt-get: install what these Debian packages hold, then try again"
  if [ "$(id -u)" -ne 0 ]; then
    has sudo || fail "missing: $*" "neither root nor sudo here: as root, run: $command"
    if ! sudo -n true 2> /dev/null && [ ! -t 0 ]; then
      fail "missing: $*" "sudo would ask for a password and there is no terminal: as root, run: $command"
    fi
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq || fail "'apt-get update' failed (see above)" "wanted: $*"
  apt_ready=yes
}

install() {
  prepare_apt "$@"
  echo "bootstrap: installing $*"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" > /dev/null ||
    fail "'apt-get install $*' failed (see above)"
}

# Packages of services, which are not started now.
install_asleep() {
  local policy=/usr/sbin/policy-rc.d
  prepare_apt "$@"
  if ! [ -e "$policy" ]; then
    trap '"${as_root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" > /dev/null
    "${as_root[@]}" chmod 755 "$policy"
  fi
  install "$@"
}
if [ "$checks_packages" = yes ] && [ "${#slurm[@]}" -gt 0 ]; then install_asleep "${slurm[@]}"; fi

if [ "${#missing[@]}" -gt 0 ]; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  install "${missing[@]}"
  compiler="$(scripts/pick_compiler.sh)"
fi

# The run times are in clang's own package on Ubuntu 22.04, and in another one later.
install_clang() {
  local packages=(clang-14) others=libclang-rt-14-dev
  prepare_apt "${packages[@]}"
  [[ "$(apt-cache policy "$others" 2> /dev/null)" != *"Candidate: "[0-9]* ]] || packages+=("$others")
  install "${packages[@]}"
}
if [ "${1:-}" = --sanitizer ] && [ -z "${CXX:-}" ] &&
  [ "$(scripts/pick_compiler.sh --sanitizer)" != clang++-14 ]; then
  (install_clang) || echo "bootstrap: without clang++-14, $compiler builds for sanitizers, more slowly"
fi

# toml++: Ubuntu 22.04 has no package of it, so its headers come out of that of 24.04.
tomlplusplus=build/tomlplusplus
fetch_tomlplusplus() {
  local archive work
  local file=pool/universe/t/tomlplusplus/libtomlplusplus-dev_3.4.0+ds-0.2build1_amd64.deb
  local sum=SHA256:e6d68dbb89f11c71fc33bd1397ab1b405e83e96b959e5c18ef82871c12051c46
  work="$(mktemp -d)"
  # The mirrors of the distribution that this machine uses.
  # shellcheck disable=SC2016  # apt expands it
  while read -r archive; do
    if /usr/lib/apt/apt-helper download-file "$archive$file" "$work/package.deb" "$sum" > /dev/null 2>&1; then
      mkdir -p "$tomlplusplus"
      dpkg-deb --fsys-tarfile "$work/package.deb" |
        tar -x -C "$tomlplusplus" --strip-components=3 ./usr/include
      break
    fi
  done < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u)
  rm -rf "$work"
  [ -e "$tomlplusplus/toml++/toml.h" ]
}
if ! has_header toml++/toml.h && ! [ -e "$tomlplusplus/toml++/toml.h" ]; then
  prepare_apt libtomlplusplus-dev
  if [[ "$(apt-cache policy libtomlplusplus-dev 2> /dev/null)" == *"Candidate: "[0-9]* ]]; then
    install libtomlplusplus-dev
  else
    echo "bootstrap: fetching the headers of toml++ from Ubuntu 24.04 (120 kB, $tomlplusplus; nothing is installed)"
    fetch_tomlplusplus || fail "toml++ is missing: there is no package libtomlplusplus-dev, and that of" \
      "Ubuntu 24.04 could not be fetched from this machine's archives"
  fi
fi

# CUDA headers 12.0 or newer. The search is CMake's; here it only answers yes or no.
cuda_headers() { cmake -P cmake/FindCudaHeaders.cmake > /dev/null 2>&1; }

# Those whose calls the library knows, without root. Older ones leave out calls that current
# frameworks make.
fetch_cuda_headers() {
  echo "bootstrap: fetching the headers of CUDA from the Python Package Index (2 MB, build/cuda-headers)"
  python3 -m pip --version > /dev/null 2>&1 || install python3-pip
  scripts/fetch_cuda_headers.sh build/cuda-headers && cuda_headers
}

# The distribution's package: Ubuntu 24.04 has 12.0. That of Debian 12, 11.8, is too old.
install_cuda_headers() {
  has apt-get || return 1
  if [ "$(id -u)" -eq 0 ]; then prepare_apt nvidia-cuda-dev; fi # fresh containers have no package lists yet
  local version
  version="$(apt-cache policy nvidia-cuda-dev 2> /dev/null | awk '/Candidate:/ {print $2}')"
  [[ "$version" =~ ^([0-9]+)\. ]] && [ "${BASH_REMATCH[1]}" -ge 12 ] || return 1
  install nvidia-cuda-dev
  cuda_headers
}

if ! cuda_headers; then
  fetch_cuda_headers || install_cuda_headers || fail \
    "the headers of CUDA 12.0 or newer are missing and could not be fetched (see above)." \
    "Only headers are needed, no toolkit and no GPU. One of these will do:" \
    "  PIP_INDEX_URL=https://your.mirror/simple make" \
    "  apt-get install cuda-cudart-dev-13-0    (from NVIDIA's own package repository)" \
    "  CUDA_HOME=/path/to/a/toolkit make" \
    "The package nvidia-cuda-dev of Debian 12 and Ubuntu 22.04 (CUDA 11) is too old."
fi

# The programs alone, out of the distribution's package: installed, it would start a service.
prometheus=build/prometheus
fetch_prometheus() {
  local work
  work="$(mktemp -d)"
  (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root prometheus) 2> "$work/error" ||
    { rm -rf "$work"; return 1; }
  mkdir -p "$prometheus"
  dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb |
    tar -x -C "$prometheus" --strip-components=3 ./usr/bin/prometheus ./usr/bin/promtool
  rm -rf "$work"
}
if [ "$checks_packages" = yes ] && ! { has prometheus && has promtool; } && ! [ -x "$prometheus/promtool" ]; then
  has apt-get || fail "missing: prometheus" "this system has no apt-get: install prometheus and promtool"
  echo "bootstrap: fetching Prometheus from the distribution (20 MB, $prometheus; nothing is installed)"
  fetch_prometheus || { prepare_apt prometheus && fetch_prometheus; } ||
    fail "'apt-get download prometheus' failed" "install prometheus and promtool by hand"
fi

# Packages of the Python Package Index in an environment of their own, by checksum.
environment() { # FOLDER REQUIREMENTS
  cmp -s "$2" "$1/requirements.txt" && return 0
  echo "bootstrap: fetching from the Python Package Index what $2 names ($1)"
  rm -rf "$1"
  if ! python3 -m venv "$1" ||
    ! "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
      --only-binary=:all: --require-hashes --requirement "$2"; then
    rm -rf "$1"
    fail "$2 could not be fetched (see above): PIP_INDEX_URL names another index"
  fi
  cp "$2" "$1/requirements.txt"
}
if [ "$lints" = yes ]; then
  environment build/lint-tools scripts/lint-requirements.txt
fi
if [ "$makes_wheel" = yes ]; then
  environment build/packaging-tools packaging/wheel/requirements.txt
fi
if [ "$checks_packages" = yes ]; then
  environment build/python-tools tests/python/requirements.txt
  environment build/perfetto scripts/trace-requirements.txt
fi
