#include "tensor/stream.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tensor/base/error.h"
#include "tensor/pinned.h"
#include "tests/support/errors.h"

namespace athanor::stream_test {

TEST(CpuStream, WorkIsDoneWhenTheCallReturns) {
  const Stream stream = Stream::create(kCpu);
  EXPECT_EQ(stream.device(), kCpu);
  EXPECT_EQ(stream.native(), nullptr);
  EXPECT_TRUE(stream == Stream::default_of(kCpu) && stream == current_stream(kCpu));
  Event event(kCpu);
  EXPECT_TRUE(event.done());
  event.record(stream);
  stream.wait(event);
  EXPECT_TRUE(event.done());
  EXPECT_EQ(event.native(), nullptr);
  const StreamGuard guard(stream);
  EXPECT_TRUE(current_stream(kCpu) == stream);
}

TEST(CpuStream, EventsMeasureTimeIfRequested) {
  Event begin(kCpu, Event::Timing::on), end(kCpu, Event::Timing::on), untimed(kCpu);
  EXPECT_THROW(begin.ms_until(end), ArgumentError);
  begin.record(current_stream(kCpu));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  end.record(current_stream(kCpu));
  EXPECT_GE(begin.ms_until(end), 20);
  EXPECT_LT(begin.ms_until(end), 1'000'000);
  EXPECT_LE(end.ms_until(begin), -20);
  untimed.record(current_stream(kCpu));
  EXPECT_THROW(begin.ms_until(untimed), ArgumentError);
}

TEST(CpuStream, WaitsAreCountedAndForbiddenAsOnADevice) {
  const std::int64_t before = host_syncs();
  Event event(kCpu);
  event.synchronize();
  current_stream(kCpu).synchronize();
  synchronize(kCpu);
  EXPECT_EQ(host_syncs() - before, 3);
  const ForbidSync forbid;
  EXPECT_ERROR(Error, event.synchronize(), "event", "stream_test.cpp");
  EXPECT_ERROR(Error, current_stream(kCpu).synchronize(), "stream_test.cpp");
  EXPECT_THROW(synchronize(kCpu), Error);
}

TEST(Pinned, HoldsValuesWithoutADevice) {
  const Tensor pinned = empty_pinned({2, 3}, DType::i32);
  EXPECT_EQ(pinned.device(), kCpu);
  EXPECT_TRUE(pinned.is_contiguous());
  pinned.copy_bytes_from(Tensor::from(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}, {2, 3}));
  EXPECT_EQ(pinned.to_vector(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(is_pinned(pinned), cuda_device_count() > 0);
  EXPECT_FALSE(is_pinned(Tensor::zeros({2})));
  EXPECT_EQ(empty_pinned({0, 3}, DType::f32).numel(), 0);
  EXPECT_THROW(empty_pinned({2, -1}, DType::f32), ArgumentError);
  EXPECT_NO_THROW(record_stream(pinned, current_stream(kCpu)));
}

// Without a device -----------------------------------------------------------------------------------------

struct NoDevice : testing::Test {
  void SetUp() override {
    if (cuda_device_count() > 0) GTEST_SKIP() << "there is a device";
  }
  const Device cuda{DeviceType::cuda, 0};
};

TEST_F(NoDevice, SaysWhyAndWhatToDo) {
  EXPECT_TRUE(test::names(why_no_cuda(), {"--device cpu"}));
}

TEST_F(NoDevice, EveryRequestForOneNamesItAndSaysThat) {
  const std::string device = cuda.str();
  const Tensor x = Tensor::zeros({2});
  EXPECT_ERROR(BackendError, device_info(cuda), device, why_no_cuda());
  EXPECT_ERROR(BackendError, Stream::create(cuda), device, why_no_cuda());
  EXPECT_ERROR(BackendError, Stream::default_of(cuda), device, why_no_cuda());
  EXPECT_ERROR(BackendError, current_stream(cuda), device, why_no_cuda());
  EXPECT_ERROR(BackendError, Event(cuda), device, why_no_cuda());
  EXPECT_ERROR(BackendError, synchronize(cuda), device, why_no_cuda());
  EXPECT_ERROR(BackendError, allocator_of(cuda), device, why_no_cuda());
  EXPECT_ERROR(BackendError, Tensor::zeros({1}, {DType::f32, cuda}), device, why_no_cuda());
  EXPECT_ERROR(BackendError, x.to(cuda), device, why_no_cuda());
  EXPECT_EQ(x.to_vector(), (std::vector<double>{0, 0}));
}

TEST_F(NoDevice, PinnedMemoryIsOrdinary) {
  empty_pinned({1000}, DType::f32);
  EXPECT_EQ(pinned_stats().current + pinned_stats().cached + pinned_stats().growths, 0);
}

}  // namespace athanor::stream_test
