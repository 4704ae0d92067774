#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "simt/emulator/access.h"
#include "simt/emulator/cuda/instructions.h"
#include "simt/emulator/operands.h"
#include "simt/emulator/sums.h"
#include "simt/emulator/warp_counters.h"
#include "simt/fragments.h"

// The twins of simt/tensor_core.h. The last lane of a warp that comes does the work of all 32.

namespace simt {
namespace {

struct Matrices {
  std::uint32_t* parts;
  int count;
  bool columns;
  const char* line;
};
using Lines = std::array<std::array<std::uint16_t, 8>, 8>;  // of one matrix

/// Tells the race detector who reads a line: those that get its numbers in their registers. For bank
/// conflicts, the lane that gives the address moves 16 bytes.
void note_line(const WarpWork& warp, unsigned giver, const Matrices& of) {
  if (!race::kOn) return;
  const auto note = [&](unsigned lane, unsigned offset, unsigned bytes) {
    race::access_by(warp.first_thread + lane, of.line + offset, bytes, Access::read, warp.pc);
  };
  if (race::counts()) return note(giver, 0, 16);
  for (unsigned word = 0; word < 4; ++word) {
    if (!of.columns) {
      note(4 * (giver % 8) + word, 4 * word, 4);
    } else {  // two lanes get half a word each; the whole one keeps the shadow coarse
      const unsigned lane = 8 * word + giver % 8 / 2;
      note(lane, 4 * word, 4);
      note(lane + 4, 4 * word, 4);
    }
  }
}

void run_ldmatrix(const WarpWork& warp) {
  Lines matrices[4];
  const int count = warp.of<Matrices>(0).count;
  for (unsigned lane = 0; lane < 8 * static_cast<unsigned>(count); ++lane) {
    const unsigned thread = warp.first_thread + lane;
    const Matrices& mine = warp.of<Matrices>(lane);
    check_address(warp.name, thread, mine.line, 16, Where::shared, warp.site);
    note_line(warp, lane, mine);
    executor().act_for(&thread);  // whom a report of AddressSanitizer names
    std::memcpy(matrices[lane / 8][lane % 8].data(), mine.line, 16);
  }
  executor().act_for(nullptr);
  for (unsigned lane = 0; lane < 32; ++lane) {
    const Matrices& mine = warp.of<Matrices>(lane);
    for (int i = 0; i < count; ++i) {
      mine.parts[i] = 0;
      for (int half = 0; half < 2; ++half) {
        const Element at = fragment::eight_by_eight(static_cast<int>(lane), half);
        const std::uint16_t number =
            mine.columns ? matrices[i][at.column][at.row] : matrices[i][at.row][at.column];
        mine.parts[i] |= std::uint32_t{number} << 16 * half;
      }
    }
  }
}

template <class Sum> struct Product {
  Factor type;
  Sum* c;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

/// f(row of a lane's number of the sums, its column, that number).
template <class Sum, class F> void for_sums(const WarpWork& warp, const F& f) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Element at = fragment::sums(static_cast<int>(lane), i);
      f(at.row, at.column, warp.of<Product<Sum>>(lane).c[i]);
    }
  }
}

/// Puts a and b together, element(register, part) by element.
template <class Sum, class Left, class Right, class FL, class FR>
void put_together(const WarpWork& warp, Left& a, Right& b, const FL& left, const FR& right) {
  const Factor type = warp.of<Product<Sum>>(0).type;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const Product<Sum>& mine = warp.of<Product<Sum>>(lane);
    const int l = static_cast<int>(lane);
    for (int part = 0; part < per_register(type); ++part) {
      for (int i = 0; i < 4; ++i) {
        const Element at = fragment::left(type, l, i, part);
        a[at.row][at.column] = left(mine.a[i], part);
      }
      for (int i = 0; i < 2; ++i) {
        const Element at = fragment::right(type, l, i, part);
        b[at.row][at.column] = right(mine.b[i], part);
      }
    }
  }
}

void run_mma(const WarpWork& warp) {
  const Factor type = warp.of<Product<float>>(0).type;
  float a[16][16], b[16][8], c[16][8];
  const auto number = [&](std::uint32_t bits, int part) { return factor_of(type, bits, part); };
  put_together<float>(warp, a, b, number, number);
  for_sums<float>(warp, [&](int row, int column, float& sum) { c[row][column] = sum; });
  const SumOrder& order = sum_order(depth_of(type));
  for (int row = 0; row < 16; ++row) add_products<8>(order, c[row], a[row], b);
  for_sums<float>(warp, [&](int row, int column, float& sum) { sum = c[row][column]; });
}

std::uint8_t byte_of(std::uint32_t bits, int part) {
  return static_cast<std::uint8_t>(bits >> 8 * part);
}

/// Whose order does not matter.
void run_mma_of_bytes(const WarpWork& warp) {
  std::uint8_t a[16][32];
  std::int8_t b[32][8];
  put_together<int>(warp, a, b, byte_of, [](std::uint32_t bits, int part) {
    return static_cast<std::int8_t>(byte_of(bits, part));
  });
  for_sums<int>(warp, [&](int row, int column, int& sum) {
    auto all = static_cast<std::uint32_t>(sum);  // which may wrap round
    for (int k = 0; k < 32; ++k) all += static_cast<std::uint32_t>(int{a[row][k]} * int{b[k][column]});
    sum = static_cast<int>(all);
  });
}

}  // namespace

float factor_of(Factor type, std::uint32_t bits, int half) {
  if (type == Factor::tf32) return std::bit_cast<float>(bits & ~0x1fffu);
  const std::uint32_t number = bits >> 16 * half & 0xffff;
  if (type == Factor::bf16) return std::bit_cast<float>(number << 16);
  // A table of all, for the compiler's conversion is a call.
  static const std::array<float, 65536>& table = *[] {
    auto* all = new std::array<float, 65536>;
    for (std::uint32_t i = 0; i < 65536; ++i)
      (*all)[i] = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(i)));
    return all;
  }();
  return table[number];
}

const SumOrder& sum_order(int depth) {
  static SumOrder order;
  static Order made_for;
  static int made_depth = 0;
  const Order& asked = options().sums;
  if (made_depth == depth && made_for.kind == asked.kind && made_for.seed == asked.seed) return order;
  made_for = asked, made_depth = depth;
  order.terms = depth + 1;
  for (int i = 0; i <= depth; ++i) order.term[i] = i - 1;  // first what was there
  if (asked.kind == Order::Kind::reverse) std::reverse(order.term, order.term + order.terms);
  if (asked.kind == Order::Kind::random) {
    Random random(asked.seed);
    for (int i = depth; i > 0; --i)
      std::swap(order.term[i], order.term[random.below(static_cast<std::uint64_t>(i) + 1)]);
  }
  return order;
}

namespace emulated {

void ldmatrix(std::uint32_t* parts, int count, bool columns, const void* line, const Site& site) {
  Matrices mine{parts, count, columns, static_cast<const char*>(line)};
  execute_together(columns ? "ldmatrix.trans" : "ldmatrix", run_ldmatrix, &mine, site,
                   __builtin_frame_address(0));
}

void mma(Factor type, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
         const Site& site) {
  constexpr const char* kNames[] = {"mma.f16", "mma.bf16", "mma.tf32"};
  Product<float> mine{type, c, a, {b0, b1}};
  execute_together(kNames[static_cast<int>(type)], run_mma, &mine, site, __builtin_frame_address(0));
}

void mma(Factor type, int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
         const Site& site) {
  Product<int> mine{type, c, a, {b0, b1}};
  execute_together("mma.u8", run_mma_of_bytes, &mine, site, __builtin_frame_address(0));
}

int dot_of_bytes(std::uint32_t a, std::uint32_t b, int c) {
  auto sum = static_cast<std::uint32_t>(c);
  for (int i = 0; i < 4; ++i)
    sum += static_cast<std::uint32_t>(int{byte_of(a, i)} * int{static_cast<std::int8_t>(byte_of(b, i))});
  return static_cast<int>(sum);
}

std::uint32_t to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return std::isnan(x) ? 0x7fffe000u : bits;
  return (bits + 0x1000u) & ~0x1fffu;
}

}  // namespace emulated
}  // namespace simt
