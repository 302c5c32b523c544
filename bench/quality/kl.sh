#!/usr/bin/env bash
# How far a quantised model's predictions are from those of the same weights in float32: renga
# beside llama.cpp, on the same file and text.
#
#   bench/quality/kl.sh [--model FILE.gguf] [--text FILE] [--windows 16] [--thresholds]
#
# The base is llama.cpp on a float32 file that `renga quantize --type f32` makes of the model,
# so that what is compared is the arithmetic and not the weights. The text is by default the
# project's own prose: the built-in sample and the documents of the tree. --thresholds also
# measures other thresholds of --precision fast, and int8 pages. Needs build/release (renga and
# kl_bench) and llama-perplexity (RENGA_LLAMA_PERPLEXITY, or what bench/peers/run.sh built).

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

model='' text='' windows=16 variants=(--variant 'fast=--precision fast' --variant 'high=--precision high')
while [ $# -gt 0 ]; do
  case $1 in
    --model) model=$2 && shift ;;
    --text) text=$2 && shift ;;
    --windows) windows=$2 && shift ;;
    --thresholds)
      for limit in 1 2.56 4 9 inf; do variants+=(--variant "coarse:$limit=--coarse $limit"); done
      variants+=(--variant 'int8=--precision fast --dtype int8')
      ;;
    *) die "$1 is unknown; see the head of $0" ;;
  esac
  shift
done

bin=${RENGA_BIN:-$root/build/release/bin}
[ -x "$bin/kl_bench" ] || die "build it first: cmake --build --preset release --target renga kl_bench"
llama=${RENGA_LLAMA_PERPLEXITY:-$(find "$cache_dir/peers" -name llama-perplexity -type f 2>/dev/null | head -1)}
[ -x "$llama" ] || die "no llama-perplexity: run bench/peers/run.sh once, or set RENGA_LLAMA_PERPLEXITY"
[ -n "$model" ] || model=$("$root/scripts/fetch_model.sh")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$text" ]; then
  text=$work/text
  cat "$root"/src/quantize/sample_text.txt "$root"/{README,CONTRIBUTING,src/README,bench/README,kernels/README}.md >"$text"
fi

say "the float32 file"
"$bin/renga" quantize "$model" "$work/f32.gguf" --type f32 --no-report >&2
say "the base: llama.cpp on float32, $windows windows"
"$llama" -m "$work/f32.gguf" -f "$text" -c 512 --chunks "$windows" -t "$jobs" -ngl 0 \
  --kl-divergence-base "$work/base" >"$work/log" 2>&1 || die "llama-perplexity failed: $(tail -5 "$work/log")"
say "both sides"
python3 -B "$(dirname "${BASH_SOURCE[0]}")/kl_compare.py" --base "$work/base" --model "$model" \
  --kl-bench "$bin/kl_bench" --llama "$llama" --threads "$jobs" "${variants[@]}"
