#include "simt/emulator/warp_counters.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>

#include "simt/emulator/executor.h"
#include "simt/emulator/symbols.h"

// Lanes of a warp run one after the other here, so a warp's access has to be put together again: the k-th
// time that each lane of the warp executes an instruction is one access of the warp. That is what a GPU does
// wherever lanes that part come together again at the end of the branch or loop; where a loop inside a loop
// ends at different times in different lanes, later rounds are put together one round too early or late.
//
// The same for basic blocks, with the block that each lane went on to in place of the address: where they
// differ, the warp diverged.

namespace simt {
namespace {

constexpr unsigned kWarp = 32;
constexpr std::uintptr_t kSectorBytes = 32, kBankBytes = 4, kBanks = 32;
constexpr std::size_t kWidest = 16;  // bytes that a lane moves by one instruction

/// One access of a warp, as far as its lanes have come.
struct WarpAccess {
  std::uint32_t mask = 0;
  std::array<std::uintptr_t, kWarp> address{};
};

struct Tally {
  AccessKind kind = AccessKind::global_read;
  std::size_t lane_bytes = 0;
  AccessCount sum;
};

using Pc = std::uintptr_t;

/// One execution of a basic block by a warp.
struct WarpStep {
  std::uint32_t mask = 0;
  Pc next = 0;
  bool diverged = false;
};

/// What the lanes of one warp did one after the other, put together: their k-th times are the k-th entry.
template <class Entry> class Together {
 public:
  Entry& next_of(unsigned lane) {
    const std::size_t index = count_[lane]++ - finished_;
    if (index >= open_.size()) open_.resize(index + 1);
    return open_[index];
  }
  /// Calls f(entry) for those that all lanes have come to, and forgets them.
  template <class F> void finish(std::uint32_t all_lanes, F&& f) {
    for (; !open_.empty() && open_.front().mask == all_lanes; open_.pop_front(), ++finished_)
      f(open_.front());
  }
  /// The same for the rest: no more lanes will come.
  template <class F> void finish_all(F&& f) {
    for (const Entry& entry : open_) f(entry);
    *this = {};
  }

 private:
  std::array<std::uint32_t, kWarp> count_{};
  std::uint32_t finished_ = 0;
  std::deque<Entry> open_;
};

/// An instruction that moves memory; several where one source access is wider than an instruction.
struct AccessKey {
  Pc pc;
  AccessKind kind;
  std::uint32_t bytes;
  bool operator==(const AccessKey&) const = default;
};
struct AccessHash {
  std::size_t operator()(const AccessKey& key) const {
    return key.pc * 31 + key.bytes * 8 + static_cast<std::size_t>(key.kind);
  }
};

struct Access {
  Tally tally;
  std::vector<Together<WarpAccess>> warps;
};
struct Block {
  BranchCount sum;
  std::vector<Together<WarpStep>> warps;

  void finish(const WarpStep& step) {
    ++sum.warps;
    sum.lanes += static_cast<std::uint64_t>(__builtin_popcount(step.mask));
    sum.diverged += step.diverged;
  }
};

/// The bytes of memory that were accessed.
class ByteSet {
 public:
  void insert(std::uintptr_t address, std::size_t bytes) {
    for (std::uintptr_t at = address; at < address + bytes; ++at) {
      const std::uintptr_t page = at / kPage;
      if (!last_ || page != last_page_) last_ = &pages_[page], last_page_ = page;
      last_->set(at % kPage);
    }
  }
  std::uint64_t size() const {
    std::uint64_t sum = 0;
    for (const auto& [page, bytes] : pages_) sum += bytes.count();
    return sum;
  }
  void clear() {
    pages_.clear();
    last_ = nullptr;
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::unordered_map<std::uintptr_t, std::bitset<kPage>> pages_;
  std::bitset<kPage>* last_ = nullptr;
  std::uintptr_t last_page_ = 0;
};

struct Kernel {
  std::uint64_t launches = 0, blocks = 0, threads = 0, bytes_read = 0, bytes_written = 0;
  std::unordered_map<AccessKey, Access, AccessHash> accesses;
  std::unordered_map<Pc, Block> blocks_at;
};

struct State {
  bool on = false;
  std::map<std::string, Kernel> kernels;
  Kernel* kernel = nullptr;
  ByteSet read, written;    // by this launch, of global memory
  unsigned threads = 0;     // of a block
  std::vector<Pc> last_at;  // of each thread: the basic block it is in; 0: none yet

  unsigned warps() const { return (threads + kWarp - 1) / kWarp; }
  std::uint32_t lanes_of(unsigned warp) const {
    const unsigned lanes = std::min(kWarp, threads - warp * kWarp);
    return lanes == kWarp ? ~0u : (1u << lanes) - 1;
  }
  /// Adds the bytes of the launch that has ended, if any.
  void end_launch() {
    if (!kernel) return;
    kernel->bytes_read += read.size();
    kernel->bytes_written += written.size();
    read.clear();
    written.clear();
    kernel = nullptr;
  }
};

State& state() {
  static State& result = *new State;
  return result;
}

std::uint64_t distinct(std::array<std::uintptr_t, 2 * kWarp>& values, std::size_t count) {
  std::sort(values.begin(), values.begin() + count);
  return static_cast<std::uint64_t>(std::unique(values.begin(), values.begin() + count) - values.begin());
}

void add_sectors(AccessCount& sum, const WarpAccess& access, std::size_t bytes) {
  std::array<std::uintptr_t, 2 * kWarp> sectors, begins;
  std::size_t count = 0, lanes = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((access.mask >> lane & 1) == 0) continue;
    const std::uintptr_t begin = access.address[lane];
    sectors[count++] = begin / kSectorBytes;
    sectors[count++] = (begin + bytes - 1) / kSectorBytes;
    begins[lanes++] = begin;
  }
  sum.sectors += distinct(sectors, count);
  // Different bytes: lanes' ranges, where they overlap once.
  std::sort(begins.begin(), begins.begin() + lanes);
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < lanes; ++i) {
    different += i + 1 < lanes ? std::min<std::uint64_t>(bytes, begins[i + 1] - begins[i]) : bytes;
  }
  sum.fewest_sectors += (different + kSectorBytes - 1) / kSectorBytes;
}

void add_rounds(AccessCount& sum, const WarpAccess& access, std::size_t bytes) {
  const unsigned phase = bytes <= 4 ? kWarp : bytes <= 8 ? kWarp / 2 : kWarp / 4;  // lanes served together
  for (unsigned first = 0; first < kWarp; first += phase) {
    std::array<std::uintptr_t, 4 * kWarp> words;
    std::size_t count = 0;
    for (unsigned lane = first; lane < first + phase; ++lane) {
      if ((access.mask >> lane & 1) == 0) continue;
      const std::uintptr_t begin = access.address[lane] / kBankBytes;
      const std::uintptr_t end = (access.address[lane] + bytes - 1) / kBankBytes;
      for (std::uintptr_t word = begin; word <= end && count < words.size(); ++word) words[count++] = word;
    }
    if (count == 0) continue;
    std::sort(words.begin(), words.begin() + count);
    const auto end = std::unique(words.begin(), words.begin() + count);
    std::array<std::uint64_t, kBanks> busy{};
    for (auto word = words.begin(); word != end; ++word) ++busy[*word % kBanks];
    sum.rounds += *std::max_element(busy.begin(), busy.end());
    ++sum.fewest_rounds;
  }
}

void finish(Tally& tally, const WarpAccess& access) {
  const auto lanes = static_cast<std::uint64_t>(__builtin_popcount(access.mask));
  AccessCount& sum = tally.sum;
  ++sum.warps;
  sum.lanes += lanes;
  sum.bytes += lanes * tally.lane_bytes;
  if (is_shared(tally.kind)) {
    add_rounds(sum, access, tally.lane_bytes);
  } else {
    add_sectors(sum, access, tally.lane_bytes);
  }
}

// Places compare by file, then line as a number.
bool place_before(const std::string& a, const std::string& b) {
  const auto split = [](const std::string& place) {
    const auto colon = place.find(':');
    return std::pair(place.substr(0, colon), colon == place.npos ? 0 : std::atoi(place.c_str() + colon + 1));
  };
  return std::pair(split(a), a) < std::pair(split(b), b);
}

KernelCounts counts_of(const std::string& name, const Kernel& kernel) {
  KernelCounts counts{
      name, kernel.launches, kernel.blocks, kernel.threads, kernel.bytes_read, kernel.bytes_written, {}, {}};
  std::map<std::pair<std::string, AccessKind>, AccessCount> lines;
  for (const auto& [key, access] : kernel.accesses) {
    lines[{line_of(reinterpret_cast<const void*>(key.pc)), key.kind}] += access.tally.sum;
  }
  for (auto& [key, line] : lines) {
    line.place = key.first;
    line.kind = key.second;
    counts.accesses.push_back(line);
  }
  std::map<std::string, BranchCount> blocks;
  for (const auto& [pc, block] : kernel.blocks_at) {
    blocks[line_of(reinterpret_cast<const void*>(pc))] += block.sum;
  }
  for (auto& [place, line] : blocks) {
    line.place = place;
    counts.branches.push_back(line);
  }
  const auto by_place = [](const auto& a, const auto& b) { return place_before(a.place, b.place); };
  std::stable_sort(counts.accesses.begin(), counts.accesses.end(), by_place);
  std::stable_sort(counts.branches.begin(), counts.branches.end(), by_place);
  return counts;
}

}  // namespace

bool can_count() {
  return true;
}

void start_counting() {
  state().end_launch();
  state().kernels.clear();
  state().on = true;
}

Counts stop_counting() {
  State& now = state();
  now.on = false;
  now.end_launch();
  Counts counts;
  for (const auto& [name, kernel] : now.kernels) counts.kernels.push_back(counts_of(name, kernel));
  now.kernels.clear();
  return counts;
}

namespace counting {

bool on() {
  return state().on;
}

void begin_grid(const Grid& grid) {
  State& now = state();
  now.end_launch();
  if (!now.on) return;
  now.kernel = &now.kernels[grid.name];
  now.threads = grid.block.x * grid.block.y * grid.block.z;
  const std::uint64_t blocks = std::uint64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
  now.last_at.assign(now.threads, 0);
  ++now.kernel->launches;
  now.kernel->blocks += blocks;
  now.kernel->threads += blocks * now.threads;
}

void access(AccessKind kind, unsigned thread, std::uintptr_t address, std::size_t bytes, const void* pc) {
  State& now = state();
  if (!now.kernel) return;
  for (; bytes > kWidest; bytes -= kWidest, address += kWidest) access(kind, thread, address, kWidest, pc);
  const bool writes = kind != AccessKind::global_read, reads = kind != AccessKind::global_write;
  if (!is_shared(kind) && reads) now.read.insert(address, bytes);
  if (!is_shared(kind) && writes) now.written.insert(address, bytes);
  const AccessKey key{reinterpret_cast<Pc>(pc), kind, static_cast<std::uint32_t>(bytes)};
  Access& entry = now.kernel->accesses[key];
  entry.tally.kind = kind;
  entry.tally.lane_bytes = bytes;
  const unsigned warp = thread / kWarp, lane = thread % kWarp;
  if (entry.warps.size() <= warp) entry.warps.resize(now.warps());
  WarpAccess& together = entry.warps[warp].next_of(lane);
  together.mask |= 1u << lane;
  together.address[lane] = address;
  entry.warps[warp].finish(now.lanes_of(warp), [&](const WarpAccess& whole) { finish(entry.tally, whole); });
}

// The thread goes on from the basic block it was in to the one at `pc`; 0: it leaves the kernel.
static void go_on(State& now, unsigned thread, Pc pc) {
  const Pc from = std::exchange(now.last_at[thread], pc);
  if (from == 0) return;
  Block& block = now.kernel->blocks_at[from];
  const unsigned warp = thread / kWarp, lane = thread % kWarp;
  if (block.warps.size() <= warp) block.warps.resize(now.warps());
  WarpStep& step = block.warps[warp].next_of(lane);
  if (step.mask != 0 && step.next != pc) step.diverged = true;
  step.next = pc;
  step.mask |= 1u << lane;
  block.warps[warp].finish(now.lanes_of(warp), [&](const WarpStep& whole) { block.finish(whole); });
}

void basic_block(unsigned thread, const void* pc) {
  if (State& now = state(); now.kernel) go_on(now, thread, reinterpret_cast<Pc>(pc));
}

void end_thread(unsigned thread) {
  if (State& now = state(); now.kernel) go_on(now, thread, 0);
}

void end_block() {
  State& now = state();
  if (!now.kernel) return;
  for (auto& [key, access] : now.kernel->accesses) {
    for (auto& warp : access.warps) {
      warp.finish_all([&, &tally = access.tally](const WarpAccess& part) { finish(tally, part); });
    }
  }
  for (auto& [pc, block] : now.kernel->blocks_at) {
    for (auto& warp : block.warps) {
      warp.finish_all([&, &to = block](const WarpStep& part) { to.finish(part); });
    }
  }
}

}  // namespace counting
}  // namespace simt
