#include "simt/race.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>
#include <simt/device.h>

#include "simt/access.h"
#include "simt/executor.h"
#include "simt/names.h"
#include "simt/program_memory.h"
#include "simt/runtime.h"
#include "simt/shadow.h"
#include "simt/symbols.h"
#include "simt/warp_counters.h"

// The race detector. Kernels are compiled with -fsanitize=thread, but not linked with its library: the
// functions that g++ has them call at every load and store are ours (access.cpp), and come here.
//
// For all memory a shadow (shadow.h) keeps who wrote last and who read since. An access is a race where what
// the shadow holds did not happen before it, one of the two writes, and not both are atomic. Happens-before
// is:
//
//   in a block: the same thread earlier; any thread, if a block barrier lies between; a lane of the same
//   warp,
//     if a __syncwarp of both lies between, directly or through other lanes (shuffles and votes are no
//     barriers for memory). Barriers are counted (block epoch); each lane keeps what it has heard of each
//     other lane's __syncwarps (a vector clock of 32 counts);
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
namespace {

constexpr unsigned kWarp = 32;

struct OpRecord {
  enum class Kind : std::uint8_t { kernel, copy, fill, message, other } kind = Kind::other;
  std::uint32_t slot = 0;
  std::uint64_t position = 0, stream_id = 0;
  const char* name = "";
  Site site;
  dim3 grid, block;
  std::size_t bytes = 0;
  cudaMemcpyKind direction = cudaMemcpyDefault;
};

struct WarpClock {
  std::uint32_t own[kWarp];           // __syncwarps of each lane so far, plus 1
  std::uint32_t heard[kWarp][kWarp];  // [a][b]: how many of b's a knows to be over
};

struct Detector {
  Clock host;
  Deque<OpRecord> ops = Deque<OpRecord>(1);  // by number; 0 is nobody
  Shadow shadow;
  std::string report;
  std::string unwritten;  // a read of what nobody wrote: reported if no write races with it later

  // The op that runs.
  std::uint32_t op = 0;
  Clock clock;
  std::uint32_t known_op = 0;  // the latest other op asked about, and whether it is before this one
  bool known_before = false;

  // The grid, block and thread that run.
  const Grid* grid = nullptr;
  Range dynamic_shared, parameters, memory;  // memory: the allocation of the latest access
  std::uint32_t block = 0, block_epoch = 0;
  unsigned thread = 0;
  Vector<WarpClock> warps;
};

Detector& detector() {
  static Detector& result = *new Detector;
  return result;
}

// ---- words

std::string thread_name(const OpRecord& op, const Stamp& stamp) {
  if (op.kind != OpRecord::Kind::kernel) return {};
  const auto t = static_cast<unsigned>(stamp.thread);
  return fmt::format("thread ({},{},{}) of block ({},{},{})", t % op.block.x, t / op.block.x % op.block.y,
                     t / op.block.x / op.block.y, stamp.block % op.grid.x,
                     stamp.block / op.grid.x % op.grid.y, stamp.block / op.grid.x / op.grid.y);
}

std::string op_name(const OpRecord& op) {
  switch (op.kind) {
    case OpRecord::Kind::kernel: return fmt::format("kernel {} on stream {}", op.name, op.stream_id);
    case OpRecord::Kind::copy:
      return fmt::format("the copy of {} bytes from {} at {}:{} on stream {}", op.bytes,
                         copy_name(op.direction), op.site.file, op.site.line, op.stream_id);
    case OpRecord::Kind::fill:
      return fmt::format("the memset of {} bytes at {}:{} on stream {}", op.bytes, op.site.file, op.site.line,
                         op.stream_id);
    case OpRecord::Kind::message: return fmt::format("a message on stream {}", op.stream_id);
    case OpRecord::Kind::other: break;
  }
  return "work";
}

std::string place(const Stamp& stamp) {
  return stamp.pc ? " at " + line_of(reinterpret_cast<const void*>(std::uintptr_t{stamp.pc})) : std::string();
}

std::string how(const Stamp& stamp, bool write, bool past) {
  const std::string_view verb = write ? (past ? "wrote" : "writes") : (past ? "read" : "reads");
  return fmt::format("{}{}{}", verb, stamp.atomic ? " atomically" : "", place(stamp));
}

void say(std::string text) {
  Detector& now = detector();
  if (now.report.empty()) now.report = std::move(text);
}

void clash(const Stamp& before, bool before_wrote, const Stamp& after, bool after_writes, bool shared) {
  Detector& now = detector();
  if (!now.report.empty()) return;
  const OpRecord& op = now.ops[now.op];
  if (before.op != now.op) {
    const OpRecord& other = now.ops[before.op];
    say(fmt::format("race between streams: {}{} {}, {} {} {}, and no event makes one wait for the other",
                    op_name(op), op.kind == OpRecord::Kind::kernel ? ": " + thread_name(op, after) : "",
                    how(after, after_writes, false), op_name(other), thread_name(other, before),
                    how(before, before_wrote, true)));
    return;
  }
  say(fmt::format("kernel {}: race in {} memory: {} {}, {} {}, and no {} between", op.name,
                  shared ? "shared" : "global", thread_name(op, after), how(after, after_writes, false),
                  thread_name(op, before), how(before, before_wrote, true),
                  before.block != after.block                     ? "order is"
                  : before.thread / kWarp == after.thread / kWarp ? "__syncwarp or barrier is"
                                                                  : "barrier is"));
}

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
  if (stamp.thread == mine.thread || stamp.block_epoch < mine.block_epoch) return true;
  const auto theirs = static_cast<unsigned>(stamp.thread), my = static_cast<unsigned>(mine.thread);
  if (theirs / kWarp != my / kWarp) return false;
  return stamp.lane_epoch <= detector().warps[my / kWarp].heard[my % kWarp][theirs % kWarp];
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

void remember_read(Cell& cell, const Stamp& mine, bool shared) {
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
  *to = mine;
}

void touch(Cell& cell, const Stamp& mine, bool write, bool shared) {
  const auto counts = [&](const Stamp& stamp) {
    return stamp.op != 0 && (!shared || (stamp.op == mine.op && stamp.block == mine.block));
  };
  const auto check = [&](const Stamp& stamp, bool wrote) {
    if (counts(stamp) && !(mine.atomic && stamp.atomic) && !is_before(stamp, mine)) {
      clash(stamp, wrote, mine, write, shared);
    }
  };
  check(cell.write, true);
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
    cell.write = mine;
    return;
  }
  if (shared && !counts(cell.write)) {
    const OpRecord& op = detector().ops[mine.op];
    if (std::string& text = detector().unwritten; text.empty()) {
      text = fmt::format("kernel {}: {} reads shared memory that nobody in the block has written,{}", op.name,
                         thread_name(op, mine), place(mine));
    }
  }
  remember_read(cell, mine, shared);
}

// ---- kinds of memory

enum class Space : std::uint8_t { untracked, shared, global, forbidden };

Space space_of(const char* address, bool write) {
  Detector& now = detector();
  if (now.dynamic_shared.contains(address)) return Space::shared;
  if (is_thread_local(address)) return Space::shared;
  if (now.memory.contains(address)) return Space::global;
  if (const Allocation* found = runtime().find(address)) {
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
  stamp.block_epoch = now.block_epoch;
  stamp.lane_epoch = now.warps[now.thread / kWarp].own[now.thread % kWarp];
  stamp.pc = reinterpret_cast<std::uintptr_t>(pc) & 0xffffffffffffu;
  stamp.thread = now.thread & 0x3fffu;
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

void kernel_access(const void* pointer, std::size_t bytes, Access access, const void* pc) {
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
  const Stamp mine = current_stamp(pc, access == Access::atomic);
  if (space == Space::forbidden) {
    const OpRecord& op = now.ops[now.op];
    say(fmt::format("kernel {}: {} {} memory that is no device's, at address {}", op.name,
                    thread_name(op, mine), how(mine, write, false), pointer));
    return;
  }
  now.shadow.for_each(address, bytes, [&](Cell& cell) { touch(cell, mine, write, shared); });
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
    record.bytes = copy->width * copy->height;
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
                      [&](Cell& cell) { touch(cell, mine, write, false); });
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
  const auto* call = reinterpret_cast<const char*>(grid.call);
  now.parameters = {call, call + grid.call_bytes};
  now.memory = {};
  now.warps.resize((std::size_t{grid.block.x} * grid.block.y * grid.block.z + kWarp - 1) / kWarp);
}

void begin_block() {
  Detector& now = detector();
  now.block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  now.block_epoch = 0;
  for (WarpClock& warp : now.warps) {
    std::fill(warp.own, warp.own + kWarp, 1u);
    std::memset(warp.heard, 0, sizeof(warp.heard));
  }
}

void run_thread(unsigned thread) {
  detector().thread = thread;
}

void block_barrier() {
  ++detector().block_epoch;
}

void warp_sync(unsigned warp, unsigned mask) {
  WarpClock& clock = detector().warps[warp];
  std::uint32_t all[kWarp] = {};
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    for (unsigned other = 0; other < kWarp; ++other)
      all[other] = std::max(all[other], clock.heard[lane][other]);
  }
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    all[lane] = clock.own[lane]++;
  }
  for (unsigned left = mask; left != 0; left &= left - 1) {
    std::memcpy(clock.heard[std::countr_zero(left)], all, sizeof(all));
  }
}

void end_grid() {
  detector().grid = nullptr;
}

}  // namespace simt::race
