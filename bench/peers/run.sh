#!/usr/bin/env bash
# renga beside its peers on this machine: OpenVINO GenAI, and llama.cpp with the same file
# and with its own fastest format. Same threads, same prompts' lengths, taking turns.
#
#   bench/peers/run.sh [--threads N] [--rounds N] [--model FILE] [--write] [--quick] [--force]
#
#   --threads N    compute threads of everybody (all cores)
#   --rounds N     each side is measured so often, in turns (3; about 6 minutes a round)
#   --model FILE   a GGUF file (the default model)
#   --write        put the tables into bench/README.md
#   --quick        one short round: does it run?
#   --force        measure although something else is running, and say so in the table
#
# The peers are installed on the first run (bench/peers/install.sh). Prints the tables on
# standard output; every single figure is in build/peers/steps.json.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=install.sh
source "$root/bench/peers/install.sh"
cd "$root"

threads=$jobs rounds=3 model='' options=()
while [ $# -gt 0 ]; do
  case $1 in
    --threads | --rounds)
      [[ ${2-} =~ ^[1-9][0-9]{0,2}$ ]] || die "$1 needs a number"
      if [ "$1" = --threads ]; then threads=$2; else rounds=$2; fi
      shift
      ;;
    --model)
      [ -f "${2-}" ] || die "--model needs a file"
      model=$2
      shift
      ;;
    --write | --quick | --force) options+=("$1") ;;
    -h | --help)
      sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) die "unknown option $1 (see bench/peers/run.sh --help)" ;;
  esac
  shift
done

# RENGA_BUILD names another build folder.
build=${RENGA_BUILD:-build/release}
if [ -z "${RENGA_BUILD:-}" ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target step_bench --target renga >&2
fi
[ -n "$model" ] || model=$(scripts/fetch_model.sh)
llama=$(get_llama_cpp)
openvino=$(get_openvino)
q4_0=$(get_q4_0 "$llama" "$model")
mkdir -p build/peers

exec python3 -B bench/peers/compare.py --build "$build" --llama "$llama" --llama-version "$llama_version" \
  --openvino "$openvino" --model "$model" --q4-0 "$q4_0" --threads "$threads" --rounds "$rounds" \
  "${options[@]+"${options[@]}"}"
