#include "dist/gather_state.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "dist/collectives/exchange.h"
#include "dist/collectives/slice.h"
#include "kernels/hash.h"
#include "optim/flat.h"

namespace athanor::dist {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
constexpr std::size_t kTextBytes = 1008;

/// A run of a tensor's elements, and the rank that owns it.
struct OwnedRun {
  std::int64_t begin = 0, count = 0, rank = 0;
};

/// Messages to rank 0, all at once.
class ToRank0 final : public PointToPoint {
 public:
  struct Message {
    int rank = 0;                ///< the sender
    std::span<std::byte> bytes;  ///< on rank 0, the destination; on others, their own data
  };
  ToRank0(Transport& transport, std::vector<Message> messages)
      : PointToPoint("gather of a checkpoint", transport, {0, 1, transport.world_size()}, {}, {},
                     static_cast<int>(messages.size()) + 1),
        messages_(std::move(messages)) {}

  void start(Tag tag) override {
    for (const Message& message : messages_) {
      if (index_ == 0) {
        incoming_.receive(message.rank, tag, message.bytes);
      } else {
        outgoing_.send(0, tag, message.bytes);
      }
    }
  }
  bool advance() override {
    do {
      while (incoming_.pop()) ++received_;
      while (outgoing_.pop()) ++sent_;
    } while (incoming_.flush());
    return incoming_.empty() && outgoing_.empty();
  }

 private:
  std::vector<Message> messages_;
};

class Gather {
 public:
  Gather(Communicator& comm, const StateDict& state) : comm_(comm), notice_(comm, sizeof(Notice)) {
    for (const StateDict::Entry& entry : state) {
      if (const auto* part = std::get_if<ShardedTensor>(&entry.value)) sharded_.push_back({entry, *part, {}});
    }
    const std::int64_t most = most_runs();
    if (!sharded_.empty()) exchange_runs(most);
  }

  // Rank 0's side.

  void read(const StateDict::Entry& entry, const std::function<void(std::span<const std::byte>)>& sink) {
    if (std::get_if<Tensor>(&entry.value)) return read_whole(entry, sink);
    const auto sharded = std::find_if(sharded_.begin(), sharded_.end(),
                                      [&](const Sharded& one) { return &one.entry == &entry; });
    ATH_CHECK(sharded != sharded_.end(), "gather_state: '{}' must be a tensor of the state that is gathered",
              entry.name);
    for (std::int64_t begin = 0; begin < sharded->part.shape.numel(); begin += sharded->piece()) {
      const Tensor here = [&] {
        const std::lock_guard lock(mutex_);
        announce(sharded - sharded_.begin(), begin);
        return transfer(*sharded, begin).to(kCpu);
      }();
      sink({here.raw_data(), here.bytes()});
    }
  }
  /// Ends serve() on the other ranks, which throw `error` unless it is empty.
  void end(const std::string& error) {
    const std::lock_guard lock(mutex_);
    announce(kEnd, 0, error);
  }

  /// While alive, the other ranks hear from rank 0 often enough, however slowly it writes.
  class Heartbeat {
   public:
    explicit Heartbeat(Gather& gather) {
      if (!gather.comm_.transport().threads_may_call()) return;
      thread_ = std::jthread([this, &gather](const std::stop_token& stop) { run(gather, stop); });
    }

   private:
    void run(Gather& gather, const std::stop_token& stop) {
      const auto often = std::min<std::chrono::milliseconds>(gather.comm_.options().timeout / 4, kOften);
      std::unique_lock lock(gather.mutex_);
      try {
        while (!changed_.wait_for(lock, stop, often, [&] { return stop.stop_requested(); }))
          gather.announce(kStillWriting, 0);
      } catch (const std::exception&) {
        // The transport keeps the reason: rank 0's next announcement throws it.
      }
    }

    std::condition_variable_any changed_;
    std::jthread thread_;  // last: uses the members above
  };

  // Side of the other ranks.

  void serve() {
    for (;;) {
      notice_.run();
      const Notice next = notice();
      if (next.number == kEnd) break;
      if (next.number != kStillWriting)
        (void)transfer(sharded_[static_cast<std::size_t>(next.number)], next.begin);
    }
    const std::string text = notice().text.data();
    if (!text.empty()) detail::fail<IoError>("rank 0 could not save the state of all ranks: {}", text);
  }

 private:
  static constexpr std::int64_t kEnd = -1, kStillWriting = -2;
  static constexpr std::chrono::milliseconds kOften{5000};
  struct Sharded {
    const StateDict::Entry& entry;
    const ShardedTensor& part;
    std::vector<OwnedRun> runs;  // of all ranks, ascending

    /// Number of elements sent at a time.
    std::int64_t piece() const {
      return std::max<std::int64_t>(1, kPieceBytes / static_cast<std::int64_t>(size_of(part.dtype)));
    }
  };
  /// The next piece of a tensor, by the tensor's index among the sharded ones.
  struct Notice {
    std::int64_t number = 0, begin = 0;
    std::array<char, kTextBytes> text{};
  };

  void announce(std::int64_t number, std::int64_t begin, const std::string& text = "") {
    Notice next{.number = number, .begin = begin};
    std::memcpy(next.text.data(), text.data(), std::min(text.size(), next.text.size() - 1));
    std::memcpy(notice_.row(0), &next, sizeof next);
    notice_.upload();
    notice_.run();
  }
  Notice notice() const {
    Notice next;
    std::memcpy(&next, notice_.row(0), sizeof next);
    return next;
  }

  // The largest number of runs that any rank has of a tensor. Also compares states.
  std::int64_t most_runs() {
    kernels::HashOf hash;
    std::int64_t most = 1;
    for (const Sharded& one : sharded_) {
      const std::string text = fmt::format("{} {} {}", one.entry.name, one.part.dtype, one.part.shape);
      for (const char c : text) hash.add(static_cast<unsigned char>(c));
      hash.add(text.size());
      most = std::max(most, std::ssize(one.part.runs));
    }
    struct State {
      std::uint64_t hash;
      std::int64_t most;
    };
    const std::vector<State> states = gather_values(comm_, State{hash.value(), most});
    for (std::size_t rank = 0; rank < states.size(); ++rank) {
      ATH_CHECK(
          states[rank].hash == states[0].hash,
          "gather_state: all ranks must have parts of the same tensors, but rank {} differs from rank 0",
          rank);
      most = std::max(most, states[rank].most);
    }
    return most;
  }

  // Which rank owns which elements.
  void exchange_runs(std::int64_t most) {
    Exchange rows(comm_, std::ssize(sharded_) * most * static_cast<std::int64_t>(sizeof(OwnedRun)));
    const auto table_of = [&](int rank) { return reinterpret_cast<OwnedRun*>(rows.row(rank)); };
    for (OwnedRun* mine = table_of(comm_.rank()); const Sharded& one : sharded_) {
      std::transform(one.part.runs.begin(), one.part.runs.end(), std::exchange(mine, mine + most),
                     [&](const ShardedTensor::Run& run) {
                       return OwnedRun{run.begin, run.values.numel(), comm_.rank()};
                     });
    }
    rows.upload();
    rows.run();
    for (std::size_t i = 0; i < sharded_.size(); ++i) {
      for (int rank = 0; rank < comm_.world_size(); ++rank) {
        const OwnedRun* theirs = table_of(rank) + static_cast<std::int64_t>(i) * most;
        std::copy_if(theirs, theirs + most, std::back_inserter(sharded_[i].runs),
                     [](const OwnedRun& run) { return run.count > 0; });
      }
      check_runs(sharded_[i]);
    }
  }

  static void check_runs(Sharded& of) {
    std::sort(of.runs.begin(), of.runs.end(),
              [](const OwnedRun& a, const OwnedRun& b) { return a.begin < b.begin; });
    std::int64_t next = 0;
    bool whole = true;
    for (const OwnedRun& run : of.runs) {
      whole = whole && run.begin == next;
      next = run.begin + run.count;
    }
    ATH_CHECK(whole && next == of.part.shape.numel(),
              "gather_state: the parts of all ranks must cover '{}', each element exactly once, but do not",
              of.entry.name);
  }

  // Sends one piece of a tensor to rank 0, and returns it there.
  Tensor transfer(const Sharded& sharded, std::int64_t begin) {
    const ShardedTensor& part = sharded.part;
    const auto element = static_cast<std::int64_t>(size_of(part.dtype));
    const std::int64_t end = std::min(begin + sharded.piece(), part.shape.numel());
    if (!staging_.defined() || staging_.numel() < (end - begin) * element) {
      const AllocTag named("comm");
      staging_ = make_flat((end - begin) * element, DType::u8, comm_.transport().device());
    }
    const auto staged = [&](std::int64_t first, std::int64_t last) {
      return as_type(staging_, part.dtype, first - begin, last - first);
    };
    for (const ShardedTensor::Run& run : part.runs) {
      const std::int64_t first = std::max(begin, run.begin),
                         last = std::min(end, run.begin + run.values.numel());
      if (first >= last) continue;
      const Tensor values = slice_of(run.values, first - run.begin, {last - first});
      staged(first, last).copy_bytes_from(values.to(staging_.device()));
    }
    std::vector<ToRank0::Message> messages;
    for (const OwnedRun& run : sharded.runs) {
      const std::int64_t first = std::max(begin, run.begin), last = std::min(end, run.begin + run.count);
      const bool here = comm_.rank() == 0 ? run.rank != 0 : run.rank == comm_.rank();
      if (first < last && here)
        messages.push_back({static_cast<int>(run.rank),
                            bytes_of(staging_, {(first - begin) * element, (last - begin) * element})});
    }
    comm_.run(*comm_.ready(std::make_unique<ToRank0>(comm_.transport(), std::move(messages))));
    return staged(begin, end);
  }

  Communicator& comm_;
  std::vector<Sharded> sharded_;
  Exchange notice_;   // rank 0's Notice
  std::mutex mutex_;  // guards messages to other ranks, on rank 0
  Tensor staging_;
};

}  // namespace

void read_whole(const StateDict::Entry& entry, const std::function<void(std::span<const std::byte>)>& sink) {
  const auto* whole = std::get_if<Tensor>(&entry.value);
  ATH_CHECK(whole,
            "checkpoint: '{}' must be whole, but this rank has only a part; save it on all ranks with "
            "dist::gather_state()",
            entry.name);
  const NoGrad no_grad;
  const Tensor here = contiguous(whole->detach().to(kCpu));
  sink({here.raw_data(), here.bytes()});
}

void gather_state(Communicator& comm, const StateDict& state,
                  const std::function<void(const ReadTensor& read)>& write) {
  Gather gather(comm, state);
  if (comm.rank() != 0) return gather.serve();
  try {
    const Gather::Heartbeat heartbeat(gather);
    write([&](const StateDict::Entry& entry, const auto& sink) { gather.read(entry, sink); });
  } catch (const PeerLostError&) {
    throw;  // no rank can be notified
  } catch (const std::exception& error) {
    gather.end(error.what());
    throw;
  }
  gather.end("");
}

}  // namespace athanor::dist
