#!/usr/bin/env bash
# Checks and measures the CUDA engine on a machine that has a GPU, nvcc, CMake, Ninja, PyTorch
# and transformers, and no network. One command, within its own clock:
#
#   tests/gpu/run_gpu_checks.sh
#     --out DIR           results, at most 8 files (build/gpu-results); $OUT if that is set
#     --only STEP,STEP    of: probe kernels parity speed memory sanitizer; the build is always made
#     --budget SECONDS    480; a step that no time is left for is not run, and that is said
#     --build DIR         a build that is there already (instead of build/gpu)
#     --device NAME       cuda:0
#     --family NAME       kernels: one family alone
#
# Steps do not depend on each other. Results are appended as they come; log.txt has what the
# steps say. Models go to $RENGA_GPU_MODELS (/dev/shm/renga; the build folder if that is too
# small) and stay, for the next run.
# Clocks and other settings of the GPU are left alone. The last thing printed is the summary
# (summary.txt); the status is that of the worst step: 0 all right, 1 something is wrong, 2 it
# could not be checked, 124 out of time, 125 not run.

# shellcheck disable=SC2317  # The steps are called by name.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/tests/gpu

out=${OUT:-$root/build/gpu-results} only='' budget=480 build='' device=cuda:0 family=''
while [ $# -gt 0 ]; do
  name=${1%%=*}
  if [[ $1 == *=* ]]; then
    value=${1#*=}
  else
    value=${2-}
    [ $# -lt 2 ] || shift
  fi
  shift
  case $name in
    --out) out=$value ;;
    --only) only=$value ;;
    --budget) budget=$value ;;
    --build) build=$value ;;
    --device) device=$value ;;
    --family) family=$value ;;
    -h | --help)
      sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "unknown option $name (see --help)" >&2
      exit 2
      ;;
  esac
done
[[ $budget =~ ^[0-9]+$ ]] || { echo "--budget needs seconds" >&2; exit 2; }
all_steps=(probe kernels parity speed memory sanitizer)
for name in ${only//,/ }; do
  [[ " ${all_steps[*]} " == *" $name "* ]] || { echo "--only: no step $name" >&2; exit 2; }
done
ready_build=$build
build=${build:-$root/build/gpu}
models=${RENGA_GPU_MODELS:-/dev/shm/renga}
# A container's /dev/shm may be small, and all models take 21 GB.
if [ -z "${RENGA_GPU_MODELS:-}" ] && [ ! -e "$models/8b-f16.gguf" ]; then
  room=$(df -Pk /dev/shm 2>/dev/null | sed -n '2s/^[^ ]* *[0-9]* *[0-9]* *\([0-9]*\) .*/\1/p')
  [ "${room:-0}" -ge 25000000 ] || models=$build/models
fi
check=$build/bin/renga_gpu_check
bench=$build/bin/step_bench
PATH=$PATH:/usr/local/cuda/bin
export root here out build device family models check bench PATH
mkdir -p "$out"

# ---- Steps. Each runs in a bash of its own, within its time. -----------------------------

step_probe() {
  {
    date -u
    nvidia-smi || echo "no nvidia-smi"
    nvcc --version | tail -n 2
    cmake --version | head -n 1
    nproc
    free -g | sed -n 2p
    df -h /dev/shm | tail -n 1
  } >"$out/env.txt" 2>&1 || true
  python3 - >>"$out/env.txt" 2>&1 <<'PY'
import torch, transformers
print("torch", torch.__version__, "transformers", transformers.__version__)
print(torch.cuda.get_device_properties(0))
PY
}

step_build() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DRENGA_ENGINE_ONLY=ON \
    -DRENGA_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="${capability/./}"
  cmake --build "$build" --target renga_gpu_check step_bench
}

step_kernels() {
  local size rc=0
  rm -f "$out/kernels.csv"
  for size in small large; do
    "$check" kernels --device "$device" --size "$size" --family "$family" --out "$out/kernels.csv" || rc=$?
    # The emulator needs minutes for what a GPU does in seconds.
    [ "$device" != emulated ] || break
  done
  return "$rc"
}

step_parity() {
  rm -f "$out/e2e.json"
  python3 -B "$here/parity.py" "$check" "$out/e2e.json" "$models" --device "$device"
}

# Makes the model `$1` unless it is there, and prints its path.
model() {
  local path=$models/$1.gguf
  mkdir -p "$models"
  if [ ! -s "$path" ]; then
    python3 -B "$here/random_model.py" "${1%%-*}" "${1#*-}" "$path.part" >&2
    mv "$path.part" "$path"
  fi
  echo "$path"
}

step_speed() {
  local rc=0 perf=$out/perf.csv
  rm -f "$perf"
  python3 -B "$here/speed.py" roofs "$perf" || rc=1
  "$check" speed --device "$device" --out "$perf" || rc=1
  { python3 -B "$here/speed.py" engine "$perf" "$bench" "$device" "$(model 8b-f16)" "$(model 1b-q4_1)"; } || rc=1
  python3 -B "$here/speed.py" kernels "$perf" || rc=1
  python3 -B "$here/speed.py" transformers "$perf" || rc=1
  return "$rc"
}

step_memory() {
  rm -f "$out/memory.json"
  "$check" memory --device "$device" --model "$(model 8b-f16)" --out "$out/memory.json"
}

# An error that a tool finds is 99; any other status means that it can't work here.
step_sanitizer() {
  local tool part worst=0 checked=0 rc log=$out/sanitizer.log
  rm -f "$log"
  if ! command -v compute-sanitizer >/dev/null; then
    echo "no compute-sanitizer here" | tee "$log"
    return 0
  fi
  for tool in memcheck racecheck synccheck initcheck; do
    for part in sampling rows attention product; do
      echo "== $tool $part" >>"$log"
      if [ "$SECONDS" -ge 65 ]; then # Of the step, whose last run may take 20.
        echo "== status 125" >>"$log"
        continue
      fi
      rc=0
      timeout 20 compute-sanitizer --tool "$tool" --error-exitcode 99 \
        "$check" kernels --device "$device" --family "$part" >>"$log" 2>&1 || rc=$?
      echo "== status $rc" >>"$log"
      [ "$rc" != 99 ] || worst=1
      [ "$rc" != 0 ] || checked=1
    done
  done
  if command -v ncu >/dev/null; then
    timeout 20 ncu --clock-control none --launch-count 2 "$check" speed --device "$device" \
      --family decode_attention/f16/hd:128/batch:8 >>"$log" 2>&1 || true
  fi
  [ "$worst" = 0 ] && [ "$checked" = 0 ] && worst=2
  return "$worst"
}

# ---- The clock --------------------------------------------------------------------------

deadline=$((SECONDS + budget - 5)) # The rest is for the summary.
steps=''
worst=0

# run_step NAME SECONDS: within that time, and within what is left of the budget.
run_step() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) begin=$SECONDS rc=0
  if [ "$left" -lt 5 ]; then
    rc=125
  else
    [ "$limit" -le "$left" ] || limit=$left
    echo "==> $name (at most $limit s)"
    timeout --kill-after=5 "$limit" bash -c "set -euo pipefail; step_$name" >>"$out/log.txt" 2>&1 || rc=$?
    [ "$rc" != 137 ] || rc=124
  fi
  echo "    $name: status $rc after $((SECONDS - begin)) s"
  [ "$rc" -le "$worst" ] || worst=$rc
  steps+="$name $rc $((SECONDS - begin))"$'\n'
}

wanted() { [ -z "$only" ] || [[ ,$only, == *",$1,"* ]]; }

for name in build model "${all_steps[@]}"; do
  if [ "$(type -t "step_$name")" = function ]; then export -f "step_${name?}"; else export -f "${name?}"; fi
done
echo "---- $(date -u), models in $models" >>"$out/log.txt"
if wanted probe; then run_step probe 40; fi
if [ -z "$ready_build" ]; then
  run_step build 200
  if [ "$worst" != 0 ] && [[ $'\n'$steps != *$'\n'"build 0 "* ]]; then
    tail -n 40 "$out/log.txt"
    printf '%s' "$steps" | python3 -B "$here/summary.py" "$out" | tee "$out/summary.txt" || true
    exit 2
  fi
fi
limits=(kernels:100 parity:170 speed:170 memory:30 sanitizer:90)
for entry in "${limits[@]}"; do
  if wanted "${entry%:*}"; then run_step "${entry%:*}" "${entry#*:}"; fi
done

echo
rc=0
printf '%s' "$steps" | python3 -B "$here/summary.py" "$out" | tee "$out/summary.txt" || rc=$?
[ "$rc" -ge "$worst" ] || rc=$worst
exit "$rc"
