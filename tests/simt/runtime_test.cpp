#include <atomic>
#include <thread>

#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

namespace simt::test {
namespace {

// ---- when work runs

TEST(Runtime, WorkRunsOnlyWhenItIsWaitedFor) {
  in_all_orders([] {
    const TestStream stream;
    const OnDevice<float> x(4);
    const Pinned<float> host(4);
    host[0] = 1;
    EXPECT_OK(fill(4, 7.0f, x.data(), stream));
    EXPECT_OK(cudaMemcpyAsync(host.data(), x.data(), 16, cudaMemcpyDeviceToHost, stream));
    EXPECT_TRUE(is_nan(host[0])) << "what the copy will overwrite must not be used any more";
    EXPECT_OK(cudaStreamSynchronize(stream));
    EXPECT_EQ(host[0], 7.0f);
  });
}

TEST(Runtime, QueryingMakesProgressAndEndsReady) {
  in_all_orders([] {
    const TestStream stream;
    const TestEvent event;
    const OnDevice<float> x(4);
    for (int i = 0; i < 5; ++i) EXPECT_OK(fill(4, 1.0f, x.data(), stream));
    EXPECT_OK(cudaEventRecord(event, stream));
    int asked = 0;
    while (cudaEventQuery(event) == cudaErrorNotReady) ASSERT_LT(++asked, 100);
    EXPECT_GE(asked, 3) << "the work was done before anybody waited";
    EXPECT_OK(cudaStreamQuery(stream));
    cudaGetLastError();
  });
}

TEST(Runtime, AnEventThatWasNeverRecordedIsReady) {
  const TestEvent event;
  const TestStream stream;
  EXPECT_OK(cudaEventQuery(event));
  EXPECT_OK(cudaEventSynchronize(event));
  EXPECT_OK(cudaStreamWaitEvent(stream, event));
}

TEST(Runtime, QueuesAreBounded) {
  const TestStream stream;
  const OnDevice<float> y(std::vector<float>(1, 0.0f)), one(std::vector<float>(1, 1.0f));
  for (int i = 0; i < 5000; ++i) EXPECT_OK(axpy(1, 1.0f, one.data(), y.data(), stream, 1));
  EXPECT_OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(y.read()[0], 5000.0f);
}

// ---- order between streams

// A value is made on one stream and used on another. Whether it comes right without the event depends on the
// order alone.
float hand_over(bool with_event) {
  const TestStream maker, user;
  const TestEvent made;
  const OnDevice<float> x(std::vector<float>(1, 1.0f)), y(std::vector<float>(1, 0.0f));
  EXPECT_OK(fill(1, 5.0f, x.data(), maker));
  EXPECT_OK(cudaEventRecord(made, maker));
  if (with_event) {
    EXPECT_OK(cudaStreamWaitEvent(user, made));
  }
  EXPECT_OK(axpy(1, 1.0f, x.data(), y.data(), user, 1));
  EXPECT_OK(cudaStreamSynchronize(user));
  EXPECT_OK(cudaDeviceSynchronize());
  return y.read()[0];
}

TEST(Runtime, AnEventOrdersTwoStreams) {
  in_all_orders([] { EXPECT_EQ(hand_over(true), 5.0f); });
}

TEST(Runtime, AMissingEventShowsInSomeOrder) {
#if defined(SIMT_RACE)
  GTEST_SKIP() << "the race build reports it";
#endif
  bool wrong = false;
  in_all_orders([&] { wrong = wrong || hand_over(false) != 5.0f; });
  EXPECT_TRUE(wrong);
}

TEST(Runtime, TheDefaultStreamWaitsForBlockingStreamsAndTheyForIt) {
  in_all_orders([] {
    const TestStream blocking(cudaStreamDefault);
    const OnDevice<float> x(std::vector<float>(1, 1.0f)), y(std::vector<float>(1, 0.0f));
    EXPECT_OK(fill(1, 2.0f, x.data(), blocking));
    EXPECT_OK(axpy(1, 1.0f, x.data(), y.data(), nullptr, 1));
    EXPECT_OK(fill(1, 3.0f, x.data(), blocking));
    EXPECT_OK(axpy(1, 10.0f, x.data(), y.data(), nullptr, 1));
    EXPECT_EQ(y.read()[0], 32.0f);
  });
}

TEST(Runtime, RecordingAgainDoesNotMoveAnEarlierWait) {
  in_all_orders([] {
    const TestStream a, b;
    const TestEvent event;
    const OnDevice<float> x(std::vector<float>(1, 0.0f));
    const Pinned<float> host(1);
    EXPECT_OK(fill(1, 1.0f, x.data(), a));
    EXPECT_OK(cudaEventRecord(event, a));
    EXPECT_OK(cudaStreamWaitEvent(b, event));
    EXPECT_OK(cudaMemcpyAsync(host.data(), x.data(), 4, cudaMemcpyDeviceToHost, b));
    EXPECT_OK(cudaEventRecord(event, b));
    EXPECT_OK(cudaStreamWaitEvent(a, event));
    EXPECT_OK(fill(1, 2.0f, x.data(), a));
    EXPECT_OK(cudaDeviceSynchronize());
    EXPECT_EQ(host[0], 1.0f);
  });
}

TEST(Runtime, HostFunctionsRunInOrderAndMayNotCallCuda) {
  in_all_orders([] {
    struct Seen {
      float* value;
      float then = 0;
      cudaError_t inside = cudaSuccess;
    };
    const TestStream stream;
    const OnDevice<float> x(1);
    const Pinned<float> host(1);
    Seen seen{host.data()};
    EXPECT_OK(fill(1, 4.0f, x.data(), stream));
    EXPECT_OK(cudaMemcpyAsync(host.data(), x.data(), 4, cudaMemcpyDeviceToHost, stream));
    const auto look = [](void* data) {
      auto& to = *static_cast<Seen*>(data);
      to.then = *to.value;
      to.inside = cudaDeviceSynchronize();
    };
    EXPECT_OK(cudaLaunchHostFunc(stream, look, &seen));
    EXPECT_EQ(seen.then, 0.0f);
    EXPECT_OK(cudaStreamSynchronize(stream));
    EXPECT_EQ(seen.then, 4.0f);
    EXPECT_EQ(seen.inside, cudaErrorNotPermitted);
    cudaGetLastError();
  });
}

TEST(Runtime, AHostFunctionMayWaitForAThreadThatQueuesWork) {
  const TestStream stream, other;
  const OnDevice<float> x(1);
  static std::atomic<int> stage;
  stage = 0;
  std::thread thread([&] {
    while (stage == 0) std::this_thread::yield();
    EXPECT_OK(fill(1, 1.0f, x.data(), other));
    stage = 2;
  });
  EXPECT_OK(cudaLaunchHostFunc(
      stream,
      [](void*) {
        stage = 1;
        while (stage != 2) std::this_thread::yield();
      },
      nullptr));
  EXPECT_OK(cudaStreamSynchronize(stream));
  thread.join();
  EXPECT_OK(cudaDeviceSynchronize());
}

TEST(Runtime, TimesArePositiveAndNeedTimingEvents) {
  const TestStream stream;
  const TestEvent start(cudaEventDefault), end(cudaEventDefault), untimed;
  const OnDevice<float> x(10'000);
  EXPECT_OK(cudaEventRecord(start, stream));
  EXPECT_OK(fill(10'000, 1.0f, x.data(), stream));
  EXPECT_OK(cudaEventRecord(end, stream));
  EXPECT_OK(cudaEventRecord(untimed, stream));
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  cudaGetLastError();
  EXPECT_OK(cudaStreamSynchronize(stream));
  EXPECT_OK(cudaEventElapsedTime(&ms, start, end));
  EXPECT_GT(ms, 0.0f);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

// ---- memory

TEST(Memory, IsLimitedAndAccountedFor) {
  std::size_t before = 0, after = 0, total = 0;
  EXPECT_OK(cudaMemGetInfo(&before, &total));
  EXPECT_EQ(total, options().memory_bytes);
  void* x = nullptr;
  EXPECT_OK(cudaMalloc(&x, 1 << 20));
  EXPECT_OK(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(before - after, std::size_t{1} << 20);
  void* too_much = nullptr;
  EXPECT_EQ(cudaMalloc(&too_much, total), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_OK(cudaFree(x));
  EXPECT_OK(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
}

TEST(Memory, StartsAsNaN) {
  const OnDevice<float> x(100);
  for (const float value : x.read()) EXPECT_TRUE(is_nan(value));
}

// ---- devices

TEST(Devices, EachHasItsOwnMemoryAndStreams) {
  int count = 0;
  EXPECT_OK(cudaGetDeviceCount(&count));
  ASSERT_EQ(count, kDevices);
  EXPECT_EQ(cudaSetDevice(kDevices), cudaErrorInvalidDevice);
  cudaGetLastError();
  const OnDevice<float> x0(std::vector<float>(4, 1.0f));
  const TestStream stream0;
  EXPECT_OK(cudaSetDevice(1));
  {
    const OnDevice<float> x1(std::vector<float>(4, 0.0f));
    EXPECT_TEXT(text_of(fill(4, 1.0f, x1.data(), stream0)), "stream");
    EXPECT_TEXT(text_of(fill(4, 1.0f, x0.data(), nullptr)), "device 0");
    EXPECT_OK(cudaMemcpyPeerAsync(x1.data(), 1, x0.data(), 0, 16, nullptr));
    EXPECT_EQ(diagnosis(), "");
    EXPECT_EQ(x1.read()[3], 1.0f);
  }
  EXPECT_OK(cudaSetDevice(0));
}

TEST(Devices, AFaultStaysOnItsDevice) {
  const OnDevice<float> out(64);
  EXPECT_OK(early_return(out.data()));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_OK(cudaSetDevice(1));
  EXPECT_OK(cudaDeviceSynchronize());
  EXPECT_OK(cudaSetDevice(0));
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_OK(cudaDeviceReset());
}

TEST(Devices, EventsOrderStreamsOfTwoDevices) {
  in_all_orders([] {
    const TestStream stream0;
    const TestEvent event0;
    const OnDevice<float> x0(std::vector<float>(1, 1.0f));
    EXPECT_OK(fill(1, 8.0f, x0.data(), stream0));
    EXPECT_OK(cudaEventRecord(event0, stream0));
    EXPECT_OK(cudaSetDevice(1));
    {
      const TestStream stream1;
      const OnDevice<float> x1(std::vector<float>(1, 0.0f));
      EXPECT_OK(cudaStreamWaitEvent(stream1, event0));
      EXPECT_OK(cudaMemcpyPeerAsync(x1.data(), 1, x0.data(), 0, 4, stream1));
      EXPECT_OK(cudaStreamSynchronize(stream1));
      EXPECT_EQ(x1.read()[0], 8.0f);
    }
    EXPECT_OK(cudaSetDevice(0));
  });
}

// ---- priorities, and links between devices

TEST(Runtime, PrioritiesAreClampedAndKept) {
  int lowest = 1, highest = 1, priority = 1;
  EXPECT_OK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  EXPECT_LT(highest, lowest);
  for (const auto& [wanted, got] :
       {std::pair(highest, highest), {lowest, lowest}, {highest - 9, highest}, {7, lowest}}) {
    cudaStream_t stream = nullptr;
    EXPECT_OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, wanted));
    EXPECT_OK(cudaStreamGetPriority(stream, &priority));
    EXPECT_EQ(priority, got);
    EXPECT_OK(cudaStreamDestroy(stream));
  }
  const TestStream plain;
  EXPECT_OK(cudaStreamGetPriority(plain, &priority));
  EXPECT_EQ(priority, lowest);
}

}  // namespace
}  // namespace simt::test
