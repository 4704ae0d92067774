#include "dist/pass_network.h"

namespace athanor::dist {
namespace {

CommunicatorOptions in_rank_order(CommunicatorOptions options) {
  if (options.algorithm != Algorithm::native) options.algorithm = Algorithm::rank_order;
  return options;
}

// Whether the job now stops sending buckets during passes.
bool hold_buckets(const Communicator& job) {
  if (job.transport().duplicates_are_concurrent()) return false;
  job.session().check_free("pass network");
  job.session().set_concurrent(false);
  return true;
}

struct Duplicate {
  explicit Duplicate(const Communicator& of)
      : job(of.session()),
        held(hold_buckets(of)),
        network(of.transport().duplicate()),
        comm(*network, in_rank_order(of.options())) {
    job.set_passes(comm.session().shared_flight());
    comm.session().on_failure = [this](Failure kind, const std::exception& error) {
      if (job.on_failure) job.on_failure(kind, error);
    };
  }
  ~Duplicate() {
    job.set_passes(nullptr);
    if (held) job.set_concurrent(true);
  }
  Duplicate(const Duplicate&) = delete;
  Duplicate& operator=(const Duplicate&) = delete;

  Session& job;
  bool held;
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
