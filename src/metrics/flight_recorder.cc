#include "metrics/flight_recorder.h"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace renga {
namespace {

// Slow ones that are kept beside the last ones: a quarter as many, but some.
int32_t MostSlow(int32_t requests) {
  return requests == 0 ? 0 : std::max(requests / 4, 8);
}

double Microseconds(TimePoint time) {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count();
}

double Microseconds(Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

const char* NameOf(FlightEvent event) {
  switch (event) {
    case FlightEvent::kTokenise:
      return "tokenise";
    case FlightEvent::kQueue:
      return "queue";
    case FlightEvent::kPrefill:
      return "prefill";
    case FlightEvent::kFirstToken:
      return "first token";
    case FlightEvent::kPreempted:
      return "preempted";
    case FlightEvent::kReadmitted:
      return "readmitted";
    case FlightEvent::kPaused:
      return "paused";
    case FlightEvent::kWorstGap:
      return "worst gap";
  }
  return "";
}

// What the number of an event counts; nullptr: it has none.
const char* ValueNameOf(FlightEvent event) {
  switch (event) {
    case FlightEvent::kTokenise:
      return "prompt_tokens";
    case FlightEvent::kPrefill:
      return "rows";
    case FlightEvent::kFirstToken:
      return "cached_tokens";
    default:
      return nullptr;
  }
}

// The common beginning of an event, up to its arguments.
void BeginEvent(const char* name, const char* phase, int64_t lane, double at,
                std::string& out) {
  char text[160];
  std::snprintf(text, sizeof text,
                ",\n{\"name\":\"%s\",\"ph\":\"%s\",\"pid\":1,\"tid\":%lld,\"ts\":%.3f",
                name, phase, static_cast<long long>(lane), at);
  out += text;
}

void AddSpan(const char* name, int64_t lane, TimePoint begin, TimePoint end,
             std::string& out) {
  BeginEvent(name, "X", lane, Microseconds(begin), out);
  char text[48];
  std::snprintf(text, sizeof text, ",\"dur\":%.3f",
                std::max(Microseconds(end - begin), 0.0));
  out += text;
}

void AddArgument(const char* key, int64_t value, bool first, std::string& out) {
  out += first ? "" : ",";
  out += '"';
  out += key;
  out += "\":" + std::to_string(value);
}

void NameLane(int64_t lane, const std::string& name, std::string& out) {
  BeginEvent("thread_name", "M", lane, 0.0, out);
  out += ",\"args\":{\"name\":\"" + name + "\"}}";
}

}  // namespace

FlightRecorder::FlightRecorder(const FlightRecorderOptions& options)
    : options_(options), most_slow_(MostSlow(options.requests)) {
  slots_.resize(static_cast<size_t>(options.requests) + static_cast<size_t>(most_slow_));
  if (on()) steps_.resize(kSteps);
  MutexLock lock(mutex_);
  for (size_t i = 0; i < slots_.size(); ++i) Push(free_, static_cast<int32_t>(i));
}

FlightTicket FlightRecorder::Open(RequestId id, TimePoint arrival) {
  if (!on()) return {};
  MutexLock lock(mutex_);
  int32_t index = Pop(free_);
  if (index == kNone) index = Pop(ended_);
  if (index == kNone) index = Pop(slow_);
  if (index == kNone) {
    ++unrecorded_;
    return {};
  }
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.id = id;
  slot.arrival = arrival;
  slot.first_token = {};
  slot.worst_gap = {};
  slot.live = true;
  slot.slow = false;
  slot.used = true;
  slot.end = {};
  slot.count = 0;
  slot.lost = 0;
  return {.slot = index, .id = id};
}

FlightRecorder::Slot* FlightRecorder::Find(const FlightTicket& ticket) {
  if (ticket.slot < 0 || ticket.slot >= static_cast<int32_t>(slots_.size()))
    return nullptr;
  Slot& slot = slots_[static_cast<size_t>(ticket.slot)];
  return slot.live && slot.id == ticket.id ? &slot : nullptr;
}

void FlightRecorder::Append(Slot& slot, const Event& event) {
  if (slot.count == static_cast<int32_t>(kMaxEvents)) {
    ++slot.lost;
    return;
  }
  slot.events[static_cast<size_t>(slot.count++)] = event;
}

void FlightRecorder::Span(const FlightTicket& ticket, FlightEvent event, TimePoint begin,
                          TimePoint end, int64_t value) {
  if (ticket.slot < 0) return;
  MutexLock lock(mutex_);
  Slot* slot = Find(ticket);
  if (slot == nullptr) return;
  if (event == FlightEvent::kFirstToken) slot->first_token = begin;
  const int64_t most = std::numeric_limits<int32_t>::max();
  const Event entry{.begin = begin,
                    .end = end,
                    .value = static_cast<int32_t>(std::min(value, most)),
                    .event = event};
  if (event == FlightEvent::kWorstGap) {
    slot->worst_gap = entry;
  } else {
    Append(*slot, entry);
  }
}

bool FlightRecorder::IsSlow(const Slot& slot) const {
  const TimePoint first =
      slot.first_token == TimePoint{} ? slot.end.at : slot.first_token;
  return first - slot.arrival >= options_.slow ||
         slot.worst_gap.end - slot.worst_gap.begin >= options_.slow;
}

void FlightRecorder::Close(const FlightTicket& ticket, const End& end) {
  if (ticket.slot < 0) return;
  MutexLock lock(mutex_);
  Slot* slot = Find(ticket);
  if (slot == nullptr) return;
  slot->end = end;
  slot->live = false;
  slot->slow = IsSlow(*slot);
  Push(slot->slow ? slow_ : ended_, ticket.slot);
  // A slow one that gives way to others is still one of the last for a while.
  if (slow_.size > most_slow_) Push(ended_, Pop(slow_));
  if (ended_.size > options_.requests) {
    const int32_t oldest = Pop(ended_);
    slots_[static_cast<size_t>(oldest)].used = false;
    Push(free_, oldest);
  }
}

void FlightRecorder::AddStep(const Step& step, std::span<const Slice> slices) {
  if (!on()) return;
  MutexLock lock(mutex_);
  steps_[next_step_++ % kSteps] = step;
  for (const Slice& slice : slices) {
    Slot* slot = Find(slice.ticket);
    if (slot == nullptr) continue;
    Append(*slot, {.begin = step.begin,
                   .end = step.end,
                   .value = static_cast<int32_t>(slice.rows),
                   .event = FlightEvent::kPrefill});
  }
}

void FlightRecorder::Push(List& list, int32_t index) {
  slots_[static_cast<size_t>(index)].next = kNone;
  if (list.size++ == 0) {
    list.head = index;
  } else {
    slots_[static_cast<size_t>(list.tail)].next = index;
  }
  list.tail = index;
}

int32_t FlightRecorder::Pop(List& list) {
  const int32_t index = list.head;
  if (index == kNone) return kNone;
  list.head = slots_[static_cast<size_t>(index)].next;
  if (--list.size == 0) list.tail = kNone;
  return index;
}

int64_t FlightRecorder::bytes() const {
  return static_cast<int64_t>(slots_.capacity() * sizeof(Slot) +
                              steps_.capacity() * sizeof(Step));
}

std::string FlightRecorder::Trace(bool slow_only, TimePoint now) const {
  std::vector<Slot> slots(slots_.size());  // Allocated outside the lock.
  std::vector<Step> steps(steps_.size());
  int64_t unrecorded = 0;
  {
    MutexLock lock(mutex_);
    std::copy(slots_.begin(), slots_.end(), slots.begin());
    std::copy(steps_.begin(), steps_.end(), steps.begin());
    unrecorded = unrecorded_;
  }
  std::erase_if(slots, [&](Slot& slot) {
    // One that has not ended is judged by what has passed.
    if (slot.live) slot.end.at = now;
    return !slot.used || (slow_only && !IsSlow(slot));
  });
  std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
    return a.arrival != b.arrival ? a.arrival < b.arrival : a.id < b.id;
  });
  std::string out =
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"unrecorded_requests\":" +
      std::to_string(unrecorded) +
      "},\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,"
      "\"args\":{\"name\":\"renga\"}}";
  NameLane(0, "steps", out);
  for (const Step& step : steps) {
    if (step.end == TimePoint{}) continue;
    AddSpan("step", 0, step.begin, step.end, out);
    out += ",\"args\":{";
    AddArgument("rows", step.rows, true, out);
    AddArgument("sequences", step.sequences, false, out);
    AddArgument("decoding", step.decoding, false, out);
    out += "}}";
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    WriteSlot(slots[i], static_cast<int64_t>(i) + 1, now, out);
  }
  return out + "\n]}\n";
}

void FlightRecorder::WriteSlot(const Slot& slot, int64_t lane, TimePoint now,
                               std::string& out) {
  const std::string name = "request " + std::to_string(static_cast<uint64_t>(slot.id));
  NameLane(lane, name, out);
  const TimePoint end = slot.live ? now : slot.end.at;
  AddSpan(name.c_str(), lane, slot.arrival, end, out);
  out += ",\"args\":{\"outcome\":\"";
  out += slot.live ? "under way" : slot.end.outcome;
  out += "\",";
  AddArgument("tokens", slot.end.tokens, true, out);
  AddArgument("lost_events", slot.lost, false, out);
  out += "}}";
  for (int32_t i = 0; i < slot.count; ++i) {
    WriteEvent(slot.events[static_cast<size_t>(i)], lane, out);
  }
  if (slot.first_token == TimePoint{}) return;
  AddSpan("decode", lane, slot.first_token, end, out);
  out += ",\"args\":{}}";
  if (slot.worst_gap.begin < slot.worst_gap.end) WriteEvent(slot.worst_gap, lane, out);
}

void FlightRecorder::WriteEvent(const Event& event, int64_t lane, std::string& out) {
  const char* name = NameOf(event.event);
  if (event.begin == event.end) {
    BeginEvent(name, "i", lane, Microseconds(event.begin), out);
    out += ",\"s\":\"t\"";  // A mark in this lane alone.
  } else {
    AddSpan(name, lane, event.begin, event.end, out);
  }
  out += ",\"args\":{";
  if (const char* value = ValueNameOf(event.event)) {
    AddArgument(value, event.value, true, out);
  }
  out += "}}";
}

}  // namespace renga
