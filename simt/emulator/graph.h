#pragma once

#include <thread>

#include "simt/emulator/runtime.h"

namespace simt {

/// An op of a graph; `after` are the nodes it waits for. Nodes of one lane were captured from one stream.
struct GraphNode {
  Op op;
  int lane = 0;
  Vector<int> after;
};

/// Streams that are being recorded instead of run.
struct Capture {
  struct Lane {
    Stream* stream;
    Vector<int> tail;  ///< what the stream's next op comes after
  };
  std::uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Vector<GraphNode> nodes;
  Vector<Lane> lanes;  ///< the first is where the capture began
  std::string lost;    ///< why it is no longer valid; else empty
};

/// An allocation that a node names, when the graph was made.
struct NamedMemory {
  std::size_t node = 0;
  const char* address = nullptr;
  std::uint64_t allocation = 0;
};

void capture_op(Stream& stream, Op op);
void capture_record(Stream& stream, Event& event);
void capture_wait(Runtime& all, Stream& stream, const Event& event);

/// Throws where a capture forbids a call that waits or allocates; the capture is lost then.
void forbid_in_capture(Runtime& all);
/// The same for a call on a stream, or for an event, that is itself part of a capture.
void forbid_captured(const Stream& stream);
void forbid_captured(Runtime& all, const Event& event);
/// The same for the default stream, whose work no capture of this thread sees.
void forbid_beside_capture(Runtime& all, const Stream& default_stream);

}  // namespace simt

struct CUgraph_st {
  int device = 0;
  simt::Vector<simt::GraphNode> nodes;
  int lanes = 0;
};

struct CUgraphExec_st {
  int device = 0;
  simt::Vector<simt::NamedMemory> memory;
  simt::Vector<simt::GraphNode> nodes;
  simt::Vector<simt::Stream*> lanes;
};
