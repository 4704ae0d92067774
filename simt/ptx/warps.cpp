#include <algorithm>
#include <cstring>
#include <list>

#include <fmt/format.h>

#include "simt/emulator/options.h"
#include "simt/ptx/block.h"
#include "simt/ptx/sums.h"

// What the lanes of a warp do together. Each leaves what it brings on its own stack, and waits; the last of
// the mask does the instruction for all.

namespace simt::ptx {
namespace {

/// The lanes that have met.
struct Lanes {
  unsigned first_thread;
  std::uint32_t mask;

  bool has(unsigned lane) const { return mask >> lane & 1; }
  template <class T> T& of(unsigned lane) const {
    return *static_cast<T*>(block().arrivals[first_thread + lane].brought);
  }
  const Site& site(unsigned lane) const { return block().arrivals[first_thread + lane].site; }
  template <class F> void each(F&& f) const {
    for (unsigned lane = 0; lane < 32; ++lane)
      if (has(lane)) f(lane);
  }
};

/// Where lanes of that mask wait, or else one where none does. Those of another mask may wait elsewhere.
Meeting& meeting_of(unsigned warp, std::uint32_t mask) {
  std::list<Meeting>& all = block().meetings[warp];
  Meeting* free = nullptr;
  for (Meeting& each : all) {
    if (each.arrived == 0) {
      free = &each;
    } else if (each.mask == mask) {
      return each;
    }
  }
  return free ? *free : all.emplace_back();
}

/// `aligned`: the lanes must be at one place; otherwise at instructions of that name.
void meet(const char* instruction, bool aligned, std::uint32_t mask, void* brought,
          void (*run)(const Lanes& lanes), const Site& site) {
  const unsigned thread = current_thread(), lane = thread % 32, first_thread = thread - lane;
  const unsigned lanes = std::min(32u, executor().threads() - first_thread);
  if (lanes < 32) {
    if (aligned) refuse(instruction, fmt::format("is in a warp of {} threads, not 32", lanes), site);
    mask &= (1u << lanes) - 1;  // a mask may name lanes that the block does not have
  }
  if ((mask >> lane & 1) == 0) {
    refuse(instruction, fmt::format("is lane {}, which its mask {:#x} leaves out", lane, mask), site);
  }
  block().arrivals[thread] = {instruction, mask, brought, site};
  Meeting& meeting = meeting_of(thread / 32, mask);
  meeting.instruction = instruction;
  meeting.mask = mask;
  meeting.arrived |= 1u << lane;
  if (meeting.arrived != mask) return meeting.wait(site);
  const Lanes all{first_thread, mask};
  all.each([&](unsigned other) {
    const Arrival& there = block().arrivals[first_thread + other];
    if (std::strcmp(there.instruction, instruction) == 0 && (!aligned || there.site.line == site.line))
      return;
    refuse(instruction,
           fmt::format("is there, but thread {} of its warp at {}, {}", executor().name(first_thread + other),
                       there.instruction, place(there.site)),
           site);
  });
  run(all);
  meeting.arrived = 0;
  meeting.release_all();
}

}  // namespace

std::string Meeting::missing() const {
  return fmt::format("{}, where of the lanes {:#x} there are {:#x}", instruction, mask, arrived);
}

void bar_warp_sync(std::uint32_t mask, const Site& site) {
  meet(
      "bar.warp.sync", false, mask, nullptr, [](const Lanes&) {}, site);
}

// ---- shuffles and votes

namespace {

struct Shuffled {
  Shuffle mode;
  std::uint32_t a, b, c, d;
  bool p;
};

// As the ISA writes it down. In lanes of an unsigned type an underflow is out of range, too: for up it is
// compared as a signed number.
void shuffle(const Lanes& lanes) {
  lanes.each([&](unsigned lane) {
    auto& me = lanes.of<Shuffled>(lane);
    const unsigned segment = me.c >> 8 & 31, clamp = me.c & 31, b = me.b & 31;
    const unsigned first = lane & segment, last = first | (clamp & ~segment);
    unsigned from = 0;
    switch (me.mode) {
      case Shuffle::up:
        from = lane - b;
        me.p = static_cast<int>(from) >= static_cast<int>(last);
        break;
      case Shuffle::down: from = lane + b, me.p = from <= last; break;
      case Shuffle::bfly: from = lane ^ b, me.p = from <= last; break;
      case Shuffle::idx: from = first | (b & ~segment), me.p = from <= last; break;
    }
    if (!me.p) from = lane;
    if (!lanes.has(from)) {
      refuse("shfl.sync", lanes.first_thread + lane,
             fmt::format("reads lane {}, which the mask {:#x} leaves out", from, lanes.mask),
             lanes.site(lane));
    }
    me.d = lanes.of<Shuffled>(from).a;
  });
}

struct Vote {
  bool predicate;
  std::uint32_t lanes;
};

std::uint32_t vote(const char* instruction, bool predicate, std::uint32_t mask, const Site& site) {
  Vote mine{predicate, 0};
  meet(
      instruction, false, mask, &mine,
      [](const Lanes& lanes) {
        std::uint32_t ballot = 0;
        lanes.each([&](unsigned lane) { ballot |= unsigned{lanes.of<Vote>(lane).predicate} << lane; });
        lanes.each([&](unsigned lane) { lanes.of<Vote>(lane).lanes = ballot; });
      },
      site);
  return mine.lanes;
}

}  // namespace

std::uint32_t shfl_sync(Shuffle mode, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t mask,
                        bool* p, const Site& site) {
  static constexpr const char* kNames[] = {"shfl.sync.up", "shfl.sync.down", "shfl.sync.bfly",
                                           "shfl.sync.idx"};
  Shuffled mine{mode, a, b, c, 0, false};
  meet(kNames[static_cast<int>(mode)], false, mask, &mine, shuffle, site);
  if (p) *p = mine.p;
  return mine.d;
}

std::uint32_t vote_ballot(bool predicate, std::uint32_t mask, const Site& site) {
  return vote("vote.sync.ballot", predicate, mask, site);
}

bool vote_all(bool predicate, std::uint32_t mask, const Site& site) {
  return vote("vote.sync.all", !predicate, mask, site) == 0;
}

bool vote_any(bool predicate, std::uint32_t mask, const Site& site) {
  return vote("vote.sync.any", predicate, mask, site) != 0;
}

// ---- matrices

namespace {

struct Loaded {
  int count;
  bool trans;
  std::uint32_t row;
  std::uint32_t* const* d;
};

void load_matrices(const Lanes& lanes) {
  const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
    const unsigned lane = 8 * matrix + row;
    const std::uint32_t address = lanes.of<Loaded>(lane).row;
    if (address % 16 != 0 || address < kSharedBegin || address + 16 > shared_window.bytes) {
      refuse("ldmatrix", lanes.first_thread + lane,
             fmt::format("gives the address {:#x}, which is no row of 16 aligned bytes of shared memory",
                         address),
             lanes.site(lane));
    }
    std::uint16_t bits;
    std::memcpy(&bits, shared_window.memory + address + 2 * column, sizeof(bits));
    return std::uint32_t{bits};
  };
  lanes.each([&](unsigned lane) {
    const auto& me = lanes.of<Loaded>(lane);
    for (int i = 0; i < me.count; ++i) {
      const unsigned matrix = static_cast<unsigned>(i), line = lane / 4, at = 2 * (lane % 4);
      const auto of_line = [&](unsigned j) {
        return me.trans ? element(matrix, j, line) : element(matrix, line, j);
      };
      *me.d[i] = of_line(at) | of_line(at + 1) << 16;
    }
  });
}

struct Multiplied {
  MmaType type;
  int k;
  std::uint32_t* const* d;
  const std::uint32_t *a, *b, *c;
};

/// Where element i of a lane's fragment lies in its matrix.
struct Element {
  unsigned row, column;
};

// Matrix fragments for mma.m16n8k16 with floating point type, and for mma.m16n8k8 of .tf32. Elements of f16
// and bf16 are two to a register.
Element element_of_a(MmaType type, unsigned lane, unsigned i) {
  const unsigned group = lane / 4, in_group = lane % 4;
  if (type == MmaType::tf32) return {group + (i % 2) * 8, in_group + (i / 2) * 4};
  return {group + (i / 2 % 2) * 8, in_group * 2 + i % 2 + (i / 4) * 8};
}
Element element_of_b(MmaType type, unsigned lane, unsigned i) {
  const unsigned group = lane / 4, in_group = lane % 4;
  if (type == MmaType::tf32) return {in_group + i * 4, group};
  return {in_group * 2 + i % 2 + (i / 2) * 8, group};
}
Element element_of_c(unsigned lane, unsigned i) {
  return {lane / 4 + (i / 2) * 8, (lane % 4) * 2 + i % 2};
}

void multiply(const Lanes& lanes) {
  const auto& any = lanes.of<Multiplied>(0);
  const MmaType type = any.type;
  const unsigned per_register = type == MmaType::tf32 ? 1 : 2;
  const auto number = [&](const std::uint32_t* registers, unsigned i) {
    return number_of(
        type, registers[i / per_register] >> 16 * (i % per_register) & (per_register == 1 ? ~0u : 0xffffu));
  };
  float a[16][16], b[16][8], c[16][8];
  lanes.each([&](unsigned lane) {
    const auto& me = lanes.of<Multiplied>(lane);
    for (unsigned i = 0; i < 4 * per_register; ++i) {
      const Element at = element_of_a(type, lane, i);
      a[at.row][at.column] = number(me.a, i);
    }
    for (unsigned i = 0; i < 2 * per_register; ++i) {
      const Element at = element_of_b(type, lane, i);
      b[at.row][at.column] = number(me.b, i);
    }
    for (unsigned i = 0; i < 4; ++i) {
      const Element at = element_of_c(lane, i);
      std::memcpy(&c[at.row][at.column], &me.c[i], sizeof(float));
    }
  });
  const TermOrder order = term_order(any.k);
  for (int row = 0; row < 16; ++row) add_products(order, 8, c[row], a[row], b);
  lanes.each([&](unsigned lane) {
    const auto& me = lanes.of<Multiplied>(lane);
    for (unsigned i = 0; i < 4; ++i) {
      const Element at = element_of_c(lane, i);
      std::memcpy(me.d[i], &c[at.row][at.column], sizeof(float));
    }
  });
}

// Matrix fragments for mma.m16n8k32 of integers of 8 bits: four to a register, a's registers 0 and 1 (rows
// group and group + 8) before 2 and 3 in its columns, b's register 0 before 1 in its rows.
void multiply_bytes(const Lanes& lanes) {
  std::uint32_t a[16][32], b[32][8];
  const auto byte = [](std::uint32_t bits, unsigned i) { return bits >> 8 * i & 255; };
  lanes.each([&](unsigned lane) {
    const auto& me = lanes.of<Multiplied>(lane);
    const unsigned group = lane >> 2, in_group = lane % 4;
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned row = i < 4 || (i >= 8 && i < 12) ? group : group + 8;
      a[row][in_group * 4 + (i & 3) + (i < 8 ? 0 : 16)] = byte(me.a[i / 4], i & 3);
    }
    for (unsigned i = 0; i < 8; ++i) {
      const std::uint32_t bits = byte(me.b[i / 4], i & 3);
      b[in_group * 4 + (i & 3) + (i < 4 ? 0 : 16)][group] = bits < 128 ? bits : bits - 256;
    }
  });
  lanes.each([&](unsigned lane) {
    const auto& me = lanes.of<Multiplied>(lane);
    for (unsigned i = 0; i < 4; ++i) {
      const Element at = element_of_c(lane, i);
      std::uint32_t sum = me.c[i];
      for (unsigned k = 0; k < 32; ++k) sum += a[at.row][k] * b[k][at.column];
      *me.d[i] = sum;
    }
  });
}

}  // namespace

void ldmatrix(int count, bool trans, std::uint32_t row, std::uint32_t* const* d, const Site& site) {
  Loaded mine{count, trans, row, d};
  meet(trans ? "ldmatrix.trans" : "ldmatrix", true, ~0u, &mine, load_matrices, site);
}

void mma(MmaType type, int k, std::uint32_t* const* d, const std::uint32_t* a, const std::uint32_t* b,
         const std::uint32_t* c, const Site& site) {
  if (k != (type == MmaType::tf32 ? 8 : 16)) refuse("mma", fmt::format("has a depth of {}", k), site);
  Multiplied mine{type, k, d, a, b, c};
  meet("mma", true, ~0u, &mine, multiply, site);
}

void mma_u8_s8(std::uint32_t* const* d, const std::uint32_t* a, const std::uint32_t* b,
               const std::uint32_t* c, const Site& site) {
  Multiplied mine{MmaType::f16, 32, d, a, b, c};
  meet("mma.u8.s8", true, ~0u, &mine, multiply_bytes, site);
}

// ---- sums

TermOrder term_order(int depth) {
  TermOrder order{depth + 1, {}};
  const Order& wanted = options().sums;
  // Forward: what was there, then the products from the first.
  for (int i = 0; i <= depth; ++i) order.terms[i] = i == 0 ? depth : i - 1;
  if (wanted.kind == Order::Kind::reverse) std::reverse(order.terms, order.terms + order.count);
  if (wanted.kind == Order::Kind::random) {
    Random random(wanted.seed);
    for (auto i = static_cast<unsigned>(order.count); i > 1; --i) {
      std::swap(order.terms[i - 1], order.terms[random.below(i)]);
    }
  }
  return order;
}

}  // namespace simt::ptx
