// ProgressBar: one line that shows how far long work is, drawn over itself.
//
// Nothing is written unless `enabled`: callers pass whether somebody is looking
// (IsTerminal). Drawing is rate-limited, so Update may be called as often as one likes.
// Without Finish (the work failed) the line is wiped, so that what is printed next starts
// on an empty one.
//
// Thread rule: one thread at a time.

#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "renga/clock.h"

namespace renga {

// The line without its carriage return: "Quantising  [=====>    ]  45%  12 s left". The
// time left is shown once there is something to judge it by. Always below 80 columns.
std::string FormatProgress(std::string_view label, int64_t done, int64_t total,
                           Duration elapsed);

class ProgressBar {
 public:
  // `total` in any unit. `out` outlives the bar.
  ProgressBar(std::ostream& out, std::string label, int64_t total, bool enabled);
  // With another clock than the system's; it outlives the bar.
  ProgressBar(std::ostream& out, std::string label, int64_t total, bool enabled,
              const Clock& clock);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `done` of the total, in all.
  void Update(int64_t done);
  // Draws the bar full and goes to the next line. Later calls do nothing.
  void Finish();

 private:
  void Draw(int64_t done);

  std::ostream& out_;
  const std::string label_;
  const int64_t total_;
  const Clock& clock_;
  const TimePoint begin_;
  bool enabled_;
  bool drawn_ = false;
  TimePoint last_draw_{};
};

}  // namespace renga
