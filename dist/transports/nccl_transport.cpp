#include "dist/transports/nccl_transport.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "dist/collectives/communicator.h"
#include "dist/collectives/detail/nccl_call.h"
#include "dist/collectives/exchange.h"
#include "dist/collectives/session.h"
#include "dist/collectives/wait.h"
#include "dist/transports/detail/nccl_api.h"
#include "dist/transports/slots.h"
#include "optim/flat.h"
#include "tensor/cuda/device.h"

namespace athanor::dist {
namespace {

[[noreturn]] void fail(const char* what, ncclResult_t result, ncclComm_t comm, bool together = false) {
  const char* more = nccl_api().last_error(comm);
  const std::string text =
      fmt::format("{}: NCCL must succeed, but reports: {}{}{}", what, nccl_api().error_string(result),
                  more && *more ? ": " : "", more ? more : "");
  if (result == ncclRemoteError || (together && result == ncclSystemError)) throw PeerLostError(text);
  throw BackendError(text);
}

// `together`: all ranks have joined.
void check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr, bool together = false) {
  if (result != ncclSuccess && result != ncclInProgress) fail(what, result, comm, together);
}

// Runs a call that may hang in a separate thread, which is abandoned after the timeout. For cleanup: without
// a free thread, the process's end cleans up.
template <class F> void within_5_s(F f) noexcept try {
  std::packaged_task<void()> task(std::move(f));
  const std::future<void> done = task.get_future();
  std::thread helper(std::move(task));
  done.wait_for(std::chrono::seconds(5)) == std::future_status::ready ? helper.join() : helper.detach();
} catch (const std::exception&) {
}

}  // namespace

NcclId new_nccl_id() {
  ncclUniqueId id;
  static_assert(sizeof id == sizeof(NcclId));
  check(nccl_api().get_unique_id(&id), "nccl id");
  NcclId result;
  std::memcpy(result.data(), &id, sizeof id);
  return result;
}

struct NcclTransport::Impl {
  struct Slot {
    NcclCall call{};
    std::int64_t group = 0;  // its group's number
  };
  // A group in the stream, until it is known to be done.
  struct Sent {
    Event done;
    int peer;  // of its first receive or send; -1: a collective
    std::int64_t messages;
  };

  NcclOptions options;
  Stream stream;
  ncclComm_t comm = nullptr;
  bool together = false;  // all ranks have joined
  int exceptions = std::uncaught_exceptions();
  std::vector<char> connected;  // by rank
  Slots<Slot> slots;
  std::vector<Request> pending;  // started since the last flush
  std::int64_t group = 1;        // their group number
  std::int64_t launched = 0;     // groups in the stream
  int peer = -1;                 // of the group being sent
  std::int64_t messages = 0;     // in that group
  std::vector<Sent> sent;        // valid from `first` on; cleared when all are done
  std::size_t first = 0;
  std::vector<Event> spare;
  std::int64_t arrived = 0;

  Impl(const NcclOptions& given, const Stream& of) : options(given), stream(of) {}

  bool launching() const { return launched + 1 < group; }

  ncclResult_t state(const char* what) {
    ncclResult_t result = ncclSuccess;
    check(nccl_api().async_error(comm, &result), what, comm, together);
    check(result, what, comm, together);
    return result;
  }

  // Whether the last group is in the stream: only then is work queued next ordered after it.
  bool settled() {
    if (!launching()) return true;
    if (state("nccl group") == ncclInProgress) return false;
    launched = group - 1;
    Event done = spare.empty() ? Event(stream.device()) : std::move(spare.back());
    if (!spare.empty()) spare.pop_back();
    done.record(stream);
    sent.push_back({std::move(done), peer, messages});
    return true;
  }

  bool all_arrived() const { return first == sent.size(); }

  void forget() {
    pending.clear();
    sent.clear();
    first = 0;
    group = launched + 1;
  }

  // Ends the communicator, and with it all work in the stream.
  void abort() noexcept {
    if (!comm) return;
    const ncclComm_t aborted = std::exchange(comm, nullptr);
    forget();
    within_5_s([aborted, on = stream, device = options.device] {
      try {
        cuda::DeviceGuard guard(device);
        nccl_api().abort(aborted);
        const AllowSync end;
        on.synchronize();
      } catch (const std::exception&) {  // a failed device runs nothing
      }
    });
  }
};

NcclTransport::NcclTransport(const NcclId& id, int rank, int world_size, const NcclOptions& options)
    : Transport(rank, world_size, Stream::create(options.device, StreamPriority::high)),
      impl_(std::make_unique<Impl>(options, stream())) {
  ATH_CHECK(world_size >= 1 && rank >= 0 && rank < world_size, "nccl: the rank must be one of {}, but is {}",
            world_size, rank);
  ATH_CHECK(options.timeout.count() > 0, "nccl: timeout must be > 0 ms, but is {}", options.timeout.count());
  const cuda::DeviceGuard guard(options.device);
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), sizeof unique);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  try {
    check(nccl_api().init(&impl_->comm, world_size, unique, rank, &config), "nccl start", impl_->comm);
    StallTimeout patience(options.timeout);
    while (impl_->state("nccl start") == ncclInProgress) {
      if (patience.wait(0)) continue;
      athanor::detail::fail<PeerLostError>(
          "nccl start: all {} ranks must connect within {} s, but rank {} still waits for others", world_size,
          static_cast<double>(options.timeout.count()) / 1000, rank);
    }
    impl_->together = true;
    impl_->connected.resize(static_cast<std::size_t>(world_size));
  } catch (...) {
    impl_->abort();
    throw;
  }
}

NcclTransport::~NcclTransport() {
  Impl& my = *impl_;
  if (!my.comm) return;
  const bool unwinding = std::uncaught_exceptions() > my.exceptions;
  if (unwinding || !session().failure().empty() || !my.pending.empty() || my.launching()) {
    my.abort();
    return;
  }
  // All ranks end their communicators, each after its own last message; a missing rank is not waited for.
  within_5_s([comm = my.comm, on = stream(), device = device()] {
    try {
      const cuda::DeviceGuard guard(device);
      const AllowSync end;
      on.synchronize();
      ncclResult_t state = nccl_api().finalize(comm);
      while (state == ncclInProgress && nccl_api().async_error(comm, &state) == ncclSuccess)
        std::this_thread::yield();
      nccl_api().destroy(comm);
    } catch (const std::exception&) {
    }
  });
}

void NcclTransport::abandon() noexcept {
  impl_->abort();
}

void NcclTransport::check_alive() const {
  if (!impl_->comm)
    athanor::detail::fail<PeerLostError>("nccl: the communicator was aborted: {}", session().failure());
}

Request NcclTransport::post(const NcclCall& call) {
  check_alive();
  Impl& my = *impl_;
  const Request request = my.slots.take();
  my.slots[request] = {call, my.group};
  my.pending.push_back(request);
  return request;
}

Request NcclTransport::post_message(NcclCall call) {
  check_peer(call.peer);
  impl_->connected[static_cast<std::size_t>(call.peer)] = 1;
  return post(call);
}
Request NcclTransport::isend(int to, Tag, std::span<const std::byte> bytes) {
  return post_message({NcclCall::Kind::send, bytes.data(), nullptr, bytes.size(), ncclUint8, to});
}
Request NcclTransport::irecv(int from, Tag, std::span<std::byte> bytes) {
  return post_message({NcclCall::Kind::receive, nullptr, bytes.data(), bytes.size(), ncclUint8, from});
}

int NcclTransport::connected() const {
  return static_cast<int>(std::count(impl_->connected.begin(), impl_->connected.end(), 1));
}

bool NcclTransport::duplicates_are_concurrent() const {
  int version = 0;
  check(nccl_api().get_version(&version), "nccl version");
  return nccl_is_concurrent(version);
}

std::unique_ptr<Collective> NcclTransport::native(const NativeCall& call) {
  return make_nccl_native(*this, call, [this](const NcclCall& one) { return post(one); });
}

std::unique_ptr<Transport> NcclTransport::duplicate() {
  Communicator comm(*this, {.algorithm = Algorithm::native, .timeout = impl_->options.timeout});
  const std::vector<NcclId> ids = gather_values(comm, rank() == 0 ? new_nccl_id() : NcclId{});
  return std::make_unique<NcclTransport>(ids[0], rank(), world_size(), impl_->options);
}

bool NcclTransport::flush() {
  Impl& my = *impl_;
  if (my.pending.empty() || !my.settled()) return false;
  const cuda::DeviceGuard guard(device());
  const auto queue = static_cast<cudaStream_t>(stream().native());
  const NcclCall& first = my.slots[my.pending.front()].call;
  const bool message = first.kind == NcclCall::Kind::send || first.kind == NcclCall::Kind::receive;
  my.peer = message ? first.peer : -1;
  my.messages = static_cast<std::int64_t>(my.pending.size());
  check(nccl_api().group_start(), "nccl group", my.comm, true);
  ncclResult_t result = ncclSuccess;
  for (const Request request : my.pending) {
    const ncclResult_t one = my.slots[request].call.make(my.comm, queue);
    if (result == ncclSuccess) result = one;
  }
  const ncclResult_t ended = nccl_api().group_end();
  check(result, "nccl group", my.comm, true);
  check(ended, "nccl group", my.comm, true);
  my.pending.clear();
  ++my.group;
  return true;
}

bool NcclTransport::test(Request& request) {
  if (!request.pending()) return true;
  check_alive();
  Impl& my = *impl_;
  if (my.slots[request].group > my.launched) my.settled();
  if (my.slots[request].group > my.launched) return false;
  my.slots.release(request);
  return true;
}

// A message in a group cannot be cancelled alone, only the whole group.
void NcclTransport::cancel(Request& request) noexcept {
  if (!request.pending()) return;
  impl_->abort();
  impl_->slots.release(request);
}

std::int64_t NcclTransport::arrived() {
  Impl& my = *impl_;
  if (!my.comm) return my.arrived;
  my.settled();
  if (!my.all_arrived()) my.state("nccl");
  for (; !my.all_arrived() && my.sent[my.first].done.done(); ++my.first) {
    my.arrived += my.sent[my.first].messages;
    my.spare.push_back(std::move(my.sent[my.first].done));
  }
  if (my.all_arrived()) {
    my.sent.clear();
    my.first = 0;
  }
  return my.arrived;
}

int NcclTransport::behind() const {
  const Impl& my = *impl_;
  if (!my.all_arrived()) return my.sent[my.first].peer;
  return my.launching() ? my.peer : -1;
}

}  // namespace athanor::dist
