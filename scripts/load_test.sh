#!/usr/bin/env bash
# Many chat users against a server of its own: what the users measure beside what the server
# does. The last thing printed is the two side by side; Locust's report lies in build/load_test/.
#
#   scripts/load_test.sh                100 users for a minute, through the HTTP gateway
#     --users N                         1 to 1000 (100)
#     --time SECONDS                    5 to 600 (60)
#     --protocol http|grpc|both         both: half of the users each (http)
#     --max-tokens N                    of each answer (16)
#     --chinese SHARE                   of the messages, 0 to 1; the rest is English (0.5)
#     --model FILE                      a GGUF file (the default model)
#     --out FOLDER                      for report.html, record.json and the logs (build/load_test)
#     -- FLAG VALUE...                  to `renga serve`
#
# RENGA_BINARY names the server; without it the release preset is built. Status 0 if no request
# failed. Clients and server share this machine: see what is said under the table.

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

users=100 seconds=60 protocol=http max_tokens=16 chinese=0.5 model='' out=$root/build/load_test

# Dies unless `$2`, the value of option `$1`, is a whole number from `$3` to `$4`.
whole() {
  if ! [[ $2 =~ ^[0-9]{1,9}$ ]] || [ "$2" -lt "$3" ] || [ "$2" -gt "$4" ]; then
    die "$1 must be a whole number from $3 to $4"
  fi
}

while [ $# -gt 0 ]; do
  case $1 in
    --users) whole "$1" "${2-}" 1 1000 && users=$2 ;;
    --time) whole "$1" "${2-}" 5 600 && seconds=$2 ;;
    --max-tokens) whole "$1" "${2-}" 1 100000 && max_tokens=$2 ;;
    --protocol)
      [[ ${2-} =~ ^(http|grpc|both)$ ]] || die "--protocol must be http, grpc or both"
      protocol=$2
      ;;
    --chinese)
      [[ ${2-} =~ ^(0|1|0\.[0-9]+|1\.0)$ ]] || die "--chinese must be a number from 0 to 1"
      chinese=$2
      ;;
    --model)
      [ -f "${2-}" ] || die "--model: there is no file ${2-}"
      model=$2
      ;;
    --out)
      [ -n "${2-}" ] || die "--out needs a folder"
      out=$2
      ;;
    --)
      shift
      break
      ;;
    -h | --help)
      sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) die "unknown option $1 (see scripts/load_test.sh --help)" ;;
  esac
  shift 2
done
server_flags=("$@")

binary=${RENGA_BINARY:-}
if [ -z "$binary" ]; then
  say "building (release)"
  mkdir -p "$root/build"
  (cd "$root" && cmake --preset release >build/configure.log 2>&1 &&
    cmake --build --preset release --target renga -- --quiet >&2) || die "the build failed"
  binary=$root/build/release/bin/renga
fi
[ -x "$binary" ] || die "there is no program $binary"
[ -n "$model" ] || model=$("$root/scripts/fetch_model.sh")
use_load_venv
mkdir -p "$out"

# Empty, or a process that this script started.
server='' load=''
# shellcheck disable=SC2317  # Called by the trap.
stop_all() {
  [ -z "$load" ] || stop_pid "$load"
  [ -z "$server" ] || stop_pid "$server" 40
}
trap stop_all EXIT
trap 'exit 130' INT TERM

read -r grpc_port http_port admin_port <<<"$(free_ports 3)"
address=127.0.0.1:$grpc_port http=127.0.0.1:$http_port admin=127.0.0.1:$admin_port
say "starting the server (log: $out/server.log)"
setpriv --pdeathsig TERM "$binary" serve --model.path "$model" --grpc.address "$address" \
  --gateway.address "$http" --admin.address "$admin" --admin.grpc_address 127.0.0.1:0 \
  "${server_flags[@]+"${server_flags[@]}"}" >"$out/server.log" 2>&1 &
server=$!
for ((i = 0; i < 1200; i++)); do
  if curl -fs -o /dev/null --max-time 2 "http://$admin/readyz"; then break; fi
  if ! kill -0 "$server" 2>/dev/null || [ "$i" = 1199 ]; then
    tail -n 20 "$out/server.log" >&2
    die "the server did not become ready"
  fi
  sleep 0.1
done

case $protocol in
  http) classes=(HttpChatUser) ;;
  grpc) classes=(GrpcChatUser) ;;
  both) classes=(HttpChatUser GrpcChatUser) ;;
esac
say "$users users for $seconds s over $protocol, think time 0.5 to 1.5 s, $max_tokens tokens"
curl -fsS "http://$admin/metrics" >"$out/metrics_before.txt"
rm -f "$out/record.json"
# All users are there within two seconds. Those that wait for an answer at the end get it.
status=0
setpriv --pdeathsig TERM "$load_venv/bin/locust" -f "$root/bench/locust/locustfile.py" \
  --headless --only-summary --users "$users" --spawn-rate "$(((users + 1) / 2))" \
  --run-time "${seconds}s" --stop-timeout 60 --host "http://$http" --grpc-address "$address" \
  --max-tokens "$max_tokens" --chinese "$chinese" --html "$out/report.html" \
  --record "$out/record.json" "${classes[@]}" >"$out/locust.log" 2>&1 &
load=$!
wait "$load" || status=$?
load=
curl -fsS "http://$admin/metrics" >"$out/metrics_after.txt" || die "the server is gone: $out/server.log"
if [ ! -f "$out/record.json" ]; then
  tail -n 30 "$out/locust.log" >&2
  die "Locust ended with status $status and left no record"
fi

failed=0
"$load_venv/bin/python" -B "$root/bench/locust/side_by_side.py" "$out/record.json" \
  "$out/metrics_before.txt" "$out/metrics_after.txt" || failed=1
printf '\nLocust'\''s report: %s\n' "$out/report.html"
if [ "$failed" = 1 ] || [ "$status" != 0 ]; then
  sed -n '/Error report/,$p' "$out/locust.log" >&2
  die "not every request was answered: $out/locust.log"
fi
