#include "app/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/system_clock.h"

namespace renga {
namespace {

constexpr Duration kDrawInterval = std::chrono::milliseconds(100);
constexpr size_t kBarCells = 30;
constexpr size_t kMaxLabelBytes = 28;
// Below this the speed is a guess.
constexpr Duration kJudged = std::chrono::seconds(1);
constexpr std::string_view kWipe = "\r\x1b[K";

const Clock& RealClock() {
  static const SystemClock clock;
  return clock;
}

// "12 s", "3 min", "2 h".
std::string ShortTime(double seconds) {
  const auto text = [](double value, const char* unit) {
    return std::to_string(static_cast<int64_t>(std::ceil(value))) + ' ' + unit;
  };
  if (seconds <= 99) return text(seconds, "s");
  if (seconds <= 99 * 60) return text(seconds / 60, "min");
  return text(std::min(seconds / 3600, 999.0), "h");
}

}  // namespace

std::string FormatProgress(std::string_view label, int64_t done, int64_t total,
                           Duration elapsed) {
  const double share =
      total <= 0
          ? 1.0
          : std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const auto filled = static_cast<size_t>(share * kBarCells);
  std::string bar(filled, '=');
  if (filled < kBarCells) bar += '>';
  bar.resize(kBarCells, ' ');
  std::string percent = std::to_string(static_cast<int64_t>(share * 100));
  percent.insert(0, 3 - percent.size(), ' ');
  std::string line(label.substr(0, kMaxLabelBytes));
  line += "  [" + bar + "] " + percent + '%';
  if (elapsed < kJudged) return line;
  const double seconds = std::chrono::duration<double>(elapsed).count();
  if (share >= 1.0) return line + "  " + ShortTime(seconds);
  if (share <= 0.0) return line;
  return line + "  " + ShortTime(seconds * (1.0 - share) / share) + " left";
}

ProgressBar::ProgressBar(std::ostream& out, std::string label, int64_t total,
                         bool enabled)
    : ProgressBar(out, std::move(label), total, enabled, RealClock()) {}

ProgressBar::ProgressBar(std::ostream& out, std::string label, int64_t total,
                         bool enabled, const Clock& clock)
    : out_(out),
      label_(std::move(label)),
      total_(total),
      clock_(clock),
      begin_(clock.Now()),
      enabled_(enabled) {}

ProgressBar::~ProgressBar() {
  if (enabled_ && drawn_) out_ << kWipe << std::flush;
}

void ProgressBar::Update(int64_t done) {
  if (!enabled_) return;
  if (drawn_ && clock_.Now() - last_draw_ < kDrawInterval) return;
  Draw(done);
}

void ProgressBar::Finish() {
  if (!enabled_) return;
  Draw(total_);
  out_ << '\n' << std::flush;
  enabled_ = false;
}

void ProgressBar::Draw(int64_t done) {
  last_draw_ = clock_.Now();
  drawn_ = true;
  out_ << kWipe << FormatProgress(label_, done, total_, last_draw_ - begin_)
       << std::flush;
}

}  // namespace renga
