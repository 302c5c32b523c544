// See attention_scene.h: the pages of a scene, its launches, and its reference, which
// reads the bytes of int8 pages by the definition of kernels/kv_page_format.h.
//
// Thread safety: none.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/block_format.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/words.h"
#include "kernels/kv_page_format.h"
#include "tests/cuda/attention_scene.h"

namespace renga::test {

namespace {

using cuda::PageKind;

constexpr int32_t kChunk = 64;
constexpr int32_t kLayers = 2;
constexpr int32_t kLayer = 1;  // The one that is computed.
constexpr int32_t kSparePages = 3;
constexpr int32_t kSpareRows = 2;   // Of out.
constexpr int32_t kSpareWidth = 4;  // Of a row of out.
constexpr uint16_t kUntouchedHalf = 0xFFFF;

uint16_t ElementBits(PageKind kind, float x) {
  return kind == PageKind::kBf16 ? cuda::FloatToBfloat(x) : F32ToF16(x);
}
float ElementValue(PageKind kind, uint16_t bits) {
  return kind == PageKind::kBf16 ? cuda::BfloatToFloat(bits) : F16ToF32(bits);
}
float Rounded(PageKind kind, float x) { return ElementValue(kind, ElementBits(kind, x)); }

int32_t Chunks(int32_t length) { return (length + kChunk - 1) / kChunk; }

}  // namespace

std::string SceneName(const SceneSpec& spec) {
  static constexpr const char* kKinds[] = {"f16", "bf16", "int8"};
  std::string name = std::string(kKinds[static_cast<int>(spec.kind)]) +
                     "/hd:" + std::to_string(spec.head_dim) +
                     "/heads:" + std::to_string(spec.heads) + "x" +
                     std::to_string(spec.kv_heads);
  for (const SceneSequence& sequence : spec.sequences) {
    name += "/" + std::to_string(sequence.length) + "." + std::to_string(sequence.rows);
  }
  return name;
}

AttentionScene::AttentionScene(Device& device, SceneSpec spec)
    : device_(device), stream_(Must(device.CreateStream())), spec_(std::move(spec)) {
  form_head_bytes_ = int64_t{2} * kChunk * spec_.head_dim * 2;
  head_bytes_ =
      spec_.kind == PageKind::kInt8 ? Int8PageOf(spec_.head_dim).bytes : form_head_bytes_;
  for (const SceneSequence& sequence : spec_.sequences) rows_ += sequence.rows;
  MakeContents();
  PlacePages();
  const int64_t page_bytes = head_bytes_ * spec_.kv_heads * kLayers;
  std::vector<uint8_t> pool(static_cast<size_t>(page_bytes * page_count_), 0xff);
  WritePages(pool);
  pool_.emplace(device_, pool, stream_);
  WriteForms();
  MakeQueries();
  NoteForbidden();
}

void AttentionScene::MakeContents() {
  std::map<uint32_t, int32_t> lengths;
  for (const SceneSequence& sequence : spec_.sequences) {
    lengths[sequence.content] = std::max(lengths[sequence.content], sequence.length);
  }
  const int64_t width = int64_t{spec_.kv_heads} * spec_.head_dim;
  for (const auto& [content, length] : lengths) {
    Content& made = contents_[content];
    // Keys lie off centre in some channels, as those of models do.
    made.k = Normal(width * length, 2 * content);
    made.v = Normal(width * length, 2 * content + 1, spec_.value_scale);
    for (size_t i = 0; i < made.k.size(); ++i) {
      if (i % 7 == 0) made.k[i] = 3.0f + made.k[i];
      made.k[i] = Rounded(spec_.kind, made.k[i]);
      made.v[i] = Rounded(spec_.kind, made.v[i]);
    }
  }
}

bool AttentionScene::Whole(const SceneSequence& sequence, int32_t chunk) const {
  return (chunk + 1) * kChunk <= sequence.length;
}

void AttentionScene::PlacePages() {
  std::map<std::pair<uint32_t, int32_t>, int32_t> shared;
  for (const SceneSequence& sequence : spec_.sequences) {
    std::vector<int32_t> pages;
    std::vector<int32_t> forms;
    for (int32_t chunk = 0; chunk < Chunks(sequence.length); ++chunk) {
      const auto key = std::make_pair(sequence.content, chunk);
      const bool old = Whole(sequence, chunk) && shared.count(key) != 0;
      pages.push_back(old ? shared[key] : page_count_++);
      if (Whole(sequence, chunk)) shared[key] = pages.back();
      const bool has_queries = (chunk + 1) * kChunk > sequence.length - sequence.rows;
      forms.push_back(has_queries && spec_.kind == PageKind::kInt8 ? form_count_++ : -1);
    }
    pages_of_.push_back(pages);
    forms_of_.push_back(forms);
  }
  page_count_ += kSparePages;
  std::vector<int32_t> places(static_cast<size_t>(page_count_));
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), std::mt19937(spec_.page_seed));
  std::vector<int32_t> list;
  for (std::vector<int32_t>& pages : pages_of_) {
    for (int32_t& page : pages) page = places[static_cast<size_t>(page)];
    list.insert(list.end(), pages.begin(), pages.end());
  }
  page_list_.emplace(device_, list, stream_);
}

// NaN behind the sequence's end.
std::vector<uint8_t> AttentionScene::FormOf(const SceneSequence& sequence, int32_t chunk,
                                            int32_t kv_head) const {
  const Content& content = contents_.at(sequence.content);
  const int32_t hd = spec_.head_dim;
  std::vector<uint16_t> form(static_cast<size_t>(form_head_bytes_ / 2), 0xFFFF);
  const int32_t here = std::min(kChunk, sequence.length - chunk * kChunk);
  for (int32_t p = 0; p < here; ++p) {
    const int64_t at = (int64_t{chunk * kChunk + p} * spec_.kv_heads + kv_head) * hd;
    for (int32_t c = 0; c < hd; ++c) {
      const float k = content.k[static_cast<size_t>(at + c)];
      const float v = content.v[static_cast<size_t>(at + c)];
      form[static_cast<size_t>((p / 16 * hd + c) * 16 + p % 16)] =
          ElementBits(spec_.kind, k);
      form[static_cast<size_t>(kChunk * hd + p * hd + c)] = ElementBits(spec_.kind, v);
    }
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(form_head_bytes_));
  std::memcpy(bytes.data(), form.data(), bytes.size());
  return bytes;
}

std::vector<uint8_t> AttentionScene::PageOf(const SceneSequence& sequence, int32_t chunk,
                                            int32_t kv_head) const {
  std::vector<uint8_t> form = FormOf(sequence, chunk, kv_head);
  if (spec_.kind != PageKind::kInt8) return form;
  std::vector<uint8_t> page(static_cast<size_t>(head_bytes_), 0xff);
  if (!Whole(sequence, chunk)) return page;
  FindCpuOps("portable")
      ->kv_close_int8(
          {.open = form.data(), .page = page.data(), .head_dim = spec_.head_dim});
  return page;
}

void AttentionScene::WritePages(std::vector<uint8_t>& pool) {
  std::mt19937 random(spec_.page_seed + 100);
  for (size_t s = 0; s < spec_.sequences.size(); ++s) {
    const SceneSequence& sequence = spec_.sequences[s];
    for (int32_t chunk = 0; chunk < Chunks(sequence.length); ++chunk) {
      const int32_t number = pages_of_[s][static_cast<size_t>(chunk)];
      for (int32_t kv = 0; kv < spec_.kv_heads; ++kv) {
        std::vector<uint8_t> page = PageOf(sequence, chunk, kv);
        if (spec_.random_bytes) {
          for (uint8_t& byte : page) byte = static_cast<uint8_t>(random());
        }
        const int64_t place =
            ((int64_t{number} * kLayers + kLayer) * spec_.kv_heads + kv) * head_bytes_;
        std::memcpy(&pool[static_cast<size_t>(place)], page.data(), page.size());
        if (spec_.kind == PageKind::kInt8 && Whole(sequence, chunk)) {
          coded_[{sequence.content, {chunk, kv}}] = std::move(page);
        }
      }
    }
  }
}

void AttentionScene::WriteForms() {
  if (spec_.kind != PageKind::kInt8) return;
  const int64_t form_bytes = form_head_bytes_ * spec_.kv_heads * kLayers;
  std::vector<uint8_t> memory(static_cast<size_t>(form_bytes * form_count_), 0xff);
  for (size_t s = 0; s < spec_.sequences.size(); ++s) {
    for (size_t chunk = 0; chunk < forms_of_[s].size(); ++chunk) {
      const int32_t number = forms_of_[s][chunk];
      for (int32_t kv = 0; number >= 0 && kv < spec_.kv_heads; ++kv) {
        const std::vector<uint8_t> form =
            FormOf(spec_.sequences[s], static_cast<int32_t>(chunk), kv);
        const int64_t place =
            ((int64_t{number} * kLayers + kLayer) * spec_.kv_heads + kv) *
            form_head_bytes_;
        std::memcpy(&memory[static_cast<size_t>(place)], form.data(), form.size());
      }
    }
  }
  form_memory_.emplace(device_, memory, stream_);
  std::vector<cuda::ChunkForm> forms;
  for (int32_t i = 0; i < form_count_; ++i) {
    forms.push_back({.base = form_memory_->data() + form_bytes * i,
                     .layer_bytes = form_head_bytes_ * spec_.kv_heads});
  }
  forms_.emplace(device_, forms, stream_);
}

// Scores have a standard deviation of about 3.
void AttentionScene::MakeQueries() {
  const float scale = 3.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  std::vector<uint16_t> bits;
  for (const SceneSequence& sequence : spec_.sequences) {
    for (int32_t row = 0; row < sequence.rows; ++row) {
      const uint32_t position =
          static_cast<uint32_t>(sequence.length - sequence.rows + row);
      for (const float x :
           Normal(row_values(), 1000 * sequence.content + position + 7, scale)) {
        bits.push_back(ElementBits(spec_.kind, x));
        q_host_.push_back(Rounded(spec_.kind, x));
      }
    }
  }
  q_.emplace(device_, bits, stream_);
}

// Pages of nobody, of the other layer, and not yet closed; of a chunk that is not whole,
// values behind its end and keys in pieces of 8 positions behind it.
void AttentionScene::NoteForbidden() {
  const auto forbid = [this](uint8_t* base, int64_t bytes) {
    if (bytes > 0) forbidden_.push_back({base, bytes});
  };
  const int64_t layer_bytes = head_bytes_ * spec_.kv_heads;
  std::vector<bool> used(static_cast<size_t>(page_count_), false);
  const auto forbid_tail = [&](uint8_t* form, int32_t here) {
    const int32_t hd = spec_.head_dim;
    forbid(form + kChunk * hd * 2 + here * hd * 2, int64_t{kChunk - here} * hd * 2);
    for (int32_t piece = (here + 7) / 8; piece < kChunk / 8; ++piece) {
      for (int32_t c = 0; c < hd; ++c) {
        forbid(form + (piece / 2 * hd + c) * 32 + 16 * (piece % 2), 16);
      }
    }
  };
  for (size_t s = 0; s < spec_.sequences.size(); ++s) {
    const SceneSequence& sequence = spec_.sequences[s];
    for (int32_t chunk = 0; chunk < Chunks(sequence.length); ++chunk) {
      const int32_t page = pages_of_[s][static_cast<size_t>(chunk)];
      const int32_t form = forms_of_[s][static_cast<size_t>(chunk)];
      const bool whole = Whole(sequence, chunk);
      used[static_cast<size_t>(page)] = whole || spec_.kind != PageKind::kInt8;
      const int32_t here = std::min(kChunk, sequence.length - chunk * kChunk);
      for (int32_t kv = 0; kv < spec_.kv_heads && !whole; ++kv) {
        uint8_t* open =
            form >= 0
                ? form_memory_->data() +
                      form_head_bytes_ * ((form * kLayers + kLayer) * spec_.kv_heads + kv)
                : pool_->data() +
                      head_bytes_ * ((page * kLayers + kLayer) * spec_.kv_heads + kv);
        forbid_tail(open, here);
      }
      needed_bytes_ += spec_.kv_heads * (form >= 0 ? form_head_bytes_ : head_bytes_);
    }
  }
  for (int32_t page = 0; page < page_count_; ++page) {
    uint8_t* at = pool_->data() + page * kLayers * layer_bytes;
    forbid(at, layer_bytes * (used[static_cast<size_t>(page)] ? kLayer : kLayers));
  }
}

void AttentionScene::AppendTiles(int32_t sequence, int32_t first_row, int32_t packed_rows,
                                 Launched& made) const {
  const SceneSequence& of = spec_.sequences[static_cast<size_t>(sequence)];
  int32_t first_page = 0;
  for (int32_t s = 0; s < sequence; ++s) {
    first_page += static_cast<int32_t>(pages_of_[static_cast<size_t>(s)].size());
  }
  const int32_t heads = std::min(spec_.heads, packed_rows);
  const int32_t tokens = packed_rows / heads;
  for (int32_t head = 0; head < spec_.heads; head += heads) {
    int32_t row = 0;
    while (row < of.rows) {
      const int32_t position = of.length - of.rows + row;
      const int32_t chunk = position / kChunk;
      const int32_t rows =
          std::min({tokens, of.rows - row, (chunk + 1) * kChunk - position});
      const int32_t groups = chunk / 4 + 1;
      made.tiles.push_back(
          {.first_row = first_row + row,
           .rows = rows,
           .first_position = position,
           .first_page = first_page,
           .first_partial = made.slots,
           .own_form =
               forms_of_[static_cast<size_t>(sequence)][static_cast<size_t>(chunk)],
           .first_head = head,
           .heads = std::min(heads, spec_.heads - head)});
      made.groups = std::max(made.groups, groups);
      made.slots += groups;
      row += rows;
    }
  }
}

AttentionScene::Launched AttentionScene::Tiles(int32_t packed_rows) const {
  Launched made;
  int32_t first_row = 0;
  for (size_t s = 0; s < spec_.sequences.size(); ++s) {
    AppendTiles(static_cast<int32_t>(s), first_row, packed_rows, made);
    first_row += spec_.sequences[s].rows;
  }
  return made;
}

cuda::AttentionArgs AttentionScene::Args() const {
  return {.q = q_->data(),
          .pool = pool_->data() + head_bytes_ * spec_.kv_heads * kLayer,
          .pages = page_list_->data(),
          .forms = forms_.has_value() ? forms_->data() : nullptr,
          .out_stride = row_values() + kSpareWidth,
          .page_bytes = head_bytes_ * spec_.kv_heads * kLayers,
          .head_bytes = head_bytes_,
          .form_head_bytes = form_head_bytes_,
          .layer = kLayer,
          .heads = heads(),
          .kv_heads = spec_.kv_heads,
          .head_dim = spec_.head_dim};
}

void AttentionScene::Launch(const cuda::KernelLaunch& launch,
                            const cuda::AttentionArgs& args) {
  Must(device_.Launch(launch, args, stream_));
  if (after_launch_) after_launch_(launch.kernel);
}

AttentionScene::Out AttentionScene::Collect(const DeviceBuffer<uint16_t>& out) {
  if (!out.GuardsIntact()) wrong_ = "written outside of out";
  const std::vector<uint16_t> all = out.Download();
  const int64_t stride = row_values() + kSpareWidth;
  Out values;
  for (int64_t row = 0; row < rows_ + kSpareRows; ++row) {
    for (int64_t i = 0; i < stride; ++i) {
      const uint16_t bits = all[static_cast<size_t>(row * stride + i)];
      if (row < rows_ && i < row_values()) {
        values.push_back(bits);
      } else if (bits != kUntouchedHalf) {
        wrong_ = "written behind a row, or a row that is not there";
      }
    }
  }
  return values;
}

// Rows that a tile lacks, and slots of tiles with one group, stay as they were.
void AttentionScene::CheckPartials(const DeviceBuffer<float>& partials,
                                   const Launched& made) {
  if (!partials.GuardsIntact()) wrong_ = "written outside of the partials";
  const std::vector<float> all = partials.Download();
  const int64_t floats = cuda::PartialFloats(spec_.head_dim);
  for (const cuda::QueryTile& tile : made.tiles) {
    const int32_t groups = tile.first_position / cuda::kGroupPositions + 1;
    const int32_t packed = groups == 1 ? 0 : tile.rows * tile.heads;
    for (int64_t i = 0; i < int64_t{groups} * spec_.kv_heads * floats; ++i) {
      const int64_t at = i % floats;
      const int64_t row = at < 32 ? at / 2 : (at - 32) / spec_.head_dim;
      const float value =
          all[static_cast<size_t>(tile.first_partial * spec_.kv_heads * floats + i)];
      if (row >= packed && !std::isnan(value)) wrong_ = "a partial of no row";
    }
  }
}

AttentionScene::Out AttentionScene::Decode(const Tiling& tiling) {
  const Launched made =
      Tiles(tiling.packed_rows == 0 ? cuda::kDecodeTileRows : tiling.packed_rows);
  const int32_t count = static_cast<int32_t>(made.tiles.size());
  const DeviceBuffer<cuda::QueryTile> tiles(device_, made.tiles, stream_);
  const DeviceBuffer<int32_t> tile_count(device_, std::vector<int32_t>{count}, stream_);
  const DeviceBuffer<float> partials(
      device_, made.slots * spec_.kv_heads * cuda::PartialFloats(spec_.head_dim),
      stream_);
  const DeviceBuffer<uint16_t> out(
      device_, (rows_ + kSpareRows) * (row_values() + kSpareWidth), stream_);
  cuda::AttentionArgs args = Args();
  args.out = out.data();
  args.tiles = tiles.data();
  args.tile_count = tile_count.data();
  args.partials = partials.data();
  const int32_t most_tiles = count + tiling.spare_tiles;
  Launch(cuda::DecodeAttentionLaunch(spec_.kind, args, most_tiles,
                                     made.groups + tiling.spare_groups),
         args);
  Launch(cuda::MergeGroupsLaunch(args, most_tiles), args);
  Must(device_.Synchronize(stream_));
  if (!spec_.random_bytes) CheckPartials(partials, made);
  return Collect(out);
}

AttentionScene::Out AttentionScene::Prefill(const Tiling& tiling) {
  const Launched made =
      Tiles(tiling.packed_rows == 0 ? cuda::kPrefillTileRows : tiling.packed_rows);
  const int32_t count = static_cast<int32_t>(made.tiles.size());
  const DeviceBuffer<cuda::QueryTile> tiles(device_, made.tiles, stream_);
  const DeviceBuffer<int32_t> tile_count(device_, std::vector<int32_t>{count}, stream_);
  const DeviceBuffer<uint16_t> out(
      device_, (rows_ + kSpareRows) * (row_values() + kSpareWidth), stream_);
  cuda::AttentionArgs args = Args();
  args.out = out.data();
  args.tiles = tiles.data();
  args.tile_count = tile_count.data();
  Launch(cuda::PrefillAttentionLaunch(spec_.kind, args, count + tiling.spare_tiles),
         args);
  Must(device_.Synchronize(stream_));
  return Collect(out);
}

// ---- The reference.

const uint8_t* AttentionScene::CodedPage(const SceneSequence& sequence, int32_t position,
                                         int32_t kv_head) const {
  return coded_.at({sequence.content, {position / kChunk, kv_head}}).data();
}

double AttentionScene::Key(const SceneSequence& sequence, bool coded, int32_t position,
                           int32_t kv_head, int32_t channel) const {
  if (!coded) {
    const int64_t at = (int64_t{position} * spec_.kv_heads + kv_head) * spec_.head_dim;
    return static_cast<double>(
        contents_.at(sequence.content).k[static_cast<size_t>(at + channel)]);
  }
  const uint8_t* page = CodedPage(sequence, position, kv_head);
  const Int8PageFormat at = Int8PageOf(spec_.head_dim);
  const int32_t p = position % kChunk;
  const int64_t byte = int64_t{p / 32} * 16 * spec_.head_dim + channel / 4 * 64 +
                       4 * (p % 16) + channel % 4;
  const int shift = p / 16 % 2 * 4;
  const int code = (page[at.key_high + byte] >> shift & 15) * 16 +
                   (page[at.key_low + byte] >> shift & 15);
  uint16_t min;
  uint16_t step;
  std::memcpy(&min, page + at.key_min + 2 * channel, 2);
  std::memcpy(&step, page + at.key_step + 2 * channel, 2);
  return static_cast<double>(F16ToF32(min)) + static_cast<double>(F16ToF32(step)) * code;
}

double AttentionScene::Value(const SceneSequence& sequence, bool coded, int32_t position,
                             int32_t kv_head, int32_t channel) const {
  if (!coded) {
    const int64_t at = (int64_t{position} * spec_.kv_heads + kv_head) * spec_.head_dim;
    return static_cast<double>(
        contents_.at(sequence.content).v[static_cast<size_t>(at + channel)]);
  }
  const uint8_t* page = CodedPage(sequence, position, kv_head);
  const Int8PageFormat at = Int8PageOf(spec_.head_dim);
  const int32_t p = position % kChunk;
  const int8_t code = static_cast<int8_t>(
      page[at.value + channel / 16 * 1024 + p / 4 * 64 + channel % 16 * 4 + p % 4]);
  uint16_t scale;
  std::memcpy(&scale, page + at.value_scale + 2 * p, 2);
  return static_cast<double>(F16ToF32(scale)) * code;
}

void AttentionScene::ReferenceRow(const SceneSequence& sequence, int32_t position,
                                  int32_t row, int32_t head,
                                  std::vector<double>& out) const {
  const int32_t hd = spec_.head_dim;
  const int32_t kv_head = head / spec_.heads;
  const float* q = &q_host_[static_cast<size_t>((int64_t{row} * heads() + head) * hd)];
  std::vector<double> scores;
  const auto coded = [&](int32_t p) {
    return spec_.kind == PageKind::kInt8 && p / kChunk < position / kChunk;
  };
  for (int32_t p = 0; p <= position; ++p) {
    double score = 0.0;
    for (int32_t c = 0; c < hd; ++c) {
      score += static_cast<double>(q[c]) * Key(sequence, coded(p), p, kv_head, c);
    }
    scores.push_back(score);
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double total = 0.0;
  for (double& score : scores) total += score = std::exp2(score - largest);
  std::vector<double> sums(static_cast<size_t>(hd), 0.0);
  for (int32_t p = 0; p <= position; ++p) {
    const double weight = scores[static_cast<size_t>(p)] / total;
    for (int32_t c = 0; c < hd; ++c) {
      sums[static_cast<size_t>(c)] += weight * Value(sequence, coded(p), p, kv_head, c);
    }
  }
  out.insert(out.end(), sums.begin(), sums.end());
}

std::vector<double> AttentionScene::Reference() const {
  std::vector<double> out;
  int32_t row = 0;
  for (const SceneSequence& sequence : spec_.sequences) {
    for (int32_t r = 0; r < sequence.rows; ++r, ++row) {
      for (int32_t head = 0; head < heads(); ++head) {
        ReferenceRow(sequence, sequence.length - sequence.rows + r, row, head, out);
      }
    }
  }
  return out;
}

}  // namespace renga::test
