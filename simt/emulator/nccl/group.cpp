#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "simt/emulator/executor.h"
#include "simt/emulator/nccl/half.h"
#include "simt/emulator/nccl/job.h"

// Groups of calls to the stand-in for NCCL: when they meet, and what passes then.

namespace simt {
namespace {

template <class T> using Wide = std::conditional_t<(sizeof(T) == 2), float, T>;

template <class F> void dispatch(ncclDataType_t type, const F& f) {
  switch (type) {
    case ncclInt8: return f.template operator()<std::int8_t>();
    case ncclUint8: return f.template operator()<std::uint8_t>();
    case ncclInt32: return f.template operator()<std::int32_t>();
    case ncclInt64: return f.template operator()<std::int64_t>();
    case ncclFloat16: return f.template operator()<Float16>();
    case ncclFloat32: return f.template operator()<float>();
    case ncclFloat64: return f.template operator()<double>();
    case ncclBfloat16: return f.template operator()<BFloat16>();
  }
}

// NCCL does not say what becomes of NaN in a maximum; here it is lost.
template <class A> A combined(ncclRedOp_t op, A a, A b) {
  if (op == ncclSum) return static_cast<A>(a + b);
  return a > b || b != b ? a : b;
}

// In the order of ranks, halves in f32: one of the orders the real one might take.
template <class T>
std::vector<T> reduced(const std::vector<Entered<CommonCall>>& all, std::size_t first, std::size_t count) {
  std::vector<T> result(count);
  const ncclRedOp_t op = all[0].call().op;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = [&](const Entered<CommonCall>& end) {
      T element;
      std::memcpy(&element, end.call().from + (first + i) * sizeof(T), sizeof(T));
      return Wide<T>(element);
    };
    Wide<T> sum = value(all[0]);
    for (std::size_t rank = 1; rank < all.size(); ++rank) sum = combined(op, sum, value(all[rank]));
    result[i] = T(sum);
  }
  return result;
}

void fail_both(ncclComm& a, ncclComm& b, const std::string& text) {
  for (ncclComm* comm : {&a, &b}) {
    if (comm->error != ncclSuccess) continue;
    comm->error = ncclInvalidUsage;
    comm->text = text;
  }
}

}  // namespace

void Group::enter() {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const auto way =
        message.sends ? std::pair(comm->rank, message.peer) : std::pair(message.peer, comm->rank);
    NcclJob::Lane& lane = comm->job->lanes[way];
    (message.sends ? lane.sends : lane.receives).push_back({shared_from_this(), i});
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].round = comm->rounds++;
    auto& round = comm->job->rounds[calls[i].round];
    round.resize(comm->job->comms.size());
    round[static_cast<std::size_t>(comm->rank)] = {shared_from_this(), i};
  }
}

bool Group::may_meet() const {
  return started && !comm->aborted && comm->error == ncclSuccess;
}

void Group::for_each_range(const std::function<void(const char*, std::size_t)>& f) const {
  if (comm->aborted) return;
  for (const Message& message : messages) f(message.data, message.bytes);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    f(calls[i].from, call_bytes[i].first);
    f(calls[i].to, call_bytes[i].second);
  }
}

// A group that has started is the first in its stream.
void Group::touch(const char* begin, std::size_t bytes, bool write) const {
  const Stream& on = *queued_on;
  if (on.queue.empty()) return;  // after a fault
  race::begin_op(on.slot, on.id, on.queue.front());
  race::access_range(begin, bytes, write);
  if (std::string race = race::end_op(); !race.empty()) runtime().fault(on.device, std::move(race));
}

bool Group::meet(NcclJob::Lane& lane, int from, int to) {
  bool any = false;
  while (!lane.sends.empty() && !lane.receives.empty()) {
    const Entered<Message> send = lane.sends.front(), receive = lane.receives.front();
    if (!send.group->may_meet() || !receive.group->may_meet()) break;
    const Message &out = send.call(), &in = receive.call();
    if (out.bytes != in.bytes) {
      fail_both(*send.group->comm, *receive.group->comm,
                fmt::format("rank {} sends {} bytes, but rank {} expects {}", from, out.bytes, to, in.bytes));
      break;
    }
    send.call().passed = receive.call().passed = any = true;
    lane.sends.pop_front();
    lane.receives.pop_front();
    std::memcpy(in.data, out.data, in.bytes);
    send.group->touch(out.data, out.bytes, false);
    receive.group->touch(in.data, in.bytes, true);
  }
  return any;
}

bool Group::meet_all(std::uint64_t number) {
  auto& all = comm->job->rounds[number];
  for (const auto& end : all) {
    if (!end.group || !end.group->may_meet()) return false;
  }
  const CommonCall& first = all[0].call();
  for (const auto& end : all) {
    const CommonCall& call = end.call();
    if (call.kind == first.kind && call.count == first.count && call.type == first.type &&
        call.op == first.op && call.root == first.root)
      continue;
    fail_both(*all[0].group->comm, *end.group->comm,
              fmt::format("rank {} calls another function than rank 0", end.group->comm->rank));
    return false;
  }
  dispatch(first.type, [&]<class T>() {
    using Kind = CommonCall::Kind;
    const std::size_t ranks = all.size(), n = first.count, root = static_cast<std::size_t>(first.root);
    const bool scatters = first.kind == Kind::reduce_scatter;
    std::vector<T> values;
    if (first.kind == Kind::all_gather) {
      values.resize(ranks * n);
      for (std::size_t rank = 0; rank < ranks; ++rank)
        std::memcpy(values.data() + rank * n, all[rank].call().from, n * sizeof(T));
    } else if (first.kind == Kind::broadcast) {
      values.resize(n);
      std::memcpy(values.data(), all[root].call().from, n * sizeof(T));
    } else {
      values = reduced<T>(all, 0, scatters ? ranks * n : n);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (first.kind == Kind::reduce && rank != root) continue;
      std::memcpy(all[rank].call().to, values.data() + (scatters ? rank * n : 0),
                  (scatters ? n : values.size()) * sizeof(T));
    }
  });
  for (const auto& end : all) {
    const auto& [from_bytes, to_bytes] = end.group->call_bytes[end.index];
    end.call().over = true;
    end.group->touch(end.call().from, from_bytes, false);
    end.group->touch(end.call().to, to_bytes, true);
  }
  comm->job->rounds.erase(number);
  return true;
}

bool Group::attend(Stream&, bool& moved) {
  if (comm->aborted) return true;
  moved = !std::exchange(started, true);
  bool over = true;
  for (const Message& message : messages) {
    if (message.passed) continue;
    const auto way =
        message.sends ? std::pair(comm->rank, message.peer) : std::pair(message.peer, comm->rank);
    moved = meet(comm->job->lanes[way], way.first, way.second) || moved;
    over = over && message.passed;
  }
  for (const CommonCall& call : calls) {
    if (!call.over) moved = meet_all(call.round) || moved;
    over = over && call.over;
  }
  return over;
}

}  // namespace simt
