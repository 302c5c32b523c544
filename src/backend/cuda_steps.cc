// The fused steps of the CUDA backend, and its graphs. See cuda_backend_impl.h.

#include <algorithm>
#include <string>

#include "backend/cuda_backend_impl.h"
#include "backend/loaded_weights.h"
#include "backend/rope_table.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace renga {

namespace {

// From so many rows on cuBLASLt may multiply (row_invariant: false). Each product then
// dequantises its matrix first, 2 bytes a weight written and read again, which fewer rows
// do not pay back. Reckoned, not measured: 300 TFLOP/s here against 700 there.
constexpr int32_t kLibraryRows = 256;

// Batch sizes that decode steps are captured for, and contexts in groups of 256
// positions. Blocks without work return at once, so a graph that is too large costs
// little; a graph for each size would cost memory and seconds at start.
constexpr int32_t kRowBuckets[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
constexpr int32_t kGroupBucketFactor = 4;

}  // namespace

// ---- Checks ------------------------------------------------------------------------

Status CudaBackend::CheckInStep() const {
  return in_step_ ? OkStatus() : FailedPrecondition("no step has begun");
}

Status CudaBackend::CheckLayer(int32_t layer) const {
  if (layer >= 0 && layer < shape_.layers) return CheckInStep();
  return InvalidArgument("layer", std::to_string(layer) + " is not in a model of " +
                                      std::to_string(shape_.layers) + " layers");
}

StatusOr<const DeviceMatrix*> CudaBackend::FindMatrix(MatrixId id, int64_t rows,
                                                      int64_t cols,
                                                      const char* what) const {
  return FindLoaded(matrices_, id, rows, cols, what);
}

Status CudaBackend::CheckVector(VectorId id, int64_t size, const char* what) const {
  return FindLoaded(vectors_, id, size, what).status();
}

// ---- The calls of a step: checked and noted ----------------------------------------

Status CudaBackend::BeginStep(const StepBatch& batch, const AttendPlan& plan) {
  in_step_ = false;
  noted_.clear();
  logit_rows_ = 0;
  attended_layers_ = 0;
  if (!step_.has_value()) return FailedPrecondition("there is no KV pool");
  RENGA_RETURN_IF_ERROR(step_->Build(batch, plan));
  RENGA_RETURN_IF_ERROR(WaitForStaging());
  const int64_t bytes = tables_->Build(*step_, staging_.As<std::byte>());
  staging_is_read_ = true;
  RENGA_RETURN_IF_ERROR(
      device_->CopyToDevice(step_block_, staging_.As<std::byte>(), bytes, stream_));
  in_step_ = true;
  return OkStatus();
}

// A step whose tokens or logits somebody has waited for is over, the copy of its tables
// too; one that failed may not be.
Status CudaBackend::WaitForStaging() {
  return staging_is_read_ ? Synchronize() : OkStatus();
}

Status CudaBackend::Note(const StepOp& op) {
  noted_.push_back(op);
  return OkStatus();
}

Status CudaBackend::Embed(MatrixId table) {
  RENGA_RETURN_IF_ERROR(CheckInStep());
  RENGA_ASSIGN_OR_RETURN(const DeviceMatrix* matrix,
                         FindMatrix(table, shape_.vocab, shape_.dim, "embedding"));
  if (matrix->segments().size() != 1) {
    return InvalidArgument("embedding", "must be one matrix");
  }
  return Note({.kind = StepOp::Kind::kEmbed, .first = table});
}

Status CudaBackend::NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) {
  RENGA_RETURN_IF_ERROR(CheckLayer(layer));
  RENGA_RETURN_IF_ERROR(FindMatrix(weights.qkv, qkv_width(), shape_.dim, "qkv").status());
  RENGA_RETURN_IF_ERROR(
      CheckVector(weights.attention_norm, shape_.dim, "attention_norm"));
  return Note({.kind = StepOp::Kind::kQkv,
               .layer = layer,
               .first = weights.qkv,
               .norm = weights.attention_norm});
}

Status CudaBackend::Attend(int32_t layer) {
  RENGA_RETURN_IF_ERROR(CheckLayer(layer));
  ++attended_layers_;
  return Note({.kind = StepOp::Kind::kAttend, .layer = layer});
}

Status CudaBackend::OutProjAdd(const LayerWeights& weights) {
  RENGA_RETURN_IF_ERROR(CheckInStep());
  RENGA_RETURN_IF_ERROR(
      FindMatrix(weights.attention_out, shape_.dim, q_width(), "attention_out").status());
  return Note({.kind = StepOp::Kind::kOutProj, .first = weights.attention_out});
}

Status CudaBackend::Mlp(const LayerWeights& weights) {
  RENGA_RETURN_IF_ERROR(CheckInStep());
  RENGA_RETURN_IF_ERROR(
      FindMatrix(weights.gate_up, 2 * int64_t{shape_.ffn}, shape_.dim, "gate_up")
          .status());
  RENGA_RETURN_IF_ERROR(
      FindMatrix(weights.down, shape_.dim, shape_.ffn, "down").status());
  RENGA_RETURN_IF_ERROR(CheckVector(weights.mlp_norm, shape_.dim, "mlp_norm"));
  RENGA_RETURN_IF_ERROR(Note({.kind = StepOp::Kind::kMlp,
                              .first = weights.gate_up,
                              .second = weights.down,
                              .norm = weights.mlp_norm}));
  // No Head will come: a slice of a prompt ends here.
  const bool last = attended_layers_ == shape_.layers;
  return last && step_->batch().logit_rows.empty() ? RunNoted() : OkStatus();
}

Status CudaBackend::Head(VectorId norm, MatrixId table) {
  RENGA_RETURN_IF_ERROR(CheckInStep());
  RENGA_RETURN_IF_ERROR(FindMatrix(table, shape_.vocab, shape_.dim, "head").status());
  RENGA_RETURN_IF_ERROR(CheckVector(norm, shape_.dim, "output_norm"));
  RENGA_RETURN_IF_ERROR(
      Note({.kind = StepOp::Kind::kHead, .first = table, .norm = norm}));
  RENGA_RETURN_IF_ERROR(RunNoted());
  logit_rows_ = tables_->counts().logit_rows;
  std::fill(fetched_.begin(), fetched_.end(), uint8_t{0});
  return OkStatus();
}

// ---- Running what was noted ----------------------------------------------------------

StepSize CudaBackend::ExactSize() const {
  const StepCounts& counts = tables_->counts();
  return {.rows = counts.rows,
          .logit_rows = counts.logit_rows,
          .decode_tiles = counts.decode_tiles,
          .decode_groups = counts.decode_groups,
          .prefill_tiles = counts.prefill_tiles,
          .close_items = counts.close_items,
          .move_items = counts.move_items};
}

Status CudaBackend::RunNoted() {
  const bool has_logits = noted_.back().kind == StepOp::Kind::kHead;
  if (const StepGraph* graph = FindGraph()) {
    return device_->Replay(graph->graph, stream_);
  }
  const StepSize size = ExactSize();
  for (const StepOp& op : noted_) RENGA_RETURN_IF_ERROR(Launch(op, size));
  if (has_logits && graphs_on_ && captured_.empty()) CaptureAll();
  // Who wants logits waits for them. Nobody else would, and the step's time is measured.
  return has_logits ? OkStatus() : Synchronize();
}

Status CudaBackend::Synchronize() {
  RENGA_RETURN_IF_ERROR(device_->Synchronize(stream_));
  staging_is_read_ = false;
  return OkStatus();
}

Status CudaBackend::Launch(const StepOp& op, const StepSize& size) {
  switch (op.kind) {
    case StepOp::Kind::kEmbed:
      return LaunchEmbed(op, size);
    case StepOp::Kind::kQkv:
      return LaunchQkv(op, size);
    case StepOp::Kind::kAttend:
      return LaunchAttend(op, size);
    case StepOp::Kind::kOutProj:
      return LaunchProduct({.matrix = op.first,
                            .x = attention_,
                            .out = x_,
                            .out_stride = shape_.dim,
                            .counter = &counters()->rows,
                            .most_rows = size.rows,
                            .add = true});
    case StepOp::Kind::kMlp:
      return LaunchMlp(op, size);
    case StepOp::Kind::kHead:
      return LaunchHead(op, size);
  }
  return Internal("no such step");
}

Status CudaBackend::LaunchEmbed(const StepOp& op, const StepSize& size) {
  const DeviceMatrix::Segment& segment =
      matrices_[static_cast<size_t>(op.first) - 1].segments()[0];
  const cuda::EmbedArgs args{.weights = segment.data,
                             .tokens = Table<const int32_t>(tables_->tokens()),
                             .rows = &counters()->rows,
                             .x = x_,
                             .vocab = shape_.vocab,
                             .dim = shape_.dim};
  return device_->Launch(cuda::EmbedLaunch(segment.type, args, size.rows), args, stream_);
}

Status CudaBackend::LaunchNorm(VectorId norm, const int32_t* source,
                               const int32_t* counter, int32_t most_rows) {
  const cuda::RmsNormArgs args{.x = x_,
                               .weight = vectors_[static_cast<size_t>(norm) - 1].data(),
                               .out = normed_,
                               .source = source,
                               .row_count = counter,
                               .out_stride = cuda::PaddedCols(shape_.dim),
                               .n = shape_.dim,
                               .eps = shape_.norm_eps};
  return device_->Launch(cuda::RmsNormLaunch(args, most_rows), args, stream_);
}

Status CudaBackend::LaunchProduct(const Product& product) {
  const DeviceMatrix& matrix = matrices_[static_cast<size_t>(product.matrix) - 1];
  for (const DeviceMatrix::Segment& segment : matrix.segments()) {
    if (!options_.row_invariant && product.most_rows >= kLibraryRows) {
      RENGA_RETURN_IF_ERROR(LaunchLibraryProduct(matrix, segment, product));
      continue;
    }
    const cuda::ProductArgs args{.weights = segment.data,
                                 .x = product.x,
                                 .out = product.out + segment.first_row,
                                 .rows = product.counter,
                                 .x_stride = cuda::PaddedCols(matrix.cols()),
                                 .out_stride = product.out_stride,
                                 .outputs = segment.rows,
                                 .cols = static_cast<int32_t>(matrix.cols()),
                                 .add = product.add ? 1 : 0};
    RENGA_RETURN_IF_ERROR(device_->Launch(
        cuda::ProductLaunch(segment.type, args, product.most_rows), args, stream_));
  }
  return OkStatus();
}

Status CudaBackend::LaunchLibraryProduct(const DeviceMatrix& matrix,
                                         const DeviceMatrix::Segment& segment,
                                         const Product& product) {
  const cuda::DequantiseArgs args{.weights = segment.data,
                                  .out = dequantised_.As<uint16_t>(),
                                  .outputs = segment.rows,
                                  .cols = static_cast<int32_t>(matrix.cols())};
  RENGA_RETURN_IF_ERROR(
      device_->Launch(cuda::DequantiseLaunch(segment.type, args), args, stream_));
  // In a graph `most_rows` is the bucket's: rows past the counter are multiplied too, and
  // nobody reads them.
  const int64_t stride = cuda::PaddedCols(matrix.cols());
  return device_->Gemm({.weights = dequantised_.As<uint16_t>(),
                        .x = product.x,
                        .out = product.out + segment.first_row,
                        .weights_stride = stride,
                        .x_stride = stride,
                        .out_stride = product.out_stride,
                        .rows = product.most_rows,
                        .outputs = segment.rows,
                        .cols = static_cast<int32_t>(matrix.cols()),
                        .add = product.add},
                       stream_);
}

Status CudaBackend::LaunchQkv(const StepOp& op, const StepSize& size) {
  RENGA_RETURN_IF_ERROR(LaunchNorm(op.norm, nullptr, &counters()->rows, size.rows));
  RENGA_RETURN_IF_ERROR(LaunchProduct({.matrix = op.first,
                                       .x = normed_,
                                       .out = qkv_,
                                       .out_stride = qkv_width(),
                                       .counter = &counters()->rows,
                                       .most_rows = size.rows}));
  const cuda::RopeAppendArgs args{
      .qkv = qkv_,
      .q = q_,
      .cos = rope_cos_,
      .sin = rope_sin_,
      .places = Table<const cuda::RowPlace>(tables_->row_places()),
      .forms = Table<const cuda::ChunkForm>(tables_->forms()),
      .row_count = &counters()->rows,
      .head_bytes = form_head_bytes_,
      .layer = op.layer,
      .heads = shape_.heads,
      .kv_heads = shape_.kv_heads,
      .head_dim = shape_.head_dim,
      .rope_dims = shape_.rope_dims,
      .halves = shape_.rope_style == RopeStyle::kHalves ? 1 : 0,
      .q_scale = QueryScale(shape_.head_dim),
      .element = geometry_.dtype == KvDtype::kBf16 ? cuda::PageElement::kBf16
                                                   : cuda::PageElement::kF16};
  RENGA_RETURN_IF_ERROR(
      device_->Launch(cuda::RopeAppendLaunch(args, size.rows), args, stream_));
  if (size.close_items == 0) return OkStatus();
  const cuda::KvCloseArgs close{
      .items = Table<const cuda::CloseItem>(tables_->close_items()),
      .item_count = &counters()->close_items,
      .forms = args.forms,
      .pool = where_.pool + op.layer * shape_.kv_heads * head_bytes_,
      .page_bytes = where_.page_bytes,
      .page_head_bytes = head_bytes_,
      .form_head_bytes = form_head_bytes_,
      .layer = op.layer,
      .kv_heads = shape_.kv_heads,
      .head_dim = shape_.head_dim};
  return device_->Launch(cuda::KvCloseLaunch(close, size.close_items), close, stream_);
}

Status CudaBackend::LaunchAttend(const StepOp& op, const StepSize& size) {
  cuda::AttentionArgs args{.q = q_,
                           .out = attention_,
                           .pool = where_.pool + op.layer * shape_.kv_heads * head_bytes_,
                           .pages = Table<const int32_t>(tables_->pages()),
                           .forms = Table<const cuda::ChunkForm>(tables_->forms()),
                           .tiles = Table<const cuda::QueryTile>(tables_->decode_tiles()),
                           .tile_count = &counters()->decode_tiles,
                           .partials = partials_.As<float>(),
                           .out_stride = cuda::PaddedCols(q_width()),
                           .page_bytes = where_.page_bytes,
                           .head_bytes = head_bytes_,
                           .form_head_bytes = form_head_bytes_,
                           .layer = op.layer,
                           .heads = shape_.heads,
                           .kv_heads = shape_.kv_heads,
                           .head_dim = shape_.head_dim};
  if (size.decode_tiles > 0) {
    RENGA_RETURN_IF_ERROR(
        device_->Launch(cuda::DecodeAttentionLaunch(page_kind(), args, size.decode_tiles,
                                                    size.decode_groups),
                        args, stream_));
    RENGA_RETURN_IF_ERROR(
        device_->Launch(cuda::MergeGroupsLaunch(args, size.decode_tiles), args, stream_));
  }
  if (size.prefill_tiles > 0) {
    args.tiles = Table<const cuda::QueryTile>(tables_->prefill_tiles());
    args.tile_count = &counters()->prefill_tiles;
    RENGA_RETURN_IF_ERROR(device_->Launch(
        cuda::PrefillAttentionLaunch(page_kind(), args, size.prefill_tiles), args,
        stream_));
  }
  if (size.move_items == 0) return OkStatus();
  const cuda::KvCopyArgs move{.items = Table<const cuda::CopyItem>(tables_->move_items()),
                              .item_count = &counters()->move_items,
                              .head_bytes = form_head_bytes_,
                              .first_layer = op.layer,
                              .kv_heads = shape_.kv_heads,
                              .head_dim = shape_.head_dim};
  return device_->Launch(cuda::KvCopyLaunch(move, size.move_items), move, stream_);
}

Status CudaBackend::LaunchMlp(const StepOp& op, const StepSize& size) {
  const int32_t* rows = &counters()->rows;
  const int64_t ffn = shape_.ffn;
  RENGA_RETURN_IF_ERROR(LaunchNorm(op.norm, nullptr, rows, size.rows));
  RENGA_RETURN_IF_ERROR(LaunchProduct({.matrix = op.first,
                                       .x = normed_,
                                       .out = gate_up_,
                                       .out_stride = 2 * ffn,
                                       .counter = rows,
                                       .most_rows = size.rows}));
  const cuda::SwiGluArgs args{.gate_up = gate_up_,
                              .out = act_,
                              .row_count = rows,
                              .out_stride = cuda::PaddedCols(ffn),
                              .ffn = shape_.ffn};
  RENGA_RETURN_IF_ERROR(
      device_->Launch(cuda::SwiGluLaunch(args, size.rows), args, stream_));
  return LaunchProduct({.matrix = op.second,
                        .x = act_,
                        .out = x_,
                        .out_stride = shape_.dim,
                        .counter = rows,
                        .most_rows = size.rows,
                        .add = true});
}

Status CudaBackend::LaunchHead(const StepOp& op, const StepSize& size) {
  const int32_t* rows = &counters()->logit_rows;
  RENGA_RETURN_IF_ERROR(LaunchNorm(op.norm, Table<const int32_t>(tables_->logit_rows()),
                                   rows, size.logit_rows));
  return LaunchProduct({.matrix = op.first,
                        .x = normed_,
                        .out = logits_,
                        .out_stride = shape_.vocab,
                        .counter = rows,
                        .most_rows = size.logit_rows});
}

// ---- Graphs --------------------------------------------------------------------------

StepSize CudaBackend::BucketSize(int32_t rows, int32_t groups) const {
  return {.rows = rows,
          .logit_rows = std::min(rows, limits_.max_logit_rows),
          .decode_tiles = rows * tables_->tiles_per_row(),
          .decode_groups = groups,
          .prefill_tiles = 0,
          .close_items = has_open_pages() ? rows : 0,
          .move_items = 0};
}

const CudaBackend::StepGraph* CudaBackend::FindGraph() const {
  if (graphs_.empty() || !tables_->single_rows() || noted_ != captured_) return nullptr;
  const StepCounts& counts = tables_->counts();
  for (const StepGraph& graph : graphs_) {
    if (counts.rows <= graph.rows && counts.decode_groups <= graph.groups) return &graph;
  }
  return nullptr;
}

void CudaBackend::CaptureAll() {
  captured_ = noted_;
  const int32_t most_rows = std::min(limits_.max_sequences, limits_.max_rows);
  const int32_t most_groups = cuda::DivideUp(shape_.context, cuda::kGroupPositions);
  Status status;
  int32_t previous = 0;
  for (const int32_t bucket : kRowBuckets) {
    if (previous >= most_rows || !status.ok()) break;
    previous = std::min(bucket, most_rows);
    for (int32_t groups = 1; status.ok(); groups *= kGroupBucketFactor) {
      status = CaptureOne(previous, std::min(groups, most_groups));
      if (groups >= most_groups) break;
    }
  }
  if (status.ok()) return;
  // Slower, not wrong: steps are launched one by one. A lost device shows at the next.
  LogWarn("cuda_graphs_off", {{"reason", status.message()}});
  for (const StepGraph& graph : graphs_) device_->DestroyGraph(graph.graph);
  graphs_.clear();
  graphs_on_ = false;
}

Status CudaBackend::CaptureOne(int32_t rows, int32_t groups) {
  const StepSize size = BucketSize(rows, groups);
  RENGA_RETURN_IF_ERROR(device_->BeginCapture(stream_));
  Status status;
  for (const StepOp& op : captured_) {
    if (status.ok()) status = Launch(op, size);
  }
  // The capture ends whatever came of it.
  const StatusOr<GraphId> graph = device_->EndCapture(stream_);
  if (!status.ok() && graph.ok()) device_->DestroyGraph(*graph);
  RENGA_RETURN_IF_ERROR(status);
  RENGA_RETURN_IF_ERROR(graph.status());
  graphs_.push_back({.rows = rows, .groups = groups, .graph = *graph});
  return OkStatus();
}

}  // namespace renga
