#include "dist/communicator.h"

#include <exception>

#include "dist/barrier.h"
#include "dist/broadcast.h"
#include "dist/hierarchical.h"
#include "dist/on_stream.h"
#include "dist/rank_order.h"
#include "dist/ring.h"
#include "dist/wait.h"
#include "optim/flat.h"

namespace athanor::dist {
namespace {

void check_buffer(const char* op, const Tensor& buffer, Device device) {
  ATH_CHECK(buffer.defined() && buffer.is_contiguous() && buffer.rank() == 1,
            "{}: the buffer must be flat and dense, but is not", op);
  ATH_CHECK(buffer.device() == device, "{}: the buffer must be on {}, as the network is, but is on {}", op,
            device.str(), buffer.device().str());
}

}  // namespace

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::ring: return "ring";
    case Algorithm::hierarchical: return "hierarchical";
    case Algorithm::rank_order: return "rank_order";
  }
  return "?";
}

Range piece_of(const CommunicatorOptions& options, std::int64_t count, int world_size, int rank) {
  if (options.algorithm == Algorithm::hierarchical)
    return hierarchical_piece(count, world_size, options.node_size, rank);
  return piece_of(count, world_size, rank);
}

Communicator::Communicator(Transport& transport, const CommunicatorOptions& options)
    : transport_(transport), options_(options) {
  ATH_CHECK(options.segment_bytes >= 64, "communicator: segment_bytes must be at least 64, but got {}",
            options.segment_bytes);
  ATH_CHECK(options.timeout.count() > 0, "communicator: timeout must be > 0 ms, but got {}",
            options.timeout.count());
  if (options.algorithm == Algorithm::hierarchical) check_nodes(world_size(), options.node_size);
}

Tensor Communicator::scratch(std::int64_t bytes) {
  if (!scratch_.defined() || scratch_.numel() < bytes) {
    const AllocTag named("comm");
    scratch_ = make_flat(bytes, DType::u8, transport_.device());
  }
  return scratch_;
}

std::unique_ptr<Collective> Communicator::ready(std::unique_ptr<Collective> collective) {
  if (transport_.device().is_cpu()) return collective;
  return std::make_unique<OnStream>(transport_, std::move(collective));
}

std::unique_ptr<Collective> Communicator::make_reduce_scatter(const Tensor& buffer, kernels::Combine how) {
  check_buffer("reduce_scatter", buffer, transport_.device());
  ATH_CHECK(buffer.dtype() != DType::boolean, "reduce_scatter: dtype must be a number, but got bool");
  const std::int64_t segment = options_.segment_bytes;
  switch (options_.algorithm) {
    case Algorithm::rank_order:
      return std::make_unique<RankOrder>(transport_, world(), RankOrder::Half::reduce_scatter, buffer, how,
                                         scratch(RankOrder::scratch_bytes(buffer, world_size())));
    case Algorithm::hierarchical:
      return hierarchical_reduce_scatter(transport_, options_.node_size, buffer, how,
                                         scratch(Ring::scratch_bytes(buffer, 1, segment)), segment);
    case Algorithm::ring: break;
  }
  return std::make_unique<Ring>(transport_, world(), Ring::Half::reduce_scatter, buffer, how,
                                scratch(Ring::scratch_bytes(buffer, world_size(), segment)), segment);
}

std::unique_ptr<Collective> Communicator::make_all_gather(const Tensor& buffer) {
  check_buffer("all_gather", buffer, transport_.device());
  constexpr auto kNothing = kernels::Combine::sum;
  switch (options_.algorithm) {
    case Algorithm::rank_order: return make_all_gather_small(buffer);
    case Algorithm::hierarchical:
      return hierarchical_all_gather(transport_, options_.node_size, buffer, options_.segment_bytes);
    case Algorithm::ring: break;
  }
  return std::make_unique<Ring>(transport_, world(), Ring::Half::all_gather, buffer, kNothing, Tensor(),
                                options_.segment_bytes);
}

std::unique_ptr<Collective> Communicator::all_reduce(const Tensor& buffer, kernels::Combine how) {
  std::vector<std::unique_ptr<Collective>> halves;
  halves.push_back(make_reduce_scatter(buffer, how));
  halves.push_back(make_all_gather(buffer));
  const char* name = "all_reduce";
  switch (options_.algorithm) {
    case Algorithm::ring: name = "ring all_reduce"; break;
    case Algorithm::hierarchical: name = "hierarchical all_reduce"; break;
    case Algorithm::rank_order: name = "rank_order all_reduce"; break;
  }
  return ready(std::make_unique<Sequence>(name, std::move(halves)));
}

std::unique_ptr<Collective> Communicator::broadcast(const Tensor& buffer, int root) {
  check_buffer("broadcast", buffer, transport_.device());
  ATH_CHECK(root >= 0 && root < world_size(), "broadcast: root must be one of {} ranks, but got {}",
            world_size(), root);
  return ready(std::make_unique<Broadcast>(transport_, world(), root, buffer, options_.segment_bytes));
}

std::unique_ptr<Collective> Communicator::make_all_gather_small(const Tensor& buffer) {
  check_buffer("all_gather", buffer, transport_.device());
  return std::make_unique<RankOrder>(transport_, world(), RankOrder::Half::all_gather, buffer,
                                     kernels::Combine::sum, Tensor());
}

std::unique_ptr<Collective> Communicator::barrier() {
  return ready(std::make_unique<Barrier>(transport_, world()));
}

void Communicator::run(Collective& collective, std::int64_t bucket) {
  transport_.check_free(collective.name());
  try {
    collective.filled();
    collective.start(next_tag());
    finish(collective, transport_, {.timeout = options_.timeout, .bucket = bucket});
  } catch (const std::exception& error) {
    transport_.give_up(error.what());
    throw;
  }
}

}  // namespace athanor::dist
