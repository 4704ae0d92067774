#include "dist/pass_network.h"

namespace athanor::dist {
namespace {

CommunicatorOptions in_rank_order(CommunicatorOptions options) {
  if (options.algorithm != Algorithm::native) options.algorithm = Algorithm::rank_order;
  return options;
}

// The session of the job, which sends no bucket during a pass from now on; null where it may.
Session* hold_buckets(const Communicator& job) {
  if (job.transport().duplicates_are_concurrent()) return nullptr;
  job.session().check_free("pass network");
  job.session().set_concurrent(false);
  return &job.session();
}

struct Duplicate {
  explicit Duplicate(const Communicator& job)
      : held(hold_buckets(job)),
        network(job.transport().duplicate()),
        comm(*network, in_rank_order(job.options())) {}
  ~Duplicate() {
    if (held) held->set_concurrent(true);
  }
  Duplicate(const Duplicate&) = delete;
  Duplicate& operator=(const Duplicate&) = delete;

  Session* held;
  std::unique_ptr<Transport> network;
  Communicator comm;
};

}  // namespace

PassNetwork::PassNetwork(const Communicator& comm) {
  if (comm.world_size() == 1) return;
  const auto made = std::make_shared<Duplicate>(comm);
  comm_ = std::shared_ptr<Communicator>(made, &made->comm);
}

}  // namespace athanor::dist
