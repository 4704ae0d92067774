#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nccl.h>

#include "simt/emulator/runtime.h"

// What the stand-in for NCCL keeps: jobs, their communicators, and groups of calls that wait for each other.
// Everything is used with the runtime's lock held.

namespace simt {

class Group;

struct Message {
  int peer = 0;
  bool sends = false;
  char* data = nullptr;
  std::size_t bytes = 0;
  bool passed = false;
};

/// A call all ranks make together.
struct CommonCall {
  enum class Kind : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    reduce,
    broadcast,
  } kind = Kind::all_reduce;
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  bool over = false;
  std::uint64_t round = 0;  ///< its number among those of its communicator
};

/// An end of a message, or of a common call, that has been entered.
template <class Call> struct Entered {
  std::shared_ptr<Group> group;
  std::size_t index = 0;
  Call& call() const;
};

struct NcclJob {
  std::vector<std::unique_ptr<ncclComm>> comms;
  int joined = 0;
  /// Ends without their other end, from a rank to a rank, in the order of the calls.
  struct Lane {
    std::deque<Entered<Message>> sends, receives;
  };
  std::map<std::pair<int, int>, Lane> lanes;
  std::map<std::uint64_t, std::vector<Entered<CommonCall>>> rounds;  // by rank
};
std::map<std::uint64_t, std::unique_ptr<NcclJob>>& nccl_jobs();  ///< by the number in their id

/// The calls between ncclGroupStart and ncclGroupEnd.
class Group final : public Meeting, public std::enable_shared_from_this<Group> {
 public:
  Group(ncclComm* of, cudaStream_t on) : comm(of), stream(on) {}

  void add(const Message& message) { messages.push_back(message); }
  void add(const CommonCall& call, std::size_t from_bytes, std::size_t to_bytes) {
    calls.push_back(call);
    call_bytes.emplace_back(from_bytes, to_bytes);
  }
  /// From now on others may find it.
  void enter();

  bool attend(Stream& on, bool& moved) override;
  void for_each_range(const std::function<void(const char*, std::size_t)>& f) const override;
  bool may_meet() const;
  /// The race detector's: an access as part of this group.
  void touch(const char* begin, std::size_t bytes, bool write) const;

  ncclComm* const comm;
  const cudaStream_t stream;
  Stream* queued_on = nullptr;
  std::vector<Message> messages;
  std::vector<CommonCall> calls;
  std::vector<std::pair<std::size_t, std::size_t>> call_bytes;
  bool started = false;

 private:
  bool meet(NcclJob::Lane& lane, int from, int to);
  bool meet_all(std::uint64_t round);
};

template <> inline Message& Entered<Message>::call() const {
  return group->messages[index];
}
template <> inline CommonCall& Entered<CommonCall>::call() const {
  return group->calls[index];
}

}  // namespace simt

struct ncclComm {
  static constexpr unsigned kAlive = 0x6e63636cu;
  enum class State : std::uint8_t { begun, ready, gone };

  unsigned magic = kAlive;
  simt::NcclJob* job = nullptr;
  int rank = 0, device = 0;
  State state = State::begun;
  bool finalized = false, aborted = false, asked = false;
  ncclResult_t error = ncclSuccess;
  std::string text;
  std::vector<std::shared_ptr<simt::Group>> under_way;  ///< called, but not in their streams yet
  simt::Mark last;                                      ///< its latest group
  std::uint64_t rounds = 0;
};
