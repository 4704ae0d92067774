#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "simt/emulator/options.h"
#include "simt/ptx/block.h"
#include "simt/ptx/sums.h"

// wgmma. The threads of a warpgroup need not meet: the n-th wgmma of each is the warpgroup's n-th product, of
// which they must say the same. It is done when the first of them must wait for it, or, early, when the last
// has started it; each thread has its sums when it has waited itself.

namespace simt::ptx {
namespace {

constexpr unsigned kThreads = 128;  // of a warpgroup
constexpr int kRows = 64, kMaxColumns = 256, kMaxDepth = 16;
constexpr std::uint32_t kPoison = ~0u;  // NaN

/// Matrix descriptor (9.7.15.5.1.2.2): where a factor lies. Distances in bytes.
struct Descriptor {
  std::uint32_t start, leading, stride, base_offset, span;

  static Descriptor of(std::uint64_t bits) {
    // A field of 14 bits holds an address or a distance without its lower 4 bits.
    const auto bytes = [bits](int first) { return static_cast<std::uint32_t>(bits >> first & 0x3fff) << 4; };
    static constexpr std::uint32_t kSpans[] = {16, 128, 64, 32};
    return {bytes(0), bytes(16), bytes(32), static_cast<std::uint32_t>(bits >> 49 & 7), kSpans[bits >> 62]};
  }
  static constexpr std::uint64_t kUnused = 0x3ffull << 52 | 0x7ull << 46 | 0x3ull << 30 | 0x3ull << 14;
};

/// What all threads of the warpgroup must say the same about a product.
struct Operands {
  int n;
  MmaType type;
  std::uint64_t a, b;
  bool scale_d;
  int scale_a, scale_b, trans_a, trans_b;
  unsigned line;

  int depth() const { return type == MmaType::tf32 ? 8 : 16; }
  bool operator==(const Operands&) const = default;
};

/// Where element (row, k) of a factor lies, as an offset in shared memory. Shared memory matrix layout and
/// strides (9.7.15.5.1.2): in pieces of 16 bytes, which are T elements, the canonical layouts are
///
///   K-major, no swizzle   8 rows of one piece each; the next piece along k is `leading` further, the next 8
///                         rows `stride`
///   K-major, swizzled     8 rows of one span each, along which k goes on; the next 8 rows are `stride`
///   further MN-major, no swizzle  8 k of one piece each, of T rows; the next T rows are `stride` further,
///   the next 8
///                         k `leading`
///   MN-major, swizzled    8 k of one span each, along which the rows go on; the next span of rows is
///                         `leading` further, the next 8 k `stride`
///
/// and the swizzle then permutes the pieces of each 8 spans.
std::uint32_t offset_of(const Descriptor& of, bool mn_major, MmaType type, unsigned row, unsigned k) {
  const unsigned each = type == MmaType::tf32 ? 4 : 2, per_piece = 16 / each;
  const unsigned dense = mn_major ? row : k, other = mn_major ? k : row;
  const unsigned piece = dense / per_piece, pieces = of.span / 16;
  std::uint32_t at = of.start + (dense % per_piece) * each + (other % 8) * of.span;
  if (of.span == 16) {
    at += mn_major ? piece * of.stride + other / 8 * of.leading : piece * of.leading + other / 8 * of.stride;
  } else if (mn_major) {
    at += piece % pieces * 16 + piece / pieces * of.leading + other / 8 * of.stride;
  } else {
    at += piece * 16 + other / 8 * of.stride;
  }
  return swizzled(at, of.span);
}

/// Accumulators of a thread: registers that it gives to one product, or to several that follow each other.
struct Sums {
  std::vector<std::uint32_t*> registers;
  std::vector<std::uint32_t> bits;  ///< what they hold when the products so far are done
  unsigned under_way = 0;           ///< products not waited for
  std::uint64_t fences = 0;         ///< of the thread, when it last got them back
};

/// What a thread of the warpgroup has done.
struct Member {
  std::uint64_t started = 0, waited = 0;  ///< products, from the block's beginning
  std::vector<std::uint64_t> groups;      ///< where each that is not waited for ends
  std::uint64_t fences = 0;
  std::list<Sums> sums;
};

struct Product : Waited {
  Operands operands;
  Site site;
  unsigned started = 0, waited = 0;  ///< by how many threads
  bool done = false;
  std::array<Sums*, kThreads> sums{};
  std::vector<std::uint32_t> a, b;  ///< where the elements lie: a [64][depth], b [depth][n]

  std::string missing() const override {
    return fmt::format("wgmma.mma_async of {}, which {} of the warpgroup's {} threads have started",
                       place(site), started, kThreads);
  }
};

}  // namespace

struct Warpgroup {
  std::deque<Product> products;  ///< those that not all threads have waited for
  std::uint64_t forgotten = 0;   ///< those before
  std::array<Member, kThreads> members;
};

namespace {

Warpgroup& my_warpgroup(const char* instruction, const Site& site) {
  auto& all = block().warpgroups;
  const unsigned thread = current_thread(), first = thread / kThreads * kThreads;
  if (first + kThreads > executor().threads()) {
    refuse(instruction, fmt::format("is in a warpgroup of {} threads, not 128", executor().threads() - first),
           site);
  }
  if (all.empty()) all.resize(executor().threads() / kThreads);
  auto& mine = all[thread / kThreads];
  if (!mine) mine = std::make_unique<Warpgroup>();
  return *mine;
}

// ---- a product

void require_descriptor(const char* which, std::uint64_t bits, const Site& site) {
  constexpr const char* kName = "wgmma.mma_async";
  const Descriptor all = Descriptor::of(bits);
  if ((bits & Descriptor::kUnused) != 0) {
    refuse(kName, fmt::format("has bits that mean nothing in the descriptor {:#x} of {}", bits, which), site);
  }
  // The pattern of a swizzle begins at a multiple of 8 spans, and the matrix in its first line of 128 bytes.
  const std::uint32_t line = all.start >> 7 & (all.span / 16 - 1);
  if (line != 0 || all.base_offset != 0) {
    refuse(
        kName,
        fmt::format(
            "has the matrix {} at {:#x}, in line {} of the pattern of its swizzle, with the base offset {}",
            which, all.start, line, all.base_offset),
        site);
  }
}

void require_operands(const Operands& all, const Site& site) {
  constexpr const char* kName = "wgmma.mma_async";
  const auto is_sign = [](int scale) { return scale == 1 || scale == -1; };
  if (all.n < 8 || all.n > kMaxColumns || all.n % 8 != 0) refuse(kName, fmt::format("has n {}", all.n), site);
  if (!is_sign(all.scale_a) || !is_sign(all.scale_b)) {
    refuse(kName, fmt::format("scales by {} and {}, which must be 1 or -1", all.scale_a, all.scale_b), site);
  }
  if (all.type == MmaType::tf32 && (all.trans_a || all.trans_b)) {
    refuse(kName, "transposes a factor of tf32, which must be K-major", site);
  }
  require_descriptor("a", all.a, site);
  require_descriptor("b", all.b, site);
}

/// The registers as accumulators: from what they hold, unless they are those of a product in flight.
Sums& accumulators(Member& member, std::uint32_t* const* d, int n, const Site& site) {
  constexpr const char* kName = "wgmma.mma_async";
  const std::size_t count = static_cast<std::size_t>(n) / 2;
  if (member.fences == 0) refuse(kName, "comes before any wgmma.fence", site);
  Sums* sums = nullptr;
  for (Sums& each : member.sums) {
    if (std::equal(each.registers.begin(), each.registers.end(), d, d + count)) {
      sums = &each;
    } else if (each.under_way > 0 &&
               std::find_first_of(d, d + count, each.registers.begin(), each.registers.end()) != d + count) {
      refuse(kName, "shares some of its accumulators with a product in flight of another shape", site);
    }
  }
  if (sums && sums->under_way > 0) return *sums;
  const auto changed = [&] {
    for (std::size_t i = 0; i < count; ++i)
      if (*d[i] != sums->bits[i]) return true;
    return false;
  };
  if (sums && sums->fences == member.fences && changed()) {
    refuse(kName, "has accumulators that were written to, and no wgmma.fence came after", site);
  }
  if (!sums) {
    sums = &member.sums.emplace_back();
    sums->registers.assign(d, d + count);
    sums->bits.resize(count);
  }
  for (std::size_t i = 0; i < count; ++i) sums->bits[i] = *d[i];
  if (late()) {
    for (std::size_t i = 0; i < count; ++i) *d[i] = kPoison;
  }
  return *sums;
}

void locate(Product& product) {
  const Operands& all = product.operands;
  const std::uint32_t each = all.type == MmaType::tf32 ? 4 : 2;
  const auto find = [&](const char* which, std::uint64_t descriptor, bool mn_major, int row, int k) {
    const std::uint32_t offset = offset_of(Descriptor::of(descriptor), mn_major, all.type,
                                           static_cast<unsigned>(row), static_cast<unsigned>(k));
    if (offset < kSharedBegin || offset + each > shared_window.bytes) {
      refuse("wgmma.mma_async",
             fmt::format("reads element ({}, {}) of {} at {:#x}, but shared memory ends at {:#x}", row, k,
                         which, offset, shared_window.bytes),
             product.site);
    }
    return offset;
  };
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < all.depth(); ++k) product.a.push_back(find("a", all.a, all.trans_a, row, k));
  for (int k = 0; k < all.depth(); ++k)
    for (int column = 0; column < all.n; ++column)
      product.b.push_back(find("b", all.b, all.trans_b, column, k));
}

void count_reads(const Product& product, int by) {
  Reads& reads = block().reads;
  if (reads.empty()) reads.resize(kWindowBytes / 16);
  for (const auto* const offsets : {&product.a, &product.b})
    for (const std::uint32_t offset : *offsets)
      reads[offset / 16] = static_cast<std::uint16_t>(reads[offset / 16] + by);
}

/// Where register i of a thread lies in d [64][n] (9.7.15.5.1.1, fragments of D).
struct Place {
  unsigned row, column;
};
Place place_of(unsigned thread, unsigned i) {
  const unsigned warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2};
}

void multiply(Product& product) {
  const Operands& all = product.operands;
  const int depth = all.depth(), n = all.n;
  const auto number = [&](std::uint32_t offset, int scale) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, shared_window.memory + offset, all.type == MmaType::tf32 ? 4 : 2);
    return number_of(all.type, bits) * static_cast<float>(scale);
  };
  static float a[kRows][kMaxDepth], b[kMaxDepth][kMaxColumns], d[kRows][kMaxColumns];
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < depth; ++k)
      a[row][k] = number(product.a[static_cast<std::size_t>(row * depth + k)], all.scale_a);
  for (int k = 0; k < depth; ++k)
    for (int column = 0; column < n; ++column)
      b[k][column] = number(product.b[static_cast<std::size_t>(k * n + column)], all.scale_b);
  const auto each_register = [&](auto&& f) {
    for (unsigned thread = 0; thread < kThreads; ++thread)
      for (unsigned i = 0; i < static_cast<unsigned>(n) / 2; ++i) {
        const Place at = place_of(thread, i);
        f(d[at.row][at.column], product.sums[thread]->bits[i]);
      }
  };
  each_register([&](float& sum, std::uint32_t bits) {
    sum = 0;
    if (all.scale_d) std::memcpy(&sum, &bits, sizeof(sum));
  });
  const TermOrder order = term_order(depth);
  for (int row = 0; row < kRows; ++row) add_products(order, n, d[row], a[row], b);
  each_register([](float sum, std::uint32_t& bits) { std::memcpy(&bits, &sum, sizeof(bits)); });
  product.done = true;
}

/// The thread has waited for the product; if for none other of its accumulators, it has them back.
void give_back(Member& member, Product& product, Sums& sums, const Site& site) {
  if (product.waited++ == 0) count_reads(product, -1);
  if (--sums.under_way > 0) return;
  for (std::size_t i = 0; i < sums.registers.size(); ++i) {
    if (late() && *sums.registers[i] != kPoison) {
      refuse("wgmma.wait_group",
             fmt::format("finds that accumulator {} of the product of {} was written to meanwhile", i,
                         place(product.site)),
             site);
    }
    *sums.registers[i] = sums.bits[i];
  }
  sums.fences = member.fences;
}

}  // namespace

void wgmma(int n, MmaType type, std::uint32_t* const* d, std::uint64_t a, std::uint64_t b, bool scale_d,
           int scale_a, int scale_b, int trans_a, int trans_b, const Site& site) {
  constexpr const char* kName = "wgmma.mma_async";
  const Operands operands{n, type, a, b, scale_d, scale_a, scale_b, trans_a, trans_b, site.line};
  Warpgroup& group = my_warpgroup(kName, site);
  const unsigned thread = current_thread() % kThreads;
  Member& member = group.members[thread];
  const std::uint64_t position = member.started++ - group.forgotten;
  if (position == group.products.size()) {
    require_operands(operands, site);
    Product& first = group.products.emplace_back();
    first.operands = operands;
    first.site = site;
  }
  Product& product = group.products[position];
  if (product.operands != operands) {
    const Operands& other = product.operands;
    refuse(kName,
           other.line != operands.line
               ? fmt::format("is there, but another thread of its warpgroup at {}", place(product.site))
               : fmt::format(
                     "has the descriptors {:#x} and {:#x}, scale_d {}, but another thread of its warpgroup "
                     "{:#x} and {:#x}, {}",
                     a, b, scale_d, other.a, other.b, other.scale_d),
           site);
  }
  Sums& sums = accumulators(member, d, n, site);
  ++sums.under_way;
  product.sums[thread] = &sums;
  if (++product.started < kThreads) return;
  locate(product);
  count_reads(product, 1);
  if (!late()) multiply(product);
  product.release_all();
}

void wgmma_fence(const Site& site) {
  ++my_warpgroup("wgmma.fence", site).members[current_thread() % kThreads].fences;
}

void wgmma_commit(const Site& site) {
  Member& member = my_warpgroup("wgmma.commit_group", site).members[current_thread() % kThreads];
  member.groups.push_back(member.started);
}

void wgmma_wait(std::uint32_t pending, const Site& site) {
  Warpgroup& group = my_warpgroup("wgmma.wait_group", site);
  const unsigned thread = current_thread() % kThreads;
  Member& member = group.members[thread];
  if (member.groups.size() <= pending) return;
  const auto last = member.groups.end() - static_cast<std::ptrdiff_t>(pending);
  const std::uint64_t end = *(last - 1);
  member.groups.erase(member.groups.begin(), last);
  for (; member.waited < end; ++member.waited) {
    Product& product = group.products[member.waited - group.forgotten];
    if (product.started < kThreads) product.wait(site);
    if (!product.done) multiply(product);
    give_back(member, product, *product.sums[thread], site);
  }
  for (; !group.products.empty() && group.products.front().waited == kThreads; ++group.forgotten) {
    group.products.pop_front();
  }
}

// ---- of a block

void require_unread(const char* instruction, std::uint32_t offset, std::uint32_t bytes, const Site& site) {
  const Reads& reads = block().reads;
  if (reads.empty()) return;
  for (std::uint32_t piece = offset / 16; piece * 16 < offset + bytes; ++piece) {
    if (reads[piece] == 0) continue;
    refuse(instruction,
           fmt::format("writes at {:#x} of shared memory, which a wgmma in flight reads", piece * 16), site);
  }
}

std::string end_warpgroups(const Block& ends) {
  for (const auto& group : ends.warpgroups) {
    if (!group || group->products.empty()) continue;
    const Product& product = group->products.front();
    return fmt::format(
        "wgmma.mma_async of {}: of the warpgroup's {} threads {} have started it and {} have waited for "
        "it, at the kernel's end",
        place(product.site), kThreads, product.started, product.waited);
  }
  return {};
}

Block::Block(unsigned threads) : meetings((threads + 31) / 32), arrivals(threads) {}
Block::~Block() = default;

}  // namespace simt::ptx
