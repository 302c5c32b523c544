// FlightRecorder: what happened to the last requests, and when; for a person who asks why
// one of them was slow.
//
// It keeps the timelines of the last `requests` that have ended, of all that have not,
// and longer those of slow ones: a request is slow if its first token, a gap between two
// of its tokens or, without any, its end came `slow` or later. It knows requests by their
// numbers; never a word of a prompt or an answer.
//
// Memory is allocated once, in the constructor. Where all of it is taken by requests
// under way, a new one is not recorded; of a timeline with more than kMaxEvents the first
// ones are kept and the others counted.
//
// Thread safety: every method may be called from any thread. An update is one short lock,
// and allocates nothing; Trace copies under it and does the rest outside.
// Invariants: every slot is in exactly one list; a ticket whose request has left its slot
// does nothing.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "renga/types.h"

namespace renga {

struct FlightRecorderOptions {
  int32_t requests = 0;  // 0: records nothing.
  Duration slow = std::chrono::seconds(1);
};

// Names a request's timeline; the default names none.
struct FlightTicket {
  int32_t slot = -1;
  RequestId id{};
};

enum class FlightEvent : uint8_t {
  kTokenise,    // Rendering and encoding; value: prompt tokens.
  kQueue,       // In the wait queue, until it was first admitted.
  kPrefill,     // One step that computed prompt rows; value: so many.
  kFirstToken,  // A moment; value: prompt tokens that were cached.
  kPreempted,   // A moment.
  kReadmitted,  // A moment; after it was preempted.
  kPaused,      // Its reader was too slow.
  kWorstGap,    // The longest time between two of its tokens; told once, at its end.
};

class FlightRecorder {
 public:
  static constexpr size_t kMaxEvents = 32;  // Of one request.
  static constexpr size_t kSteps = 1024;    // The last ones.

  explicit FlightRecorder(const FlightRecorderOptions& options);

  bool on() const { return !slots_.empty(); }

  FlightTicket Open(RequestId id, TimePoint arrival) RENGA_EXCLUDES(mutex_);
  void Span(const FlightTicket& ticket, FlightEvent event, TimePoint begin, TimePoint end,
            int64_t value = 0) RENGA_EXCLUDES(mutex_);
  void Mark(const FlightTicket& ticket, FlightEvent event, TimePoint at,
            int64_t value = 0) RENGA_EXCLUDES(mutex_) {
    Span(ticket, event, at, at, value);
  }

  struct End {
    TimePoint at{};
    std::string_view outcome;  // A constant: "ok", "CANCELLED", ...
    int64_t tokens = 0;        // Of the answer.
  };
  void Close(const FlightTicket& ticket, const End& end) RENGA_EXCLUDES(mutex_);

  struct Slice {
    FlightTicket ticket;
    int64_t rows = 0;
  };
  struct Step {
    TimePoint begin{};
    TimePoint end{};
    int32_t rows = 0;
    int32_t sequences = 0;
    int32_t decoding = 0;
  };
  // One step of the engine, and the prompts that it computed a part of.
  void AddStep(const Step& step, std::span<const Slice> slices) RENGA_EXCLUDES(mutex_);

  // All of it as JSON in the format of chrome://tracing and ui.perfetto.dev: one lane for
  // the steps, one for each request. `now` ends what has not ended.
  std::string Trace(bool slow_only, TimePoint now) const RENGA_EXCLUDES(mutex_);

  // Bytes that it holds.
  int64_t bytes() const;

 private:
  static constexpr int32_t kNone = -1;

  struct Event {
    TimePoint begin{};
    TimePoint end{};
    int32_t value = 0;
    FlightEvent event = FlightEvent::kTokenise;
  };
  struct Slot {
    RequestId id{};
    TimePoint arrival{};
    TimePoint first_token{};  // Zero: there was none.
    Event worst_gap;          // Beside `events`: it always has room.
    bool live = false;
    bool slow = false;
    bool used = false;
    End end;
    int32_t count = 0;  // Of events.
    int32_t lost = 0;   // Events that had no room.
    std::array<Event, kMaxEvents> events{};
    int32_t next = kNone;  // In its list.
  };
  // Slots in order, by their `next`.
  struct List {
    int32_t head = kNone;
    int32_t tail = kNone;
    int32_t size = 0;
  };

  Slot* Find(const FlightTicket& ticket) RENGA_REQUIRES(mutex_);
  void Append(Slot& slot, const Event& event) RENGA_REQUIRES(mutex_);
  bool IsSlow(const Slot& slot) const;
  void Push(List& list, int32_t index) RENGA_REQUIRES(mutex_);
  int32_t Pop(List& list) RENGA_REQUIRES(mutex_);

  static void WriteSlot(const Slot& slot, int64_t lane, TimePoint now, std::string& out);
  static void WriteEvent(const Event& event, int64_t lane, std::string& out);

  const FlightRecorderOptions options_;
  const int32_t most_slow_;
  mutable Mutex mutex_;
  // The vectors keep their sizes.
  std::vector<Slot> slots_;
  std::vector<Step> steps_;  // A ring.
  size_t next_step_ RENGA_GUARDED_BY(mutex_) = 0;
  List free_ RENGA_GUARDED_BY(mutex_);
  List ended_ RENGA_GUARDED_BY(mutex_);  // Oldest first; not slow.
  List slow_ RENGA_GUARDED_BY(mutex_);   // The same.
  int64_t unrecorded_ RENGA_GUARDED_BY(mutex_) = 0;
};

}  // namespace renga
