#include "tests/support/mpi_main.h"

#include <cstdio>
#include <memory>

#include <gtest/gtest.h>

#include "kernels/cpu/context.h"

namespace athanor::test {
namespace {

std::unique_ptr<dist::MpiTransport> transport;

class Failures final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", transport->rank(), result.file_name(), result.line_number(),
                 result.message());
  }
};

}  // namespace

dist::MpiTransport& mpi_transport() {
  return *transport;
}

}  // namespace athanor::test

int main(int argc, char** argv) {
  using namespace athanor;
  testing::InitGoogleTest(&argc, argv);
  test::transport = std::make_unique<dist::MpiTransport>();
  cpu_context().set_threads(1);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (test::transport->rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new test::Failures);
  }
  const int result = RUN_ALL_TESTS();
  test::transport.reset();
  return result;
}
