#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "simt/emulator/executor.h"
#include "simt/emulator/nccl/communicators.h"
#include "simt/emulator/nccl/job.h"
#include "simt/emulator/runtime.h"

// NCCL between ranks that are threads of one process, each with a device of its own. What it keeps of the
// real one:
//
// - Calls queue work on a stream and return. A group is one piece of work: it is over when all its messages
//   have passed, and holds its stream until then. Groups of a communicator run in the order of their calls.
// - A message passes when the group that sends it and the one that receives it have both come to the front of
//   their streams. Messages between two ranks meet in the order of their calls. Groups whose ends wait for
//   each other wait for ever.
// - With blocking = 0, the making of a communicator and every group is under way (ncclInProgress) until
//   ncclCommGetAsyncError has said otherwise; only then is the group in its stream. Who queues work that
//   needs it before that, or starts the next group, has made a mistake that shows here every time.
// - A device may be one rank of a communicator only.
// - ncclCommAbort ends the groups of its own rank; the others' wait on.
//
// What it is stricter in: memory must be of the rank's device; sizes must agree; all calls of a group that
// belong to a communicator go to one stream.

using namespace simt;

namespace simt {
namespace {

thread_local int group_depth = 0;
thread_local std::vector<std::shared_ptr<Group>> open_groups;  // one for each communicator
thread_local ncclResult_t group_error = ncclSuccess;           // of a call in it
thread_local std::string last_text;

ncclResult_t refuse(ncclComm* comm, ncclResult_t code, std::string text) {
  last_text = text;
  if (comm) comm->text = std::move(text);
  return code;
}

NcclJob* job_of(const ncclUniqueId& id) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal + 8, sizeof number);
  const auto found = nccl_jobs().find(number);
  return std::memcmp(id.internal, "simtnccl", 8) == 0 && found != nccl_jobs().end() ? found->second.get()
                                                                                    : nullptr;
}

bool usable(ncclComm* comm) {
  return comm && comm->magic == ncclComm::kAlive && comm->state != ncclComm::State::gone;
}

void queue_group(const std::shared_ptr<Group>& group) {
  ncclComm& comm = *group->comm;
  Stream& stream = runtime().stream(group->stream);
  group->queued_on = &stream;
  Op op{MeetWork{group}};
  if (comm.last.stream && comm.last.stream != &stream) op.after.push_back(comm.last);
  comm.last = runtime().queue(stream, std::move(op));
}

ncclResult_t launch(const std::shared_ptr<Group>& group) {
  ncclComm& comm = *group->comm;
  group->enter();
  comm.under_way.push_back(group);
  return ncclInProgress;
}

ncclResult_t check_call(ncclComm* comm, cudaStream_t stream) {
  if (comm->error != ncclSuccess) return comm->error;
  if (comm->state != ncclComm::State::ready || !comm->under_way.empty()) {
    return refuse(comm, ncclInvalidUsage,
                  "another call on this communicator is in progress: poll ncclCommGetAsyncError first");
  }
  if (runtime().stream(stream).device != comm->device)
    return refuse(comm, ncclInvalidUsage, "the stream is of another device than the communicator");
  if (runtime().stream(stream).capture)
    return refuse(comm, ncclInvalidUsage, "the stand-in for NCCL cannot be captured");
  return ncclSuccess;
}

ncclResult_t check_memory(ncclComm* comm, const void* begin, std::size_t bytes) {
  if (bytes == 0) return ncclSuccess;
  const Allocation* memory = runtime().memory.find(begin);
  if (!memory || memory->type != cudaMemoryTypeDevice || memory->device != comm->device ||
      static_cast<const char*>(begin) + bytes > memory->base + memory->bytes) {
    return refuse(comm, ncclInvalidArgument,
                  fmt::format("{} bytes at {} are not memory of device {}", bytes, begin, comm->device));
  }
  return ncclSuccess;
}

std::size_t bytes_of(ncclDataType_t type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[type];
}

// The body of a call: under the runtime's lock, with Failure made a result.
template <class F> ncclResult_t nccl_call(F&& body) {
  const auto guard = runtime().lock();
  try {
    return body();
  } catch (const Failure& failure) {
    return refuse(nullptr, ncclUnhandledCudaError, failure.text);
  }
}

// The same, for a call on a communicator.
template <class F> ncclResult_t comm_call(ncclComm* comm, F&& body) {
  return nccl_call([&] {
    if (!usable(comm)) return refuse(nullptr, ncclInvalidArgument, "the communicator is null or destroyed");
    return body();
  });
}

// A call that is part of a group, or a group of its own. `memory` are the ranges it touches.
template <class Add>
ncclResult_t grouped(ncclComm* comm, cudaStream_t stream,
                     std::initializer_list<std::pair<const void*, std::size_t>> memory, const Add& add) {
  const ncclResult_t result = comm_call(comm, [&] {
    if (const ncclResult_t bad = check_call(comm, stream); bad != ncclSuccess) return bad;
    for (const auto& [begin, bytes] : memory) {
      if (const ncclResult_t bad = check_memory(comm, begin, bytes); bad != ncclSuccess) return bad;
    }
    const auto found = std::find_if(open_groups.begin(), open_groups.end(),
                                    [&](const auto& group) { return group->comm == comm; });
    std::shared_ptr<Group> group = found != open_groups.end() ? *found : nullptr;
    if (!group) {
      group = std::make_shared<Group>(comm, stream);
      if (group_depth > 0) open_groups.push_back(group);
    }
    if (group->stream != stream)
      return refuse(comm, ncclInvalidUsage, "a group of the stand-in for NCCL must use one stream");
    add(*group);
    return group_depth > 0 ? ncclSuccess : launch(group);
  });
  if (group_depth > 0 && result != ncclSuccess) group_error = result;
  return result;
}

// All ranks together: `reads` and `writes` elements are touched here.
ncclResult_t together(CommonCall::Kind kind, const void* send, std::size_t reads, void* receive,
                      std::size_t writes, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                      ncclComm* comm, cudaStream_t stream) {
  const CommonCall call{kind, static_cast<const char*>(send), static_cast<char*>(receive), count, type, op,
                        root};
  const std::size_t from_bytes = reads * bytes_of(type), to_bytes = writes * bytes_of(type);
  return grouped(comm, stream, {{send, from_bytes}, {receive, to_bytes}},
                 [&](Group& group) { group.add(call, from_bytes, to_bytes); });
}

std::size_t ranks_of(ncclComm* comm) {
  return comm ? comm->job->comms.size() : 0;
}
bool is_rank(ncclComm* comm, int root) {
  return comm && root >= 0 && root < static_cast<int>(comm->job->comms.size());
}
ncclResult_t refuse_root() {
  if (group_depth > 0) group_error = ncclInvalidArgument;
  return refuse(nullptr, ncclInvalidArgument, "the root is not a rank of the communicator");
}

}  // namespace

std::map<std::uint64_t, std::unique_ptr<NcclJob>>& nccl_jobs() {
  static auto& jobs = *new std::map<std::uint64_t, std::unique_ptr<NcclJob>>;
  return jobs;
}

void break_communicators(int rank, ncclResult_t error, const char* text) {
  const auto guard = runtime().lock();
  for (const auto& [number, job] : nccl_jobs()) {
    if (rank >= static_cast<int>(job->comms.size())) continue;
    const auto& comm = job->comms[static_cast<std::size_t>(rank)];
    if (!comm || comm->state == ncclComm::State::gone) continue;
    comm->error = error;
    comm->text = text;
  }
  runtime().something_happened();
}

int live_communicators() {
  const auto guard = runtime().lock();
  int count = 0;
  for (const auto& [number, job] : nccl_jobs()) {
    for (const auto& comm : job->comms) count += comm && comm->state != ncclComm::State::gone;
  }
  return count;
}

}  // namespace simt

// ---- communicators

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return nccl_call([&] {
    const std::uint64_t number = nccl_jobs().size() + 1;
    nccl_jobs()[number] = std::make_unique<NcclJob>();
    *id = {};
    std::memcpy(id->internal, "simtnccl", 8);
    std::memcpy(id->internal + 8, &number, sizeof number);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *result = nullptr;
  return nccl_call([&] {
    NcclJob* job = job_of(id);
    if (!job) return refuse(nullptr, ncclInvalidArgument, "the id does not come from ncclGetUniqueId");
    if (!config || config->magic != 0xcafebeef || config->size != sizeof(ncclConfig_t))
      return refuse(nullptr, ncclInvalidArgument,
                    "the config was not initialised with NCCL_CONFIG_INITIALIZER");
    if (config->blocking != 0)
      return refuse(nullptr, ncclInvalidUsage, "the stand-in for NCCL supports only blocking = 0");
    if (job->comms.empty()) job->comms.resize(static_cast<std::size_t>(std::max(ranks, 0)));
    if (rank < 0 || rank >= ranks || static_cast<int>(job->comms.size()) != ranks ||
        job->comms[static_cast<std::size_t>(rank)])
      return refuse(nullptr, ncclInvalidArgument,
                    fmt::format("rank {} of {} is taken, or out of range", rank, ranks));
    runtime().device(current_device());
    auto comm = std::make_unique<ncclComm>();
    comm->job = job;
    comm->rank = rank;
    comm->device = current_device();
    *result = comm.get();
    job->comms[static_cast<std::size_t>(rank)] = std::move(comm);
    if (++job->joined < ranks) return ncclInProgress;
    for (auto& one : job->comms) {
      one->state = ncclComm::State::ready;
      for (auto& other : job->comms) {
        if (other == one || other->device != one->device) continue;
        one->error = ncclInvalidUsage;
        one->text = fmt::format("Duplicate GPU detected : rank {} and rank {} both on CUDA device {}",
                                one->rank, other->rank, one->device);
      }
    }
    runtime().something_happened();
    return ncclInProgress;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return comm_call(comm, [&] {
    *error = comm->error;
    if (comm->error != ncclSuccess) return ncclSuccess;
    if (comm->state == ncclComm::State::begun) {
      *error = ncclInProgress;
    } else if (!comm->under_way.empty()) {
      // The first to ask is told to wait.
      comm->asked = !comm->asked;
      *error = comm->asked ? ncclInProgress : ncclSuccess;
      if (comm->asked) return ncclSuccess;
      for (const auto& group : comm->under_way) queue_group(group);
      comm->under_way.clear();
    }
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm_call(comm, [&] {
    if (!comm->under_way.empty()) return refuse(comm, ncclInvalidUsage, "a group is in progress");
    comm->finalized = true;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return comm_call(comm, [&] {
    // The real one waits for what is queued; with non-blocking communicators only what was finalized may go.
    if (!comm->finalized) return refuse(comm, ncclInvalidUsage, "ncclCommFinalize must come first");
    runtime().run_until(comm->last);
    comm->state = ncclComm::State::gone;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return comm_call(comm, [&] {
    comm->state = ncclComm::State::gone;
    comm->aborted = true;
    comm->under_way.clear();
    runtime().something_happened();
    return ncclSuccess;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  const auto guard = runtime().lock();
  last_text = comm && !comm->text.empty() ? comm->text : last_text;
  return last_text.c_str();
}

// ---- calls

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return refuse(nullptr, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  const auto groups = std::exchange(open_groups, {});
  if (const auto error = std::exchange(group_error, ncclSuccess); error != ncclSuccess) return error;
  return nccl_call([&] {
    ncclResult_t result = ncclSuccess;
    for (const auto& group : groups) {
      if (const ncclResult_t one = launch(group); one != ncclSuccess) result = one;
    }
    return result;
  });
}

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::size_t bytes = count * bytes_of(type);
  return grouped(comm, stream, {{send, bytes}}, [&](Group& group) {
    group.add({peer, true, const_cast<char*>(static_cast<const char*>(send)), bytes});
  });
}

ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::size_t bytes = count * bytes_of(type);
  return grouped(comm, stream, {{receive, bytes}}, [&](Group& group) {
    group.add({peer, false, static_cast<char*>(receive), bytes});
  });
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return together(CommonCall::Kind::all_reduce, send, count, receive, count, count, type, op, 0, comm,
                  stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return together(CommonCall::Kind::reduce_scatter, send, receive_count * ranks_of(comm), receive,
                  receive_count, receive_count, type, op, 0, comm, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return together(CommonCall::Kind::all_gather, send, send_count, receive, send_count * ranks_of(comm),
                  send_count, type, ncclSum, 0, comm, stream);
}

// Memory is touched where the real one does: a reduction's result at the root, what is broadcast there.
ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  if (!is_rank(comm, root)) return refuse_root();
  return together(CommonCall::Kind::reduce, send, count, receive, comm->rank == root ? count : 0, count, type,
                  op, root, comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  if (!is_rank(comm, root)) return refuse_root();
  return together(CommonCall::Kind::broadcast, send, comm->rank == root ? count : 0, receive, count, count,
                  type, ncclSum, root, comm, stream);
}
