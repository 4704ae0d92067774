#include <functional>

#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

namespace simt::test {
namespace {

struct GraphHandles {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ~GraphHandles() {
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
  }
};

TEST(Graph, ReplaysWhatWasCapturedWithForksAndJoins) {
  in_all_orders([] {
    const TestStream stream, side;
    const TestEvent fork, join;
    const OnDevice<float> x(std::vector<float>(1, 0.0f)), y(std::vector<float>(1, 0.0f)),
        one(std::vector<float>(1, 1.0f));
    GraphHandles graph;
    EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    EXPECT_OK(axpy(1, 1.0f, one.data(), x.data(), stream, 1));  // x += 1
    EXPECT_OK(cudaEventRecord(fork, stream));
    EXPECT_OK(cudaStreamWaitEvent(side, fork));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_OK(cudaStreamIsCapturing(side, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    EXPECT_OK(axpy(1, 1.0f, x.data(), y.data(), side, 1));  // y += x
    EXPECT_OK(cudaEventRecord(join, side));
    EXPECT_OK(cudaStreamWaitEvent(stream, join));
    EXPECT_OK(axpy(1, 1.0f, y.data(), x.data(), stream, 1));  // x += y
    EXPECT_OK(cudaStreamEndCapture(stream, &graph.graph));
    EXPECT_OK(cudaGraphInstantiate(&graph.exec, graph.graph));
    std::size_t nodes = 0;
    EXPECT_OK(cudaGraphGetNodes(graph.graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 3u);
    EXPECT_EQ(x.read()[0], 0.0f) << "capturing runs nothing";
    for (int i = 0; i < 3; ++i) EXPECT_OK(cudaGraphLaunch(graph.exec, stream));
    EXPECT_OK(cudaStreamSynchronize(stream));
    float wanted_x = 0, wanted_y = 0;
    for (int i = 0; i < 3; ++i) {
      wanted_x += 1;
      wanted_y += wanted_x;
      wanted_x += wanted_y;
    }
    EXPECT_EQ(x.read()[0], wanted_x);
    EXPECT_EQ(y.read()[0], wanted_y);
  });
}

TEST(Graph, CopiesReadTheirSourceWhenTheGraphIsLaunched) {
  const TestStream stream;
  const OnDevice<float> x(1);
  const Pinned<float> host(1);
  GraphHandles graph;
  host[0] = 1;
  EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_OK(cudaMemcpyAsync(x.data(), host.data(), 4, cudaMemcpyHostToDevice, stream));
  EXPECT_OK(cudaStreamEndCapture(stream, &graph.graph));
  EXPECT_OK(cudaGraphInstantiate(&graph.exec, graph.graph));
  host[0] = 2;
  EXPECT_OK(cudaGraphLaunch(graph.exec, stream));
  EXPECT_OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(x.read()[0], 2.0f);
  EXPECT_OK(cudaGraphLaunch(graph.exec, stream));
  host[0] = 3;
  EXPECT_TEXT(diagnosis(), "copy of 4 bytes from host to device");
}

TEST(Graph, WaitsAndAllocationsDuringCaptureAreErrors) {
  struct Forbidden {
    const char* name;
    std::function<cudaError_t(cudaStream_t)> call;
  };
  const TestEvent event;
  void *memory = nullptr, *on_device = nullptr, *pinned = nullptr;
  EXPECT_OK(cudaMalloc(&on_device, 4));
  EXPECT_OK(cudaMallocHost(&pinned, 4));
  const Forbidden calls[] = {
      {"cudaStreamSynchronize", [](cudaStream_t stream) { return cudaStreamSynchronize(stream); }},
      {"cudaStreamQuery", [](cudaStream_t stream) { return cudaStreamQuery(stream); }},
      {"cudaDeviceSynchronize", [](cudaStream_t) { return cudaDeviceSynchronize(); }},
      {"cudaEventQuery", [&](cudaStream_t) { return cudaEventQuery(event); }},
      {"cudaEventSynchronize", [&](cudaStream_t) { return cudaEventSynchronize(event); }},
      {"cudaMalloc", [&](cudaStream_t) { return cudaMalloc(&memory, 4); }},
      {"cudaMallocHost", [&](cudaStream_t) { return cudaMallocHost(&memory, 4); }},
      {"cudaHostAlloc", [&](cudaStream_t) { return cudaHostAlloc(&memory, 4, cudaHostAllocPortable); }},
      {"cudaFree", [&](cudaStream_t) { return cudaFree(on_device); }},
      {"cudaFreeHost", [&](cudaStream_t) { return cudaFreeHost(pinned); }},
      {"cudaMemcpy", [&](cudaStream_t) { return cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault); }},
  };
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    for (const Forbidden& forbidden : calls) {
      SCOPED_TRACE(testing::Message() << forbidden.name << ", mode " << mode);
      const TestStream stream;
      EXPECT_OK(cudaStreamBeginCapture(stream, mode));
      EXPECT_EQ(forbidden.call(stream), cudaErrorStreamCaptureUnsupported);
      EXPECT_TEXT(text_of(cudaErrorStreamCaptureUnsupported), forbidden.name);
      cudaGraph_t graph = nullptr;
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
      EXPECT_EQ(graph, nullptr);
      cudaGetLastError();
      EXPECT_OK(cudaStreamSynchronize(stream));
    }
  }
  EXPECT_OK(cudaFree(on_device));
  EXPECT_OK(cudaFreeHost(pinned));
}

TEST(Graph, AStreamThatForkedMustBeJoined) {
  const TestStream stream, side;
  const TestEvent fork;
  const OnDevice<float> x(1);
  cudaGraph_t graph = nullptr;
  EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_OK(cudaEventRecord(fork, stream));
  EXPECT_OK(cudaStreamWaitEvent(side, fork));
  EXPECT_OK(fill(1, 1.0f, x.data(), side));
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_TEXT(text_of(cudaErrorStreamCaptureUnjoined), "stream");
}

// CUDA lets it run where the captured stream does not block; it is a bug of the one who replays the graph.
TEST(Graph, TheDefaultStreamMustNotWorkBesideACapture) {
  const OnDevice<float> x(1);
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    const TestStream stream;
    cudaGraph_t graph = nullptr;
    EXPECT_OK(cudaStreamBeginCapture(stream, mode));
    EXPECT_EQ(fill(1, 1.0f, x.data(), nullptr), cudaErrorStreamCaptureImplicit);
    EXPECT_TEXT(text_of(cudaErrorStreamCaptureImplicit), "default stream");
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
  }
  EXPECT_OK(fill(1, 1.0f, x.data(), nullptr));
}

TEST(Graph, ALaunchNamesMemoryThatWasFreedAfterTheCapture) {
  const OnDevice<float> y(1);
  const std::pair<const char*, std::function<cudaError_t(float*, cudaStream_t)>> works[] = {
      {"parameter 2 of kernel fill", [](float* x, cudaStream_t stream) { return fill(1, 1.0f, x, stream); }},
      {"memset", [](float* x, cudaStream_t stream) { return cudaMemsetAsync(x, 0, 4, stream); }},
      {"copy",
       [&](float* x, cudaStream_t stream) {
         return cudaMemcpyAsync(y.data(), x, 4, cudaMemcpyDeviceToDevice, stream);
       }},
  };
  for (const auto& [what, work] : works) {
    const TestStream stream;
    GraphHandles graph;
    float *x = nullptr, *again = nullptr;
    EXPECT_OK(cudaMalloc(&x, 4));
    EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_OK(work(x, stream));
    EXPECT_OK(cudaStreamEndCapture(stream, &graph.graph));
    EXPECT_OK(cudaGraphInstantiate(&graph.exec, graph.graph));
    EXPECT_OK(cudaGraphLaunch(graph.exec, stream));
    EXPECT_OK(cudaStreamSynchronize(stream));
    EXPECT_OK(cudaFree(x));
    EXPECT_OK(cudaMalloc(&again, 4));  // maybe at the same address
    EXPECT_EQ(cudaGraphLaunch(graph.exec, stream), cudaErrorIllegalAddress);
    EXPECT_TEXT(text_of(cudaErrorIllegalAddress), what);
    EXPECT_OK(cudaFree(again));
    cudaGetLastError();
  }
}

TEST(Graph, ACaptureMustNotWaitForWorkOutside) {
  const TestStream stream, other;
  const TestEvent outside, inside;
  cudaGraph_t graph = nullptr;
  EXPECT_OK(cudaEventRecord(outside, other));
  EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(cudaStreamWaitEvent(stream, outside), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_OK(cudaEventRecord(inside, stream));
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureImplicit);
  EXPECT_OK(cudaStreamEndCapture(stream, &graph));
  EXPECT_OK(cudaGraphDestroy(graph));
  EXPECT_EQ(cudaEventQuery(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other, inside), cudaErrorCapturedEvent);
  cudaGetLastError();
}

}  // namespace
}  // namespace simt::test
