#include "dist/transports/mpi_transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/collectives/detail/mpi_native.h"
#include "dist/collectives/session.h"
#include "dist/transports/slots.h"
#include "dist/watch/watchdog.h"
#include "tensor/base/error.h"

namespace athanor::dist {

// Two transports may be used concurrently.
std::unique_lock<std::mutex> mpi_turn(bool threads) {
  static std::mutex calls;
  return threads ? std::unique_lock(calls) : std::unique_lock<std::mutex>();
}

void check_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  detail::fail<BackendError>("{}: MPI must succeed, but reports: {}", what, text);
}

namespace {

/// Environment settings for Open MPI 4 and 5, used unless the user sets them: its daemon, which it starts for
/// a process without mpirun, may be root's; waiting ranks do not block a core that another needs; and hwloc
/// does not warn that it cannot find the cores (in a container without /sys).
constexpr struct {
  const char *name, *value;
} kOpenMpiSettings[] = {
    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    {"OMPI_MCA_mpi_yield_when_idle", "1"}, {"HWLOC_HIDE_ERRORS", "2"},
    {"PRTE_ALLOW_RUN_AS_ROOT", "1"},       {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
};
/// Minimum time for ranks to start and meet: names may have to be resolved, and programs loaded over a
/// network.
constexpr std::chrono::milliseconds kStartTimeout{60'000};
/// Time limit for cancelling an abandoned message.
constexpr std::chrono::milliseconds kCancelTime{50};
/// Time for other ranks to give up later than this one, and report which rank is missing.
constexpr std::chrono::milliseconds kOthersSpeak{1000};

/// Ends the process if an MPI call that waits for all ranks takes too long. `what` is for the message.
class MpiDeadline {
 public:
  MpiDeadline(const char* what, const MpiOptions& options, std::chrono::milliseconds at_least = {}) {
    if (options.wait_inside) return;
    thread_ = std::jthread(
        [this, what, timeout = std::max(options.timeout, at_least)](const std::stop_token& over) {
          std::unique_lock lock(mutex_);
          if (wake_.wait_for(lock, over, timeout, [&] { return over.stop_requested(); })) return;
          if (over.stop_requested()) return;
          std::fprintf(stderr, "error: mpi: all ranks must reach %s within %g s, but one has not\n", what,
                       static_cast<double>(timeout.count()) / 1000);
          std::fflush(stderr);
          std::_Exit(kExitPeerLost);
        });
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // its destructor asks it to stop, and waits
};

struct Slot {
  std::vector<MPI_Request> requests;  // one per chunk
  std::vector<MPI_Status> statuses;
  std::vector<int> counts;  // bytes if wait_for_any() completed it, whose status is gone; else -1
  std::size_t bytes = 0;
  std::int64_t number = 0;  // among all messages
  int peer = 0;
  bool receives = false;
};

}  // namespace

struct MpiTransport::Impl {
  MPI_Comm comm = MPI_COMM_NULL;
  bool ends_mpi = false;
  bool is_duplicate = false;
  MpiOptions options;
  std::int64_t messages = 0;  // started so far
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  Slots<Slot> slots;
  bool threads = false;  // several threads may call
  /// Set when messages were abandoned, on this network or a duplicate.
  struct Broken {
    bool cancelled = false;  // ranks no longer agree
    bool poisoned = false;   // its memory may still be written
  };
  std::shared_ptr<Broken> broken = std::make_shared<Broken>();
  int exceptions = std::uncaught_exceptions();

  /// A duplicate of `original`; null: a network of all ranks.
  explicit Impl(const MpiOptions& wanted, const Impl* original = nullptr)
      : is_duplicate(original != nullptr), options(wanted) {
    const MpiDeadline in_time(original ? "MPI_Comm_dup" : "MPI_Init", options,
                              original ? options.timeout : kStartTimeout);
    if (original) broken = original->broken;
    ATH_CHECK(options.chunk_bytes >= 1 && options.chunk_bytes <= std::size_t{1} << 30,
              "mpi: chunk_bytes must be in [1, 2^30], but got {}", options.chunk_bytes);
    int running = 0;
    check_mpi(MPI_Initialized(&running), "mpi start");
    if (!running) {
      for (const auto& [name, value] : kOpenMpiSettings) setenv(name, value, 0);
      int level = 0;
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "mpi start");
      ends_mpi = true;
    }
    int level = 0;
    check_mpi(MPI_Query_thread(&level), "mpi start");
    threads = level >= MPI_THREAD_SERIALIZED;
    const auto turn = mpi_turn(threads);
    check_mpi(MPI_Comm_dup(original ? original->comm : MPI_COMM_WORLD, &comm), "mpi start");
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "mpi start");
    check_mpi(MPI_Comm_rank(comm, &rank), "mpi start");
    check_mpi(MPI_Comm_size(comm, &size), "mpi start");
    MPI_Comm local = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local), "mpi start");
    check_mpi(MPI_Comm_rank(local, &local_rank), "mpi start");
    check_mpi(MPI_Comm_size(local, &local_size), "mpi start");
    check_mpi(MPI_Comm_free(&local), "mpi start");
  }

  // Neither call below is safe with a lost rank: both may wait forever. A duplicate skips its own call and
  // leaves the end to the original, whose owner may have caught the exception by then.
  void end(const std::string& failure) {
    const bool unwinding = std::uncaught_exceptions() > exceptions;
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended || size == 1 || !(unwinding || broken->cancelled)) return;
    if (is_duplicate) {
      comm = MPI_COMM_NULL;
      return;
    }
    const char* why = !failure.empty() ? failure.c_str()
                      : unwinding      ? "an exception is in flight"
                                       : "messages were released";
    std::fprintf(stderr, "mpi: rank %d ends all ranks: %s%s\n", rank, why,
                 broken->poisoned ? " (and MPI has not released their memory)" : "");
    std::fflush(stderr);
    if (!failure.empty()) std::this_thread::sleep_for(kOthersSpeak);
    MPI_Abort(comm, kExitPeerLost);
    std::_Exit(kExitPeerLost);
  }

  ~Impl() {
    const MpiDeadline in_time("MPI_Finalize", options);
    const auto turn = mpi_turn(threads);
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    if (ends_mpi) MPI_Finalize();
  }

  Request take(int peer, std::size_t bytes, bool receives) {
    const Request request = slots.take();
    Slot& slot = slots[request];
    slot.bytes = bytes;
    slot.number = messages++;
    slot.peer = peer;
    slot.receives = receives;
    // An empty message also has one chunk.
    slot.requests.assign(std::max<std::size_t>(1, (bytes + options.chunk_bytes - 1) / options.chunk_bytes),
                         MPI_REQUEST_NULL);
    slot.statuses.resize(slot.requests.size());
    slot.counts.assign(slot.requests.size(), -1);
    return request;
  }

  // If MPI waits, it must also complete: SimGrid keeps messages completed by a test in a list forever, and
  // scans that list at every wait. A run of a million messages would not end.
  bool complete(Slot& slot) const {
    const auto over = [](MPI_Request request) { return request == MPI_REQUEST_NULL; };
    if (options.wait_inside) return std::all_of(slot.requests.begin(), slot.requests.end(), over);
    int done = 0;
    const int status = MPI_Testall(static_cast<int>(slot.requests.size()), slot.requests.data(), &done,
                                   slot.statuses.data());
    if (status == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& chunk : slot.statuses) {
        if (chunk.MPI_ERROR != MPI_SUCCESS && chunk.MPI_ERROR != MPI_ERR_PENDING)
          check_mpi(chunk.MPI_ERROR, "mpi test");
      }
    }
    check_mpi(status, "mpi test");
    return done != 0;
  }

  int chunk(const Slot& slot, std::size_t i) const {
    return static_cast<int>(std::min(options.chunk_bytes, slot.bytes - i * options.chunk_bytes));
  }
};

MpiTransport::MpiTransport(const MpiOptions& options) : MpiTransport(std::make_unique<Impl>(options)) {}
MpiTransport::MpiTransport(std::unique_ptr<Impl> impl)
    : Transport(impl->rank, impl->size), impl_(std::move(impl)) {}
MpiTransport::~MpiTransport() {
  impl_->end(session().failure());
}

int MpiTransport::local_size() const {
  return impl_->local_size;
}
int MpiTransport::local_rank() const {
  return impl_->local_rank;
}

Request MpiTransport::isend(int to, Tag tag, std::span<const std::byte> bytes) {
  // The const_cast is safe: only a receive writes its memory.
  return post(to, tag, {const_cast<std::byte*>(bytes.data()), bytes.size()}, false);
}
Request MpiTransport::irecv(int from, Tag tag, std::span<std::byte> bytes) {
  return post(from, tag, bytes, true);
}

Request MpiTransport::post(int peer, Tag tag, std::span<std::byte> bytes, bool receives) {
  check_peer(peer);
  const Request request = impl_->take(peer, bytes.size(), receives);
  Slot& slot = impl_->slots[request];
  const auto turn = mpi_turn(impl_->threads);
  for (std::size_t i = 0; i < slot.requests.size(); ++i) {
    std::byte* chunk = bytes.data() + i * impl_->options.chunk_bytes;
    const int count = impl_->chunk(slot, i);
    MPI_Request* started = &slot.requests[i];
    check_mpi(receives ? MPI_Irecv(chunk, count, MPI_BYTE, peer, tag, impl_->comm, started)
                       : MPI_Isend(chunk, count, MPI_BYTE, peer, tag, impl_->comm, started),
              receives ? "mpi receive" : "mpi send");
  }
  return request;
}

bool MpiTransport::test(Request& request) {
  if (!request.pending()) return true;
  Slot& slot = impl_->slots[request];
  const auto turn = mpi_turn(impl_->threads);
  if (!impl_->complete(slot)) return false;
  for (std::size_t i = 0; slot.receives && i < slot.statuses.size(); ++i) {
    int count = slot.counts[i];
    if (count < 0) check_mpi(MPI_Get_count(&slot.statuses[i], MPI_BYTE, &count), "mpi test");
    if (count != impl_->chunk(slot, i)) {
      detail::fail<Error>(
          "transport: a message must have the size its receiver expects, but rank {} expects {} bytes and "
          "rank {} sends {}",
          rank(), impl_->chunk(slot, i), slot.peer, count);
    }
  }
  impl_->slots.release(request);
  return true;
}

void MpiTransport::cancel(Request& request) noexcept {
  if (!request.pending()) return;
  Slot& slot = impl_->slots[request];
  const auto until = std::chrono::steady_clock::now() + kCancelTime;
  for (MPI_Request& chunk : slot.requests) {
    if (chunk == MPI_REQUEST_NULL) continue;
    const auto turn = mpi_turn(impl_->threads);
    impl_->broken->cancelled = true;
    MPI_Cancel(&chunk);
    // Done if it was cancelled or completed first. A send that is never received may be neither.
    int done = 0;
    while (MPI_Test(&chunk, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done && !impl_->broken->poisoned &&
           std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    if (done) continue;
    impl_->broken->poisoned = true;  // waiting once is enough
    MPI_Request_free(&chunk);
  }
  impl_->slots.release(request);
}

// Collectives take messages in starting order for each direction, so other completed messages do not help.
bool MpiTransport::wait_for_any() {
  if (!impl_->options.wait_inside) return false;
  std::array<MPI_Request, 2> oldest{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::array<Slot*, 2> slots{};
  for (Slot& slot : impl_->slots) {
    const bool pending = std::any_of(slot.requests.begin(), slot.requests.end(),
                                     [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
    Slot*& before = slots[slot.receives];
    if (pending && (!before || slot.number < before->number)) before = &slot;
  }
  std::array<std::size_t, 2> chunks{};
  for (std::size_t way = 0; way < 2; ++way) {
    if (!slots[way]) continue;
    auto& requests = slots[way]->requests;
    while (requests[chunks[way]] == MPI_REQUEST_NULL) ++chunks[way];
    oldest[way] = requests[chunks[way]];
  }
  if (!slots[0] && !slots[1]) return false;
  int index = 0;
  MPI_Status status;
  check_mpi(MPI_Waitany(2, oldest.data(), &index, &status), "mpi wait");
  const auto way = static_cast<std::size_t>(index);
  slots[way]->requests[chunks[way]] = oldest[way];
  int& count = slots[way]->counts[chunks[way]];
  count = 0;
  if (slots[way]->receives) check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "mpi wait");
  return true;
}

bool MpiTransport::threads_may_call() const {
  return impl_->threads;
}

std::unique_ptr<Transport> MpiTransport::duplicate() {
  return std::unique_ptr<Transport>(new MpiTransport(std::make_unique<Impl>(impl_->options, impl_.get())));
}

std::unique_ptr<Collective> MpiTransport::native(const NativeCall& call) {
  return make_mpi_native(*this, impl_->comm, call, impl_->threads, &impl_->broken->cancelled);
}

void MpiTransport::abort(int exit_code) {
  // Lets this rank's last output pass through mpirun, which stops forwarding after the abort.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  MPI_Abort(impl_->comm, exit_code);
  std::_Exit(exit_code);
}

}  // namespace athanor::dist
