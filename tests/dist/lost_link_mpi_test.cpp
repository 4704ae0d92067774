// Ranks that add up numbers together, without end, until one of them is not heard from for two seconds: each
// says who is missing and ends with exit code 74. tests/programs/two_hosts.sh runs it and cuts the link
// between its two hosts.
#include <chrono>
#include <cstdio>

#include "dist/collectives/communicator.h"
#include "dist/transports/mpi_transport.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"

int main() {
  using namespace athanor;
  cpu_context().set_threads(1);
  try {
    dist::MpiTransport transport;
    dist::Communicator comm(transport, {.timeout = std::chrono::seconds(2)});
    const auto sum = comm.all_reduce(Tensor::zeros({1 << 16}));
    for (int i = 0;; ++i) {
      comm.run(*sum);
      if (i == 200 && transport.rank() == 0) {
        std::fprintf(stderr, "all ranks are going\n");
        std::fflush(stderr);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 74;
  }
}
