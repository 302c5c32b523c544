#!/usr/bin/env bash
# Builds the server and installs what a machine needs that only runs it: what the build stage
# of docker/Dockerfile does, which works without a container as well.
#
#   docker/build.sh PREFIX [CMAKE_OPTION...]      for example /opt/renga -DRENGA_CUDA=ON
#
# PREFIX/bin/renga is the program; PREFIX/share/renga has the commented configuration, the
# .proto files and what Envoy reads; docker/runtime_packages.txt are the libraries it needs.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

[ $# -ge 1 ] || die "usage: docker/build.sh PREFIX [CMAKE_OPTION...]"
prefix=$(realpath -m "$1")
shift
folder=$root/build/docker

cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=g++ \
  -DRENGA_BUILD_TESTS=OFF -DRENGA_BUILD_BENCH=OFF "$@"
cmake --build "$folder" --target renga
cmake --install "$folder" --component renga --prefix "$prefix"
