#!/bin/bash
# A tree with one wrong arrow of each kind: the check must name each, and pass without them.
set -euo pipefail
check="$1"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p include/switchyard shim/memory monitor/core monitor/residency monitor/attic tools tests
touch include/switchyard/abi.h shim/log.h monitor/core/page.h monitor/residency/residency.h \
  monitor/monitor.h
echo '#include "switchyard/abi.h"' > shim/driver.cpp
echo '#include "shim/log.h"' > shim/memory/good.cpp
echo '#include "shim/log.h"' > tests/good.cpp
echo '#include "monitor/core/page.h"' > monitor/residency/good.cpp
echo '#include "monitor/residency/residency.h"' > monitor/monitor.cpp
"$check" "$tree"

wrong() {
  echo "#include \"$2\"" > "$1"
  if "$check" "$tree" 2> report; then
    echo "not noticed: $1 includes $2"
    exit 1
  fi
  grep -q "^$1:1:" report || { cat report; exit 1; }
  rm "$1"
}
wrong shim/clock.cpp monitor/core/page.h
wrong shim/memory/bad.cpp ../../monitor/core/page.h
wrong monitor/core/bad.cpp shim/log.h
wrong monitor/core/bad.cpp monitor/residency/residency.h
wrong monitor/residency/bad.cpp monitor/monitor.h
wrong monitor/attic/bad.cpp monitor/core/page.h
wrong tools/bad.cpp monitor/core/page.h
wrong include/switchyard/bad.h shim/log.h

# Programs that know nothing of Switchyard: they include its loader of libcuda, and nothing else.
mkdir -p examples bench
touch include/switchyard/cuda_library.h
echo '#include "switchyard/cuda_library.h"' | tee examples/good.cpp > bench/good.cpp
"$check" "$tree"
wrong examples/bad.cpp switchyard/abi.h
wrong bench/bad.cpp switchyard/abi.h

# A command that what all commands share would include.
mkdir -p tools/base tools/run
touch tools/run/run.h
wrong tools/base/bad.cpp tools/run/run.h

# A folder of a wing that includes one above it, and a folder that nobody has put in order.
mkdir -p shim/swap/host shim/swap/memory shim/swap/attic
touch shim/swap/memory/chunk.h shim/swap/host/pool.h
echo '#include "shim/swap/host/pool.h"' > shim/swap/memory/good.cpp
"$check" "$tree"
wrong shim/swap/host/bad.cpp shim/swap/memory/chunk.h
wrong shim/swap/attic/bad.cpp shim/swap/host/pool.h

# The folders of the library: each would include the other in a circle.
mkdir -p shim/client shim/gate shim/attic
touch shim/client/client.h shim/gate/gate.h shim/memory/owner.h
echo '#include "shim/client/client.h"' > shim/gate/gate.cpp
echo '#include "shim/memory/owner.h"' > shim/gate/slots.cpp
echo '#include "shim/gate/gate.h"' > shim/swap/memory/good.cpp
"$check" "$tree"
wrong shim/client/client.cpp shim/gate/gate.h
wrong shim/memory/owner.cpp shim/gate/gate.h
wrong shim/gate/bad.cpp shim/swap/host/pool.h
wrong shim/log.cpp shim/client/client.h
wrong shim/attic/bad.cpp shim/client/client.h

# Two files above each other.
echo '#include "shim/memory/b.h"' > shim/memory/a.h
echo '#include "shim/memory/a.h"' > shim/memory/b.h
if "$check" "$tree" 2> report; then
  echo "a circle was not noticed"
  exit 1
fi
grep -q 'circle' report
rm shim/memory/a.h shim/memory/b.h

# A large folder without a README.
touch tools/{1,2,3,4,5,6,7,8}.h
"$check" "$tree"
touch tools/9.h
if "$check" "$tree" 2> report; then
  echo "a folder without a README was not noticed"
  exit 1
fi
grep -q '^tools: ' report
echo "# Tools" > tools/README.md
"$check" "$tree"
