#include "dist/transports/shared_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dist/transports/slots.h"
#include "tensor/base/error.h"

namespace athanor::dist {
namespace {

/// Parts of a file are mapped at multiples of the system's page, which has up to 64 KiB (64-bit ARM).
constexpr std::size_t kPage = 64 << 10;
constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Slots of a ring, and their size: only the pages that messages have used take memory.
constexpr std::size_t kRing = 16, kSlotBytes = std::size_t{256} << 10;
/// At most so many bytes are copied in one call of test(), which must not take long.
constexpr std::size_t kCopyBytes = std::size_t{8} << 20;

enum class Stage : std::uint32_t {
  free,       ///< the sender may use it
  posted,     ///< short: in the slot; long: at the sender's address
  asked,      ///< the receiver wants the next piece in the slot
  piece,      ///< it is there
  done,       ///< the receiver has all
  withdrawn,  ///< by the sender: it never completes
};

/// A message in the ring, written by its sender, but for the state.
struct alignas(64) RingEntry {
  std::atomic<std::uint64_t> mark;  ///< the message's number on this channel, from 1 on
  std::atomic<Stage> state;
  Tag tag;
  std::uint64_t bytes;
  const std::byte* address;  ///< in the sender's memory
};

struct Ended {
  std::atomic<bool> gone;
  std::atomic<pid_t> pid;
};

}  // namespace

// At the file's beginning, followed by an Ended for each rank. All begin as zeros.
struct RankMemory::Header {
  std::atomic<int> lost;  ///< the first lost rank, plus 1
  std::atomic<int> exit_code;

  Ended& rank(int i) { return reinterpret_cast<Ended*>(this + 1)[i]; }
};

struct RankMemory::Channel {
  std::array<RingEntry, kRing> ring;
  alignas(4096) std::array<std::array<std::byte, kSlotBytes>, kRing> slots;
};

namespace {

constexpr std::size_t kChannelBytes = whole_pages(sizeof(RankMemory::Channel));

}  // namespace

RankMemory::RankMemory(int world_size) : world_size_(world_size) {
  file_ = ::memfd_create("athanor", MFD_CLOEXEC);
  const auto channels = static_cast<off_t>(world_size) * world_size * SharedMemoryTransport::kNetworks;
  const auto bytes = static_cast<off_t>(header_bytes()) + channels * static_cast<off_t>(kChannelBytes);
  if (file_ < 0 || ::ftruncate(file_, bytes) != 0) {
    const int error = errno;
    if (file_ >= 0) ::close(file_);
    detail::fail<BackendError>("--devices {}: ranks must be able to share memory, but got: {}{}", world_size,
                               std::strerror(error), error == EFBIG ? " (ulimit -f)" : "");
  }
  map_header();
}

RankMemory::RankMemory(int file, int world_size) : file_(file), world_size_(world_size) {
  ::fcntl(file, F_SETFD, FD_CLOEXEC);  // not for what this rank starts
  map_header();
}

RankMemory::~RankMemory() {
  ::munmap(header_, header_bytes());
  ::close(file_);
}

std::size_t RankMemory::header_bytes() const {
  return whole_pages(sizeof(Header) + static_cast<std::size_t>(world_size_) * sizeof(Ended));
}

void RankMemory::map_header() {
  void* const memory = ::mmap(nullptr, header_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED)
    detail::fail<BackendError>("ranks: file descriptor {} must be the memory that they share, but got: {}",
                               file_, std::strerror(errno));
  header_ = static_cast<Header*>(memory);
}

std::shared_ptr<RankMemory::Channel> RankMemory::channel(int network, int from, int to) const {
  const auto index = (static_cast<off_t>(network) * world_size_ + from) * world_size_ + to;
  const auto at = static_cast<off_t>(header_bytes()) + index * static_cast<off_t>(kChannelBytes);
  void* const memory = ::mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED, file_, at);
  if (memory == MAP_FAILED)
    detail::fail<BackendError>(
        "ranks: {} bytes must be free for messages between ranks {} and {}, but got: {}", sizeof(Channel),
        from, to, std::strerror(errno));
  return {static_cast<Channel*>(memory), [](Channel* channel) { ::munmap(channel, sizeof(Channel)); }};
}

void RankMemory::set_ended(int rank, int exit_code) {
  if (exit_code != 0 && header_->lost == 0) {
    header_->exit_code = exit_code;
    header_->lost = rank + 1;
  }
  header_->rank(rank).gone = true;  // last: a rank that sees it can report why
}

namespace {

/// A message as this rank sees it.
struct RankMessage {
  std::byte* data = nullptr;
  std::size_t bytes = 0, copied = 0;
  int peer = 0;
  Tag tag = 0;
  bool sends = false, active = false, complete = false;
  std::int64_t number = -1;  ///< on the channel; -1: not posted, or no sender found
};

/// The ring to or from another rank.
struct MessageRing {
  std::shared_ptr<RankMemory::Channel> channel;
  std::int64_t next = 0;               ///< sender: number of the next message; receiver: oldest not received
  std::array<bool, kRing> received{};  ///< of those after the oldest
  std::vector<std::int32_t> waiting;   ///< messages without a place in the ring, or without a sender

  RingEntry& entry(std::int64_t number) const { return channel->ring[index(number)]; }
  std::byte* slot(std::int64_t number) const { return channel->slots[index(number)].data(); }
  static std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number) % kRing; }
};

}  // namespace

struct SharedMemoryTransport::Impl {
  std::shared_ptr<RankMemory> memory;
  std::shared_ptr<int> networks;  ///< so far, of this rank
  int network, rank;
  bool single_copy;
  Slots<RankMessage> messages = {};
  std::vector<MessageRing> to = {}, from = {};

  Impl(std::shared_ptr<RankMemory> of, std::shared_ptr<int> count, int mine, bool single)
      : memory(std::move(of)),
        networks(std::move(count)),
        network((*networks)++),
        rank(mine),
        single_copy(single) {
    ATH_CHECK(network < kNetworks,
              "shared memory: there must be at most {} networks of a job, but this is another", kNetworks);
    to.resize(static_cast<std::size_t>(memory->world_size()));
    from.resize(to.size());
  }

  MessageRing& ring(const RankMessage& message) {
    const auto peer = static_cast<std::size_t>(message.peer);
    MessageRing& found = message.sends ? to[peer] : from[peer];
    if (!found.channel) {
      found.channel = message.sends ? memory->channel(network, rank, message.peer)
                                    : memory->channel(network, message.peer, rank);
    }
    return found;
  }
  RankMessage& message(std::int32_t slot) { return messages[Request{slot}]; }

  void progress() {
    for (RankMessage& one : messages) {
      if (!one.active || one.complete) continue;
      MessageRing& its = ring(one);
      if (one.number < 0) one.sends ? post(its) : match(its);
      if (one.number >= 0 && !one.complete) one.sends ? give(its, one) : receive(its, one);
    }
  }

  // A sender ----------------------------------------------------------------------------------------------

  /// Gives waiting messages a place in the ring, in order.
  void post(MessageRing& ring) {
    while (!ring.waiting.empty()) {
      RingEntry& entry = ring.entry(ring.next);
      if (entry.state.load(std::memory_order_acquire) != Stage::free) return;
      RankMessage& one = message(ring.waiting.front());
      ring.waiting.erase(ring.waiting.begin());
      one.number = ring.next++;
      entry.tag = one.tag;
      entry.bytes = one.bytes;
      entry.address = one.data;
      if (one.bytes <= kShort) {
        if (one.bytes > 0) std::memcpy(ring.slot(one.number), one.data, one.bytes);
        one.complete = true;
      }
      entry.state.store(Stage::posted, std::memory_order_relaxed);
      entry.mark.store(static_cast<std::uint64_t>(one.number) + 1, std::memory_order_release);
    }
  }

  static void give(MessageRing& ring, RankMessage& one) {
    RingEntry& entry = ring.entry(one.number);
    const Stage state = entry.state.load(std::memory_order_acquire);
    if (state == Stage::asked) {
      const std::size_t count = std::min(kSlotBytes, one.bytes - one.copied);
      std::memcpy(ring.slot(one.number), one.data + one.copied, count);
      one.copied += count;
      entry.state.store(Stage::piece, std::memory_order_release);
    } else if (state == Stage::done) {
      entry.state.store(Stage::free, std::memory_order_relaxed);
      one.complete = true;
    }
  }

  // A receiver --------------------------------------------------------------------------------------------

  /// Finds the oldest message of its tag for each waiting receive, in order: one that arrives meanwhile is
  /// for the first that waits for its tag.
  void match(MessageRing& ring) {
    for (auto at = ring.waiting.begin(); at != ring.waiting.end();) {
      RankMessage& one = message(*at);
      const bool first = std::none_of(ring.waiting.begin(), at,
                                      [&](std::int32_t before) { return message(before).tag == one.tag; });
      one.number = first ? find(ring, one.tag) : -1;
      if (one.number < 0) {
        ++at;
        continue;
      }
      at = ring.waiting.erase(at);
      ring.received[MessageRing::index(one.number)] = true;
      while (ring.received[MessageRing::index(ring.next)])
        ring.received[MessageRing::index(ring.next++)] = false;
    }
  }
  static std::int64_t find(const MessageRing& ring, Tag tag) {
    for (std::int64_t number = ring.next; number < ring.next + static_cast<std::int64_t>(kRing); ++number) {
      const RingEntry& entry = ring.entry(number);
      if (entry.mark.load(std::memory_order_acquire) != static_cast<std::uint64_t>(number) + 1) return -1;
      if (entry.tag == tag && !ring.received[MessageRing::index(number)]) return number;
    }
    return -1;
  }

  void receive(MessageRing& ring, RankMessage& one) {
    RingEntry& entry = ring.entry(one.number);
    if (entry.bytes != one.bytes) {
      detail::fail<Error>(
          "transport: a message must have the size its receiver expects, but rank {} expects {} bytes and "
          "rank {} sends {} (tag {})",
          rank, one.bytes, one.peer, entry.bytes, one.tag);
    }
    const Stage state = entry.state.load(std::memory_order_acquire);
    if (one.bytes <= kShort && state == Stage::posted) {
      if (one.bytes > 0) std::memcpy(one.data, ring.slot(one.number), one.bytes);
      entry.state.store(Stage::free, std::memory_order_release);
      one.complete = true;
      return;
    }
    if (state == Stage::posted && !copy_from_sender(entry, one)) {
      entry.state.store(Stage::asked, std::memory_order_release);
    } else if (state == Stage::piece) {
      const std::size_t count = std::min(kSlotBytes, one.bytes - one.copied);
      std::memcpy(one.data + one.copied, ring.slot(one.number), count);
      one.copied += count;
      if (one.copied < one.bytes) entry.state.store(Stage::asked, std::memory_order_release);
    }
    if (one.copied < one.bytes || state == Stage::withdrawn) return;
    // Unless its sender has withdrawn it meanwhile: what was copied may not be the message.
    Stage seen = state;
    one.complete = entry.state.compare_exchange_strong(seen, Stage::done, std::memory_order_acq_rel);
  }

  /// The next bytes of a long message. False if the kernel allows none: then for all later ones, too.
  bool copy_from_sender(const RingEntry& entry, RankMessage& one) {
    if (!single_copy) return false;
    const std::size_t count = std::min(kCopyBytes, one.bytes - one.copied);
    const iovec here{one.data + one.copied, count};
    // The kernel only reads from it.
    const iovec there{const_cast<std::byte*>(entry.address) + one.copied, count};
    const ssize_t got = ::process_vm_readv(memory->header().rank(one.peer).pid, &here, 1, &there, 1, 0);
    if (got > 0) one.copied += static_cast<std::size_t>(got);
    if (got > 0 || errno == ESRCH) return true;  // its launcher will say that it is gone
    if (one.copied > 0)
      detail::fail<BackendError>("transport: rank {} must be able to read memory of rank {}, but got: {}",
                                 rank, one.peer, std::strerror(errno));
    single_copy = false;
    return false;
  }

  // Giving up ---------------------------------------------------------------------------------------------

  void withdraw(RankMessage& one) noexcept {
    if (!one.active || one.complete) return;
    one.active = false;
    MessageRing& its = (one.sends ? to : from)[static_cast<std::size_t>(one.peer)];
    if (one.number < 0) {
      std::erase_if(its.waiting, [&](std::int32_t slot) { return &message(slot) == &one; });
    } else if (one.sends) {
      its.entry(one.number).state.exchange(Stage::withdrawn);  // before its memory may change
    }
  }
};

SharedMemoryTransport::SharedMemoryTransport(std::shared_ptr<RankMemory> memory, int rank, bool single_copy)
    : SharedMemoryTransport(
          std::make_unique<Impl>(std::move(memory), std::make_shared<int>(0), rank, single_copy)) {
  impl_->memory->header().rank(rank).pid = ::getpid();
  // Other children of the launcher may read this process's memory, where Yama would restrict that to parents.
  ::prctl(PR_SET_PTRACER, ::getppid());
}
SharedMemoryTransport::SharedMemoryTransport(std::unique_ptr<Impl> impl)
    : Transport(impl->rank, impl->memory->world_size()), impl_(std::move(impl)) {}
SharedMemoryTransport::~SharedMemoryTransport() = default;

Request SharedMemoryTransport::isend(int to, Tag tag, std::span<const std::byte> bytes) {
  // The const_cast is safe: only a receive writes its memory.
  return post(to, tag, {const_cast<std::byte*>(bytes.data()), bytes.size()}, true);
}
Request SharedMemoryTransport::irecv(int from, Tag tag, std::span<std::byte> bytes) {
  return post(from, tag, bytes, false);
}

Request SharedMemoryTransport::post(int peer, Tag tag, std::span<std::byte> bytes, bool sends) {
  check_peer(peer);
  const Request request = impl_->messages.take();
  RankMessage& one = impl_->messages[request];
  one = {
      .data = bytes.data(), .bytes = bytes.size(), .peer = peer, .tag = tag, .sends = sends, .active = true};
  MessageRing& ring = impl_->ring(one);
  ring.waiting.push_back(request.slot);
  if (sends) impl_->post(ring);
  return request;
}

bool SharedMemoryTransport::test(Request& request) {
  if (!request.pending()) return true;
  const RankMessage& one = impl_->messages[request];
  if (!one.complete) {
    RankMemory::Header& header = impl_->memory->header();
    // First, for a message that came just before its sender ended is complete.
    const bool lost = header.lost != 0 || header.rank(one.peer).gone;
    impl_->progress();
    if (lost && !one.complete) {
      const std::string why = this->lost();
      detail::fail<PeerLostError>("{}, and rank {} has a message of {} bytes {} rank {}",
                                  why.empty() ? fmt::format("rank {} has ended", one.peer) : why, rank(),
                                  one.bytes, one.sends ? "for" : "pending from", one.peer);
    }
    if (!one.complete) return false;
  }
  impl_->messages[request].active = false;
  impl_->messages.release(request);
  return true;
}

void SharedMemoryTransport::cancel(Request& request) noexcept {
  if (!request.pending()) return;
  impl_->withdraw(impl_->messages[request]);
  impl_->messages[request].active = false;
  impl_->messages.release(request);
}

void SharedMemoryTransport::abandon() noexcept {
  for (RankMessage& one : impl_->messages) impl_->withdraw(one);
}

std::unique_ptr<Transport> SharedMemoryTransport::duplicate() {
  return std::unique_ptr<Transport>(new SharedMemoryTransport(
      std::make_unique<Impl>(impl_->memory, impl_->networks, rank(), impl_->single_copy)));
}

std::string SharedMemoryTransport::lost() const {
  RankMemory::Header& header = impl_->memory->header();
  const int rank = header.lost - 1, code = header.exit_code;
  if (rank < 0) return {};
  return code > 128 ? fmt::format("rank {} was killed by signal {}", rank, code - 128)
                    : fmt::format("rank {} has ended with code {}", rank, code);
}

}  // namespace athanor::dist
