#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "simt/emulator/asynchronous.h"
#include "simt/emulator/operands.h"
#include "simt/emulator/sums.h"
#include "simt/wgmma.h"
#if defined(SIMT_RACE)
#include "simt/emulator/block_order.h"
#endif

// The twins of simt/wgmma.h. Each warp does its 16 rows when its 32 lanes have come; that the four warps of a
// warpgroup do the same is compared call by call. Until the wait, sums in registers are NaN where work is
// late.

namespace simt {
namespace async {
namespace {

constexpr int kMaxColumns = 256;
// A signalling NaN: whoever computes with it gets another.
constexpr std::uint32_t kUnderWay = 0x7fa0ffee;

/// A factor in shared memory, as its descriptor says.
struct Shared {
  const char* start;
  unsigned leading, stride;
  Swizzle swizzle;
  Major major;
  int element_bytes;

  Shared(const FactorDescriptor& descriptor, Major along, Factor type)
      : start(descriptor.start),
        leading(static_cast<unsigned>(descriptor.bits >> 16 & 0x3fff) << 4),
        stride(static_cast<unsigned>(descriptor.bits >> 32 & 0x3fff) << 4),
        swizzle(descriptor.bits >> 62 == 0 ? Swizzle::none
                                           : static_cast<Swizzle>(4 - (descriptor.bits >> 62))),
        major(along),
        element_bytes(type == Factor::tf32 ? 4 : 2) {}

  const char* at(int row, int depth) const {
    const int line = bytes_of(swizzle), piece = 16 / element_bytes;
    const int dense = major == Major::depth ? depth : row, across = major == Major::depth ? row : depth;
    std::size_t offset = static_cast<std::size_t>(across % 8 * line);
    if (swizzle == Swizzle::none) {
      const unsigned pieces = major == Major::depth ? leading : stride,
                     eights = major == Major::depth ? stride : leading;
      offset += static_cast<std::size_t>(dense % piece * element_bytes) +
                static_cast<std::size_t>(dense / piece) * pieces +
                static_cast<std::size_t>(across / 8) * eights;
    } else if (major == Major::depth) {
      offset +=
          static_cast<std::size_t>(dense * element_bytes) + static_cast<std::size_t>(across / 8) * stride;
    } else {
      const int elements = line / element_bytes;
      offset += static_cast<std::size_t>(dense % elements * element_bytes) +
                static_cast<std::size_t>(dense / elements) * leading +
                static_cast<std::size_t>(across / 8) * stride;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(start) + offset;
    return reinterpret_cast<const char*>(swizzled(swizzle, address));
  }
};

/// A wgmma as one lane brings it, and then as its warp keeps it.
struct Call {
  Factor type;
  int columns;
  float* sums;
  Major left_major, right_major;
  FactorDescriptor left, right;
  bool accumulate;
};
struct Work {
  Call call;
  Site site;
};

/// The sums of a warp: where its lanes have them, and what is in them.
struct Sums {
  std::array<float*, 32> lanes;
  int count = 0;
  std::vector<float> value;  // [16, columns], with what is under way
  std::vector<float> known;  // the registers as the latest fence or wait left them
  unsigned under_way = 0;
};
struct WarpState {
  Groups<Work> work;
  std::map<float*, Sums> sums;  // by lane 0's
  bool fenced = false;
  std::size_t calls = 0;     // so far
  std::uint32_t groups = 0;  // committed
  std::uint32_t waited = 0;
};
struct Group {
  struct Made {
    Site site;
    std::uint64_t left, right;
  };
  std::vector<Made> calls;  // of whichever warp came first
  unsigned agent = 0;
};
struct State {
  std::vector<WarpState> warps;
  std::vector<Group> groups;
};
State& state() {
  static State& result = *new State;
  return result;
}

WarpState& state_of(const WarpWork& warp) {
  used() = true;
  return state().warps[warp.first_thread / 32];
}

// ---- registers

/// A register of a frame that may be gone, and which AddressSanitizer must not ask about.
#if defined(__SANITIZE_ADDRESS__)
__attribute__((no_sanitize("address"), noinline))
#endif
float peek(const float* at) {
  return *at;
}

template <class F> void for_each_register(const Sums& sums, F&& f) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < sums.count; ++i) {
      const Element at = fragment::sums(lane, i);
      f(sums.lanes[static_cast<std::size_t>(lane)][i],
        static_cast<std::size_t>(at.row * sums.count * 2 + at.column), lane);
    }
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Fails where a register is not as `known` says.
void check_untouched(const WarpWork& warp, const Sums& sums, const std::vector<float>* known,
                     const char* why) {
  for_each_register(sums, [&](float& here, std::size_t at, int lane) {
    const float expected = known ? (*known)[at] : std::bit_cast<float>(kUnderWay);
    if (!same_bits(here, expected))
      refuse(warp.name, warp.first_thread + static_cast<unsigned>(lane), why, warp.site);
  });
}

void check_under_way(const WarpWork& warp, const Sums& sums) {
  check_untouched(warp, sums, late() ? nullptr : &sums.value,
                  "touched the accumulators of a wgmma before waiting for it");
}

void write_registers(Sums& sums, bool poison) {
  for_each_register(sums, [&](float& here, std::size_t at, int) {
    here = poison ? std::bit_cast<float>(kUnderWay) : sums.value[at];
  });
}

// ---- the product

void multiply(const Work& work, unsigned first_row, std::vector<float>& sums) {
  const Call& call = work.call;
  const int depth = depth_of(call.type);
  static float a[16][16], b[16][kMaxColumns], part[16][8];  // one thread of the host runs all kernels
  const auto read = [&](const Shared& from, int row, int k) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, seen_by_proxy(from.at(row, k)), static_cast<std::size_t>(from.element_bytes));
    return factor_of(call.type, bits, 0);
  };
  const Shared left(call.left, call.left_major, call.type);
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < depth; ++k) a[row][k] = read(left, static_cast<int>(first_row) + row, k);
  const Shared right(call.right, call.right_major, call.type);
  for (int k = 0; k < depth; ++k)
    for (int n = 0; n < call.columns; ++n) b[k][n] = read(right, n, k);
  if (!call.accumulate) std::fill(sums.begin(), sums.end(), 0.0f);
  const SumOrder& order = sum_order(depth);
  for (int n = 0; n < call.columns; n += 8) {
    for (int k = 0; k < depth; ++k) std::copy_n(b[k] + n, 8, part[k]);
    for (int row = 0; row < 16; ++row)
      add_products<8>(order, &sums[static_cast<std::size_t>(row * call.columns + n)], a[row], part);
  }
}

// ---- what can be wrong

void check_factor(const WarpWork& warp, const FactorDescriptor& descriptor, const Shared& factor, int rows,
                  int depth) {
  const unsigned thread = warp.first_thread;
  if ((descriptor.bits & 0x3fff) != (reinterpret_cast<std::uintptr_t>(descriptor.start) & 0x3ffff) >> 4)
    refuse(warp.name, thread, "got a descriptor that factor_descriptor() did not make", warp.site);
  check_address(warp.name, thread, descriptor.start, 16, Where::shared, warp.site);
  const auto line = static_cast<std::uintptr_t>(bytes_of(factor.swizzle));
  if (factor.swizzle != Swizzle::none &&
      reinterpret_cast<std::uintptr_t>(descriptor.start) % (8 * line) >= line) {
    refuse(warp.name, thread,
           fmt::format("got a factor at {}, which is not in the first line of a swizzle of {} bytes",
                       static_cast<const void*>(descriptor.start), line),
           warp.site);
  }
  const int line_elements = static_cast<int>(line) / factor.element_bytes;
  const auto used_stride = [&](unsigned stride, bool is_used, const char* which) {
    if (is_used && stride == 0)
      refuse(warp.name, thread, fmt::format("got a factor whose {} distance is 0", which), warp.site);
  };
  const bool none = factor.swizzle == Swizzle::none, by_depth = factor.major == Major::depth;
  const bool eights = (by_depth ? rows : depth) > 8, lines = (by_depth ? depth : rows) > line_elements;
  used_stride(factor.stride, none && !by_depth ? lines : eights, "stride");
  used_stride(factor.leading, none ? (by_depth ? lines : eights) : !by_depth && lines, "leading");
}

void check_same(const WarpWork& warp) {
  const Call& first = warp.of<Call>(0);
  for (unsigned lane = 1; lane < 32; ++lane) {
    const Call& other = warp.of<Call>(lane);
    if (other.left.bits != first.left.bits || other.right.bits != first.right.bits ||
        other.accumulate != first.accumulate)
      refuse(warp.name, warp.first_thread + lane, "gives other descriptors than the first lane", warp.site);
  }
  const unsigned group = warp.first_thread / 128;
  if (executor().threads() < (group + 1) * 128) {
    refuse(warp.name, warp.first_thread,
           fmt::format("is in a warpgroup of {} threads, not 128", executor().threads() - group * 128),
           warp.site);
  }
  WarpState& mine = state_of(warp);
  auto& calls = state().groups[group].calls;
  const Group::Made made{warp.site, first.left.bits, first.right.bits};
  if (mine.calls == calls.size()) {
    calls.push_back(made);
  } else {
    const Group::Made& other = calls[mine.calls];
    if (other.site.line != made.site.line || std::strcmp(other.site.file, made.site.file) != 0 ||
        other.left != made.left || other.right != made.right)
      refuse(warp.name, warp.first_thread,
             fmt::format("computes another product than a warp of its warpgroup at {}", place(other.site)),
             warp.site);
  }
  ++mine.calls;
}

void note_reads([[maybe_unused]] const WarpWork& warp, [[maybe_unused]] const Call& call) {
#if defined(SIMT_RACE)
  if (race::counts()) return;
  Group& group = state().groups[warp.first_thread / 128];
  if (group.agent == 0) group.agent = race::new_agent("wgmma.wait_group");
  const race::Asynchronous how{.by_proxy = true, .agent = group.agent, .epoch = state_of(warp).groups + 1};
  const auto note = [&](const Shared& factor, int first, int rows) {
    const int depth = depth_of(call.type), piece = 16 / factor.element_bytes;
    const bool by_depth = factor.major == Major::depth;
    for (int row = first; row < first + rows; row += by_depth ? 1 : piece)
      for (int k = 0; k < depth; k += by_depth ? piece : 1)
        race::access_by(warp.first_thread, factor.at(row, k), 16, Access::read, warp.pc, how);
  };
  const int in_group = static_cast<int>(warp.first_thread % 128);
  note(Shared(call.left, call.left_major, call.type), in_group / 2, 16);
  if (in_group == 0) note(Shared(call.right, call.right_major, call.type), 0, call.columns);
#endif
}

// ---- the instructions

Sums& begin_sums(const WarpWork& warp, WarpState& mine, int count) {
  const auto [found, is_new] = mine.sums.try_emplace(warp.of<Call>(0).sums);
  Sums& sums = found->second;
  if (sums.under_way > 0 && sums.count == count) {
    check_under_way(warp, sums);
    return sums;
  }
  const std::vector<float> known = is_new || sums.count != count ? std::vector<float>() : sums.known;
  sums.count = count;
  for (unsigned lane = 0; lane < 32; ++lane) sums.lanes[lane] = warp.of<Call>(lane).sums;
  if (!mine.fenced) refuse(warp.name, warp.first_thread, "executed no wgmma.fence before", warp.site);
  if (!known.empty()) {
    check_untouched(warp, sums, &known, "touched the accumulators since the last wgmma.fence");
  }
  sums.value.resize(static_cast<std::size_t>(16 * count * 2));
  for_each_register(sums, [&](float& here, std::size_t at, int) { sums.value[at] = here; });
  return sums;
}

void run_wgmma(const WarpWork& warp) {
  const Call& call = warp.of<Call>(0);
  check_same(warp);
  const int depth = depth_of(call.type);
  check_factor(warp, call.left, Shared(call.left, call.left_major, call.type), 64, depth);
  check_factor(warp, call.right, Shared(call.right, call.right_major, call.type), call.columns, depth);
  WarpState& mine = state_of(warp);
  Sums& sums = begin_sums(warp, mine, call.columns / 2);
  note_reads(warp, call);
  const Work work{call, warp.site};
  ++sums.under_way;
  if (!late()) multiply(work, warp.first_thread % 128 / 2, sums.value);
  write_registers(sums, late());
  mine.work.open.push_back(work);
}

void run_fence(const WarpWork& warp) {
  WarpState& mine = state_of(warp);
  mine.fenced = true;
  for (auto& [key, sums] : mine.sums) {
    if (sums.under_way > 0) continue;
    for_each_register(
        sums, [&, &known = sums.known](float& here, std::size_t at, int) { known[at] = peek(&here); });
  }
}

void run_commit(const WarpWork& warp) {
  WarpState& mine = state_of(warp);
  mine.work.commit();
  ++mine.groups;
}

void run_wait(const WarpWork& warp) {
  WarpState& mine = state_of(warp);
  const unsigned kept = warp.of<unsigned>(0);
  mine.work.finish(kept, [&](const Work& work) {
    Sums& sums = mine.sums.at(work.call.sums);
    if (late()) multiply(work, warp.first_thread % 128 / 2, sums.value);
    if (--sums.under_way > 0) return;
    check_under_way(warp, sums);
    write_registers(sums, false);
    sums.known = sums.value;
  });
  mine.waited = std::max(mine.waited, mine.groups - std::min(mine.groups, kept));
#if defined(SIMT_RACE)
  if (const unsigned agent = state().groups[warp.first_thread / 128].agent; agent != 0)
    for (unsigned lane = 0; lane < 32; ++lane)
      race::block_order().learn(warp.first_thread + lane, agent, mine.waited);
#endif
}

}  // namespace

void begin_block_warpgroups(unsigned threads) {
  state().warps.assign((threads + 31) / 32, {});
  state().groups.assign((threads + 127) / 128, {});
}

std::string end_block_warpgroups() {
  for (std::size_t i = 0; i < state().warps.size(); ++i) {
    WarpState& warp = state().warps[i];
    const auto& calls = state().groups[i / 4].calls;
    if (warp.calls < calls.size())
      return fmt::format("warp {} has not executed the wgmma at {}, as others of its warpgroup have", i,
                         place(calls[warp.calls].site));
    warp.work.commit();
    for (const auto& group : warp.work.closed)
      for (const Work& work : group)
        return fmt::format("no thread waited for the wgmma at {}", place(work.site));
  }
  return {};
}

}  // namespace async

namespace emulated {

void wgmma(Factor type, int columns, float* sums, Major left_major, Major right_major,
           const FactorDescriptor& left, const FactorDescriptor& right, bool accumulate, const Site& site) {
  async::Call call{type, columns, sums, left_major, right_major, left, right, accumulate};
  execute_together("wgmma.mma_async", async::run_wgmma, &call, site, __builtin_frame_address(0));
}

void wgmma_fence(const Site& site) {
  execute_together("wgmma.fence", async::run_fence, nullptr, site, __builtin_frame_address(0));
}

void wgmma_commit(const Site& site) {
  execute_together("wgmma.commit_group", async::run_commit, nullptr, site, __builtin_frame_address(0));
}

void wgmma_wait(unsigned groups, const Site& site) {
  execute_together("wgmma.wait_group", async::run_wait, &groups, site, __builtin_frame_address(0));
}

}  // namespace emulated
}  // namespace simt
