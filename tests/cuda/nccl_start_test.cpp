#include <chrono>
#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>

#include "tensor/stream.h"
#include "tests/support/errors.h"

#if defined(ATHANOR_TEST_NCCL)
#include "dist/transports/detail/nccl_api.h"
#include "dist/transports/nccl_transport.h"
#endif

// The real NCCL as far as it goes without a GPU: its library loads, makes an id, and says why there is no
// communicator.

namespace athanor::nccl_start_test {

class NcclStart : public testing::Test {
 protected:
  void SetUp() override {
#if !defined(ATHANOR_TEST_NCCL)
    GTEST_SKIP() << "this build found no NCCL; install libnccl-dev, or set NCCL_ROOT";
#else
    try {
      (void)dist::nccl_api();
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
    // An address of its own, so that NCCL looks for no network.
    setenv("NCCL_COMM_ID", "127.0.0.1:29561", 1);
#endif
  }
};

#if defined(ATHANOR_TEST_NCCL)
TEST_F(NcclStart, AnIdNeedsNoGpu) {
  EXPECT_NE(dist::new_nccl_id(), dist::NcclId{});
}

TEST_F(NcclStart, TheLibraryIsOfTheHeadersVersion) {
  int version = 0;
  ASSERT_EQ(dist::nccl_api().get_version(&version), ncclSuccess);
  EXPECT_EQ(version / 10000, NCCL_MAJOR);
  EXPECT_GE(version, 22000) << "blocking = 0 with sends and receives";
}

TEST_F(NcclStart, WithoutAGpuTheErrorSaysSo) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_ERROR(BackendError, dist::NcclTransport(dist::new_nccl_id(), 0, 1), why_no_cuda());
}

// What our own check comes before.
TEST_F(NcclStart, WithoutAGpuNcclMakesNoCommunicator) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a GPU";
  const dist::NcclId id = dist::new_nccl_id();
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), sizeof unique);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = dist::nccl_api().init(&comm, 1, unique, 0, &config);
  EXPECT_TRUE(result == ncclUnhandledCudaError || result == ncclSystemError)
      << dist::nccl_api().error_string(result);
}

TEST_F(NcclStart, WithAGpuAWorldOfOneBegins) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  const dist::NcclTransport transport(dist::new_nccl_id(), 0, 1, {.timeout = std::chrono::seconds(60)});
  EXPECT_EQ(transport.world_size(), 1);
  EXPECT_TRUE(transport.device().is_cuda());
}
#else
TEST_F(NcclStart, NeedsNccl) {}
#endif

}  // namespace athanor::nccl_start_test
