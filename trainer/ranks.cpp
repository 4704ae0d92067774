#include "trainer/ranks.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

#include "tensor/error.h"

namespace athanor {

class Ranks::Timed {
 public:
  /// What else is under way comes first: all ranks have begun it.
  explicit Timed(Ranks& ranks) : ranks_(ranks), began_(std::chrono::steady_clock::now()) {
    if (ranks.sync_) ranks.sync_->settle();
  }
  ~Timed() {
    ranks_.seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  Ranks& ranks_;
  std::chrono::steady_clock::time_point began_;
};

Ranks::Ranks(dist::Transport* transport, const TrainerConfig& config)
    : buckets_(config.buckets),
      overlap_(config.overlap ? dist::Overlap::thread : dist::Overlap::none),
      sync_bn_(config.sync_bn) {
  // A program that does not start them must not seem to.
  ATH_CHECK(transport || config.devices <= 1,
            "--devices {}: this program trains in one process: its Trainer must be made in run_on_ranks()",
            config.devices);
  if (!transport || transport->world_size() == 1) return;
  if (config.overlap && !transport->threads_may_call()) overlap_ = dist::Overlap::pumped;
  strategy_ = config.strategy == Strategy::automatic ? Strategy::ddp : config.strategy;
  ATH_CHECK(strategy_ != Strategy::single,
            "--strategy single: must have one rank, but there are {}; use ddp or "
            "zero1",
            transport->world_size());
  ATH_CHECK(config.batch_size >= transport->world_size(),
            "--batch-size: must be at least one image for each of the {} ranks, but is {} for all of them",
            transport->world_size(), config.batch_size);
  comm_ = std::make_unique<dist::Communicator>(*transport, config.collectives);
  wishes_ = std::make_unique<dist::Exchange>(*comm_, static_cast<std::int64_t>(sizeof(Wish)));
}

Ranks::~Ranks() = default;

std::string Ranks::describe(const TrainerConfig& config) const {
  const std::string note = config.ranks_note.empty() ? "" : fmt::format(" ({})", config.ranks_note);
  return alone() ? "single" + note : fmt::format("{} on {} ranks{}", name_of(strategy_), world_size(), note);
}

// The model -------------------------------------------------------------------------------------------------

ArenaOptions Ranks::shared(const ArenaOptions& options) const {
  if (alone()) return options;
  return strategy_ == Strategy::zero1 ? dist::sharded(options, *comm_, buckets_)
                                      : dist::bucketed(options, world_size(), buckets_);
}

void Ranks::share(ParameterArena& arena) {
  let_go();
  if (alone()) return;
  const dist::SyncOptions options{.overlap = overlap_};
  if (strategy_ == Strategy::zero1) {
    auto zero1 = std::make_unique<dist::Zero1>(arena, *comm_, options);
    zero1_ = zero1.get();
    sync_ = std::move(zero1);
  } else {
    sync_ = std::make_unique<dist::Ddp>(arena, *comm_, options);
  }
}

void Ranks::let_go() {
  zero1_ = nullptr;
  sync_.reset();
}

std::unique_ptr<dist::SyncBatchNorm> Ranks::join_norms(nn::Module& model) const {
  return joins_norms() ? std::make_unique<dist::SyncBatchNorm>(model, *comm_) : nullptr;
}

std::optional<dist::GradientSync::NoSync> Ranks::keep_to_itself(bool last) {
  if (!sync_ || last) return std::nullopt;
  return std::optional<dist::GradientSync::NoSync>(std::in_place, *sync_);
}

bool Ranks::reduce(StepBuffer& step, const GradientLimits& limits) {
  if (!sync_) return false;
  const Timed timed(*this);
  sync_->reduce(step, limits);
  return true;
}

std::vector<std::string> Ranks::unused(int rank) const {
  if (!sync_) return {};
  std::vector<std::string> names = sync_->unused(rank);
  const auto parameters = sync_->arena().parameters();
  const auto asking = std::count_if(parameters.begin(), parameters.end(),
                                    [](const Parameter& one) { return one.tensor.requires_grad(); });
  if (static_cast<std::ptrdiff_t>(names.size()) == asking) names.clear();
  return names;
}

std::unique_ptr<Ranks::GatherOverlap> Ranks::overlap_gather(nn::Module& model, bool may) {
  if (!zero1_) return nullptr;
  const double mine = may && overlap_ != dist::Overlap::none;
  const std::vector<double> all = gather(std::span(&mine, 1));
  if (std::find(all.begin(), all.end(), 0.0) != all.end()) return nullptr;
  zero1_->overlap_gather(model, dist::Zero1::Trust::after_a_step);
  return std::make_unique<GatherOverlap>(*this);
}

void Ranks::begin_gather() {
  if (!zero1_ || zero1_->gathered()) return;
  const Timed timed(*this);
  zero1_->gather_weights();
}

void Ranks::complete_weights() {
  if (!zero1_) return;
  begin_gather();
  const Timed timed(*this);
}

std::uint64_t Ranks::weights_hash(const ParameterArena& arena) {
  return arena.weights_hash();
}

void Ranks::check_weights(std::uint64_t hash) {
  if (alone() || sharded()) return;               // shards have one owner each
  const auto mine = std::bit_cast<double>(hash);  // of which the bytes travel
  const std::vector<double> all = gather(std::span(&mine, 1));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (std::bit_cast<std::uint64_t>(all[rank]) == std::bit_cast<std::uint64_t>(all[0])) continue;
    detail::fail<Error>(
        "ddp: all ranks must have the same weights, but those of rank {} are no longer rank 0's; an "
        "optimizer "
        "that multiplies matrices (Muon) does the same on all only where CPUs, --threads and libraries are "
        "the "
        "same: use zero1, where each weight is updated by one rank",
        rank);
  }
}

void Ranks::share_buffers() {
  if (sync_) sync_->broadcast_buffers();
}

void Ranks::write_state(const std::function<StateDict()>& make, const WriteState& write) {
  if (alone()) return write(make(), dist::read_whole);
  const Timed timed(*this);
  if (!sharded()) return dist::gather_state(*comm_, {}, [&](const auto& read) { write(make(), read); });
  const StateDict state = make();
  dist::gather_state(*comm_, state, [&](const auto& read) { write(state, read); });
}

// What is agreed on -----------------------------------------------------------------------------------------

Ranks::Wish Ranks::agree(const Wish& mine) {
  if (alone()) return mine;
  const Timed timed(*this);
  std::memcpy(wishes_->row(rank()), &mine, sizeof mine);
  wishes_->upload();
  wishes_->run();
  Wish all;
  for (int rank = world_size() - 1; rank >= 0; --rank) {
    Wish wish;
    std::memcpy(&wish, wishes_->row(rank), sizeof wish);
    all.out_of_time = wish.out_of_time;  // in the end, rank 0's
    if (wish.signal != 0) all.signal = wish.signal;
    if (wish.stop < 0) continue;
    all.stop = wish.stop;
    all.from = rank;
  }
  return all;
}

std::vector<double> Ranks::gather(std::span<const double> mine) {
  if (alone()) return {mine.begin(), mine.end()};
  const Timed timed(*this);
  dist::Exchange rows(*comm_, static_cast<std::int64_t>(mine.size_bytes()));
  std::memcpy(rows.row(rank()), mine.data(), mine.size_bytes());
  rows.upload();
  rows.run();
  std::vector<double> all(mine.size() * static_cast<std::size_t>(world_size()));
  std::memcpy(all.data(), rows.row(0), all.size() * sizeof(double));
  return all;
}

void Ranks::add_up(std::span<double> values) {
  if (alone()) return;
  const std::vector<double> rows = gather(values);
  std::fill(values.begin(), values.end(), 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) values[i % values.size()] += rows[i];
}

std::vector<std::string> Ranks::gather(const std::string& mine) {
  if (alone()) return {mine};
  double length = static_cast<double>(mine.size());
  const std::vector<double> lengths = gather(std::span(&length, 1));
  const auto most = static_cast<std::int64_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::string> texts(lengths.size());
  if (most == 0) return texts;
  dist::Exchange rows(*comm_, (most + 7) / 8 * 8);
  std::memcpy(rows.row(rank()), mine.data(), mine.size());
  rows.upload();
  rows.run();
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    texts[rank].assign(reinterpret_cast<const char*>(rows.row(static_cast<int>(rank))),
                       static_cast<std::size_t>(lengths[rank]));
  return texts;
}

void Ranks::first_does(const std::function<void()>& work) {
  std::exception_ptr error;
  std::string why;
  try {
    if (first()) work();
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    why = thrown.what();
  }
  why = of_first(why);
  if (error) std::rethrow_exception(error);
  if (!why.empty()) detail::fail<>("{}", why);
}

std::string Ranks::of_first(const std::string& text) {
  return alone() ? text : gather(first() ? text : std::string())[0];
}

void Ranks::check_same(const StateDict& settings) {
  if (alone()) return;
  std::string lines;
  for (const StateDict::Entry& entry : settings)
    lines += entry.name + "\n" + std::get<std::string>(entry.value) + "\n";
  const std::string first = of_first(lines);
  StateDict theirs;
  for (std::size_t at = 0; at < first.size();) {
    const std::size_t name = first.find('\n', at), value = first.find('\n', name + 1);
    theirs.set(first.substr(at, name - at), first.substr(name + 1, value - name - 1));
    at = value + 1;
  }
  std::string why;
  const auto compare = [&](const std::string& name) {
    const auto value = [&](const StateDict& of) { return of.contains(name) ? of.text(name) : "not there"; };
    if (value(settings) == value(theirs)) return;
    why +=
        fmt::format("{}{} is '{}', not '{}'", why.empty() ? "" : ", ", name, value(settings), value(theirs));
  };
  for (const StateDict::Entry& entry : settings) compare(entry.name);
  for (const StateDict::Entry& entry : theirs) {
    if (!settings.contains(entry.name)) compare(entry.name);
  }
  // All learn of it, so that all end with the same words.
  const std::vector<std::string> all = gather(why);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    detail::fail<>("ranks: all must train the same, but rank {} differs from rank 0: {}", rank, all[rank]);
  }
}

double Ranks::take_seconds() {
  return std::exchange(seconds_, 0);
}

}  // namespace athanor
