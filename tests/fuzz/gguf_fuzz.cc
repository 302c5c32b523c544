// Any bytes as a model file: open, read every key in every way, read the configuration,
// find the tensors, and touch the first and last byte of each.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "formats/gguf_file.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace {

volatile unsigned char g_sink = 0;  // Keeps the reads.

void Touch(const void* data, size_t bytes) {
  if (bytes == 0) return;
  const auto* raw = static_cast<const unsigned char*>(data);
  g_sink = raw[0];
  g_sink = raw[bytes - 1];
}

void ReadEveryKey(const renga::GgufFile& file) {
  for (const std::string_view key : file.Keys()) {
    if (const auto text = file.GetString(key); text.ok()) {
      Touch(text->data(), text->size());
    }
    if (const auto texts = file.GetStrings(key); texts.ok()) {
      for (const std::string_view text : *texts) Touch(text.data(), text.size());
    }
    (void)file.GetUint(key);
    (void)file.GetFloat(key);
    (void)file.GetBool(key);
    (void)file.GetInts(key);
    (void)file.GetFloats(key);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = renga::GgufFile::FromBytes(
      "fuzz.gguf", {reinterpret_cast<const std::byte*>(data), size});
  if (!file.ok()) return 0;
  ReadEveryKey(**file);
  for (const renga::GgufTensor& tensor : (*file)->tensors()) {
    Touch(tensor.data, tensor.bytes);
  }
  const auto config = renga::ReadModelConfig(**file);
  if (config.ok()) (void)renga::FindModelTensors(**file, *config);
  return 0;
}
