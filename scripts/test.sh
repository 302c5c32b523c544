#!/usr/bin/env bash
# From a fresh Debian 12 machine to a passed test suite.
#
#   scripts/test.sh                 the parts release clients ops lint metrics start
#   scripts/test.sh --all           every part, as CI runs them
#   scripts/test.sh PART...         only these:
#     release   build with g++, all unit, integration and golden tests
#     clients   Python clients against a real server process; the measuring scripts
#     ops       rules, dashboard and container files; the real Prometheus on a live server
#     lint      layering, files without tests, formatting, scripts
#     metrics   a live server: probes, promtool, portable against auto, shutdown
#     start     scripts/start.sh --once
#     cuda      nvcc builds all kernels; the engine alone; registers and spills; the GPU script's logic
#     asan      clang, address + undefined + leaks: unit and integration tests
#     fuzz      the fuzz targets, RENGA_FUZZ_SECONDS (20) each
#     tsan      clang, thread: everything below the transport
#     tidy      clang-tidy, changed files first, for RENGA_TIDY_SECONDS (240) at most
#
# Ends with one line `N passed, N failed` over all parts, and status 0 if nothing failed.
# The whole output of a part is in build/logs/PART.log; it is shown if the part fails.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

default_parts=(release clients ops lint metrics start)
all_parts=(lint release clients ops metrics start cuda asan fuzz tsan tidy)
logs=$root/build/logs
export PATH=$PATH:$cache_dir/tools

# Adds to the part's own count: `count PASSED FAILED`.
count() { echo "$1 $2" >>"$logs/$part.count"; }

# Runs one check with a name, which counts as one test.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "ok: $name"
    count 1 0
  else
    echo "FAILED: $name"
    count 0 1
  fi
}

# Builds preset `$1`: all of it, or the targets that follow.
build() {
  local preset=$1
  shift
  cmake --preset "$preset"
  cmake --build --preset "$preset" "${@/#/--target=}" -- -k 0
}

# Runs ctest in build/`$1` with the arguments that follow, and counts.
run_ctest() {
  local folder=build/$1 rc=0
  shift
  ctest --test-dir "$folder" --output-on-failure -j "$jobs" "$@" 2>&1 | tee "$logs/$part.ctest" || rc=$?
  local line
  line=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests failed out of [0-9]+' "$logs/$part.ctest" | tail -n 1)
  [[ $line =~ ,\ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]] || { echo "ctest ran no test"; return 1; }
  count $((BASH_REMATCH[2] - BASH_REMATCH[1])) "${BASH_REMATCH[1]}"
  # A failure that is counted is reported once.
  [ "$rc" = 0 ] || [ "${BASH_REMATCH[1]}" -gt 0 ]
}

# ---- Parts -------------------------------------------------------------------------------

part_release() {
  build release
  scripts/fetch_model.sh
  run_ctest release
}

# Runs pytest over the folders `$@` against the release build, and counts.
run_pytest() {
  export RENGA_BINARY=$root/build/release/bin/renga
  use_venv
  local rc=0
  "$venv/bin/python" -B -m pytest -p no:cacheprovider -q "$@" 2>&1 | tee "$logs/$part.pytest" || rc=$?
  local last passed=0 failed=0
  last=$(tail -n 1 "$logs/$part.pytest")
  [[ $last =~ ([0-9]+)\ passed ]] && passed=${BASH_REMATCH[1]}
  [[ $last =~ ([0-9]+)\ failed ]] && failed=${BASH_REMATCH[1]}
  [[ $last =~ ([0-9]+)\ error ]] && failed=$((failed + BASH_REMATCH[1]))
  count "$passed" "$failed"
  [ "$rc" = 0 ] || [ "$failed" -gt 0 ]
}

part_clients() {
  build release renga make_tiny_model
  run_pytest tests/clients tests/bench
}

part_ops() {
  build release renga make_tiny_model
  run_pytest tests/ops
}

our_sources() {
  git ls-files --cached --others --exclude-standard "$@" | while read -r file; do
    [ ! -f "$file" ] || echo "$file"
  done
}

is_formatted() {
  local wrong
  wrong=$(our_sources '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run 2>&1 |
    sed -n 's/^\([^:]*\):.*-Wclang-format-violations.*/\1/p' | sort -u)
  [ -z "$wrong" ] || printf 'not formatted; run clang-format -i on:\n%s\n' "$wrong"
  [ -z "$wrong" ]
}

scripts_parse() {
  local file
  for file in scripts/*.sh bench/*/*.sh docker/*.sh tests/gpu/*.sh cmake/*.sh .ci/run; do
    bash -n "$file" || return 1
  done
}

part_lint() {
  local name
  for name in check_includes check_tests check_text lint_test; do
    check "$name" python3 -B "tests/lint/$name.py"
  done
  check clang-format is_formatted
  check "scripts parse" scripts_parse
}

# Starts a server on free ports with the options `$@`: sets server, address, admin.
start_server() {
  local ports i
  ports=$(free_ports 2)
  address=127.0.0.1:${ports% *} admin=127.0.0.1:${ports#* }
  build/release/bin/renga serve --model.path "$model" --grpc.address "$address" \
    --admin.address "$admin" --admin.grpc_address 127.0.0.1:0 --gateway.address 127.0.0.1:0 "$@" >"$logs/server.log" 2>&1 &
  server=$!
  # Warming up takes the portable code half a minute.
  for ((i = 0; i < 2400; i++)); do
    kill -0 "$server" 2>/dev/null || break
    if curl -fs -o /dev/null --max-time 2 "http://$admin/readyz"; then return 0; fi
    sleep 0.1
  done
  echo "the server did not become ready:"
  tail -n 30 "$logs/server.log"
  return 1
}

ask() { "$venv/bin/python" scripts/chat_once.py --address "$address" --max-tokens 24 --quiet; }

# SIGTERM must end the server in order, with status 0.
drain_server() {
  local pid=$server
  server=
  kill -TERM "$pid"
  wait "$pid"
}

part_metrics() {
  build release renga
  model=$(scripts/fetch_model.sh)
  use_venv
  local address admin answer portable
  server=''
  trap '[ -z "${server:-}" ] || stop_pid "$server"' EXIT
  start_server
  answer=$(ask)
  echo "answer: $answer"
  check "an answer" test -n "$answer"
  check "livez" curl -fsS -o /dev/null "http://$admin/livez"
  curl -fsS "http://$admin/metrics" >"$logs/metrics.txt"
  check "promtool check metrics" sh -c "promtool check metrics <'$logs/metrics.txt'"
  check "SIGTERM ends it with status 0" drain_server
  start_server --device.isa portable
  portable=$(ask)
  check "portable code answers the same" test "$answer" = "$portable"
  check "SIGTERM ends it with status 0" drain_server
}

part_start() {
  local -a ports
  read -ra ports <<<"$(free_ports 4)"
  check "start.sh --once" scripts/start.sh --once --port "${ports[0]}" \
    --admin-port "${ports[1]}" --admin-grpc-port "${ports[2]}" --http-port "${ports[3]}"
}

# Packages that the engine alone must not need: they can't be found there.
hidden=(absl benchmark Boost CLI11 gRPC GTest OpenSSL prometheus-cpp Protobuf spdlog yaml-cpp)

# Builds the engine alone in build/`$1`, with the further options `$@`.
build_engine_only() {
  local folder=build/$1 hide=("${hidden[@]/#/-DCMAKE_DISABLE_FIND_PACKAGE_}")
  shift
  cmake --preset engine-only -B "$folder" -DRENGA_WERROR=ON "${hide[@]/%/=ON}" "$@"
  cmake --build "$folder" -- -k 0
  check "no header of another package in $folder" python3 -B tests/lint/check_engine_only.py "$folder"
}

# A server that is to run on a GPU which no machine has says so, and ends.
refuses_missing_gpu() {
  ! build/cuda/bin/renga serve --model.path "$model" --device.name cuda:99 \
    --grpc.address 127.0.0.1:0 --gateway.address 127.0.0.1:0 --admin.address 127.0.0.1:0 \
    --admin.grpc_address 127.0.0.1:0 2>"$logs/missing_gpu.log" &&
    grep -q 'device.name.*cuda:99' "$logs/missing_gpu.log"
}

part_cuda() {
  build_engine_only engine-only
  if find_nvcc >/dev/null; then
    build_engine_only engine-only-cuda -DRENGA_CUDA=ON
    check "spills, registers and their table" python3 -B tests/gpu/check_resources.py build/engine-only-cuda
    build cuda renga
    model=$(scripts/fetch_model.sh)
    check "a GPU that is not there is refused by its setting" refuses_missing_gpu
  else
    echo "no nvcc here: the CUDA kernels are not compiled, and nothing is counted for them"
  fi
  build release renga_gpu_check
  run_pytest tests/gpu
}

part_asan() {
  build asan
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
  run_ctest asan -LE model -E '^lint\.'
}

part_fuzz() {
  local names=() source name
  for source in tests/fuzz/*_fuzz.cc; do
    names+=("$(basename "$source" .cc)")
  done
  build asan "${names[@]}"
  for name in "${names[@]}"; do
    run_fuzz "$name"
  done
}

run_fuzz() {
  local name=$1 found folders seeds
  found=$(mktemp -d)
  folders=("$found")
  for seeds in "build/asan/tests/fuzz/$name.corpus" "tests/fuzz/${name%_fuzz}_corpus"; do
    [ ! -d "$seeds" ] || folders+=("$seeds")
  done
  check "$name" "build/asan/tests/fuzz/$name" -max_total_time="${RENGA_FUZZ_SECONDS:-20}" \
    -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$logs/" "${folders[@]}"
  rm -rf "$found"
}

part_tsan() {
  local run=()
  # clang 14's runtime does not know the wide address randomisation of newer kernels.
  if setarch -R true 2>/dev/null; then run=(setarch -R); fi
  cmake --preset tsan
  "${run[@]}" cmake --build --preset tsan -- -k 0
  export TSAN_OPTIONS=second_deadlock_stack=1
  run_ctest tsan -LE model -E '^lint\.'
}

part_tidy() {
  build asan renga_proto  # The generated headers.
  check clang-tidy python3 -B scripts/run_clang_tidy.py --build build/asan \
    --seconds "${RENGA_TIDY_SECONDS:-240}" --jobs "$jobs"
}

# ---- Running them ------------------------------------------------------------------------

parts=()
for arg in "$@"; do
  case $arg in
    --all) parts=("${all_parts[@]}") ;;
    -h | --help)
      sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      [ "$(type -t "part_$arg")" = function ] || die "unknown part $arg (see scripts/test.sh --help)"
      parts+=("$arg")
      ;;
  esac
done
[ "${#parts[@]}" -gt 0 ] || parts=("${default_parts[@]}")

passed=0 failed=0 report=''
# Adds the part's counts; one that ended badly without a failed test counts as one itself.
account() {
  local rc=$1 p f part_passed=0 part_failed=0 state=ok
  while read -r p f; do
    part_passed=$((part_passed + p)) part_failed=$((part_failed + f))
  done <"$logs/$part.count"
  if [ "$rc" != 0 ] && [ "$part_failed" = 0 ]; then part_failed=1; fi
  if [ "$part_failed" != 0 ]; then
    state=FAILED
    echo "---- the last lines of build/logs/$part.log"
    tail -n 150 "$logs/$part.log"
    echo "----"
  fi
  passed=$((passed + part_passed)) failed=$((failed + part_failed))
  report+=$(printf '%-9s %-7s %4d passed %3d failed %6.1f min' "$part" "$state" \
    "$part_passed" "$part_failed" "$((seconds * 10 / 60))e-1")$'\n'
}

mkdir -p "$logs"
begin=$SECONDS
scripts/install_packages.sh --tests
for part in "${parts[@]}"; do
  say "$part"
  part_begin=$SECONDS
  : >"$logs/$part.count"
  rc=0
  set +e
  (
    set -e
    "part_$part"
  ) >"$logs/$part.log" 2>&1 </dev/null
  rc=$?
  set -e
  seconds=$((SECONDS - part_begin))
  account "$rc"
done

echo
printf '%s' "$report"
printf 'all parts took %d:%02d min\n\n' $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60))
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
