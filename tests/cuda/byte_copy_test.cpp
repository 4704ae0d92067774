#include <cstring>

#include "tensor/base/error.h"
#include "tensor/cuda/device.h"
#include "tensor/pinned.h"
#include "tests/cuda/busy.h"
#include "tests/cuda/device.h"

namespace athanor::byte_copy_test {

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    values[i] = static_cast<std::uint8_t>((i * 2654435761u + seed) >> 7);
  return values;
}

bool holds(const Tensor& host, const std::vector<std::uint8_t>& values) {
  return host.bytes() == values.size() && std::memcmp(host.raw_data(), values.data(), values.size()) == 0;
}

struct Copies : test::DeviceTest {
  const CopyCounts before = copies();
  const std::int64_t waits = host_syncs();
};

TEST_F(Copies, BytesComeBackAsTheyWere) {
  for (const std::size_t bytes : {1u, 3u, 4096u, 4097u, 4'194'304u, 9'000'001u}) {
    const auto values = pattern(bytes, 1);
    const Tensor x = Tensor::from(values, {static_cast<std::int64_t>(bytes)}, test::device());
    EXPECT_TRUE(holds(x.to(kCpu), values)) << bytes;
  }
  EXPECT_EQ(Tensor::from(std::vector<float>{}, {0}, test::device()).to(kCpu).numel(), 0);
}

TEST_F(Copies, ToTheDeviceDoNotWaitAndTheSourceIsFreeAtOnce) {
  const Tensor x = Tensor::empty({3, 100'000}, {DType::u8, test::device()});
  const test::Busy busy(current_stream(test::device()));
  const ForbidSync forbid;
  std::vector<std::uint8_t> values;
  for (std::int64_t row = 0; row < 3; ++row) {
    values = pattern(100'000, static_cast<std::uint32_t>(row));
    const Tensor source = Tensor::from(values, {100'000});
    x.view_as_strided({100'000}, {1}, row * 100'000).copy_bytes_from(source);
    std::memset(source.raw_data(), 0, source.bytes());
  }
  EXPECT_EQ(copies().to_device - before.to_device, 3);
  EXPECT_EQ(copies().to_device_bytes - before.to_device_bytes, 300'000);
  const AllowSync own;
  const Tensor back = x.to(kCpu);
  for (std::int64_t row = 0; row < 3; ++row)
    EXPECT_TRUE(holds(back.view_as_strided({100'000}, {1}, row * 100'000),
                      pattern(100'000, static_cast<std::uint32_t>(row))));
}

TEST_F(Copies, OfMoreThanTheStagingMemoryAreCountedWaits) {
#if defined(SIMT_RACE)
  GTEST_SKIP() << "the race detector would need 14 GB to remember who touched 64 MiB last";
#endif
  const auto values = pattern((64 << 20) + 5, 2);
  const Tensor x = Tensor::from(values, {static_cast<std::int64_t>(values.size())}, test::device());
  EXPECT_EQ(host_syncs() - waits, 1);
  EXPECT_LE(pinned_stats().cached, 80 << 20);
  EXPECT_TRUE(holds(x.to(kCpu), values));
}

TEST_F(Copies, ToTheHostAreACountedWait) {
  const auto values = pattern(5000, 3);
  const Tensor x = Tensor::from(values, {5000}, test::device());
  EXPECT_EQ(host_syncs(), waits);
  EXPECT_TRUE(holds(x.to(kCpu), values));
  EXPECT_EQ(host_syncs() - waits, 1);
  EXPECT_EQ(copies().to_host - before.to_host, 1);
  EXPECT_EQ(copies().to_host_bytes - before.to_host_bytes, 5000);
  const ForbidSync forbid;
  EXPECT_THROW(x.to(kCpu), Error);
}

TEST_F(Copies, ToPinnedMemoryAreQueued) {
  const auto values = pattern(50'000, 4);
  const Tensor x = Tensor::from(values, {50'000}, test::device()), pinned = empty_pinned({50'000}, DType::u8);
  const test::Busy busy(current_stream(test::device()));
  Event copied(test::device());
  {
    const ForbidSync forbid;
    pinned.copy_bytes_from(x);
    copied.record(current_stream(test::device()));
    EXPECT_FALSE(copied.done());
  }
  EXPECT_EQ(host_syncs(), waits);
  EXPECT_EQ(copies().to_host - before.to_host, 1);
  copied.synchronize();
  EXPECT_TRUE(holds(pinned, values));
}

TEST_F(Copies, FromPinnedMemoryAreNotStaged) {
  const auto values = pattern(50'000, 5);
  const Tensor pinned = empty_pinned({50'000}, DType::u8);
  std::memcpy(pinned.raw_data(), values.data(), values.size());
  const PinnedStats held = pinned_stats();
  EXPECT_TRUE(holds(pinned.to(test::device()).to(kCpu), values));
  EXPECT_EQ(pinned_stats().cached, held.cached);
  EXPECT_EQ(pinned_stats().growths, held.growths);
}

TEST_F(Copies, OnADeviceAreQueued) {
  const auto values = pattern(50'000, 6);
  const Tensor x = Tensor::from(values, {50'000}, test::device()), y = empty_like(x);
  const ForbidSync forbid;
  y.copy_bytes_from(x);
  EXPECT_EQ(copies().on_device - before.on_device, 1);
  EXPECT_EQ(copies().on_device_bytes - before.on_device_bytes, 50'000);
  const AllowSync own;
  EXPECT_TRUE(holds(y.to(kCpu), values));
}

TEST_F(Copies, MakingTensorsOnADeviceCopiesNothing) {
  const Tensor x = Tensor::empty({100}, {DType::f32, test::device()}),
               y = Tensor::zeros({100}, {DType::f32, test::device()}), z = empty_like(x);
  const CopyCounts now = copies();
  EXPECT_EQ(now.to_device, before.to_device);
  EXPECT_EQ(now.to_host, before.to_host);
  EXPECT_EQ(now.on_device, before.on_device);
  EXPECT_EQ(y.to_vector(), std::vector<double>(100, 0));
}

TEST_F(Copies, AnEmptyTensorIsNoCopy) {
  const Tensor x = Tensor::empty({0, 3}, {DType::f32, test::device()});
  EXPECT_EQ(x.to(kCpu).shape(), (Shape{0, 3}));
  EXPECT_EQ(Tensor::zeros({0}).to(test::device()).numel(), 0);
  EXPECT_EQ(copies().to_host + copies().to_device, before.to_host + before.to_device);
}

// Two devices ----------------------------------------------------------------------------------------------

// In a process of its own, for what one device was used for stays.
TEST(OneOfTwoDevices, IsUsedWithoutAContextOnTheOther) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "there are not two devices";
  const Device second{DeviceType::cuda, 1};
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3}, second);
  EXPECT_EQ(x.to(kCpu).to_vector(), (std::vector<double>{1, 2, 3}));
  synchronize(second);
  EXPECT_TRUE(cuda::has_context(1));
  EXPECT_FALSE(cuda::has_context(0)) << "and so some hundred MB of its memory are gone";
  const Tensor y = Tensor::from(std::vector<float>{4}, {1}, test::device());
  EXPECT_EQ(y.to_vector(), std::vector<double>{4});
  EXPECT_TRUE(cuda::has_context(0));
}

struct TwoDevices : Copies {
  void SetUp() override {
    DeviceTest::SetUp();
    if (cuda_device_count() == 1) GTEST_SKIP() << "there is one device";
  }
  void TearDown() override {
    if (!IsSkipped()) synchronize(second);
    DeviceTest::TearDown();
  }
  const Device second{DeviceType::cuda, 1};
};

TEST_F(TwoDevices, ACopyComesAfterWhatWroteAndBeforeWhatOverwrites) {
  const auto values = pattern(50'000, 7);
  const Tensor x = Tensor::from(values, {50'000}, test::device());
  const test::Busy here(current_stream(test::device())), there(current_stream(second));
  const Tensor y = x.to(second);
  detail::set_device_bytes(x.raw_data(), x.device(), 0, x.bytes());
  EXPECT_EQ(host_syncs(), waits);
  EXPECT_EQ(copies().on_device - before.on_device, 1);
  EXPECT_TRUE(holds(y.to(kCpu), values));
  EXPECT_EQ(x.to(kCpu).to_vector(), std::vector<double>(50'000, 0));
}

TEST_F(TwoDevices, HaveTheirOwnStreamsMemoryAndEvents) {
  const Tensor x = Tensor::zeros({3}, {DType::f32, test::device()}),
               y = Tensor::zeros({3}, {DType::f32, second});
  EXPECT_EQ(y.device().index, 1);
  EXPECT_NE(current_stream(test::device()).native(), current_stream(second).native());
  EXPECT_EQ(y.to_vector(), x.to_vector());
  Event event(second);
  EXPECT_THROW(event.record(current_stream(test::device())), ArgumentError);
  EXPECT_THROW(record_stream(x, current_stream(second)), ArgumentError);
  event.record(current_stream(second));
  current_stream(test::device()).wait(event);
}

}  // namespace athanor::byte_copy_test
