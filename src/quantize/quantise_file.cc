#include "quantize/quantise_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>

#include "backend/thread_pool.h"
#include "base/status_macros.h"
#include "formats/ggml_type.h"
#include "formats/gguf_file.h"
#include "formats/gguf_writer.h"
#include "formats/output_file.h"
#include "quantize/block_codec.h"

namespace renga {
namespace {

constexpr std::string_view kFileType = "general.file_type";
constexpr std::string_view kVersion = "general.quantization_version";
constexpr uint32_t kQuantisationVersion = 2;  // Of the block layouts written here.

constexpr int64_t kPieceValues = 1 << 16;  // About so many are one worker's turn.
constexpr int64_t kBatchPieces = 32;       // Written at once.

enum class RowResult : uint8_t { kOk, kNotFinite, kTooLarge };

int64_t RowsOf(const GgufTensor& tensor) {
  int64_t rows = 1;
  for (size_t i = 1; i < tensor.dims.size(); ++i) rows *= tensor.dims[i];
  return rows;
}

int64_t ValuesOf(const GgufTensor& tensor) { return RowsOf(tensor) * tensor.dims[0]; }

// The rows of one tensor, from its type to another.
class TensorJob {
 public:
  TensorJob(const GgufTensor& tensor, uint32_t type)
      : tensor_(tensor),
        type_(type),
        cols_(tensor.dims[0]),
        row_bytes_in_(RowBytes(tensor.ggml_type, cols_)),
        row_bytes_out_(RowBytes(type, cols_)) {}

  int64_t row_bytes_out() const { return row_bytes_out_; }

  // `values`: room for one row.
  RowResult Convert(int64_t row, std::vector<float>& values, std::byte* out) const {
    const std::byte* in = tensor_.data + row * row_bytes_in_;
    if (!CanReadType(tensor_.ggml_type)) {  // Kept as it is.
      std::copy_n(in, row_bytes_in_, out);
      return RowResult::kOk;
    }
    values.resize(static_cast<size_t>(cols_));
    ReadRow(tensor_.ggml_type, in, values);
    const bool finite = std::all_of(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
    if (!finite) return RowResult::kNotFinite;
    if (type_ == tensor_.ggml_type) {
      std::copy_n(in, row_bytes_in_, out);
      return RowResult::kOk;
    }
    return WriteRow(type_, values, out) ? RowResult::kOk : RowResult::kTooLarge;
  }

 private:
  const GgufTensor& tensor_;
  const uint32_t type_;
  const int64_t cols_;
  const int64_t row_bytes_in_;
  const int64_t row_bytes_out_;
};

class FileQuantiser {
 public:
  FileQuantiser(const GgufFile& file, const QuantiseOptions& options,
                const WorkProgress& progress)
      : file_(file),
        options_(options),
        progress_(progress),
        pool_(options.threads),
        row_values_(static_cast<size_t>(options.threads)) {}

  StatusOr<QuantiseSummary> Run(const std::string& output) {
    RENGA_ASSIGN_OR_RETURN(plans_, PlanTensors(file_, options_.types));
    AddHeader();
    RENGA_ASSIGN_OR_RETURN(OutputFile out, OutputFile::Create(output, options_.replace));
    RENGA_RETURN_IF_ERROR(writer_.Begin(out));
    for (size_t i = 0; i < plans_.size(); ++i) {
      RENGA_RETURN_IF_ERROR(WriteTensor(file_.tensors()[i], plans_[i].type));
    }
    RENGA_RETURN_IF_ERROR(writer_.Finish());
    return std::move(summary_);
  }

 private:
  void AddHeader() {
    constexpr std::array<std::string_view, 2> kReplaced = {kFileType, kVersion};
    writer_.CopyKeys(file_, kReplaced);
    writer_.AddUint32(kFileType, FileTypeOf(options_.types.matrix));
    writer_.AddUint32(kVersion, kQuantisationVersion);
    for (size_t i = 0; i < plans_.size(); ++i) {
      const GgufTensor& tensor = file_.tensors()[i];
      const uint32_t type = plans_[i].type;
      writer_.AddTensor(tensor.name, type, tensor.dims);
      total_ += ValuesOf(tensor);
      const auto bytes = static_cast<int64_t>(tensor.bytes);
      const int64_t new_bytes = RowsOf(tensor) * RowBytes(type, tensor.dims[0]);
      Count(summary_.before[QuantTypeName(tensor.ggml_type)], bytes);
      Count(summary_.after[QuantTypeName(type)], new_bytes);
      summary_.bytes_before += bytes;
      summary_.bytes_after += new_bytes;
      if (plans_[i].fallback) {
        summary_.fallbacks.emplace_back(tensor.name, QuantTypeName(type));
      }
    }
  }

  static void Count(QuantiseSummary::Type& type, int64_t bytes) {
    ++type.tensors;
    type.bytes += bytes;
  }

  Status WriteTensor(const GgufTensor& tensor, uint32_t type) {
    const TensorJob job(tensor, type);
    const int64_t rows = RowsOf(tensor);
    const int64_t piece_rows = std::max<int64_t>(1, kPieceValues / tensor.dims[0]);
    const int64_t batch_rows = piece_rows * kBatchPieces;
    for (int64_t first = 0; first < rows; first += batch_rows) {
      const int64_t count = std::min(batch_rows, rows - first);
      RENGA_RETURN_IF_ERROR(WriteRows(tensor, job, first, count, piece_rows));
      file_.ReleasePages();
      done_ += count * tensor.dims[0];
      if (progress_ && !progress_(done_, total_)) {
        return Cancelled("stopped before the end");
      }
    }
    return OkStatus();
  }

  Status WriteRows(const GgufTensor& tensor, const TensorJob& job, int64_t first,
                   int64_t count, int64_t piece_rows) {
    const int64_t pieces = (count + piece_rows - 1) / piece_rows;
    buffer_.resize(static_cast<size_t>(count * job.row_bytes_out()));
    std::vector<RowResult> results(static_cast<size_t>(pieces), RowResult::kOk);
    pool_.Run(pieces, [&](int64_t piece, int worker) {
      std::vector<float>& values = row_values_[static_cast<size_t>(worker)];
      RowResult& result = results[static_cast<size_t>(piece)];
      const int64_t end = std::min(count, (piece + 1) * piece_rows);
      for (int64_t row = piece * piece_rows; row < end && result == RowResult::kOk;
           ++row) {
        result =
            job.Convert(first + row, values, buffer_.data() + row * job.row_bytes_out());
      }
    });
    for (const RowResult result : results) {
      if (result != RowResult::kOk) return Refuse(tensor, result);
    }
    return writer_.Write(buffer_);
  }

  Status Refuse(const GgufTensor& tensor, RowResult result) const {
    return InvalidArgument(
        tensor.name, file_.name() + (result == RowResult::kNotFinite
                                         ? ": holds a NaN or an infinity"
                                         : ": holds a value too large for the new type"));
  }

  const GgufFile& file_;
  const QuantiseOptions& options_;
  const WorkProgress& progress_;
  ThreadPool pool_;
  std::vector<std::vector<float>> row_values_;  // One row for each worker.
  std::vector<std::byte> buffer_;               // Rows of the new tensor.
  std::vector<TensorPlan> plans_;
  GgufWriter writer_;
  QuantiseSummary summary_;
  int64_t done_ = 0;  // Values.
  int64_t total_ = 0;
};

}  // namespace

StatusOr<QuantiseSummary> QuantiseFile(const std::string& input,
                                       const std::string& output,
                                       const QuantiseOptions& options,
                                       const WorkProgress& progress) {
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(input));
  if (SameFile(input, output)) {
    return InvalidArgument("OUT", "is the same file as the input");
  }
  const auto parts = file->GetUint("split.count");
  if (parts.ok() && *parts > 1) {
    return InvalidArgument("split.count", file->name() + ": is one of " +
                                              std::to_string(*parts) +
                                              " parts; a whole file is needed");
  }
  return FileQuantiser(*file, options, progress).Run(output);
}

}  // namespace renga
