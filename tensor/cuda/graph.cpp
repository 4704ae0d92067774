#include "tensor/graph.h"

#include "tensor/base/error.h"
#include "tensor/base/trace.h"
#include "tensor/cuda/allocator.h"

namespace athanor {
namespace {

cudaStream_t current(Device device) {
  return static_cast<cudaStream_t>(detail::current_stream_state(device).native);
}

class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    ATH_TRY(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {  // after an exception: what was captured is dropped
    cudaGraph_t graph = nullptr;
    if (!stream_) return;
    if (cudaStreamEndCapture(stream_, &graph) != cudaSuccess) cudaGetLastError();
    if (graph) cudaGraphDestroy(graph);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    cudaGraph_t graph = nullptr;
    ATH_TRY(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph));
    return graph;
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

struct Graph::Native {
  Native(Device where, cudaGraph_t made) : device(where), graph(made) {}
  ~Native() {
    if (exec) cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  Device device;
  cudaGraph_t graph;
  cudaGraphExec_t exec = nullptr;
};

void Graph::launch() const {
  const TraceScope traced("graph", "kernel");
  ATH_TRY(cudaGraphLaunch(native_->exec, current(native_->device)));
}

std::size_t Graph::nodes() const {
  std::size_t count = 0;
  ATH_TRY(cudaGraphGetNodes(native_->graph, nullptr, &count));
  return count;
}

GraphMemory::GraphMemory(Device device) : device_(device), pool_(std::make_unique<cuda::Pool>()) {
  pool_->graph = &cuda::device_allocator_of(device);
}

GraphMemory::~GraphMemory() {
  pool_->graph->dissolve(*pool_);
}

Graph GraphMemory::capture(const std::function<void()>& work) {
  const Use use(*this);
  Capture capture(current(device_));
  work();
  auto graph = std::make_shared<Graph::Native>(device_, capture.end());
  ATH_TRY(cudaGraphInstantiate(&graph->exec, graph->graph, 0));
  return Graph(std::move(graph));
}

std::int64_t GraphMemory::held_bytes() const {
  return pool_->graph->held(*pool_);
}

std::uint64_t GraphMemory::in_use() const {
  return pool_->graph->in_use(*pool_);
}

GraphMemory::Use::Use(GraphMemory& memory) : device_(memory.device_) {
  memory.pool_->graph->enter(*memory.pool_);
  saved_ = cuda::exchange_active_pool(device_, memory.pool_.get());
}

GraphMemory::Use::~Use() {
  cuda::exchange_active_pool(device_, saved_);
}

}  // namespace athanor
