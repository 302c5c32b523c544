// Sequences with their pages on a device, as the attention kernels see them, and the
// attention of their last rows in double precision.
//
// Keys and values are a function of (content, position): sequences of one content share
// the pages that both have whole, and a row can be compared with the same row elsewhere.
// Pages lie scattered between others that nobody owns; what is not written is NaN.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/attention.h"
#include "tests/cuda/device_case.h"

namespace renga::test {

struct SceneSequence {
  int32_t length = 0;
  int32_t rows = 1;  // Its last positions are queries.
  uint32_t content = 1;
};

struct SceneSpec {
  cuda::PageKind kind = cuda::PageKind::kF16;
  int32_t head_dim = 64;
  int32_t heads = 4;  // Of a KV head.
  int32_t kv_heads = 2;
  std::vector<SceneSequence> sequences{};
  uint32_t page_seed = 1;     // Where pages lie.
  bool random_bytes = false;  // All pages and forms hold any bytes.
  float value_scale = 1.0f;   // Of the values' standard deviation.
};

std::string SceneName(const SceneSpec& spec);

class AttentionScene {
 public:
  AttentionScene(Device& device, SceneSpec spec);

  struct Tiling {
    int32_t packed_rows = 0;   // Most of a tile; 0: what the kernel takes.
    int32_t spare_tiles = 0;   // Launched beyond the counter.
    int32_t spare_groups = 0;  // Decode: launched beyond the longest sequence.
  };
  using Out = std::vector<uint16_t>;  // f16 [rows()][heads * kv_heads][hd]

  Out Decode(const Tiling& tiling);
  Out Decode() { return Decode(Tiling()); }
  Out Prefill(const Tiling& tiling);
  Out Prefill() { return Prefill(Tiling()); }
  // Called behind every launch with its kernel.
  void set_after_launch(std::function<void(cuda::KernelId)> call) {
    after_launch_ = std::move(call);
  }
  // What was written, or not written, against the rules; empty: nothing.
  const std::string& wrong() const { return wrong_; }

  // [rows()][heads * kv_heads][hd], of the values that the pages hold.
  std::vector<double> Reference() const;

  int32_t rows() const { return rows_; }
  int64_t row_values() const { return int64_t{heads()} * spec_.head_dim; }
  int32_t heads() const { return spec_.heads * spec_.kv_heads; }
  const SceneSpec& spec() const { return spec_; }
  // Of K and V that one decode of all rows needs; and what memory no kernel may read.
  int64_t needed_bytes() const { return needed_bytes_; }
  const std::vector<std::pair<void*, int64_t>>& forbidden() const { return forbidden_; }
  const uint8_t* pool() const { return pool_->data(); }
  const uint8_t* forms() const {  // int8: of chunks in f16 form; else null.
    return form_memory_.has_value() ? form_memory_->data() : nullptr;
  }

 private:
  struct Content {  // Of one content: [position][kv_head][hd].
    std::vector<float> k;
    std::vector<float> v;
  };
  struct Launched {
    std::vector<cuda::QueryTile> tiles;
    int32_t groups = 0;  // Of the longest tile.
    int32_t slots = 0;
  };

  void MakeContents();
  void PlacePages();
  void WritePages(std::vector<uint8_t>& pool);
  void WriteForms();
  void MakeQueries();
  void NoteForbidden();
  std::vector<uint8_t> FormOf(const SceneSequence& sequence, int32_t chunk,
                              int32_t kv_head) const;
  std::vector<uint8_t> PageOf(const SceneSequence& sequence, int32_t chunk,
                              int32_t kv_head) const;
  bool Whole(const SceneSequence& sequence, int32_t chunk) const;
  Launched Tiles(int32_t packed_rows) const;
  void AppendTiles(int32_t sequence, int32_t first_row, int32_t packed_rows,
                   Launched& made) const;
  cuda::AttentionArgs Args() const;
  void Launch(const cuda::KernelLaunch& launch, const cuda::AttentionArgs& args);
  Out Collect(const DeviceBuffer<uint16_t>& out);
  void CheckPartials(const DeviceBuffer<float>& partials, const Launched& made);
  void ReferenceRow(const SceneSequence& sequence, int32_t position, int32_t row,
                    int32_t head, std::vector<double>& out) const;
  double Key(const SceneSequence& sequence, bool coded, int32_t position, int32_t kv_head,
             int32_t channel) const;
  double Value(const SceneSequence& sequence, bool coded, int32_t position,
               int32_t kv_head, int32_t channel) const;
  const uint8_t* CodedPage(const SceneSequence& sequence, int32_t position,
                           int32_t kv_head) const;

  Device& device_;
  StreamId stream_;
  SceneSpec spec_;
  int32_t rows_ = 0;
  int64_t head_bytes_ = 0;
  int64_t form_head_bytes_ = 0;
  int64_t needed_bytes_ = 0;
  std::map<uint32_t, Content> contents_;
  std::vector<std::vector<int32_t>> pages_of_;  // [sequence][chunk]
  std::vector<std::vector<int32_t>> forms_of_;  // [sequence][chunk]; -1: no queries.
  int32_t page_count_ = 0;
  int32_t form_count_ = 0;
  std::vector<float> q_host_;
  // int8 pages on the host: (content, chunk, KV head).
  std::map<std::pair<uint32_t, std::pair<int32_t, int32_t>>, std::vector<uint8_t>> coded_;

  std::optional<DeviceBuffer<uint8_t>> pool_;
  std::optional<DeviceBuffer<uint8_t>> form_memory_;
  std::optional<DeviceBuffer<cuda::ChunkForm>> forms_;
  std::optional<DeviceBuffer<int32_t>> page_list_;
  std::optional<DeviceBuffer<uint16_t>> q_;
  std::vector<std::pair<void*, int64_t>> forbidden_;
  std::function<void(cuda::KernelId)> after_launch_;
  std::string wrong_;
};

}  // namespace renga::test
