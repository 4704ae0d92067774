#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

namespace simt::test {
namespace {

// Before the first call of the runtime.
const bool two_devices = (options().devices = 2, true);

bool is_nan(float value) {
  return std::isnan(value);
}

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

TEST(Runtime, AskingMakesProgressAndEndsReady) {
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

TEST(Runtime, RecordingAgainDoesNotMoveWhatWasWaitedFor) {
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

// ---- mistakes of the host

std::string here(unsigned line) {
  return "runtime_test.cpp:" + std::to_string(line);
}

TEST(HostMistakes, APinnedSourceReusedTooEarlyIsNamedWithItsCopy) {
  in_all_orders([] {
    const TestStream stream;
    const OnDevice<float> x(100);
    const Pinned<float> host(100);
    for (std::size_t i = 0; i < 100; ++i) host[i] = 1;
    const unsigned line = __LINE__ + 1;
    EXPECT_OK(cudaMemcpyAsync(x.data(), host.data(), 400, cudaMemcpyHostToDevice, stream));
    host[99] = 2;
    const std::string text = diagnosis();
    EXPECT_TEXT(text, "copy of 400 bytes from host to device");
    EXPECT_TEXT(text, "source was changed before the copy has run");
    EXPECT_TEXT(text, here(line));
  });
}

TEST(HostMistakes, ADestinationReadTooEarlyHoldsNoOldValue) {
  in_all_orders([] {
    const TestStream stream;
    const OnDevice<float> x(std::vector<float>(100, 3.0f));
    const Pinned<float> floats(100);
    const Pinned<int> ints(100);
    for (std::size_t i = 0; i < 100; ++i) floats[i] = 3, ints[i] = 3;
    EXPECT_OK(cudaMemcpyAsync(floats.data(), x.data(), 400, cudaMemcpyDeviceToHost, stream));
    EXPECT_OK(cudaMemcpyAsync(ints.data(), x.data(), 400, cudaMemcpyDeviceToHost, stream));
    for (std::size_t i = 0; i < 100; ++i) {
      ASSERT_TRUE(is_nan(floats[i])) << i;
      ASSERT_EQ(ints[i], -1) << i;
    }
    EXPECT_OK(cudaStreamSynchronize(stream));
    EXPECT_EQ(floats[99], 3.0f);
  });
}

// Nobody says so, but the kernel always comes too late for what was there when it was queued.
TEST(HostMistakes, PinnedMemoryThatAKernelReadsItselfIsReadLate) {
  in_all_orders([] {
    const TestStream stream;
    const OnDevice<float> y(std::vector<float>(1, 0.0f));
    const Pinned<float> host(1);
    host[0] = 1;
    EXPECT_OK(axpy(1, 1.0f, host.data(), y.data(), stream, 1));
    host[0] = 2;
    EXPECT_EQ(diagnosis(), "");
    EXPECT_EQ(y.read()[0], 2.0f);
  });
}

TEST(HostMistakes, APageableSourceReusedOrGoneIsNamed) {
  const TestStream stream;
  const OnDevice<float> x(1 << 20);
  std::vector<float> host(100, 1.0f);
  EXPECT_OK(cudaMemcpyAsync(x.data(), host.data(), 400, cudaMemcpyHostToDevice, stream));
  host[0] = 2;
  EXPECT_TEXT(diagnosis(), "source was changed");
#if !defined(__SANITIZE_ADDRESS__)
  {
    const std::vector<float> gone(1 << 20, 1.0f);  // so large that the system takes it back
    EXPECT_OK(cudaMemcpyAsync(x.data(), gone.data(), gone.size() * 4, cudaMemcpyHostToDevice, stream));
  }
  EXPECT_TEXT(diagnosis(), "source is gone");
#endif
}

TEST(HostMistakes, WhatTheStreamItselfWritesInBetweenIsNone) {
  in_all_orders([] {
    const TestStream stream;
    const OnDevice<float> x(std::vector<float>(1, 3.0f)), y(1);
    const Pinned<float> host(1);
    EXPECT_OK(cudaMemcpyAsync(host.data(), x.data(), 4, cudaMemcpyDeviceToHost, stream));
    EXPECT_OK(cudaMemcpyAsync(y.data(), host.data(), 4, cudaMemcpyHostToDevice, stream));
    EXPECT_OK(cudaMemcpyAsync(host.data(), y.data(), 4, cudaMemcpyDeviceToHost, stream));
    EXPECT_EQ(diagnosis(), "");
    EXPECT_EQ(host[0], 3.0f);
  });
}

TEST(HostMistakes, AFunctionOfTheHostExcusesOnlyWhatComesAfterIt) {
  in_all_orders([] {
    const TestStream stream, other;
    const OnDevice<float> x(1);
    const Pinned<float> host(1);
    host[0] = 1;
    const auto write = [](void* to) { *static_cast<float*>(to) = 5; };
    static float elsewhere;
    EXPECT_OK(cudaLaunchHostFunc(other, write, &elsewhere));
    EXPECT_OK(cudaMemcpyAsync(x.data(), host.data(), 4, cudaMemcpyHostToDevice, stream));
    host[0] = 2;
    EXPECT_TEXT(diagnosis(), "source was changed before the copy has run");

    TestEvent written;
    EXPECT_OK(cudaLaunchHostFunc(other, write, host.data()));
    EXPECT_OK(cudaEventRecord(written, other));
    EXPECT_OK(cudaStreamWaitEvent(stream, written));
    EXPECT_OK(cudaMemcpyAsync(x.data(), host.data(), 4, cudaMemcpyHostToDevice, stream));
    EXPECT_EQ(diagnosis(), "");
    EXPECT_EQ(x.read()[0], 5.0f);
  });
}

TEST(HostMistakes, MemoryFreedWhileQueuedWorkNamesIt) {
  in_all_orders([] {
    const TestStream stream;
    float* x = nullptr;
    const unsigned line = __LINE__ + 1;
    EXPECT_OK(cudaMalloc(&x, 400));
    EXPECT_OK(fill(100, 1.0f, x, stream));
    const std::string text = text_of(cudaFree(x));
    EXPECT_TEXT(text, "parameter 2 of kernel fill");
    EXPECT_TEXT(text, "cudaFree: 400 bytes, allocated at ");
    EXPECT_TEXT(text, here(line));
    EXPECT_EQ(diagnosis(), "");

    float* host = nullptr;
    const OnDevice<float> y(100);
    EXPECT_OK(cudaMallocHost(&host, 400));
    EXPECT_OK(cudaMemcpyAsync(host, y.data(), 400, cudaMemcpyDeviceToHost, stream));
    EXPECT_TEXT(text_of(cudaFreeHost(host)), "a copy of");
    EXPECT_EQ(diagnosis(), "");
  });
}

TEST(HostMistakes, FreeingTwiceOrInTheMiddleIsRefused) {
  float* x = nullptr;
  EXPECT_OK(cudaMalloc(&x, 400));
  EXPECT_EQ(cudaFree(x + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(x), cudaErrorInvalidValue);
  EXPECT_OK(cudaFree(x));
  EXPECT_EQ(cudaFree(x), cudaErrorInvalidValue);
  EXPECT_OK(cudaFree(nullptr));
  cudaGetLastError();
}

TEST(HostMistakes, CopiesBeyondAnAllocationOrInTheWrongDirectionAreRefused) {
  const OnDevice<float> x(100);
  const Pinned<float> host(200);
  EXPECT_TEXT(text_of(cudaMemcpyAsync(x.data(), host.data(), 404, cudaMemcpyHostToDevice, nullptr)),
              "4 bytes of the destination lie beyond the end of its allocation of 400 bytes");
  EXPECT_TEXT(text_of(cudaMemcpyAsync(x.data(), host.data(), 4, cudaMemcpyDeviceToHost, nullptr)),
              "asked to copy device to host, but the addresses are host to device");
  EXPECT_TEXT(text_of(cudaMemsetAsync(x.data() + 99, 0, 8, nullptr)), "beyond the end");
  EXPECT_OK(cudaMemcpyAsync(x.data(), host.data(), 400, cudaMemcpyDefault, nullptr));
  EXPECT_EQ(diagnosis(), "");
}

TEST(HostMistakes, DestroyedHandlesAreRefused) {
  cudaStream_t stream;
  cudaEvent_t event;
  EXPECT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const OnDevice<float> x(std::vector<float>(1, 0.0f));
  EXPECT_OK(fill(1, 6.0f, x.data(), stream));
  EXPECT_OK(cudaStreamDestroy(stream));
  EXPECT_OK(cudaEventDestroy(event));
  EXPECT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(x.read()[0], 6.0f) << "what was queued still runs";
  EXPECT_TEXT(text_of(fill(1, 1.0f, x.data(), stream)), "was destroyed");
  EXPECT_TEXT(text_of(cudaStreamSynchronize(stream)), "was destroyed");
  EXPECT_TEXT(text_of(cudaStreamDestroy(stream)), "was destroyed");
  EXPECT_TEXT(text_of(cudaEventRecord(event, nullptr)), "was destroyed");
  EXPECT_TEXT(text_of(cudaEventDestroy(event)), "was destroyed");
}

TEST(HostMistakes, KernelsMustNotBeGivenMemoryOfTheHost) {
  std::vector<float> host(10);
  EXPECT_TEXT(text_of(fill(10, 1.0f, host.data(), nullptr)),
              "kernel fill: parameter 2 points to memory of the host");
  const Pinned<float> pinned(10);
  EXPECT_OK(fill(10, 1.0f, pinned.data(), nullptr));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_EQ(pinned[9], 1.0f);
}

TEST(HostMistakes, LaunchesNoDeviceTakesAreRefused) {
  const OnDevice<float> x(10);
  EXPECT_TEXT(text_of(count(1, 1025, nullptr, nullptr)), "1 to 1024 threads");
  EXPECT_OK(count(0, 32, nullptr, nullptr)) << "an empty grid launches nothing";
  EXPECT_TEXT(text_of(softmax(1, 58 * 1024, x.data(), x.data(), nullptr)),
              "237568 bytes of dynamic shared memory");
  const OnDevice<float> row(std::vector<float>(227 * 256, 1.0f));  // as much as a block can have
  EXPECT_OK(softmax(1, 227 * 256, row.data(), row.data(), nullptr));
  EXPECT_EQ(diagnosis(), "");
}

TEST(HostMistakes, AKernelThatFailedIsReportedWithItsWholeDiagnosisUntilAReset) {
  const OnDevice<float> out(64);
  EXPECT_OK(early_return(out.data()));
  const cudaError_t code = cudaDeviceSynchronize();
  EXPECT_EQ(code, cudaErrorLaunchFailure);
  EXPECT_STREQ(cudaGetErrorName(code), "cudaErrorLaunchFailure");
  EXPECT_TEXT(cudaGetErrorString(code), "barrier divergence");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(fill(1, 1.0f, out.data(), nullptr), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure) << "asking for it does not end it";
    EXPECT_TEXT(cudaGetErrorString(code), "barrier divergence");
  }
  EXPECT_OK(cudaDeviceReset());
  cudaGetLastError();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_OK(fill(1, 1.0f, out.data(), nullptr));
  EXPECT_EQ(diagnosis(), "");
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

TEST(Memory, AttributesTellWhereAPointerPoints) {
  const OnDevice<float> x(10);
  const Pinned<float> host(10);
  float local = 0;
  cudaPointerAttributes attributes;
  EXPECT_OK(cudaPointerGetAttributes(&attributes, x.data() + 3));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_OK(cudaPointerGetAttributes(&attributes, host.data() + 3));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_OK(cudaPointerGetAttributes(&attributes, &local));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST(Memory, RowsCopyWithPitches) {
  const OnDevice<float> x(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Pinned<float> host(6);
  EXPECT_OK(cudaMemcpy2DAsync(host.data(), 8, x.data() + 1, 16, 8, 3, cudaMemcpyDeviceToHost, nullptr));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_EQ(std::vector<float>(host.data(), host.data() + 6), (std::vector<float>{1, 2, 5, 6, 9, 10}));
}

// ---- devices

TEST(Devices, EachHasItsOwnMemoryAndStreams) {
  int count = 0;
  EXPECT_OK(cudaGetDeviceCount(&count));
  ASSERT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaGetLastError();
  const OnDevice<float> x0(std::vector<float>(4, 1.0f));
  const TestStream stream0;
  EXPECT_OK(cudaSetDevice(1));
  {
    const OnDevice<float> x1(std::vector<float>(4, 0.0f));
    EXPECT_TEXT(text_of(fill(4, 1.0f, x1.data(), stream0)), "stream");
    EXPECT_TEXT(text_of(fill(4, 1.0f, x0.data(), nullptr)), "points to memory of device 0");
    EXPECT_OK(cudaMemcpyPeerAsync(x1.data(), 1, x0.data(), 0, 16, nullptr));
    EXPECT_EQ(diagnosis(), "");
    EXPECT_EQ(x1.read()[3], 1.0f);
    EXPECT_OK(cudaDeviceEnablePeerAccess(0, 0));
    EXPECT_OK(fill(4, 2.0f, x0.data(), nullptr));
    EXPECT_EQ(diagnosis(), "");
  }
  EXPECT_OK(cudaSetDevice(0));
  EXPECT_EQ(x0.read()[0], 2.0f);
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

}  // namespace
}  // namespace simt::test
