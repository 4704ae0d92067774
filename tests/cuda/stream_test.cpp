#include "tensor/stream.h"

#include <set>
#include <thread>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/cuda/device.h"
#include "tests/cuda/busy.h"
#include "tests/cuda/device.h"
#include "tests/support/errors.h"

namespace athanor::stream_test {

// Devices --------------------------------------------------------------------------------------------------

TEST(WhyNoCuda, NamesTheCauseAndTheRemedyInOneLine) {
  const auto expect = [](cudaError_t status, int driver, std::initializer_list<std::string_view> values) {
    const std::string text = cuda::explain_no_device(status, driver, 13000);
    EXPECT_TRUE(test::names(text, values));
    EXPECT_TRUE(test::names(text, {"--device cpu"}));
  };
  expect(cudaErrorInsufficientDriver, 0, {"NVIDIA driver", "CUDA 13.0"});
  expect(cudaErrorInsufficientDriver, 12040, {"NVIDIA driver", "CUDA 12.4", "13.0"});
  if (!cuda_is_emulated()) expect(cudaErrorNoDevice, 13000, {"GPU", "CUDA_VISIBLE_DEVICES"});
  expect(cudaErrorUnknown, 13000, {"cudaErrorUnknown"});
}

TEST(WhyNoCuda, ABuildHasCodeForTheArchitecturesItWasConfiguredFor) {
  struct Case {
    const char* architectures;
    std::vector<int> yes, no;  // 86 for 8.6
  };
  const Case cases[] = {
      {"90a-real", {90}, {80, 86, 89, 100, 120}},
      {"80-real", {80, 86, 89}, {75, 90}},
      {"86-real", {86, 89}, {80, 90}},
      {"80", {80, 89, 90, 120}, {75}},
      {"80-virtual", {80, 89, 90, 120}, {75}},
      {"90a", {90}, {89, 100}},
      {"100f-real", {100, 103}, {90, 120}},
      {"75-real,80,86-real,89-real,90a-real,100-real,120-real", {75, 80, 86, 90, 103, 120, 130}, {70, 72}},
      {"75-real,90a-real", {75, 90}, {70, 80, 100}},
      {"native", {75, 90}, {}},
      {"all-major", {75, 90}, {}},
      {"", {}, {90}},
  };
  for (const Case& each : cases) {
    for (const int sm : each.yes)
      EXPECT_TRUE(cuda::has_code_for(each.architectures, sm / 10, sm % 10))
          << each.architectures << " on " << sm;
    for (const int sm : each.no)
      EXPECT_FALSE(cuda::has_code_for(each.architectures, sm / 10, sm % 10))
          << each.architectures << " on " << sm;
  }
  DeviceInfo info;
  info.name = "NVIDIA A10";
  info.major = 8;
  info.minor = 6;
  EXPECT_TRUE(test::names(
      cuda::explain_no_code(info, "90a-real"),
      {"sm_86", "NVIDIA A10", "90a-real", "-DATHANOR_CUDA_ARCHITECTURES=86-real", "--device cpu"}));
}

TEST(WhyNoCuda, IsEmptyWhereThereIsADevice) {
  EXPECT_EQ(why_no_cuda().empty(), cuda_device_count() > 0);
}

using DeviceInfos = test::DeviceTest;

TEST_F(DeviceInfos, SayWhatTheDeviceIs) {
  const DeviceInfo& info = device_info(test::device());
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.sm(), 70);
  EXPECT_GE(info.multiprocessors, 1);
  EXPECT_GE(info.memory_bytes, std::size_t{1} << 28);
  EXPECT_GE(info.shared_bytes_per_block, std::size_t{48} * 1024);
  EXPECT_THROW(device_info({DeviceType::cuda, static_cast<std::int16_t>(cuda_device_count())}), BackendError);
  EXPECT_THROW(device_info(kCpu), BackendError);
}

// Streams --------------------------------------------------------------------------------------------------

using Streams = test::DeviceTest;

TEST_F(Streams, ADeviceHasOneDefaultForAllThreads) {
  const Stream stream = Stream::default_of(test::device());
  EXPECT_NE(stream.native(), nullptr);
  EXPECT_TRUE(current_stream(test::device()) == stream);
  std::thread([&] { EXPECT_TRUE(current_stream(test::device()) == stream); }).join();
}

TEST_F(Streams, KeepTheirPriorityWhenTheyAreUsedAgain) {
  const auto priority = [](const Stream& stream) {
    int value = 0;
    EXPECT_EQ(cudaStreamGetPriority(static_cast<cudaStream_t>(stream.native()), &value), cudaSuccess);
    return value;
  };
  const int normal = priority(Stream::default_of(test::device()));
  for (int i = 0; i < 3; ++i) {  // a handle that is gone gives its queue to the next of its priority
    EXPECT_LT(priority(Stream::create(test::device(), StreamPriority::high)), normal);
    EXPECT_EQ(priority(Stream::create(test::device())), normal);
  }
  const Stream a = Stream::create(test::device()), b = Stream::create(test::device(), StreamPriority::high);
  EXPECT_NE(a.id(), b.id());
  EXPECT_EQ(Stream::create(kCpu, StreamPriority::high).native(), nullptr);
}

TEST_F(Streams, AGuardChangesTheCurrentOneOfItsThreadAndNests) {
  const Stream normal = current_stream(test::device()), a = Stream::create(test::device()),
               b = Stream::create(test::device());
  EXPECT_NE(a.native(), b.native());
  EXPECT_EQ(std::set<std::uint32_t>({normal.id(), a.id(), b.id()}).size(), 3u);
  {
    const StreamGuard outer(a);
    EXPECT_TRUE(current_stream(test::device()) == a);
    std::thread([&] { EXPECT_TRUE(current_stream(test::device()) == normal); }).join();
    {
      const StreamGuard inner(b), cpu(Stream::default_of(kCpu));
      EXPECT_TRUE(current_stream(test::device()) == b);
    }
    EXPECT_TRUE(current_stream(test::device()) == a);
  }
  EXPECT_TRUE(current_stream(test::device()) == normal);
}

TEST_F(Streams, AGuardKeepsItsStreamAlive) {
  const StreamGuard guard(Stream::create(test::device()));
  const Stream other = Stream::create(test::device());
  EXPECT_NE(other.native(), current_stream(test::device()).native());
}

TEST_F(Streams, QueuesOfDroppedHandlesAreUsedAgain) {
  std::set<void*> queues;
  for (int i = 0; i < 100; ++i) queues.insert(Stream::create(test::device()).native());
  EXPECT_EQ(queues.size(), 1u);
}

// Events ---------------------------------------------------------------------------------------------------

using Events = test::DeviceTest;

TEST_F(Events, AreDoneWhenTheirStreamHasPassedThem) {
  const Stream stream = Stream::create(test::device());
  Event event(test::device());
  EXPECT_TRUE(event.done());  // nothing was marked
  stream.wait(event);
  {
    const test::Busy busy(stream);
    event.record(stream);
    EXPECT_FALSE(event.done());
    event.synchronize();
    EXPECT_TRUE(event.done());
  }
  EXPECT_THROW(event.record(Stream::default_of(kCpu)), ArgumentError);
}

TEST_F(Events, AFreshEventCarriesNoOldMark) {
  const Stream stream = Stream::create(test::device());
  const test::Busy busy(stream);
  void* native = nullptr;
  {
    Event event(test::device());
    event.record(stream);
    native = event.native();
  }
  const Event again(test::device());
  EXPECT_EQ(again.native(), native);  // made once
  EXPECT_TRUE(again.done());
}

TEST_F(Events, OrderTheWorkOfTwoStreams) {
  const Stream writer = Stream::create(test::device()), reader = Stream::create(test::device());
  const Tensor x = Tensor::zeros({1000}, {DType::u8, test::device()}),
               y = Tensor::zeros({1000}, {DType::u8, test::device()});
  synchronize(test::device());
  for (int round = 1; round <= 3; ++round) {
    Event written(test::device()), read(test::device());
    {
      const StreamGuard guard(writer);
      detail::set_device_bytes(x.raw_data(), x.device(), round, x.bytes());
      written.record(writer);
    }
    reader.wait(written);
    {
      const StreamGuard guard(reader);
      y.copy_bytes_from(x);
      read.record(reader);
    }
    writer.wait(read);
  }
  const StreamGuard guard(reader);
  EXPECT_EQ(y.to_vector(), std::vector<double>(1000, 3));
}

TEST_F(Events, MeasureTimeIfRequested) {
  const Stream stream = Stream::create(test::device());
  Event begin(test::device(), Event::Timing::on), end(test::device(), Event::Timing::on),
      untimed(test::device());
  begin.record(stream);
  const test::Busy busy(stream);
  end.record(stream);
  untimed.record(stream);
  end.synchronize();
  EXPECT_GE(begin.ms_until(end), 0);
  EXPECT_LT(begin.ms_until(end), 60'000);
  EXPECT_THROW(begin.ms_until(untimed), ArgumentError);
}

TEST_F(Events, WaitsAreCountedAndForbidden) {
  const Stream stream = Stream::create(test::device());
  Event event(test::device());
  event.record(stream);
  const std::int64_t before = host_syncs();
  event.synchronize();
  stream.synchronize();
  synchronize(test::device());
  EXPECT_EQ(host_syncs() - before, 3);
  const ForbidSync forbid;
  EXPECT_THROW(event.synchronize(), Error);
  EXPECT_THROW(stream.synchronize(), Error);
  EXPECT_THROW(synchronize(test::device()), Error);
  EXPECT_NO_THROW(stream.wait(event));
  EXPECT_NO_THROW(event.done());
}

}  // namespace athanor::stream_test
