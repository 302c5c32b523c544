// LoadedModel: the model file, what it says (tokenizer, template, shape), and its weights
// on a device.
//
//   Open (cheap; names what is wrong with the file or the settings) -> MakeDevice ->
//   LoadWeights (the expensive one; afterwards the file's pages are given back)
//
// Thread rule: one thread loads; afterwards the tokenizer and the template may be used
// from any thread, the transformer from the engine's alone.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/backend_factory.h"
#include "formats/gguf_file.h"
#include "model/model_config.h"
#include "model/transformer.h"
#include "renga/config.h"
#include "renga/generation_service.h"
#include "renga/status.h"
#include "renga/tokenizer.h"
#include "text/chat_template.h"

namespace renga {

class LoadedModel {
 public:
  static StatusOr<std::unique_ptr<LoadedModel>> Open(const Config& config);

  Status MakeDevice(const BackendFactory& factory);
  // Rows and sequences of a step are `limits`' affair, its pages are pages().
  Status LoadWeights(const BackendLimits& limits, const LoadProgress& progress = {});

  const std::string& name() const { return name_; }
  const ModelConfig& config() const { return model_; }
  int64_t context() const { return context_; }  // Tokens of prompt and answer.
  int64_t pages() const { return pages_; }      // Of the KV pool.
  const KvGeometry& geometry() const { return geometry_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // nullptr: the model can complete text, but not chat...
  const ChatTemplate* chat_template() const { return chat_template_.get(); }
  // ... for this reason.
  const std::string& no_template_reason() const { return no_template_reason_; }
  // REQUIRES: MakeDevice was OK.
  const Backend& backend() const { return *backend_; }
  // REQUIRES: LoadWeights was OK.
  Transformer& transformer() { return *transformer_; }
  ModelInfo Describe() const;

 private:
  LoadedModel() = default;

  Status OpenFile(const ModelSettings& settings);
  Status CheckSettings(const Config& config);
  Status WithSizes(const Status& why) const;

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
  std::string no_template_reason_;
  ModelConfig model_;
  std::string name_;
  DeviceSettings device_;
  KvGeometry geometry_;
  int64_t context_ = 0;
  int64_t pages_ = 0;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transformer> transformer_;
};

}  // namespace renga
