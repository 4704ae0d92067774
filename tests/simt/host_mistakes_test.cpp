// Mistakes of the host, and what is said of them.
#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

namespace simt::test {
namespace {

std::string here(unsigned line) {
  return "host_mistakes_test.cpp:" + std::to_string(line);
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
  EXPECT_TEXT(diagnosis(), "copy of 400 bytes from host to device");
#if !defined(__SANITIZE_ADDRESS__)
  {
    const std::vector<float> gone(1 << 20, 1.0f);  // so large that the system takes it back
    EXPECT_OK(cudaMemcpyAsync(x.data(), gone.data(), gone.size() * 4, cudaMemcpyHostToDevice, stream));
  }
  EXPECT_TEXT(diagnosis(), "copy of 4194304 bytes from host to device");
#endif
}

TEST(HostMistakes, WritesOfTheSameStreamAreNoMistake) {
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

TEST(HostMistakes, AHostFunctionExcusesOnlyLaterMistakes) {
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
    EXPECT_TEXT(diagnosis(), "copy of 4 bytes from host to device");

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
    EXPECT_TEXT(text, "cudaFree");
    EXPECT_TEXT(text, "400 bytes");
    EXPECT_TEXT(text, here(line));
    EXPECT_EQ(diagnosis(), "");

    float* host = nullptr;
    const OnDevice<float> y(100);
    EXPECT_OK(cudaMallocHost(&host, 400));
    const unsigned copied = __LINE__ + 1;
    EXPECT_OK(cudaMemcpyAsync(host, y.data(), 400, cudaMemcpyDeviceToHost, stream));
    const std::string freed = text_of(cudaFreeHost(host));
    EXPECT_TEXT(freed, "cudaFreeHost");
    EXPECT_TEXT(freed, "400 bytes");
    EXPECT_TEXT(freed, here(copied));
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
  const auto refused = [](cudaError_t code, std::initializer_list<const char*> values) {
    const std::string text = text_of(code);
    for (const char* value : values) EXPECT_TEXT(text, value);
  };
  refused(cudaMemcpyAsync(x.data(), host.data(), 404, cudaMemcpyHostToDevice, nullptr),
          {"4 bytes", "destination", "400 bytes"});
  refused(cudaMemcpyAsync(x.data(), host.data(), 4, cudaMemcpyDeviceToHost, nullptr),
          {"device to host", "host to device"});
  refused(cudaMemsetAsync(x.data() + 99, 0, 8, nullptr), {"4 bytes", "400 bytes"});
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
  EXPECT_TEXT(text_of(fill(1, 1.0f, x.data(), stream)), "stream");
  EXPECT_TEXT(text_of(cudaStreamSynchronize(stream)), "stream");
  EXPECT_TEXT(text_of(cudaStreamDestroy(stream)), "stream");
  EXPECT_TEXT(text_of(cudaEventRecord(event, nullptr)), "event");
  EXPECT_TEXT(text_of(cudaEventDestroy(event)), "event");
}

TEST(HostMistakes, KernelsMustNotBeGivenMemoryOfTheHost) {
  std::vector<float> host(10);
  const std::string text = text_of(fill(10, 1.0f, host.data(), nullptr));
  for (const char* value : {"kernel fill", "parameter 2", "host memory"}) EXPECT_TEXT(text, value);
  const Pinned<float> pinned(10);
  EXPECT_OK(fill(10, 1.0f, pinned.data(), nullptr));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_EQ(pinned[9], 1.0f);
}

TEST(HostMistakes, InvalidLaunchSizesAreRejected) {
  const OnDevice<float> x(10);
  EXPECT_TEXT(text_of(count(1, 1025, nullptr, nullptr)), "1 to 1024");
  EXPECT_OK(count(0, 32, nullptr, nullptr)) << "an empty grid launches nothing";
  EXPECT_TEXT(text_of(softmax(1, 58 * 1024, x.data(), x.data(), nullptr)), "237568 bytes");
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

}  // namespace
}  // namespace simt::test
