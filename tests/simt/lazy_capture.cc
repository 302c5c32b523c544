// LazyDevice: captures and graphs.

#include <utility>

#include "tests/simt/lazy_device.h"

namespace renga::test {

Status LazyDevice::Kill(const std::string& why) {
  if (capture_ != nullptr && capture_->death.empty()) {
    capture_->death = why;
    Report("a capture died: " + why);
  }
  return FailedPrecondition(why);
}

Status LazyDevice::BeginCapture(StreamId stream) {
  if (Status status = Enter(DeviceCall::kBeginCapture); !status.ok()) return status;
  if (Status status = CheckStream(stream); !status.ok()) return status;
  capture_ = std::make_unique<Capture>();
  capture_->origin = stream;
  capture_->branches[stream] = 0;
  capture_->tips[stream] = {};
  capture_->tape.branches.push_back(kHostLine);
  return OkStatus();
}

Status LazyDevice::SubmitToCapture(Operation operation, StreamId stream) {
  std::set<int>& tip = capture_->tips.at(stream);
  std::vector<TapeNode>& nodes = capture_->tape.nodes;
  nodes.push_back({.operation = std::move(operation),
                   .branch = capture_->branches.at(stream),
                   .needs = tip});
  tip = {static_cast<int>(nodes.size()) - 1};
  return OkStatus();
}

Status LazyDevice::RecordInCapture(EventId event, StreamId stream) {
  capture_->events[event] = capture_->tips.at(stream);
  captured_events_.insert(event);
  return OkStatus();
}

// A stream joins a capture by waiting for one of its events.
Status LazyDevice::WaitInCapture(StreamId stream, EventId event) {
  if (static_cast<size_t>(stream) - 1 >= streams_.size()) {
    return InvalidArgument("stream", "there is no such stream");
  }
  const auto found = capture_->events.find(event);
  if (found == capture_->events.end()) {
    return Kill("a capture waits for an event that was not recorded in it");
  }
  if (capture_->branches.count(stream) == 0) {
    capture_->branches[stream] = static_cast<int>(capture_->tape.branches.size());
    capture_->tape.branches.push_back(MakeLine());
  }
  capture_->tips[stream].insert(found->second.begin(), found->second.end());
  return OkStatus();
}

// From its end back: what is not reached was never joined.
bool LazyDevice::AllReached(const Capture& capture) {
  const std::set<int>& ends = capture.tips.at(capture.origin);
  std::set<int> reached;
  std::vector<int> left(ends.begin(), ends.end());
  while (!left.empty()) {
    const int index = left.back();
    left.pop_back();
    if (!reached.insert(index).second) continue;
    const std::set<int>& needs = capture.tape.nodes[static_cast<size_t>(index)].needs;
    left.insert(left.end(), needs.begin(), needs.end());
  }
  return reached.size() == capture.tape.nodes.size();
}

StatusOr<GraphId> LazyDevice::EndCapture(StreamId stream) {
  if (Status status = Enter(DeviceCall::kEndCapture); !status.ok()) {
    capture_.reset();
    return status;
  }
  if (capture_ == nullptr) {
    return FailedPrecondition("EndCapture of a stream that does not capture");
  }
  if (stream != capture_->origin) {
    static_cast<void>(Kill("EndCapture of another stream than was begun with"));
  }
  Capture capture = std::move(*capture_);
  capture_.reset();
  if (capture.death.empty() && !AllReached(capture)) {
    capture.death = "a stream that joined the capture was not joined back";
    Report("a capture died: " + capture.death);
  }
  if (!capture.death.empty()) {
    return Internal("the capture cannot end: " + capture.death);
  }
  capture.tape.ends = capture.tips.at(capture.origin);
  const GraphId graph{next_graph_++};
  graphs_.emplace(graph, std::move(capture.tape));
  return graph;
}

Status LazyDevice::Replay(GraphId graph, StreamId stream) {
  if (Status status = Enter(DeviceCall::kReplay); !status.ok()) return status;
  if (Status status = CheckStream(stream); !status.ok()) return status;
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return InvalidArgument("graph", "there is no such graph");
  Tape& tape = found->second;
  Stream& where = streams_[static_cast<size_t>(stream) - 1];
  Tip begin = where.tip;
  begin.Join(tape.last);
  std::vector<NodeId> ids;
  std::vector<LineClock> clocks;
  for (const TapeNode& node : tape.nodes) {
    Tip after = begin;
    for (const int need : node.needs) {
      after.nodes.insert(ids[static_cast<size_t>(need)]);
      after.after.Join(clocks[static_cast<size_t>(need)]);
    }
    const LineId line =
        node.branch == 0 ? where.line : tape.branches[static_cast<size_t>(node.branch)];
    ids.push_back(Enqueue(node.operation, line, after));
    clocks.push_back(pending_.at(ids.back()).when.after);
  }
  for (const int end : tape.ends) {
    where.tip.nodes.insert(ids[static_cast<size_t>(end)]);
    where.tip.after.Join(clocks[static_cast<size_t>(end)]);
  }
  tape.last = where.tip;
  return Settle(ids);
}

void LazyDevice::DestroyGraph(GraphId graph) {
  if (capture_ != nullptr) {
    static_cast<void>(Kill("DestroyGraph while a stream is captured"));
  }
  if (graphs_.erase(graph) == 0)
    Report("DestroyGraph of what is no graph, or is no more");
}

}  // namespace renga::test
