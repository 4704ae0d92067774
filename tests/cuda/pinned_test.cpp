#include "tensor/pinned.h"

#include <utility>

#include "tensor/base/error.h"
#include "tensor/cuda/runtime.h"
#include "tests/cuda/busy.h"
#include "tests/cuda/device.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"
#if defined(ATHANOR_SIMT)
#include "simt/emulator/options.h"
#endif

namespace athanor::pinned_test {

using Pinned = test::DeviceTest;

TEST_F(Pinned, MemoryIsTheHostsAndKnown) {
  const Tensor x = empty_pinned({3, 5}, DType::f32);
  EXPECT_EQ(x.device(), kCpu);
  EXPECT_TRUE(is_pinned(x));
  EXPECT_TRUE(is_pinned(x.view_as_strided({2}, {1}, 3)));
  EXPECT_FALSE(is_pinned(Tensor::zeros({3})));
  EXPECT_FALSE(is_pinned(Tensor::zeros({3}, {DType::f32, test::device()})));
  EXPECT_EQ(empty_pinned({0}, DType::f32).numel(), 0);
  EXPECT_THROW(empty_pinned({-1}, DType::f32), ArgumentError);
}

TEST_F(Pinned, BlocksAreReusedAndSizesAreExact) {
  const PinnedStats before = pinned_stats();
  const std::byte* first = nullptr;
  {
    const Tensor x = empty_pinned({12'345}, DType::u8);
    first = x.raw_data();
    EXPECT_EQ(pinned_stats().current - before.current, 12'345);
  }
  EXPECT_EQ(pinned_stats().current, before.current);
  EXPECT_EQ(pinned_stats().cached - before.cached, 12'345);
  const Tensor other = empty_pinned({12'346}, DType::u8), again = empty_pinned({12'345}, DType::u8);
  EXPECT_EQ(again.raw_data(), first);
  EXPECT_NE(other.raw_data(), first);
  EXPECT_EQ(pinned_stats().growths - before.growths, 2);
}

TEST_F(Pinned, ABlockReadByAQueuedCopyIsNotReused) {
  const Tensor y = Tensor::zeros({1000}, {DType::f32, test::device()});
  synchronize(test::device());
  const Stream stream = Stream::create(test::device());
  const StreamGuard guard(stream);
  const test::Busy busy(stream);
  Tensor x = empty_pinned({1000}, DType::f32);
  std::fill_n(x.data<float>(), 1000, 1.0f);
  const std::byte* address = x.raw_data();
  y.copy_bytes_from(x);
  x = empty_pinned({1000}, DType::f32);  // the old one is given back first or later: both are busy
  Tensor z = empty_pinned({1000}, DType::f32);
  for (Tensor* slot : {&x, &z}) {
    EXPECT_NE(slot->raw_data(), address);
    std::fill_n(slot->data<float>(), 1000, 2.0f);
  }
  EXPECT_EQ(y.to_vector(), std::vector<double>(1000, 1));
  EXPECT_EQ(empty_pinned({1000}, DType::f32).raw_data(), address);
}

TEST_F(Pinned, RecordStreamKeepsABlockFromReuse) {
  const Stream stream = Stream::create(test::device());
  const std::byte* address = nullptr;
  {
    const test::Busy busy(stream);
    {
      const Tensor x = empty_pinned({777}, DType::u8);
      address = x.raw_data();
      record_stream(x, stream);
    }
    EXPECT_NE(empty_pinned({777}, DType::u8).raw_data(), address);
  }
  EXPECT_EQ(empty_pinned({777}, DType::u8).raw_data(), address);
}

TEST_F(Pinned, SteadyStateAllocatesNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  const auto step = [] { empty_pinned({64, 1000}, DType::u8).data<std::uint8_t>()[0] = 1; };
  step();
  const std::int64_t growths = pinned_stats().growths, news = test::operator_news();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(pinned_stats().growths, growths);
  EXPECT_EQ(test::operator_news(), news);
}

TEST_F(Pinned, ACaptureNeitherAllocatesNorWaits) {
  const Stream stream = Stream::create(test::device());
  const StreamGuard guard(stream);
  const std::vector<float> values(70'001, 1.0f);
  const Tensor from = Tensor::from(values, {70'001});
  const Tensor to = Tensor::empty({70'001}, {DType::f32, test::device()});
  Tensor back = Tensor::empty({70'001}, {DType::f32});
  Event event(test::device());
  event.record(stream);
  const auto native = static_cast<cudaStream_t>(stream.native());
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_ERROR(Error, empty_pinned({123'457}, DType::u8), "allocate", "capture", "empty_pinned");
  EXPECT_ERROR(Error, to.copy_bytes_from(from), "allocate", "capture", "empty_pinned");
  EXPECT_ERROR(Error, back.copy_bytes_from(to), "copy", "capture");
  EXPECT_ERROR(Error, event.synchronize(), "event", "capture");
  EXPECT_ERROR(Error, event.done(), "event", "capture");
  EXPECT_ERROR(Error, stream.synchronize(), "stream", "capture");
  EXPECT_ERROR(Error, synchronize(test::device()), "synchronize", "capture");
  EXPECT_ERROR(Error, Tensor::empty({1}, {DType::f32, test::device()}), "allocate", "capture", "GraphMemory");
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess) << "the errors must not spoil the capture";
  cudaGraphDestroy(graph);
}

#if defined(ATHANOR_SIMT)
TEST_F(Pinned, TheCacheIsFreedIfTheSystemHasNoMore) {
  constexpr std::size_t kRoom = 1 << 20;
  const Stream stream = Stream::create(test::device());
  const Tensor y = Tensor::empty({kRoom}, {DType::u8, test::device()});
  { const Tensor settle = empty_pinned({31}, DType::u8); }
  const PinnedStats before = pinned_stats();
  const std::size_t saved = std::exchange(simt::options().pinned_bytes,
                                          static_cast<std::size_t>(before.current + before.cached) + kRoom);
  {
    const StreamGuard guard(stream);
    const Tensor x = empty_pinned({kRoom}, DType::u8);
    y.copy_bytes_from(x);  // still reads when x is given back
  }
  EXPECT_EQ(empty_pinned({kRoom - 1}, DType::u8).numel(), static_cast<std::int64_t>(kRoom - 1));
  const Tensor held = empty_pinned({kRoom - 1}, DType::u8);
  EXPECT_EQ(pinned_stats().current - before.current, static_cast<std::int64_t>(kRoom - 1));
  EXPECT_THROW(empty_pinned({2 * kRoom}, DType::u8), OutOfMemoryError);
  simt::options().pinned_bytes = saved;
  synchronize(test::device());
}
#endif

}  // namespace athanor::pinned_test
