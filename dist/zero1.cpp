#include "dist/zero1.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "dist/bucket_runner.h"
#include "dist/collectives/exchange.h"
#include "dist/collectives/slice.h"

namespace athanor::dist {
namespace {

std::vector<ArenaRange> shards_of(const BucketLayout& layout, int rank) {
  std::vector<ArenaRange> shards;
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const Range shard = layout.shard(static_cast<int>(b), rank);
    shards.push_back({layout.buckets()[b].part, shard.begin, shard.end});
  }
  return shards;
}

}  // namespace

ArenaOptions sharded(ArenaOptions options, Communicator& comm, const BucketOptions& buckets) {
  options = bucketed(std::move(options), comm.world_size(), buckets);
  options.keep = [&comm](const ArenaLayout& arena) {
    const BucketLayout layout(arena, comm.world_size(), comm.options());
    layout.agree("zero1", comm);
    const Device device = comm.transport().device();
    for (const Parameter& parameter : arena.parameters) {
      const Tensor& handle = parameter.tensor;
      if (handle.numel() == 0) continue;
      const Tensor values = slice_of(handle.detach(), 0, {handle.numel()});
      const Tensor there = values.to(device);
      comm.run(*comm.broadcast(there, 0));
      if (values.device() != device) values.copy_bytes_from(there.to(values.device()));
    }
    return shards_of(layout, comm.rank());
  };
  return options;
}

Zero1::Zero1(ParameterArena& arena, Communicator& comm, const SyncOptions& options)
    : GradientSync("zero1", Kind::reduce_scatter, arena, comm, options),
      overlap_(options.overlap),
      gathered_(arena.updates()),
      exceptions_(std::uncaught_exceptions()) {
  std::vector<ArenaRange> shards = shards_of(layout(), comm.rank());
  for (const Shards::Owned& owned : arena.shards().owned()) {
    const bool known = std::any_of(shards.begin(), shards.end(), [&](const ArenaRange& shard) {
      return shard.part == owned.part && shard.begin == owned.begin && shard.end == owned.end;
    });
    ATH_CHECK(known, "zero1: the arena must be sharded for this communicator, but keeps [{}, {}) of part {}",
              owned.begin, owned.end, owned.part);
  }
  make_runner(Overlap::none);
}

Zero1::~Zero1() {
  end_overlap();
  if (std::uncaught_exceptions() > exceptions_) return;
  try {
    settle();
  } catch (const std::exception&) {
    // The transport keeps the reason: its next use throws it.
  }
}

void Zero1::make_runner(Overlap overlap) {
  std::vector<std::unique_ptr<Collective>> gathers;
  for (std::size_t b = layout().buckets().size(); b-- > 0;) {  // the first layers are in the last bucket
    const BucketLayout::Bucket& bucket = layout().buckets()[b];
    const ParameterArena::Part& part = arena().parts()[static_cast<std::size_t>(bucket.part)];
    gathers.push_back(comm().all_gather(slice(part.weights, bucket.range), bucket.pieces));
  }
  gathers_ = std::make_unique<BucketRunner>(comm(), overlap, std::move(gathers), true);
}

void Zero1::gather_weights() {
  settle();
  arena().bump_weights();
  gathered_ = arena().updates();
  const auto buckets = static_cast<int>(layout().buckets().size());
  if (buckets == 0) return;
  if (look_ == Look::looking && read_any_) look_ = Look::passed;
  std::fill(called_.begin(), called_.end(), 0);
  gathering_ = true;
  waited_ = 0;
  while (gathers_->launched() < buckets) gathers_->launch();
  if (look_ != Look::passed) settle();
}

void Zero1::settle() {
  if (!gathering_) return;
  gathering_ = false;
  gathers_->finish();
}

void Zero1::overlap_gather(nn::Module& model, Trust trust) {
  ATH_CHECK(look_ == Look::off, "zero1: overlap_gather() must be called once, or after end_overlap()");
  settle();
  std::vector<char> found(static_cast<std::size_t>(arena().size()));
  model.for_each_module([&](nn::Module& module, const std::vector<Parameter>& own) {
    int last = 0;
    std::vector<int> mine;
    for (int i = 0; i < arena().size(); ++i) {
      const Tensor& handle = arena().parameters()[static_cast<std::size_t>(i)].tensor;
      const bool has = std::any_of(own.begin(), own.end(),
                                   [&](const Parameter& one) { return one.tensor.same_as(handle); });
      if (!has) continue;
      found[static_cast<std::size_t>(i)] = 1;
      mine.push_back(i);
      if (layout().bucket_of(i) < 0) continue;  // empty parameter
      last = std::max(last, place_of_bucket(layout().bucket_of(i)));
    }
    if (last == 0) return;
    module.before_call([this, last, mine = std::move(mine)] {
      for (const int i : mine) called_[static_cast<std::size_t>(i)] = 1;
      wait_for(last);
    });
    hooked_.push_back(&module);
  });
  for (int i = 0; i < arena().size(); ++i) {
    if (found[static_cast<std::size_t>(i)]) continue;
    end_overlap();
    detail::fail<>("zero1: the model must have all parameters of the arena, but lacks {}",
                   arena().parameters()[static_cast<std::size_t>(i)].name);
  }
  called_.assign(static_cast<std::size_t>(arena().size()), 0);
  read_any_ = false;
  look_ = trust == Trust::now ? Look::passed : Look::looking;
  make_runner(overlap_);
}

void Zero1::end_overlap() {
  for (nn::Module* module : hooked_) module->before_call(nullptr);
  hooked_.clear();
  look_ = Look::off;
}

// Waits for the first `count` gathers.
void Zero1::wait_for(int count) {
  if (!gathering_) return;
  if (count > waited_) {
    const auto began = std::chrono::steady_clock::now();
    gathers_->wait(count);
    waited_ = count;
    waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  gathers_->pump();
  if (waited_ == place_of_bucket(0)) settle();
}

void Zero1::read(int parameter) {
  if (look_ == Look::looking) {
    read_any_ = true;
    if (called_[static_cast<std::size_t>(parameter)]) return;
    look_ = Look::failed;
  }
  const int bucket = layout().bucket_of(parameter);
  ATH_CHECK(!gathering_ || bucket < 0 || place_of_bucket(bucket) <= waited_,
            "zero1: a forward pass must wait for weights, but {} was read while they were being gathered; "
            "call its module, not its forward()",
            arena().parameters()[static_cast<std::size_t>(parameter)].name);
}

void Zero1::check_weights() {
  settle();
  ATH_CHECK(
      arena().updates() == gathered_,
      "zero1: weights of all ranks must be gathered before the next step, but the optimizer has stepped "
      "since; call gather_weights() after it");
}

// The sum modulo 2^64: the order of ranks does not matter.
std::uint64_t Zero1::weights_hash() {
  settle();
  std::uint64_t total = 0;
  for (const std::uint64_t hash : gather_values(comm(), arena().owned_hash())) total += hash;
  return arena().hash_of(total);
}

}  // namespace athanor::dist
