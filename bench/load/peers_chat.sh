#!/usr/bin/env bash
# The chat scenario on renga and llama-server in turn, on the same file and threads: 1, 16,
# 50 and 100 users who think 0.5 to 1.5 s, 16 tokens of answer (bench/chat_load.py).
#
#   bench/load/peers_chat.sh [--threads N] [--rounds N] [--seconds N] [--model FILE] [--write] [--quick] [--force]
#
#   --threads N    compute threads of both (all cores)
#   --rounds N     each is measured so often, in turns (3; about 4 minutes a round)
#   --seconds N    of measuring for each number of users (20)
#   --model FILE   a GGUF file (the default model)
#   --write        put the tables into bench/README.md
#   --quick        one short round with 1 and 4 users: does it run?
#   --force        measure although something else is running, and say so in the table
#
# llama.cpp is built on the first run (bench/peers/install.sh). Prints the tables on standard
# output; every single figure is in build/peers/chat.json.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../peers/install.sh
source "$root/bench/peers/install.sh"
cd "$root"

threads=$jobs rounds=3 seconds=20 model='' options=()
while [ $# -gt 0 ]; do
  case $1 in
    --threads | --rounds | --seconds)
      [[ ${2-} =~ ^[1-9][0-9]{0,2}$ ]] || die "$1 needs a number"
      case $1 in
        --threads) threads=$2 ;;
        --rounds) rounds=$2 ;;
        *) seconds=$2 ;;
      esac
      shift
      ;;
    --model)
      [ -f "${2-}" ] || die "--model needs a file"
      model=$2
      shift
      ;;
    --quick) rounds=1 seconds=3 options+=(--warmup 1 --users 1 4 --max-tokens 4) ;;
    --write | --force) options+=("$1") ;;
    -h | --help)
      sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) die "unknown option $1 (see bench/load/peers_chat.sh --help)" ;;
  esac
  shift
done

# RENGA_BUILD names another build folder.
build=${RENGA_BUILD:-build/release}
if [ -z "${RENGA_BUILD:-}" ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target renga >&2
fi
[ -n "$model" ] || model=$(scripts/fetch_model.sh)
llama=$(get_llama_cpp)
mkdir -p build/peers

exec python3 -B bench/peers/chat.py --build "$build" --llama "$llama" --llama-version "$llama_version" \
  --model "$model" --threads "$threads" --rounds "$rounds" --seconds "$seconds" \
  "${options[@]+"${options[@]}"}"
