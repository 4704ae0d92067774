#include "simt/emulator/graph.h"

#include <algorithm>

#include <fmt/format.h>

// Graphs. A capture records ops with what they come after. A launch of a graph queues them again, on streams
// of the graph's own, one for each stream that was captured: so every order the captured events allowed may
// happen, and everything that is checked of queued work is checked of a graph's.

namespace simt {
namespace {

Capture::Lane& lane_of(Stream& stream) {
  auto& lanes = stream.capture->lanes;
  return *std::find_if(lanes.begin(), lanes.end(), [&](const auto& lane) { return lane.stream == &stream; });
}

void join(Vector<int>& tail, const Vector<int>& nodes) {
  for (const int node : nodes) {
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
}

[[noreturn]] void lose(Capture& capture, const std::string& why) {
  if (capture.lost.empty()) capture.lost = why;
  throw Failure{cudaErrorStreamCaptureUnsupported, why};
}

void require_valid(const Capture& capture) {
  if (!capture.lost.empty()) {
    throw Failure{cudaErrorStreamCaptureInvalidated, "the capture was lost before: " + capture.lost};
  }
}

// Which nodes come before the end of the lane the capture began on.
Vector<char> joined_nodes(const Capture& capture) {
  Vector<char> joined(capture.nodes.size(), 0);
  for (const int node : capture.lanes.front().tail) joined[static_cast<std::size_t>(node)] = 1;
  for (std::size_t node = joined.size(); node-- > 0;) {  // nodes come after those they wait for
    if (!joined[node]) continue;
    for (const int before : capture.nodes[node].after) joined[static_cast<std::size_t>(before)] = 1;
  }
  return joined;
}

std::string describe(const Op& op, const NamedRange& range) {
  switch (range.as) {
    case NamedRange::As::destination: return "the destination of a copy";
    case NamedRange::As::source: return "the source of a copy";
    case NamedRange::As::filled: return "what a memset fills";
    case NamedRange::As::parameter: break;
    case NamedRange::As::message: return "a message";
  }
  return fmt::format("parameter {} of kernel {}", range.position, std::get<LaunchWork>(op.work).name);
}

// 0: memory of the host.
std::uint64_t allocation_of(const Runtime& all, const char* address) {
  const Allocation* memory = address ? all.memory.find_or_end(address) : nullptr;
  return memory ? memory->id : 0;
}

// What is freed may have been given to somebody else since, at the same address.
void require_memory(const Runtime& all, const CUgraphExec_st& exec) {
  for (const NamedMemory& one : exec.memory) {
    if (allocation_of(all, one.address) == one.allocation) continue;
    const Op& op = exec.nodes[one.node].op;
    std::string what;
    for_each_range(op, [&](const NamedRange& range) {
      if (range.begin == one.address) what = describe(op, range);
    });
    throw Failure{cudaErrorIllegalAddress,
                  fmt::format("node {} of the graph: {} was freed after the capture", one.node, what)};
  }
}

void forget(Runtime& all, Capture* capture) {
  for (const auto& lane : capture->lanes) lane.stream->capture = nullptr;
  std::erase(all.captures, capture);
  delete capture;
}

}  // namespace

void capture_op(Stream& stream, Op op) {
  Capture& capture = *stream.capture;
  require_valid(capture);
  Capture::Lane& lane = lane_of(stream);
  const auto number = static_cast<int>(capture.nodes.size());
  capture.nodes.push_back({std::move(op), static_cast<int>(&lane - capture.lanes.data()), lane.tail});
  lane.tail.assign(1, number);
}

void capture_record(Stream& stream, Event& event) {
  require_valid(*stream.capture);
  event.capture_id = stream.capture->id;
  event.captured = lane_of(stream).tail;
}

void capture_wait(Runtime& all, Stream& stream, const Event& event) {
  if (event.capture_id == 0) {
    if (!event.mark.stream) return;
    const std::string why = fmt::format(
        "stream {} is captured: it must not wait for an event recorded outside the capture", stream.id);
    if (stream.capture->lost.empty()) stream.capture->lost = why;
    throw Failure{cudaErrorStreamCaptureIsolation, why};
  }
  const auto found = std::find_if(all.captures.begin(), all.captures.end(),
                                  [&](const Capture* capture) { return capture->id == event.capture_id; });
  if (found == all.captures.end()) {
    throw Failure{cudaErrorCapturedEvent, "the event was recorded in a capture that has ended"};
  }
  Capture& capture = **found;
  require_valid(capture);
  if (stream.capture && stream.capture != &capture) {
    lose(capture, fmt::format("stream {} is part of another capture", stream.id));
  }
  if (&stream == all.device(stream.device).default_stream) {
    throw Failure{cudaErrorStreamCaptureImplicit, "the default stream must not be captured"};
  }
  if (!stream.capture) {
    stream.capture = &capture;
    capture.lanes.push_back({&stream, {}});
  }
  join(lane_of(stream).tail, event.captured);
}

void forbid_in_capture(Runtime& all) {
  for (Capture* capture : all.captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    if (mine || capture->mode == cudaStreamCaptureModeGlobal) {
      lose(*capture, fmt::format("must not be called while stream {} is captured{}",
                                 capture->lanes.front().stream->id, mine ? "" : " by another thread"));
    }
  }
}

void forbid_beside_capture(Runtime& all, const Stream& default_stream) {
  for (Capture* capture : all.captures) {
    const Stream& captured = *capture->lanes.front().stream;
    if (capture->thread != std::this_thread::get_id() || captured.device != default_stream.device) continue;
    const std::string why = fmt::format(
        "the default stream is used while stream {} is captured: its work runs once and is not in the graph",
        captured.id);
    if (capture->lost.empty()) capture->lost = why;
    throw Failure{cudaErrorStreamCaptureImplicit, why};
  }
}

void forbid_captured(const Stream& stream) {
  if (stream.capture)
    lose(*stream.capture, fmt::format("stream {} is captured: its work does not run", stream.id));
}

void forbid_captured(Runtime& all, const Event& event) {
  if (event.capture_id == 0) return;
  for (Capture* capture : all.captures) {
    if (capture->id == event.capture_id && capture->lost.empty())
      capture->lost = "an event in it was waited for";
  }
  throw Failure{cudaErrorCapturedEvent,
                "the event was last recorded in a capture: there is nothing to wait for"};
}

}  // namespace simt

using namespace simt;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return api_call("cudaStreamBeginCapture", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    if (stream.capture) throw Failure{cudaErrorIllegalAddress, "the stream is being captured already"};
    if (&stream == all.device(stream.device).default_stream) {
      throw Failure{cudaErrorStreamCaptureImplicit, "the default stream must not be captured"};
    }
    auto* capture = new Capture;
    capture->id = all.handles.new_id();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->lanes.push_back({&stream, {}});
    stream.capture = capture;
    all.captures.push_back(capture);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return api_call("cudaStreamEndCapture", [&](Runtime& all) {
    *graph = nullptr;
    Stream& stream = all.stream(handle);
    Capture* const capture = stream.capture;
    if (!capture) throw Failure{cudaErrorInvalidValue, "the stream is not being captured"};
    if (capture->lanes.front().stream != &stream) {
      throw Failure{cudaErrorStreamCaptureUnmatched,
                    fmt::format("the capture began on stream {}", capture->lanes.front().stream->id)};
    }
    if (capture->thread != std::this_thread::get_id()) {
      throw Failure{cudaErrorStreamCaptureWrongThread, "another thread began the capture"};
    }
    Failure failure{cudaSuccess, {}};
    if (!capture->lost.empty())
      failure = {cudaErrorStreamCaptureInvalidated, "the capture was lost: " + capture->lost};
    const Vector<char> joined = joined_nodes(*capture);
    for (const Capture::Lane& lane : capture->lanes) {
      const bool all_joined = std::all_of(lane.tail.begin(), lane.tail.end(), [&](int node) {
        return joined[static_cast<std::size_t>(node)] != 0;
      });
      if (failure.code == cudaSuccess && !all_joined) {
        failure = {cudaErrorStreamCaptureUnjoined,
                   fmt::format("stream {} joined the capture, but stream {} does not wait for its last work",
                               lane.stream->id, stream.id)};
      }
    }
    if (failure.code == cudaSuccess) {
      *graph =
          new CUgraph_st{stream.device, std::move(capture->nodes), static_cast<int>(capture->lanes.size())};
    }
    forget(all, capture);
    if (failure.code != cudaSuccess) throw failure;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return api_call("cudaStreamIsCapturing", [&](Runtime& all) {
    const Stream& stream = all.stream(handle);
    *status = !stream.capture                ? cudaStreamCaptureStatusNone
              : stream.capture->lost.empty() ? cudaStreamCaptureStatusActive
                                             : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return api_call("cudaGraphGetNodes", [&](Runtime&) {
    if (nodes) throw Failure{cudaErrorNotSupported, "only the number of nodes can be queried"};
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return api_call("cudaGraphInstantiate", [&](Runtime& all) {
    *exec = new CUgraphExec_st{graph->device, {}, graph->nodes, {}};
    for (std::size_t node = 0; node < graph->nodes.size(); ++node) {
      for_each_range(graph->nodes[node].op, [&](const NamedRange& range) {
        if (const std::uint64_t id = allocation_of(all, range.begin))
          (*exec)->memory.push_back({node, range.begin, id});
      });
    }
    for (int lane = 0; lane < graph->lanes; ++lane) {
      Stream* const stream = all.handles.make_stream(graph->device, cudaStreamNonBlocking);
      stream->of_graph = true;
      (*exec)->lanes.push_back(stream);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return api_call("cudaGraphLaunch", [&](Runtime& all) {
    Stream& stream = all.stream(handle);
    forbid_captured(stream);
    if (stream.device != exec->device) {
      throw Failure{cudaErrorInvalidValue, fmt::format("the graph is of device {}, the stream of device {}",
                                                       exec->device, stream.device)};
    }
    require_memory(all, *exec);
    const Mark begin = all.queue(stream, {});
    Vector<Mark> marks(exec->nodes.size());
    Vector<race::Clock> clocks(race::kOn ? marks.size() : 0);
    for (std::size_t node = 0; node < marks.size(); ++node) {
      const GraphNode& from = exec->nodes[node];
      Op op = from.op;
      Stream& lane = *exec->lanes[static_cast<std::size_t>(from.lane)];
      for (const int before : from.after) {
        op.after.push_back(marks[static_cast<std::size_t>(before)]);
        if constexpr (race::kOn) race::join(op.clock, clocks[static_cast<std::size_t>(before)]);
      }
      if (from.after.empty()) op.after.push_back(begin);
      marks[node] = all.queue(lane, std::move(op));
      if constexpr (race::kOn) clocks[node] = lane.clock;
    }
    Op end;
    for (Stream* lane : exec->lanes) end.after.push_back({lane, lane->queued});
    all.queue(stream, std::move(end));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api_call<Faults::reported_after>("cudaGraphDestroy",
                                          [&](Runtime&) { return delete graph, cudaSuccess; });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api_call<Faults::reported_after>("cudaGraphExecDestroy", [&](Runtime& all) {
    for (Stream* lane : exec->lanes) all.handles.drop_stream(*lane);
    delete exec;
    return cudaSuccess;
  });
}
