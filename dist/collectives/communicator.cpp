#include "dist/collectives/communicator.h"

#include <cstring>
#include <exception>
#include <string>

#include "dist/collectives/barrier.h"
#include "dist/collectives/exchange.h"
#include "dist/collectives/hierarchical.h"
#include "dist/collectives/on_stream.h"
#include "dist/collectives/rank_order.h"
#include "dist/collectives/ring.h"
#include "dist/collectives/wait.h"
#include "optim/flat.h"

namespace athanor::dist {
namespace {

using What = NativeCall::What;

void check_buffer(const char* op, const Tensor& buffer, Device device) {
  ATH_CHECK(buffer.defined() && buffer.is_contiguous() && buffer.rank() == 1,
            "{}: the buffer must be flat and dense, but is not", op);
  ATH_CHECK(buffer.device() == device, "{}: the buffer must be on {}, like the communicator, but is on {}",
            op, device.str(), buffer.device().str());
}

/// Size of the description of the next call, as sent to other ranks.
constexpr std::size_t kCallBytes = 120;

}  // namespace

const char* name_of(Algorithm algorithm) {
  constexpr const char* kNames[] = {"ring", "hierarchical", "rank_order", "native", "auto"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

Range piece_of(const CommunicatorOptions& options, std::int64_t count, int world_size, int rank) {
  return piece_of(count, world_size, piece_index(options, world_size, rank));
}

int piece_index(const CommunicatorOptions& options, int world_size, int rank) {
  if (options.algorithm != Algorithm::hierarchical) return rank;
  return rank % options.node_size * (world_size / options.node_size) + rank / options.node_size;
}

std::int64_t scratch_bytes(const CommunicatorOptions& options, const Tensor& buffer,
                           std::span<const Range> pieces) {
  if (options.algorithm == Algorithm::native) return 0;
  if (options.algorithm != Algorithm::rank_order) return Ring::scratch_bytes(buffer, options.segment_bytes);
  return RankOrder::scratch_bytes(buffer, largest_of(pieces), static_cast<int>(pieces.size()));
}

Communicator::Communicator(Transport& transport, const CommunicatorOptions& options)
    : transport_(transport), options_(options) {
  if (options.algorithm == Algorithm::automatic) {
    const bool nodes = transport.device().is_cuda() && transport.world_size() > options.node_size;
    options_.algorithm = nodes && transport.has_native() ? Algorithm::native : Algorithm::rank_order;
  }
  ATH_CHECK(options.segment_bytes >= 64, "communicator: segment_bytes must be at least 64, but got {}",
            options.segment_bytes);
  ATH_CHECK(options.timeout.count() > 0, "communicator: timeout must be > 0 ms, but got {}",
            options.timeout.count());
  const bool whole_nodes = options.node_size >= 1 && world_size() % options.node_size == 0;
  ATH_CHECK(options.algorithm != Algorithm::hierarchical || whole_nodes,
            "hierarchical: the number of ranks must be a multiple of the node size, but got {} ranks on "
            "nodes of {}",
            world_size(), options.node_size);
  ATH_CHECK(options.algorithm != Algorithm::native || transport.has_native(),
            "communicator: native needs a transport with its own collectives (MPI, NCCL), but this one has "
            "none; use ring, hierarchical or rank_order");
}

Communicator::~Communicator() = default;

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

std::unique_ptr<Collective> Communicator::native(const NativeCall& call) const {
  return options_.algorithm == Algorithm::native ? transport_.native(call) : nullptr;
}

// The given pieces, or the default ones.
std::vector<Range> Communicator::checked(const char* op, const Tensor& buffer,
                                         std::vector<Range> pieces) const {
  check_buffer(op, buffer, transport_.device());
  const std::int64_t count = buffer.numel();
  if (pieces.empty()) {
    for (int rank = 0; rank < world_size(); ++rank) pieces.push_back(piece(count, rank));
    return pieces;
  }
  ATH_CHECK(static_cast<int>(pieces.size()) == world_size(),
            "{}: there must be a piece per rank, {}, but got {}", op, world_size(), pieces.size());
  std::vector<Range> placed(pieces.size());
  for (int rank = 0; rank < world_size(); ++rank) {
    placed[static_cast<std::size_t>(piece_index(options_, world_size(), rank))] =
        pieces[static_cast<std::size_t>(rank)];
  }
  std::int64_t next = 0;
  for (const Range& range : placed) {
    ATH_CHECK(range.begin == next && range.end >= next,
              "{}: pieces must be contiguous from element 0 on, but [{}, {}) comes after {}", op, range.begin,
              range.end, next);
    next = range.end;
  }
  ATH_CHECK(next == count, "{}: pieces must end with the buffer, at {}, but end at {}", op, count, next);
  return pieces;
}

std::unique_ptr<Collective> Communicator::make(Phase phase, const Tensor& buffer, kernels::Combine how,
                                               std::vector<Range> pieces) {
  const bool reduces = phase == Phase::reduce_scatter;
  pieces = checked(reduces ? "reduce_scatter" : "all_gather", buffer, std::move(pieces));
  ATH_CHECK(!reduces || buffer.dtype() != DType::boolean,
            "reduce_scatter: dtype must be a number, but got bool");
  if (auto own = native({reduces ? What::reduce_scatter : What::all_gather, buffer, how, pieces})) return own;
  // Calls without a native version use rank_order.
  CommunicatorOptions options = options_;
  if (options.algorithm == Algorithm::native) options.algorithm = Algorithm::rank_order;
  const Tensor arriving = reduces ? scratch(scratch_bytes(options, buffer, pieces)) : Tensor();
  PhaseOf of{phase, buffer, how, arriving, std::move(pieces), options.segment_bytes};
  if (options.algorithm == Algorithm::ring) return std::make_unique<Ring>(transport_, world(), std::move(of));
  if (options.algorithm == Algorithm::hierarchical) return hierarchical(transport_, options.node_size, of);
  return std::make_unique<RankOrder>(transport_, world(), std::move(of));
}

std::unique_ptr<Collective> Communicator::all_reduce(const Tensor& buffer, kernels::Combine how,
                                                     std::vector<Range> pieces) {
  if (options_.algorithm == Algorithm::native) {
    ATH_CHECK(buffer.dtype() != DType::boolean, "all_reduce: dtype must be a number, but got bool");
    pieces = checked("all_reduce", buffer, std::move(pieces));
    if (auto own = native({What::all_reduce, buffer, how, pieces})) return ready(std::move(own));
  }
  std::vector<std::unique_ptr<Collective>> halves;
  halves.push_back(make(Phase::reduce_scatter, buffer, how, pieces));
  halves.push_back(make(Phase::all_gather, buffer, how, std::move(pieces)));
  const char* name = options_.algorithm == Algorithm::ring           ? "ring all_reduce"
                     : options_.algorithm == Algorithm::hierarchical ? "hierarchical all_reduce"
                                                                     : "rank_order all_reduce";
  return ready(std::make_unique<Sequence>(name, std::move(halves)));
}

std::unique_ptr<Collective> Communicator::broadcast(const Tensor& buffer, int root) {
  check_buffer("broadcast", buffer, transport_.device());
  ATH_CHECK(root >= 0 && root < world_size(), "broadcast: root must be one of {} ranks, but got {}",
            world_size(), root);
  if (auto own = native({What::broadcast, buffer, kernels::Combine::sum, {}, root}))
    return ready(std::move(own));
  // A ring in which the root's piece is the whole buffer: a chain from the root. Each segment is passed on
  // while the next arrives, so a large buffer takes the time of one transfer for any P.
  const std::int64_t count = buffer.numel();
  std::vector<Range> pieces(static_cast<std::size_t>(world_size()), Range{0, 0});
  std::fill(pieces.begin() + root, pieces.end(), Range{count, count});
  pieces[static_cast<std::size_t>(root)].begin = 0;
  return ready(std::make_unique<Ring>(
      transport_, world(),
      PhaseOf{Phase::all_gather, buffer, {}, {}, std::move(pieces), options_.segment_bytes, "broadcast"}));
}

std::unique_ptr<Collective> Communicator::all_gather_small(const Tensor& buffer) {
  check_buffer("all_gather", buffer, transport_.device());
  std::vector<Range> pieces = equal_pieces(buffer.numel(), world_size());
  if (transport_.grouped()) {
    if (auto own = native({What::all_gather, buffer, {}, pieces})) return ready(std::move(own));
  }
  return ready(std::make_unique<RankOrder>(transport_, world(),
                                           PhaseOf{Phase::all_gather, buffer, {}, {}, std::move(pieces), 0}));
}

std::unique_ptr<Collective> Communicator::barrier() {
  return ready(std::make_unique<Barrier>(transport_, world()));
}

std::int64_t Communicator::start(Collective& collective, std::int64_t bucket, std::int64_t launch_us) {
  Call call = collective.call();
  call.bucket = bucket;
  const Tag tag = session().begin(call, launch_us);
  const std::int64_t seq = session().flight().size() - 1;
  if (options_.compare_calls && world_size() > 1) compare(call, seq, tag);
  collective.start(tag);
  return seq;
}

// Uses the tag of the following call: messages between two ranks stay in order.
void Communicator::compare(const Call& call, std::int64_t seq, Tag tag) {
  if (!calls_) calls_ = std::make_unique<Exchange>(*this, kCallBytes);
  std::string mine = fmt::format("{} #{}", call.name, seq);
  if (call.bucket >= 0) mine += fmt::format(", bucket {}", call.bucket);
  if (call.count > 0) mine += fmt::format(", {} {}", call.count, name_of(call.dtype));
  mine.resize(kCallBytes - 1);  // plus a terminating zero
  std::memcpy(calls_->row(rank()), mine.c_str(), kCallBytes);
  calls_->upload();
  calls_->gather().filled();
  calls_->gather().start(tag);
  finish(calls_->gather(), transport_, {.timeout = options_.timeout, .bucket = call.bucket, .last = false});
  calls_->download();
  for (int other = 0; other < world_size(); ++other) {
    const char* theirs = reinterpret_cast<const char*>(calls_->row(other));
    if (std::memcmp(theirs, mine.c_str(), kCallBytes) == 0) continue;
    const ArgumentError error(fmt::format(
        "all ranks must start the same collectives in the same order, but rank {} starts {}, and rank {} {}",
        rank(), mine.c_str(), other, theirs));
    if (session().on_failure) session().on_failure(Failure::error, error);
    throw ArgumentError(error);
  }
}

void Communicator::run(Collective& collective, std::int64_t bucket) {
  session().check_free(collective.name());
  try {
    collective.filled();
    start(collective, bucket);
    finish(collective, transport_, {.timeout = options_.timeout, .bucket = bucket});
  } catch (const std::exception& error) {
    session().give_up(error.what());
    throw;
  }
}

}  // namespace athanor::dist
