#include "tests/gpu/stated_cases.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/block_format.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sampling.h"
#include "kernels/kv_page_format.h"
#include "tests/cuda/device_case.h"

namespace renga::test {
namespace {

using namespace cuda;  // NOLINT: a test's file.

constexpr int32_t kDim = 4096;
constexpr int32_t kHeads = 32;
constexpr int32_t kKvHeads = 8;
constexpr int32_t kHeadDim = 128;
constexpr int32_t kFfn = 14336;
constexpr int32_t kVocab = 128256;
constexpr int32_t kPage = 64;
constexpr int64_t kL2Bytes = int64_t{128} << 20;  // More than any L2 cache.

const char* TypeName(DeviceWeightType type) {
  switch (type) {
    case DeviceWeightType::kF16:
      return "f16";
    case DeviceWeightType::kQ8:
      return "q8";
    case DeviceWeightType::kQ4:
      return "q4";
    case DeviceWeightType::kQ4K:
      return "q4k";
  }
  return "";
}

const char* KindName(PageKind kind) {
  switch (kind) {
    case PageKind::kF16:
      return "f16";
    case PageKind::kBf16:
      return "bf16";
    case PageKind::kInt8:
      return "int8";
  }
  return "";
}

class Maker {
 public:
  Maker(CaseMemory& memory, StatedCases& visitor) : memory_(memory), visitor_(visitor) {}

  void Product(DeviceWeightType type, int32_t outputs, int32_t cols, int32_t rows) {
    const int64_t weight = DeviceWeightBytes(type, outputs, cols);
    const int64_t x_stride = PaddedCols(cols);
    const ProductArgs shape{.x = memory_.Random<uint16_t>(rows * x_stride * 2),
                            .out = memory_.Random<float>(int64_t{rows} * outputs * 4),
                            .rows = memory_.Count(rows),
                            .x_stride = x_stride,
                            .out_stride = outputs,
                            .outputs = outputs,
                            .cols = cols};
    StatedCase stated{
        .name = std::string("product/") + TypeName(type) + '/' + std::to_string(outputs) +
                'x' + std::to_string(cols) + "/rows:" + std::to_string(rows),
        .launch = ProductLaunch(type, shape, rows),
        .args = {},
        .bytes =
            static_cast<double>(weight + rows * (x_stride * 2 + int64_t{outputs} * 4)),
        .flops = 2.0 * rows * outputs * cols,
        .tensor_cores = true};
    for (int64_t i = 0; i < Copies(weight); ++i) {
      ProductArgs args = shape;
      args.weights = memory_.Random<uint8_t>(weight);
      stated.args.push_back(BytesOf(args));
    }
    Done(std::move(stated));
  }

  void Embed(DeviceWeightType type, int32_t rows) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(i * 7919 % kVocab);
    }
    const EmbedArgs args{
        .weights = memory_.Random<uint8_t>(DeviceWeightBytes(type, kVocab, kDim)),
        .tokens = memory_.Values(tokens),
        .rows = memory_.Count(rows),
        .x = memory_.Random<float>(int64_t{rows} * kDim * 4),
        .vocab = kVocab,
        .dim = kDim};
    const double row = static_cast<double>(TileBytes(type, kDim)) / kWeightTileRows;
    Done(
        {.name = std::string("embed/") + TypeName(type) + "/rows:" + std::to_string(rows),
         .launch = EmbedLaunch(type, args, rows),
         .args = {BytesOf(args)},
         .bytes = rows * (row + 4.0 * kDim)});
  }

  void Dequantise(DeviceWeightType type) {
    const int64_t weight = DeviceWeightBytes(type, 2 * kFfn, kDim);
    const DequantiseArgs args{
        .weights = memory_.Random<uint8_t>(weight),
        .out = memory_.Random<uint16_t>(int64_t{2} * kFfn * kDim * 2),
        .outputs = 2 * kFfn,
        .cols = kDim};
    Done({.name = std::string("dequantise/") + TypeName(type) + "/28672x4096",
          .launch = DequantiseLaunch(type, args),
          .args = {BytesOf(args)},
          .bytes = static_cast<double>(weight) + 2.0 * 2 * kFfn * kDim});
  }

  void RmsNorm(int32_t n, int32_t rows) {
    const int64_t stride = PaddedCols(n);
    const RmsNormArgs args{.x = memory_.Random<float>(int64_t{rows} * n * 4),
                           .weight = memory_.Random<float>(int64_t{n} * 4),
                           .out = memory_.Random<uint16_t>(rows * stride * 2),
                           .row_count = memory_.Count(rows),
                           .out_stride = stride,
                           .n = n,
                           .eps = 1e-5f};
    Done({.name = "rms_norm/n:" + std::to_string(n) + "/rows:" + std::to_string(rows),
          .launch = RmsNormLaunch(args, rows),
          .args = {BytesOf(args)},
          .bytes = rows * 6.0 * n + 4.0 * n,
          .flops = 4.0 * rows * n});
  }

  void SwiGlu(int32_t rows) {
    const int64_t stride = PaddedCols(kFfn);
    const SwiGluArgs args{.gate_up = memory_.Random<float>(int64_t{rows} * 2 * kFfn * 4),
                          .out = memory_.Random<uint16_t>(rows * stride * 2),
                          .row_count = memory_.Count(rows),
                          .out_stride = stride,
                          .ffn = kFfn};
    Done({.name = "swiglu/ffn:14336/rows:" + std::to_string(rows),
          .launch = SwiGluLaunch(args, rows),
          .args = {BytesOf(args)},
          .bytes = rows * 10.0 * kFfn,
          .flops = 5.0 * rows * kFfn});
  }

  void RopeAppend(PageElement element, int32_t rows) {
    std::vector<RowPlace> places(static_cast<size_t>(rows));
    for (int32_t i = 0; i < rows; ++i) {
      places[static_cast<size_t>(i)] = {.position = i, .form = i / kPage};
    }
    const int64_t head_bytes = int64_t{4} * kPage * kHeadDim;
    const int64_t table = int64_t{8192} * kHeadDim / 2 * 4;
    const int64_t width = int64_t{kHeads + 2 * kKvHeads} * kHeadDim;
    const RopeAppendArgs args{
        .qkv = memory_.Random<float>(rows * width * 4),
        .q = memory_.Random<uint16_t>(int64_t{rows} * kHeads * kHeadDim * 2),
        .cos = memory_.Random<float>(table),
        .sin = memory_.Random<float>(table),
        .places = memory_.Values(places),
        .forms = memory_.Values(Forms(DivideUp(rows, kPage), head_bytes)),
        .row_count = memory_.Count(rows),
        .head_bytes = head_bytes,
        .heads = kHeads,
        .kv_heads = kKvHeads,
        .head_dim = kHeadDim,
        .rope_dims = kHeadDim,
        .q_scale = 0.1f,
        .element = element};
    Done({.name = std::string("rope_append/") +
                  (element == PageElement::kF16 ? "f16" : "bf16") +
                  "/rows:" + std::to_string(rows),
          .launch = RopeAppendLaunch(args, rows),
          .args = {BytesOf(args)},
          .bytes = rows * (6.0 * static_cast<double>(width) + 4.0 * kHeadDim)});
  }

  void KvClose(int32_t items) {
    const int64_t form_bytes = int64_t{4} * kPage * kHeadDim;
    const int64_t page_bytes = Int8PageOf(kHeadDim).bytes;
    std::vector<CloseItem> list(static_cast<size_t>(items));
    for (int32_t i = 0; i < items; ++i) list[static_cast<size_t>(i)] = {i, i};
    const KvCloseArgs args{.items = memory_.Values(list),
                           .item_count = memory_.Count(items),
                           .forms = memory_.Values(Forms(items, form_bytes)),
                           .pool = memory_.Random<uint8_t>(items * kKvHeads * page_bytes),
                           .page_bytes = kKvHeads * page_bytes,
                           .page_head_bytes = page_bytes,
                           .form_head_bytes = form_bytes,
                           .kv_heads = kKvHeads,
                           .head_dim = kHeadDim};
    Done({.name = "kv_close/items:" + std::to_string(items),
          .launch = KvCloseLaunch(args, items),
          .args = {BytesOf(args)},
          .bytes = static_cast<double>(items * kKvHeads * (form_bytes + page_bytes))});
  }

  void KvCopy(int32_t items) {
    const int64_t head_bytes = int64_t{4} * kPage * kHeadDim;
    const std::vector<ChunkForm> from = Forms(items, head_bytes);
    const std::vector<ChunkForm> to = Forms(items, head_bytes);
    std::vector<CopyItem> list(static_cast<size_t>(items));
    for (size_t i = 0; i < list.size(); ++i) list[i] = {from[i], to[i], kPage};
    const KvCopyArgs args{.items = memory_.Values(list),
                          .item_count = memory_.Count(items),
                          .head_bytes = head_bytes,
                          .kv_heads = kKvHeads,
                          .head_dim = kHeadDim};
    Done({.name = "kv_copy/items:" + std::to_string(items),
          .launch = KvCopyLaunch(args, items),
          .args = {BytesOf(args)},
          .bytes = static_cast<double>(2 * items * kKvHeads * head_bytes)});
  }

  void ChunkPool(int32_t batch_heads, int32_t n) {
    const int64_t values = int64_t{batch_heads} * n * kHeadDim;
    const ChunkPoolArgs args{.q = memory_.Random<uint16_t>(values * 2),
                             .k = memory_.Random<uint16_t>(values * 2),
                             .v = memory_.Random<uint16_t>(values * 2),
                             .out = memory_.Random<float>(values / kPage * 4),
                             .batch_heads = batch_heads,
                             .n = n,
                             .head_dim = kHeadDim,
                             .scale = 0.088f};
    const double all = static_cast<double>(values);
    Done({.name = "chunk_pool/heads:" + std::to_string(batch_heads) +
                  "/n:" + std::to_string(n),
          .launch = ChunkPoolLaunch(args),
          .args = {BytesOf(args)},
          .bytes = 6.0 * all + all / 16,
          .flops = 2.0 * all * kPage + 4.0 * all,
          .tensor_cores = true});
  }

  void Decode(PageKind kind, int32_t head_dim, int32_t batch, int32_t context) {
    const Attention attention(*this, kind, head_dim, batch, context);
    const int32_t groups = DivideUp(context, kGroupPositions);
    Done({.name = std::string("decode_attention/") + KindName(kind) +
                  "/hd:" + std::to_string(head_dim) + "/batch:" + std::to_string(batch) +
                  "/context:" + std::to_string(context),
          .launch = DecodeAttentionLaunch(kind, attention.args, batch, groups),
          .args = {BytesOf(attention.args)},
          .bytes = attention.page_bytes * batch,
          .flops = 4.0 * batch * context * kHeads * head_dim,
          .tensor_cores = true});
  }

  void MergeGroups(int32_t batch, int32_t context) {
    const Attention attention(*this, PageKind::kF16, kHeadDim, batch, context);
    const double groups = DivideUp(context, kGroupPositions);
    const double rows = static_cast<double>(batch) * kHeads;
    Done({.name = "merge_groups/batch:" + std::to_string(batch) +
                  "/context:" + std::to_string(context),
          .launch = MergeGroupsLaunch(attention.args, batch),
          .args = {BytesOf(attention.args)},
          .bytes = rows * (groups * 4.0 * (2 + kHeadDim) + 2.0 * kHeadDim)});
  }

  void Prefill(PageKind kind, int32_t head_dim, int32_t tokens) {
    const Attention attention(*this, kind, head_dim, 1, tokens, tokens);
    Done({.name = std::string("prefill_attention/") + KindName(kind) +
                  "/hd:" + std::to_string(head_dim) + "/tokens:" + std::to_string(tokens),
          .launch = PrefillAttentionLaunch(kind, attention.args, attention.tiles),
          .args = {BytesOf(attention.args)},
          .bytes = attention.page_bytes + 4.0 * tokens * kHeads * head_dim,
          .flops = 2.0 * tokens * (tokens + 1.0) * kHeads * head_dim,
          .tensor_cores = true});
  }

  void Draw(const char* name, const DrawSpec& spec, int32_t specs) {
    std::vector<DrawSpec> list(static_cast<size_t>(specs), spec);
    for (int32_t i = 0; i < specs; ++i) list[static_cast<size_t>(i)].logit_row = i;
    const DrawArgs args{
        .logits = memory_.Values(Normal(int64_t{specs} * kVocab, 1, 3.0f)),
        .specs = memory_.Values(list),
        .spec_count = memory_.Count(specs),
        .tokens = memory_.Random<int32_t>(specs * 4),
        .vocab = kVocab};
    Done({.name = std::string("draw/") + name + "/specs:" + std::to_string(specs),
          .launch = DrawLaunch(args, specs),
          .args = {BytesOf(args)},
          .bytes = 4.0 * specs * kVocab});
  }

 private:
  // Pages, tiles and arguments of `rows` last tokens of each of `batch` sequences.
  struct Attention {
    Attention(Maker& maker, PageKind kind, int32_t head_dim, int32_t batch,
              int32_t context, int32_t rows = 1);
    AttentionArgs args;
    double page_bytes = 0;  // That one sequence reads.
    int32_t tiles = 0;
  };

  int64_t Copies(int64_t bytes) const {
    return memory_.real() ? std::min<int64_t>(32, kL2Bytes / bytes + 1) : 1;
  }

  std::vector<ChunkForm> Forms(int32_t n, int64_t head_bytes) {
    std::vector<ChunkForm> forms(static_cast<size_t>(n));
    auto* base = memory_.Random<uint8_t>(n * kKvHeads * head_bytes);
    for (int32_t i = 0; i < n; ++i) {
      if (base != nullptr) {
        forms[static_cast<size_t>(i)].base = base + i * kKvHeads * head_bytes;
      }
    }
    return forms;
  }

  void Done(StatedCase stated) {
    visitor_.Visit(std::move(stated));
    memory_.Clear();
  }

  CaseMemory& memory_;
  StatedCases& visitor_;
};

Maker::Attention::Attention(Maker& maker, PageKind kind, int32_t head_dim, int32_t batch,
                            int32_t context, int32_t rows) {
  CaseMemory& memory = maker.memory_;
  const int64_t form_bytes = int64_t{4} * kPage * head_dim;
  const int64_t head_bytes =
      kind == PageKind::kInt8 ? Int8PageOf(head_dim).bytes : form_bytes;
  const int32_t pages = DivideUp(context, kPage);
  const int32_t groups = DivideUp(context, kGroupPositions);
  std::vector<int32_t> list(static_cast<size_t>(batch * pages));
  std::iota(list.begin(), list.end(), 0);
  std::shuffle(list.begin(), list.end(), std::mt19937(1));
  // Tokens of a tile: packed rows that fit, and never across a chunk.
  const int32_t heads = kHeads / kKvHeads;
  const int32_t most = (rows > 1 ? kPrefillTileRows : kDecodeTileRows) / heads;
  std::vector<QueryTile> all;
  for (int32_t s = 0; s < batch; ++s) {
    for (int32_t i = 0; i < rows; i += most) {
      const int32_t position = context - rows + i;
      all.push_back({.first_row = s * rows + i,
                     .rows = std::min(most, rows - i),
                     .first_position = position,
                     .first_page = s * pages,
                     .first_partial = s * groups,
                     .own_form = position / kPage,
                     .heads = heads});
    }
  }
  tiles = static_cast<int32_t>(all.size());
  page_bytes = static_cast<double>(pages * kKvHeads * head_bytes);
  const int64_t q_bytes = int64_t{batch} * rows * kHeads * head_dim * 2;
  args = {.q = memory.Random<uint16_t>(q_bytes),
          .out = memory.Random<uint16_t>(q_bytes),
          .pool = memory.Random<uint8_t>(batch * pages * kKvHeads * head_bytes),
          .pages = memory.Values(list),
          .tiles = memory.Values(all),
          .tile_count = memory.Count(tiles),
          .partials = memory.Random<float>(int64_t{batch} * groups * kKvHeads *
                                           PartialFloats(head_dim) * 4),
          .out_stride = int64_t{kHeads} * head_dim,
          .page_bytes = kKvHeads * head_bytes,
          .head_bytes = head_bytes,
          .form_head_bytes = form_bytes,
          .heads = kHeads,
          .kv_heads = kKvHeads,
          .head_dim = head_dim};
  if (kind == PageKind::kInt8) {
    args.forms = memory.Values(maker.Forms(pages, form_bytes));
  }
}

void MakeProducts(Maker& make) {
  for (const DeviceWeightType type : {DeviceWeightType::kF16, DeviceWeightType::kQ8,
                                      DeviceWeightType::kQ4, DeviceWeightType::kQ4K}) {
    for (const int32_t rows : {1, 8, 16, 64, 2048}) {
      make.Product(type, 2 * kFfn, kDim, rows);
    }
    make.Product(type, kDim, kDim, 1);
    make.Embed(type, 512);
    make.Dequantise(type);
  }
}

void MakeRows(Maker& make) {
  make.RmsNorm(576, 512);
  make.RmsNorm(kDim, 512);
  make.RmsNorm(kDim, 1);
  make.RmsNorm(8192, 512);
  make.SwiGlu(512);
  make.SwiGlu(1);
  make.RopeAppend(PageElement::kF16, 512);
  make.RopeAppend(PageElement::kBf16, 512);
  make.KvClose(64);
  make.KvCopy(64);
  make.ChunkPool(32, 8192);
  make.Draw("greedy", {}, 8);
  make.Draw("top_p", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .seed = 1}, 8);
}

void MakeAttention(Maker& make) {
  for (const PageKind kind : {PageKind::kF16, PageKind::kBf16, PageKind::kInt8}) {
    for (const int32_t head_dim : {16, 32, 64, 96, 128}) {
      if (!AttentionServes(kind, head_dim)) continue;
      make.Decode(kind, head_dim, 8, 8192);
      make.Prefill(kind, head_dim, 2048);
    }
    for (const int32_t batch : {1, 32}) make.Decode(kind, kHeadDim, batch, 8192);
    make.Decode(kind, kHeadDim, 64, 1024);
    make.Prefill(kind, kHeadDim, 8192);
  }
  make.MergeGroups(8, 8192);
}

}  // namespace

void* CaseMemory::Allocate(int64_t bytes) {
  buffers_.push_back(Must(device_->Allocate(bytes, MemoryPurpose::kOther)));
  return buffers_.back();
}

void* CaseMemory::Copy(const void* values, int64_t bytes) {
  if (!real()) return nullptr;
  void* memory = Allocate(bytes);
  Must(device_->CopyToDevice(memory, values, bytes, stream_));
  Must(device_->Synchronize(stream_));
  return memory;
}

void* CaseMemory::RandomBytes(int64_t bytes) {
  if (!real()) return nullptr;
  // Halves between 2^-14 and 1, either sign: exponents 1 to 14.
  static const std::vector<uint16_t> block = [] {
    std::mt19937 random(1);
    std::vector<uint16_t> halves(size_t{1} << 21);
    for (uint16_t& half : halves) {
      const auto bits = static_cast<uint32_t>(random());
      half = static_cast<uint16_t>((bits & 0x83FFu) | ((bits >> 16) % 14u + 1u) << 10);
    }
    return halves;
  }();
  char* memory = static_cast<char*>(Allocate(bytes));
  const auto size = static_cast<int64_t>(block.size() * 2);
  for (int64_t at = 0; at < bytes; at += size) {
    Must(device_->CopyToDevice(memory + at, block.data(), std::min(size, bytes - at),
                               stream_));
  }
  Must(device_->Synchronize(stream_));
  return memory;
}

void CaseMemory::Clear() {
  for (void* buffer : buffers_) device_->Free(buffer);
  buffers_.clear();
}

void ForEachStatedCase(CaseMemory& memory, StatedCases& visitor) {
  Maker make(memory, visitor);
  MakeProducts(make);
  MakeAttention(make);
  MakeRows(make);
}

}  // namespace renga::test
