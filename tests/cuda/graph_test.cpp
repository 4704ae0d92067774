#include "tensor/graph.h"

#include <optional>

#include "tensor/base/error.h"
#include "tensor/cuda/allocator.h"
#include "tensor/pinned.h"
#include "tests/cuda/busy.h"
#include "tests/cuda/device.h"
#include "tests/support/errors.h"

namespace athanor::graph_test {

struct GraphPools : test::DeviceTest {
  static Tensor floats(std::int64_t count) { return Tensor::empty({count}, {DType::f32, test::device()}); }
};

TEST_F(GraphPools, DoNotShareTheirMemory) {
  GraphMemory pool(test::device());
  std::byte* inside = nullptr;
  {
    const GraphMemory::Use use(pool);
    inside = floats(1'000'000).raw_data();
    EXPECT_EQ(floats(1'000'000).raw_data(), inside);
  }
  EXPECT_GE(pool.held_bytes(), 4'000'000);
  const Tensor outside = floats(1'000'000);
  EXPECT_NE(outside.raw_data(), inside);
  allocator_of(test::device()).trim();  // not the pool's
  const std::int64_t held = pool.held_bytes();
  const GraphMemory::Use use(pool);
  EXPECT_EQ(floats(1'000'000).raw_data(), inside);
  EXPECT_EQ(pool.held_bytes(), held);
}

TEST_F(GraphPools, NestAndEndWithTheirScope) {
  GraphMemory outer(test::device()), inner(test::device());
  {
    const GraphMemory::Use first(outer);
    { const GraphMemory::Use second(inner); }
    floats(100);
  }
  floats(100);
  EXPECT_GT(outer.held_bytes(), 0);
  EXPECT_EQ(inner.held_bytes(), 0);
}

TEST_F(GraphPools, ServeNoOtherAllocator) {
  cuda::DeviceAllocator other(test::device(), cuda::DeviceAllocator::Blocks::cached);
  GraphMemory pool(test::device());
  const GraphMemory::Use use(pool);
  other.free(other.allocate(1000));
  EXPECT_EQ(pool.held_bytes(), 0);
  EXPECT_EQ(other.stats().growths, 1);
}

// A graph writes to blocks that were free when it was captured.
TEST_F(GraphPools, DetectWhetherTheBlocksInUseChanged) {
  GraphMemory memory(test::device());
  const GraphMemory::Use use(memory);
  const std::uint64_t none = memory.in_use();
  Tensor a = floats(1000);
  const std::uint64_t one = memory.in_use();
  EXPECT_NE(one, none);
  Tensor b = floats(1000);
  EXPECT_NE(memory.in_use(), one);
  a = Tensor();
  EXPECT_NE(memory.in_use(), one) << "as many blocks, but another";
  a = floats(1000);
  b = Tensor();
  EXPECT_EQ(memory.in_use(), one);
  a = Tensor();
  EXPECT_EQ(memory.in_use(), none);
}

TEST_F(GraphPools, ReleaseTheirMemoryToAll) {
  std::optional<GraphMemory> pool(std::in_place, test::device());
  std::optional<Tensor> survivor;
  {
    const GraphMemory::Use use(*pool);
    survivor = Tensor::from(std::vector<float>{1, 2, 3}, {3}, test::device());
    floats(2'000'000);
  }
  pool.reset();
  EXPECT_EQ(survivor->to_vector(), (std::vector<double>{1, 2, 3}));
  const std::int64_t before = allocator_of(test::device()).stats().growths;
  floats(2'000'000);
  EXPECT_EQ(allocator_of(test::device()).stats().growths, before);
  survivor.reset();
  allocator_of(test::device()).trim();
}

TEST_F(GraphPools, ParkWhatAnotherStreamUsedUntilTheNextUse) {
  GraphMemory pool(test::device());
  const Stream other = Stream::create(test::device());
  std::byte* address = nullptr;
  {
    const GraphMemory::Use use(pool);
    const Tensor x = floats(1'000'000);
    record_stream(x, other);
    address = x.raw_data();
  }
  {
    const GraphMemory::Use use(pool);
    EXPECT_EQ(floats(1'000'000).raw_data(), address);
    record_stream(floats(1'000'000), other);
    const Tensor large = floats(5'000'000);  // would fit where the parked block lies; so would no capture do
    EXPECT_FALSE(large.raw_data() <= address && address < large.raw_data() + large.bytes());
  }
  const std::int64_t held = pool.held_bytes();
  const GraphMemory::Use use(pool);
  const Tensor small = floats(1'000'000), large = floats(5'000'000);  // all of it is free again
  EXPECT_EQ(pool.held_bytes(), held);
}

// The capture of a step, as a trainer does it: warm up until nothing grows, then capture.
struct Capture {
  explicit Capture(const Stream& stream) : stream_(static_cast<cudaStream_t>(stream.native())) {
    ATH_TRY(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  /// Null where the capture was spoiled.
  cudaGraph_t end() {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_, &graph) != cudaSuccess) cudaGetLastError();
    stream_ = nullptr;
    return graph;
  }
  ~Capture() {
    if (stream_) cudaGraphDestroy(end());
  }

 private:
  cudaStream_t stream_;
};

TEST_F(GraphPools, ACaptureFindsTheMemoryOfTheWarmUp) {
  const Stream stream = Stream::create(test::device());
  const StreamGuard guard(stream);
  GraphMemory pool(test::device());
  const auto step = [&] {
    const Tensor a = Tensor::zeros({300'000}, {DType::f32, test::device()});
    Tensor b = floats(300'000);
    b.copy_bytes_from(a);
    b = Tensor();
    record_stream(a, Stream::default_of(test::device()));
    return floats(100);
  };
  Tensor kept;
  std::int64_t held = -1;
  while (held != pool.held_bytes()) {
    held = pool.held_bytes();
    const GraphMemory::Use use(pool);
    kept = step();
  }
  const std::int64_t growths = allocator_of(test::device()).stats().growths;
  cudaGraph_t graph = nullptr;
  {
    const GraphMemory::Use use(pool);
    Capture capture(stream);
    kept = step();
    graph = capture.end();
  }
  ASSERT_NE(graph, nullptr) << "the capture was spoiled";
  EXPECT_EQ(allocator_of(test::device()).stats().growths, growths);
  std::size_t nodes = 0;
  ATH_TRY(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);  // the set and the copy
  ATH_TRY(cudaGraphDestroy(graph));
}

TEST_F(GraphPools, AnEmptyPoolIsAClearErrorInACapture) {
  const Stream stream = Stream::create(test::device());
  const StreamGuard guard(stream);
  GraphMemory pool(test::device());
  const GraphMemory::Use use(pool);
  Capture capture(stream);
  EXPECT_ERROR(Error, floats(1000), "allocate", "4000 bytes", test::device().str(), "GraphMemory");
  EXPECT_THROW(allocator_of(test::device()).trim(), Error);
  cudaGraph_t graph = capture.end();
  EXPECT_NE(graph, nullptr) << "the errors must not spoil the capture";
  cudaGraphDestroy(graph);
}

}  // namespace athanor::graph_test
