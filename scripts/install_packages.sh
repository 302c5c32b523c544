#!/usr/bin/env bash
# Installs the Debian packages that renga is built with; quick when all are there.
#
#   scripts/install_packages.sh           what start.sh needs: build and run
#   scripts/install_packages.sh --tests   and what test.sh needs: clang's tools, Prometheus
#
# As root, or as a user who may sudo. No service is installed: Prometheus and promtool
# are unpacked from their package into the cache folder, so that none is left running.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=(
  g++ cmake ninja-build pkgconf ccache git
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libssl-dev
  libspdlog-dev prometheus-cpp-dev
  libboost1.81-dev libboost-json1.81-dev libyaml-cpp-dev libcli11-dev
  libutf8proc-dev libpcre2-dev libgtest-dev libgmock-dev libbenchmark-dev
  curl ca-certificates unzip python3 python3-venv python3-pip
)
test_packages=(
  clang clang-tidy clang-format libclang-rt-14-dev
  libboost-context1.81-dev  # The fibers of the SIMT emulator.
  chromium fonts-dejavu-core  # The chat page's tests.
)

with_tests=0
for arg in "$@"; do
  case $arg in
    --tests) with_tests=1 packages+=("${test_packages[@]}") ;;
    *) die "install_packages.sh: unknown option $arg" ;;
  esac
done

have_debian || die "this script knows Debian 12 only (no apt-get and dpkg-query here).
Install what answers to these Debian packages yourself: ${packages[*]}"

missing=()
status=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
for package in "${packages[@]}"; do
  grep -qx "$package installed" <<<"$status" || missing+=("$package")
done

updated=0
update_lists() {
  [ "$updated" = 1 ] && return
  as_root apt-get -qq update || die "apt-get update failed: is the network there?"
  updated=1
}

if [ "${#missing[@]}" -gt 0 ]; then
  say "Debian packages (some minutes on a new machine): ${missing[*]}"
  update_lists
  log=$(mktemp)
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    -o Dpkg::Use-Pty=0 "${missing[@]}" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "apt-get could not install: ${missing[*]} (renga is built on Debian 12)"
  }
  rm -f "$log"
fi

have_prometheus() {
  [ -x "$cache_dir/tools/prometheus" ] && [ -x "$cache_dir/tools/promtool" ]
}

if [ "$with_tests" = 1 ] && ! have_prometheus; then
  say "prometheus and promtool: unpacking them from Debian's package"
  update_lists
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && apt-get -qq download prometheus 2>/dev/null && dpkg-deb -x prometheus_*.deb .) ||
    die "apt-get could not download prometheus"
  mkdir -p "$cache_dir/tools"
  mv "$work/usr/bin/prometheus" "$work/usr/bin/promtool" "$cache_dir/tools/"
fi
