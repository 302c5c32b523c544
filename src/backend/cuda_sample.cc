// Sampling of the CUDA backend. See cuda_backend_impl.h.
//
// A spec that needs the row alone is drawn on the device, and one integer comes back.
// Bans, biases, penalties, typical_p and log-probabilities need the logits on the host.

#include <algorithm>
#include <cstring>
#include <string>

#include "backend/cuda_backend_impl.h"
#include "backend/sample_row.h"
#include "backend/sample_spec.h"
#include "base/status_macros.h"

namespace renga {

namespace {

// The block that specs go to the device in, and tokens come back in.
struct DrawHeader {
  int32_t count = 0;
  int32_t unused[3] = {};
};

int64_t SpecsOffset() { return sizeof(DrawHeader); }
int64_t TokensOffset(int64_t specs) {
  return SpecsOffset() + specs * static_cast<int64_t>(sizeof(cuda::DrawSpec));
}

bool DrawnOnDevice(const SampleSpec& spec) {
  return spec.given < 0 && spec.logprobs < 0 && spec.typical_p >= 1.0f &&
         !EditsLogits(spec);
}

}  // namespace

Status CudaBackend::AllocateSampling() {
  // A row that is drawn from for each choice of its request, and rows of given tokens.
  max_specs_ = int64_t{limits_.max_sequences} + limits_.max_logit_rows;
  const int64_t block_bytes =
      TokensOffset(max_specs_) + max_specs_ * static_cast<int64_t>(sizeof(int32_t));
  RENGA_ASSIGN_OR_RETURN(draw_staging_, PinnedMemory::Allocate(*device_, block_bytes));
  RENGA_ASSIGN_OR_RETURN(void* block, activations_.Allocate(block_bytes, "samples"));
  draw_block_ = static_cast<std::byte*>(block);
  const size_t vocab = static_cast<size_t>(shape_.vocab);
  const size_t threads = static_cast<size_t>(pool_.threads());
  const size_t scratch_bytes = SampleScratchBytes(shape_.vocab);
  const auto allocate = [](size_t bytes) {
    return AlignedBuffer::Allocate(bytes, MemoryPurpose::kActivations);
  };
  host_logits_ = allocate(static_cast<size_t>(limits_.max_logit_rows) * vocab * 4);
  sampling_ = allocate(threads * scratch_bytes);
  edited_ = allocate(threads * vocab * 4);
  if (host_logits_.data() == nullptr || sampling_.data() == nullptr ||
      edited_.data() == nullptr) {
    return ResourceExhausted("no memory for logits and sampling");
  }
  for (size_t worker = 0; worker < threads; ++worker) {
    scratch_.push_back(
        MakeSampleScratch(sampling_.data() + worker * scratch_bytes, shape_.vocab));
  }
  fetched_.assign(static_cast<size_t>(limits_.max_logit_rows), 0);
  top_.resize(static_cast<size_t>(max_specs_) * kMaxTopLogprobs);
  host_specs_.reserve(static_cast<size_t>(max_specs_));
  drawn_specs_.reserve(static_cast<size_t>(max_specs_));
  return OkStatus();
}

Status CudaBackend::Sample(std::span<const SampleSpec> specs,
                           std::span<SampleResult> results) {
  RENGA_RETURN_IF_ERROR(
      CheckSampleCall(specs, results, max_specs_, logit_rows_, shape_.vocab));
  host_specs_.clear();
  drawn_specs_.clear();
  for (size_t i = 0; i < specs.size(); ++i) {
    (DrawnOnDevice(specs[i]) ? drawn_specs_ : host_specs_)
        .push_back(static_cast<int32_t>(i));
  }
  if (!drawn_specs_.empty()) RENGA_RETURN_IF_ERROR(DrawOnDevice(specs));
  RENGA_RETURN_IF_ERROR(DrawOnHost(specs, results));
  const auto* tokens = reinterpret_cast<const int32_t*>(draw_staging_.As<std::byte>() +
                                                        TokensOffset(max_specs_));
  for (size_t i = 0; i < drawn_specs_.size(); ++i) {
    results[static_cast<size_t>(drawn_specs_[i])] = {.token = tokens[i],
                                                     .finite = tokens[i] >= 0};
  }
  return OkStatus();
}

// Launches the draws of drawn_specs_; their tokens are in the staging when it returns.
Status CudaBackend::DrawOnDevice(std::span<const SampleSpec> specs) {
  std::byte* staged = draw_staging_.As<std::byte>();
  const DrawHeader header{.count = static_cast<int32_t>(drawn_specs_.size())};
  std::memcpy(staged, &header, sizeof header);
  for (size_t i = 0; i < drawn_specs_.size(); ++i) {
    const SampleSpec& spec = specs[static_cast<size_t>(drawn_specs_[i])];
    const cuda::DrawSpec draw{.logit_row = spec.logit_row,
                              .temperature = spec.temperature,
                              .top_k = spec.top_k,
                              .top_p = spec.top_p,
                              .min_p = spec.min_p,
                              .choice = spec.choice,
                              .token_index = spec.token_index,
                              .seed = spec.seed};
    std::memcpy(staged + TokensOffset(static_cast<int64_t>(i)), &draw, sizeof draw);
  }
  RENGA_RETURN_IF_ERROR(device_->CopyToDevice(
      draw_block_, staged, TokensOffset(static_cast<int64_t>(header.count)), stream_));
  std::byte* device_tokens = draw_block_ + TokensOffset(max_specs_);
  const cuda::DrawArgs args{
      .logits = logits_,
      .specs = reinterpret_cast<const cuda::DrawSpec*>(draw_block_ + SpecsOffset()),
      .spec_count = reinterpret_cast<const int32_t*>(draw_block_),
      .tokens = reinterpret_cast<int32_t*>(device_tokens),
      .vocab = shape_.vocab};
  RENGA_RETURN_IF_ERROR(
      device_->Launch(cuda::DrawLaunch(args, header.count), args, stream_));
  RENGA_RETURN_IF_ERROR(
      device_->CopyToHost(staged + TokensOffset(max_specs_), device_tokens,
                          header.count * static_cast<int64_t>(sizeof(int32_t)), stream_));
  return Synchronize();
}

Status CudaBackend::DrawOnHost(std::span<const SampleSpec> specs,
                               std::span<SampleResult> results) {
  for (const int32_t i : host_specs_) {
    RENGA_RETURN_IF_ERROR(FetchLogits(specs[static_cast<size_t>(i)].logit_row));
  }
  if (!host_specs_.empty()) RENGA_RETURN_IF_ERROR(Synchronize());
  pool_.Run(static_cast<int64_t>(host_specs_.size()), [&](int64_t piece, int worker) {
    const size_t i = static_cast<size_t>(host_specs_[static_cast<size_t>(piece)]);
    const size_t vocab = static_cast<size_t>(shape_.vocab);
    const size_t at = static_cast<size_t>(worker);
    results[i] =
        SampleRow(ops_, HostRow(specs[i].logit_row), specs[i],
                  {.scratch = scratch_[at],
                   .edited = edited_.As<float>().subspan(at * vocab, vocab),
                   .top = std::span(top_).subspan(i * kMaxTopLogprobs, kMaxTopLogprobs)});
  });
  return OkStatus();
}

std::span<const float> CudaBackend::HostRow(int32_t logit_row) const {
  const size_t vocab = static_cast<size_t>(shape_.vocab);
  return host_logits_.As<float>().subspan(static_cast<size_t>(logit_row) * vocab, vocab);
}

// Begins the copy of a row to the host, if it has not begun before.
Status CudaBackend::FetchLogits(int32_t logit_row) {
  const size_t row = static_cast<size_t>(logit_row);
  if (fetched_[row] != 0) return OkStatus();
  const int64_t vocab = shape_.vocab;
  RENGA_RETURN_IF_ERROR(device_->CopyToHost(
      host_logits_.As<float>().data() + logit_row * vocab, logits_ + logit_row * vocab,
      vocab * static_cast<int64_t>(sizeof(float)), stream_));
  fetched_[row] = 1;
  return OkStatus();
}

StatusOr<std::span<const float>> CudaBackend::Logits(int32_t logit_row) {
  if (logit_row < 0 || logit_row >= logit_rows_) {
    return InvalidArgument("logit_row", std::to_string(logit_row) +
                                            " is not one of this step's " +
                                            std::to_string(logit_rows_) + " logit rows");
  }
  RENGA_RETURN_IF_ERROR(FetchLogits(logit_row));
  RENGA_RETURN_IF_ERROR(Synchronize());
  return HostRow(logit_row);
}

}  // namespace renga
