#!/bin/sh
# Makes keys/: an authority of this federation's own, the server's certificate, a key for each node.
# What is there is kept: run it again with a larger number to add nodes.  ./certificates.sh [NODES]
set -eu
cd "$$(dirname "$$0")"
exec cgpfl deploy keys . --host "$host" --nodes "$${1:-$clients}"
