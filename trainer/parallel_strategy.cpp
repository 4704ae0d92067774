#include "trainer/parallel_strategy.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <sstream>
#include <utility>

#include "dist/collectives/exchange.h"
#include "dist/ddp.h"
#include "dist/watch/watchdog.h"
#include "dist/zero1.h"
#include "kernels/hash.h"
#include "optim/step.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

/// For a single part, its own hash.
template <class Parts, class Hash> std::uint64_t hash_of_all(const Parts& parts, const Hash& hash) {
  std::uint64_t all = hash(parts.at(0));
  for (std::size_t i = 1; i < parts.size(); ++i) all = kernels::mix64(all + i) ^ hash(parts[i]);
  return all;
}

class SingleStrategy final : public ParallelStrategy {
 public:
  Strategy kind() const override { return Strategy::single; }
  int rank() const override { return 0; }
  int world_size() const override { return 1; }

  ArenaOptions arena_options(const ArenaOptions& options) override { return options; }
  void attach(ParameterArena& arena, PhaseTimes&) override {
    parts_.push_back(std::make_unique<Part>(arena));
  }
  void detach() override { parts_.clear(); }
  std::optional<dist::GradientSync::NoSync> begin_pass(ParameterArena&, bool) override {
    return std::nullopt;
  }
  dist::StopVote cast(const dist::StopVote& vote) override { return vote; }
  dist::StopVote reduce(ParameterArena& arena, StepBuffer& step, const GradientLimits& limits) override {
    for (const auto& part : parts_) {
      if (&part->arena == &arena) part->meter.measure(step, limits);
    }
    return {};
  }
  std::uint64_t weights_hash() override {
    return hash_of_all(parts_, [](const auto& part) { return part->arena.weights_hash(); });
  }
  dist::StopVote agree(const dist::StopVote& vote) override { return vote; }
  std::vector<std::byte> all_gather(std::span<const std::byte> row) override {
    return {row.begin(), row.end()};
  }
  void write_state(const std::function<StateDict()>& make, const WriteState& write) override {
    write(make(), dist::read_whole);
  }

 private:
  struct Part {
    explicit Part(ParameterArena& of) : arena(of), meter(of) {}
    ParameterArena& arena;
    GradientMeter meter;
  };
  std::vector<std::unique_ptr<Part>> parts_;
};

dist::Overlap overlap_of(const dist::Transport& transport, const TrainerConfig& config) {
  if (!config.overlap) return dist::Overlap::none;
  return transport.threads_may_call() ? dist::Overlap::thread : dist::Overlap::pumped;
}

/// While rank 0 saves, the watchdog must not consider it lost.
class SlowSave {
 public:
  SlowSave() { tell(0); }
  ~SlowSave() { tell(-1); }
  SlowSave(const SlowSave&) = delete;
  SlowSave& operator=(const SlowSave&) = delete;

 private:
  static void tell(int rank) {
    if (auto* watchdog = dist::Watchdog::current()) watchdog->set_slow_rank(rank);
  }
};

/// Shared by DDP and ZeRO-1.
class SyncedStrategy : public ParallelStrategy {
 public:
  SyncedStrategy(dist::Transport& transport, const TrainerConfig& config)
      : comm_(transport, config.collectives),
        buckets_(config.buckets),
        overlap_(overlap_of(transport, config)) {}

  int rank() const override { return comm_.rank(); }
  int world_size() const override { return comm_.world_size(); }

  void attach(ParameterArena& arena, PhaseTimes& times) override {
    settle();
    syncs_.push_back(make_sync(
        arena,
        {.overlap = overlap_, .number = static_cast<std::int32_t>(syncs_.size()), .agreement = &agreement_}));
    times_ = &times;
  }
  void detach() override {
    syncs_.clear();
    times_ = &discarded_times_;
    agreement_ = {};
    known_ = {};
    signal_ = false;
  }
  dist::PassNetwork pass_network() override { return comm_; }

  std::optional<dist::GradientSync::NoSync> begin_pass(ParameterArena& arena, bool last) override {
    dist::GradientSync& sync = sync_of(arena);
    if (syncs_.size() > 1) settle();  // weights of another arena may be in flight
    if (last) return std::nullopt;
    return std::optional<dist::GradientSync::NoSync>(std::in_place, sync);
  }
  dist::StopVote cast(const dist::StopVote& vote) override {
    agreement_.cast(vote);
    return {};
  }
  dist::StopVote reduce(ParameterArena& arena, StepBuffer& step, const GradientLimits& limits) override {
    const auto timed = communication();
    sync_of(arena).reduce(step, limits);
    const dist::StopVote all = tell_watchdog(agreement_.outcome());
    // Ranks' devices may differ in progress; steps before this message are known to all ranks.
    if (!step.device().is_cpu()) known_ = step.known();
    return all;
  }
  const StepState& known(const StepBuffer& step) const override {
    return step.device().is_cpu() ? step.known() : known_;
  }
  std::vector<std::string> unused(int rank) const override {
    std::vector<std::string> all;
    for (const auto& sync : syncs_) {
      const std::vector<std::string> names = sync->unused(rank);
      const auto parameters = sync->arena().parameters();
      const auto asking = std::count_if(parameters.begin(), parameters.end(),
                                        [](const Parameter& one) { return one.tensor.requires_grad(); });
      if (std::ssize(names) != asking) all.insert(all.end(), names.begin(), names.end());
    }
    return all;
  }
  std::uint64_t weights_hash() override {
    return hash_of_all(syncs_, [](const auto& sync) { return sync->weights_hash(); });
  }
  void broadcast_buffers() override {
    for (const auto& sync : syncs_) sync->broadcast_buffers();
  }

  dist::StopVote agree(const dist::StopVote& vote) override {
    dist::StopVote mine = vote;  // and a vote cast after a step, not yet sent with any message
    const dist::StopVote cast = agreement_.take();
    if (cast.out_of_time != 0) mine.out_of_time = cast.out_of_time;
    if (cast.save != 0) mine.save = cast.save;
    const std::vector<dist::StopVote> all = gather(std::span<const dist::StopVote>(&mine, 1));
    return tell_watchdog(agreement_.settle(
        world_size(), [&](int of) -> const dist::StopVote& { return all[static_cast<std::size_t>(of)]; }));
  }
  void end_agreements() override {
    if (auto* watchdog = dist::Watchdog::current()) watchdog->agreed(true);
  }
  std::vector<std::byte> all_gather(std::span<const std::byte> row) override {
    const auto timed = communication();
    dist::Exchange rows(comm_, static_cast<std::int64_t>(row.size()));
    std::memcpy(rows.row(rank()), row.data(), row.size());
    rows.upload();
    rows.run();
    return {rows.row(0), rows.row(0) + row.size() * static_cast<std::size_t>(world_size())};
  }
  void write_state(const std::function<StateDict()>& make, const WriteState& write) override {
    const SlowSave slow;
    const auto timed = communication();
    const bool sharded = kind() == Strategy::zero1;  // else only rank 0's state is saved
    const StateDict shards = sharded ? make() : StateDict();
    dist::gather_state(comm_, shards, [&](const dist::ReadTensor& read) {
      if (sharded) return write(shards, read);
      write(make(), read);
    });
    tell_watchdog({});
  }

 protected:
  /// For calls that use the network: first completes what is in flight, since all ranks have started it.
  struct Communication {
    explicit Communication(SyncedStrategy& of) : timed(*of.times_, &Times::communication) { of.settle(); }
    PhaseTimes::Scope timed;
  };
  Communication communication() { return Communication(*this); }
  void settle() {
    for (const auto& sync : syncs_) sync->settle();
  }
  dist::GradientSync& sync_of(const ParameterArena& arena) {
    return **std::find_if(syncs_.begin(), syncs_.end(),
                          [&](const auto& sync) { return &sync->arena() == &arena; });
  }
  /// All ranks have just heard from each other.
  dist::StopVote tell_watchdog(const dist::StopVote& all) {
    signal_ = signal_ || all.signal != 0;
    if (auto* watchdog = dist::Watchdog::current()) watchdog->agreed(signal_);
    return all;
  }
  virtual std::unique_ptr<dist::GradientSync> make_sync(ParameterArena& arena,
                                                        const dist::SyncOptions& options) = 0;

  dist::Communicator comm_;
  dist::BucketOptions buckets_;
  dist::Overlap overlap_;
  std::vector<std::unique_ptr<dist::GradientSync>> syncs_;

 private:
  Times discarded_;
  PhaseTimes discarded_times_{discarded_};
  PhaseTimes* times_ = &discarded_times_;
  dist::StepAgreement agreement_;
  StepState known_;
  bool signal_ = false;  // agreed on by all ranks
};

class DdpStrategy final : public SyncedStrategy {
 public:
  using SyncedStrategy::SyncedStrategy;
  Strategy kind() const override { return Strategy::ddp; }
  ArenaOptions arena_options(const ArenaOptions& options) override {
    return dist::bucketed(options, world_size(), buckets_);
  }
  void check_weights(std::uint64_t hash) override {
    const std::vector<std::uint64_t> all = gather<std::uint64_t>(std::span(&hash, 1));
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      detail::fail<Error>(
          "ddp: all ranks must have the same weights, but those of rank {} have drifted from rank 0's; Muon "
          "gives equal results only with equal CPUs, --threads and libraries on all ranks; use zero1, which "
          "updates each weight on one rank",
          rank);
    }
  }

 private:
  std::unique_ptr<dist::GradientSync> make_sync(ParameterArena& arena,
                                                const dist::SyncOptions& options) override {
    return std::make_unique<dist::Ddp>(arena, comm_, options);
  }
};

class Zero1Strategy final : public SyncedStrategy {
 public:
  using SyncedStrategy::SyncedStrategy;
  Strategy kind() const override { return Strategy::zero1; }
  ArenaOptions arena_options(const ArenaOptions& options) override {
    dist::BucketOptions buckets = buckets_;
    buckets.whole_parameters |= options.whole_parameters;
    return dist::sharded(options, comm_, buckets);
  }
  bool overlap_weights(nn::Module& model, bool may) override {
    double votes[] = {may && overlap_ != dist::Overlap::none ? 1.0 : 0.0};
    add_up(votes);
    if (votes[0] != world_size()) return false;
    for (const auto& sync : syncs_) zero1(sync).overlap_gather(model, dist::Zero1::Trust::after_a_step);
    return true;
  }
  void publish_weights() override {
    for (const auto& sync : syncs_) {
      if (zero1(sync).gathered()) continue;
      const auto timed = communication();
      zero1(sync).gather_weights();
    }
  }
  void complete_weights() override {
    publish_weights();
    const auto timed = communication();
  }
  double take_waited_s() override {
    double seconds = 0;
    for (const auto& sync : syncs_) seconds += zero1(sync).take_waited_s();
    return seconds;
  }

 private:
  std::unique_ptr<dist::GradientSync> make_sync(ParameterArena& arena,
                                                const dist::SyncOptions& options) override {
    return std::make_unique<dist::Zero1>(arena, comm_, options);
  }
  static dist::Zero1& zero1(const std::unique_ptr<dist::GradientSync>& sync) {
    return static_cast<dist::Zero1&>(*sync);
  }
};

}  // namespace

std::unique_ptr<ParallelStrategy> ParallelStrategy::make(dist::Transport* transport,
                                                         const TrainerConfig& config) {
  // A program that does not start ranks must not appear to.
  ATH_CHECK(transport || config.devices <= 1,
            "--devices {}: this program trains in one process; create its Trainer inside run_on_ranks()",
            config.devices);
  if (!transport || transport->world_size() == 1) return std::make_unique<SingleStrategy>();
  ATH_CHECK(config.strategy != Strategy::single,
            "--strategy single: must have one rank, but there are {}; use ddp or zero1",
            transport->world_size());
  ATH_CHECK(config.batch_size >= transport->world_size(),
            "--batch-size: must be at least one image for each of {} ranks, but is {} over all ranks",
            transport->world_size(), config.batch_size);
  if (config.strategy == Strategy::zero1) return std::make_unique<Zero1Strategy>(*transport, config);
  return std::make_unique<DdpStrategy>(*transport, config);
}

std::string ParallelStrategy::describe(const std::string& note) const {
  std::string text(name_of(kind()));
  if (world_size() > 1) text += fmt::format(" on {} ranks", world_size());
  return note.empty() ? text : fmt::format("{} ({})", text, note);
}

void ParallelStrategy::add_up(std::span<double> values) {
  const std::vector<double> rows = gather<double>(values);
  std::fill(values.begin(), values.end(), 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) values[i % values.size()] += rows[i];
}

std::vector<std::string> ParallelStrategy::gather(const std::string& mine) {
  const std::size_t length = mine.size();
  const std::vector<std::size_t> lengths = gather(std::span(&length, 1));
  const std::size_t most = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::string> texts(lengths.size());
  if (most == 0) return texts;
  const std::size_t padded = (most + 7) / 8 * 8;
  std::string row = mine;
  row.resize(padded);
  const std::vector<std::byte> rows = all_gather(std::as_bytes(std::span(row)));
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    texts[rank].assign(reinterpret_cast<const char*>(rows.data()) + rank * padded, lengths[rank]);
  return texts;
}

void ParallelStrategy::run_on_rank0(const std::function<void()>& work) {
  std::exception_ptr error;
  std::string why;
  try {
    if (is_rank0()) work();
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    why = thrown.what();
  }
  why = broadcast_from_rank0(why);
  if (error) std::rethrow_exception(error);
  if (!why.empty()) detail::fail<>("{}", why);
}

std::string ParallelStrategy::broadcast_from_rank0(const std::string& text) {
  return gather(is_rank0() ? text : std::string())[0];
}

void ParallelStrategy::check_same(const StateDict& settings) {
  std::string lines;
  for (const StateDict::Entry& entry : settings)
    lines += entry.name + "\n" + std::get<std::string>(entry.value) + "\n";
  // All ranks learn all lines, so that all end with the same message.
  const std::vector<std::string> all = gather(lines);
  const auto parsed = [](const std::string& text) {
    StateDict values;
    std::istringstream in(text);
    for (std::string name, value; std::getline(in, name) && std::getline(in, value);) values.set(name, value);
    return values;
  };
  const auto value = [](const StateDict& of, const std::string& name) {
    return of.contains(name) ? of.text(name) : "missing";
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const StateDict first = parsed(all[0]), theirs = parsed(all[rank]);
    std::vector<std::string> names = theirs.names();
    for (const std::string& name : first.names()) {
      if (!theirs.contains(name)) names.push_back(name);
    }
    std::string why;
    for (const std::string& name : names) {
      if (value(theirs, name) == value(first, name)) continue;
      why += fmt::format("{}{} is '{}', not '{}'", why.empty() ? "" : ", ", name, value(theirs, name),
                         value(first, name));
    }
    ATH_CHECK(why.empty(),
              "ranks: all must train with the same settings and data, but rank {} differs from rank 0: {}",
              rank, why);
  }
}

}  // namespace athanor
