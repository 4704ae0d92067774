#include "simt/emulator/race.h"

#include <algorithm>

#include <fmt/format.h>

#include "simt/emulator/access.h"
#include "simt/emulator/cuda/device.h"
#include "simt/emulator/detector.h"
#include "simt/emulator/executor.h"
#include "simt/emulator/runtime.h"
#include "simt/emulator/warp_counters.h"

// The race detector. Kernels are compiled with -fsanitize=thread, but not linked with its library: the
// functions that g++ has them call at every load and store are ours (access.cpp), and come here.
//
// For all memory a shadow (shadow.h) keeps who wrote last and who read since. An access is a race where what
// the shadow holds did not happen before it, one of the two writes, and not both are atomic. Happens-before
// is:
//
//   in a block: the same thread earlier; any thread, if a block barrier lies between; a lane of the same
//     warp, if a __syncwarp of both lies between, directly or through other lanes (shuffles and votes are no
//     barriers for memory); any thread, if one arrives at a barrier in memory and the other waits for it
//     (block_order.h);
//   asynchronous work: who has waited for it. While it is under way, not even the thread that issued it.
//   Where
//     it goes by way of the asynchronous proxy, a fence must lie between it and what was written by threads;
//   between blocks of a launch: nothing;
//   between launches and copies: their clocks (race.h). Events, the default stream and waits of the host make
//     them; which one happened to run first here does not matter.
//
// So a race is found in whichever order things run; one run suffices for one input. Shared memory begins anew
// with every block: reading what the block has not written is reported too. So is memory that kernels must
// not touch: the host's.
//
// Limits. Of reads that no read follows in order, three are kept: of the same memory by more than three
// streams, or more than three warps of one launch, one is forgotten. A function that is also instantiated in
// a file that is not instrumented, and not inlined, may be linked in that form: its accesses are not seen.
// Neither are those of memcpy with a size the compiler does not know.

extern "C" char __start_simt_builtin[], __stop_simt_builtin[];

namespace simt::race {

Detector& detector() {
  static Detector& result = *new Detector;
  return result;
}

namespace {

constexpr unsigned kWarp = 32;

// ---- happens-before

bool op_is_before(std::uint32_t op) {
  Detector& now = detector();
  if (op != now.known_op) {
    const OpRecord& record = now.ops[op];
    now.known_op = op;
    now.known_before = record.slot < now.clock.size() && now.clock[record.slot] >= record.position;
  }
  return now.known_before;
}

/// Whether `stamp` happened before the current access of `mine`.
bool is_before(const Stamp& stamp, const Stamp& mine) {
  if (stamp.op != mine.op) return op_is_before(stamp.op);
  if (stamp.block != mine.block) return false;
  if (stamp.under_way) return false;
  return detector().order.knows(static_cast<unsigned>(mine.thread), stamp);
}

// Of three reads that are none before another, the one to forget for a fourth. Ops run one at a time, so all
// reads of an earlier op will be before the next write or all will not: of such an op, one is enough. Next,
// one of this op, of the same warp if there is one, so that other warps, blocks and streams stay represented.
Stamp& least_needed(Cell& cell, const Stamp& mine) {
  auto& reads = cell.reads;
  const auto find = [&](auto&& fits) { return std::find_if(reads.begin(), reads.end(), fits); };
  auto found = find([&](const Stamp& read) {
    const auto same_op = [&](const Stamp& other) { return other.op == read.op; };
    return read.op != mine.op && std::count_if(reads.begin(), reads.end(), same_op) > 1;
  });
  if (found == reads.end()) {
    found = find([&](const Stamp& read) {
      return read.op == mine.op && read.block == mine.block && read.thread / kWarp == mine.thread / kWarp;
    });
  }
  if (found == reads.end()) found = find([&](const Stamp& read) { return read.op == mine.op; });
  return found == reads.end() ? reads.back() : *found;
}

void remember_read(Cell& cell, const Stamp& mine, const Stamp& kept, bool shared) {
  Stamp* to = nullptr;
  for (Stamp& read : cell.reads) {
    if (read.op == 0 || (shared && (read.op != mine.op || read.block != mine.block)) ||
        is_before(read, mine)) {
      if (to) {
        read = {};
      } else {
        to = &read;
      }
    }
  }
  if (!to) to = &least_needed(cell, mine);
  *to = kept;
}

// The access is ordered after what `mine` knows; later ones, after what `kept` says.
void touch(Cell& cell, const Stamp& mine, const Stamp& kept, bool write, bool shared) {
  const auto counts = [&](const Stamp& stamp) {
    return stamp.op != 0 && (!shared || (stamp.op == mine.op && stamp.block == mine.block));
  };
  const auto check = [&](const Stamp& stamp, bool wrote) {
    if (counts(stamp) && !(mine.atomic && stamp.atomic) && !is_before(stamp, mine)) {
      clash(stamp, wrote, mine, write, shared);
    }
  };
  check(cell.write, true);
  if (mine.by_proxy && counts(cell.write) && !cell.write.by_proxy && cell.write.op == mine.op &&
      !detector().order.fenced(cell.write, static_cast<unsigned>(mine.thread), false)) {
    unfenced(cell.write, mine, write, shared);
  }
  if (write) {
    for (Stamp& read : cell.reads) {
      check(read, read.wrote);
      if (!mine.atomic || !counts(read)) read = {};
    }
    if (mine.atomic && !cell.write.atomic && counts(cell.write)) {
      const auto empty = [](const Stamp& read) { return read.op == 0; };
      const auto free = std::find_if(cell.reads.begin(), cell.reads.end(), empty);
      Stamp& to = free != cell.reads.end() ? *free : least_needed(cell, mine);
      to = cell.write;
      to.wrote = 1;
    }
    cell.write = kept;
    return;
  }
  if (shared && !counts(cell.write)) {
    const OpRecord& op = detector().ops[mine.op];
    if (std::string& text = detector().unwritten; text.empty()) {
      text = fmt::format("kernel {}: {} reads shared memory that no thread of the block has written,{}",
                         op.name, thread_name(op, mine), place(mine));
    }
  }
  remember_read(cell, mine, kept, shared);
}

// ---- kinds of memory

enum class Space : std::uint8_t { untracked, shared, global, forbidden };

Space space_of(const char* address, bool write) {
  Detector& now = detector();
  if (now.dynamic_shared.contains(address)) return Space::shared;
  if (is_thread_local(address)) return Space::shared;
  if (now.memory.contains(address)) return Space::global;
  if (const Allocation* found = runtime().memory.find(address)) {
    now.memory = {found->base, found->base + found->bytes};
    return Space::global;
  }
  if (now.parameters.contains(address)) return Space::untracked;
  const ProgramMemory kind = program_memory(address);
  // Where accesses are counted, __constant__ variables are not global memory.
  if (kind == ProgramMemory::variable && (write || !counting::on())) return Space::global;
  return write || kind == ProgramMemory::none ? Space::forbidden : Space::untracked;
}

Stamp current_stamp(const void* pc, bool atomic) {
  const Detector& now = detector();
  Stamp stamp;
  stamp.op = now.op;
  stamp.block = now.block;
  stamp.block_epoch = now.order.block_epoch();
  stamp.lane_epoch = now.order.epoch_of(now.thread);
  stamp.pc = reinterpret_cast<std::uintptr_t>(pc) & 0xffffffffffffu;
  stamp.thread = now.thread & 0xfffu;
  stamp.atomic = atomic;
  return stamp;
}

AccessKind kind_of(bool shared, Access access) {
  switch (access) {
    case Access::read: return shared ? AccessKind::shared_read : AccessKind::global_read;
    case Access::write: return shared ? AccessKind::shared_write : AccessKind::global_write;
    case Access::atomic: break;
  }
  return shared ? AccessKind::shared_atomic : AccessKind::global_atomic;
}

}  // namespace

void kernel_basic_block(const void* pc) {
  if (counting::on()) counting::basic_block(detector().thread, pc);
}

// Of the thread that runs.
static void access_as(const void* pointer, std::size_t bytes, Access access, const void* pc,
                      const Asynchronous& how_done) {
  Detector& now = detector();
  const auto* address = static_cast<const char*>(pointer);
  if (address >= __start_simt_builtin && address < __stop_simt_builtin) return;
  if (!now.report.empty()) return;
  const bool write = access != Access::read;
  const Space space = space_of(address, write);
  if (space == Space::untracked) return;
  const bool shared = space == Space::shared;
  if (counting::on() && space != Space::forbidden) {
    counting::access(kind_of(shared, access), now.thread, reinterpret_cast<std::uintptr_t>(address), bytes,
                     pc);
    return;
  }
  Stamp mine = current_stamp(pc, access == Access::atomic);
  mine.by_proxy = how_done.by_proxy;
  if (space == Space::forbidden) {
    const OpRecord& op = now.ops[now.op];
    say(fmt::format("kernel {}: {} {} memory that belongs to no device, at address {}", op.name,
                    thread_name(op, mine), how(mine, write, false), pointer));
    return;
  }
  Stamp kept = mine;
  kept.under_way = how_done.under_way;
  if (how_done.agent != 0) kept.thread = how_done.agent & 0xfffu, kept.lane_epoch = how_done.epoch;
  now.shadow.for_each(address, bytes, [&](Cell& cell) { touch(cell, mine, kept, write, shared); });
}

void kernel_access(const void* pointer, std::size_t bytes, Access access, const void* pc) {
  access_as(pointer, bytes, access, pc, {});
}

void access_by(unsigned thread, const void* pointer, std::size_t bytes, Access access, const void* pc,
               const Asynchronous& how_done) {
  Detector& now = detector();
  const unsigned running = std::exchange(now.thread, thread);
  access_as(pointer, bytes, access, pc, how_done);
  now.thread = running;
}

void settle(unsigned thread, const void* pointer, std::size_t bytes, const void* pc) {
  Detector& now = detector();
  const unsigned running = std::exchange(now.thread, thread);
  Stamp over = current_stamp(pc, false);
  now.thread = running;
  const auto end = [&](Stamp& stamp) {
    if (!stamp.under_way || !stamp.same_thread(over) || stamp.pc != over.pc) return;
    over.by_proxy = stamp.by_proxy;
    stamp = over;
  };
  now.shadow.for_each(static_cast<const char*>(pointer), bytes, [&](Cell& cell) {
    end(cell.write);
    for (Stamp& read : cell.reads) end(read);
  });
}

bool counts() {
  return counting::on();
}

bool is_shared(const void* address) {
  const auto* at = static_cast<const char*>(address);
  return detector().dynamic_shared.contains(at) || is_thread_local(at);
}

unsigned new_agent(const char* waited_for_by) {
  Detector& now = detector();
  const unsigned agent = now.order.new_agent();
  now.agents.resize(agent - BlockOrder::kFirstAgent + 1);
  now.agents.back() = waited_for_by;
  return agent;
}

BlockOrder& block_order() {
  return detector().order;
}

void join(Clock& to, const Clock& from) {
  if (to.size() < from.size()) to.resize(from.size(), 0);
  for (std::size_t slot = 0; slot < from.size(); ++slot) to[slot] = std::max(to[slot], from[slot]);
}

void host_waited(const Clock& clock) {
  join(detector().host, clock);
}

const Clock& host_clock() {
  return detector().host;
}

void begin_op(std::uint32_t slot, std::uint64_t stream_id, const Op& op) {
  Detector& now = detector();
  now.report.clear();
  now.unwritten.clear();
  if (std::holds_alternative<JoinWork>(op.work) || std::holds_alternative<RecordWork>(op.work)) return;
  OpRecord record;
  record.slot = slot;
  record.stream_id = stream_id;
  record.position = op.clock[slot];
  if (const auto* launch = std::get_if<LaunchWork>(&op.work)) {
    record.kind = OpRecord::Kind::kernel;
    record.name = launch->name;
    record.grid = launch->grid;
    record.block = launch->block;
  } else if (const auto* copy = std::get_if<CopyWork>(&op.work)) {
    record.kind = OpRecord::Kind::copy;
    record.site = copy->site;
    record.bytes = copy->bytes;
    record.direction = copy->kind;
  } else if (const auto* fill = std::get_if<FillWork>(&op.work)) {
    record.kind = OpRecord::Kind::fill;
    record.site = fill->site;
    record.bytes = fill->bytes;
  } else if (std::holds_alternative<MeetWork>(op.work)) {
    record.kind = OpRecord::Kind::message;
  }
  now.ops.push_back(record);
  now.op = static_cast<std::uint32_t>(now.ops.size() - 1);
  now.clock = op.clock;
  now.known_op = 0;
}

void access_range(const void* begin, std::size_t bytes, bool write) {
  Detector& now = detector();
  if (counting::on()) return;
  Stamp mine;
  mine.op = now.op;
  now.shadow.for_each(static_cast<const char*>(begin), bytes,
                      [&](Cell& cell) { touch(cell, mine, mine, write, false); });
}

std::string end_op() {
  Detector& now = detector();
  return std::exchange(now.report.empty() ? now.unwritten : now.report, {});
}

void forget(const void* begin, std::size_t bytes) {
  detector().shadow.forget(static_cast<const char*>(begin), bytes);
  detector().memory = {};
}

void begin_grid(const Grid& grid, const void* dynamic_shared) {
  Detector& now = detector();
  now.grid = &grid;
  const auto* shared = static_cast<const char*>(dynamic_shared);
  now.dynamic_shared = {shared, shared + grid.shared_bytes};
  const auto* parameters = reinterpret_cast<const char*>(grid.call->parameters.data());
  now.parameters = {parameters, parameters + grid.call->parameters.size()};
  now.memory = {};
}

void begin_block() {
  Detector& now = detector();
  now.block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  now.order.begin_block(blockDim.x * blockDim.y * blockDim.z);
  now.agents.clear();
}

void run_thread(unsigned thread) {
  detector().thread = thread;
}

void block_barrier() {
  detector().order.block_barrier();
}

void warp_sync(unsigned warp, unsigned mask) {
  detector().order.warp_sync(warp, mask);
}

void end_grid() {
  detector().grid = nullptr;
}

}  // namespace simt::race
