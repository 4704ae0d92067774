#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "simt/emulator/asynchronous.h"
#include "simt/emulator/executor.h"
#include "simt/emulator/kernel_call.h"
#include "simt/launch.h"
#include "simt/ptx/instructions.h"
#include "simt/tensor_map.h"
#include "tests/simt/support.h"

// What instructions of PTX do, on small cases whose results the PTX ISA's figures and formulas give.

namespace simt::ptx {
namespace {

using simt::test::early_and_late;
using simt::test::in_all_orders;
using simt::test::OnDevice;
using simt::test::says;

// ---- a kernel whose threads call a function of the test

constexpr std::size_t kShared = 64 * 1024;
std::function<void(unsigned)> body;

/// The first words of shared memory, at a multiple of 1024.
constexpr std::uint32_t kTile = 1024;

const async::BlockWork kWork = {
    [](const Kernel&, unsigned threads, std::size_t) { begin_block(threads, kShared); }, &run_one, &end_block,
    &what_is_missing};

/// Runs f(thread) for the threads of a block; what went wrong.
std::string run(unsigned threads, std::function<void(unsigned thread)> f) {
  body = std::move(f);
  const Kernel kernel{nullptr, [](const void*, const std::byte*) { body(executor().current_thread()); }, {}};
  const Substitute before = substitute_kernels([](const Launch&, const Kernel& of) {
    return KernelForm{of, &kWork};
  });
  EXPECT_OK(launch_kernel(nullptr, {.name = "k", .block = threads}, kernel, nullptr));
  substitute_kernels(before);
  return simt::test::diagnosis();
}

template <class T> void put(std::uint32_t offset, T value) {
  std::memcpy(shared(offset, sizeof(T)), &value, sizeof(T));
}
template <class T> T get(std::uint32_t offset) {
  T value;
  std::memcpy(&value, shared(offset, sizeof(T)), sizeof(T));
  return value;
}

/// A small whole number as f16, bf16 or tf32.
std::uint32_t bits_of(MmaType type, int value) {
  const float f = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  if (type == MmaType::tf32) return bits;
  if (type == MmaType::bf16) return bits >> 16;
  return value == 0 ? 0 : (bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 0x3ff);
}
std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

constexpr MmaType kTypes[] = {MmaType::f16, MmaType::bf16, MmaType::tf32};

// ---- lanes

TEST(PtxInstructions, ShufflesAtTheEdgesOfSegments) {
  struct Case {
    Shuffle mode;
    std::uint32_t b, c;
    unsigned lane, from;
    bool in_range;
  };
  // c as nvcc gives it: 0x1f for the whole warp (up: 0), segments of 8 add 0x18 << 8.
  const Case cases[] = {
      {Shuffle::up, 1, 0, 0, 0, false},          {Shuffle::up, 1, 0, 1, 0, true},
      {Shuffle::up, 31, 0, 31, 0, true},         {Shuffle::up, 3, 0x1800, 10, 10, false},
      {Shuffle::up, 3, 0x1800, 11, 8, true},     {Shuffle::down, 1, 0x1f, 31, 31, false},
      {Shuffle::down, 1, 0x1f, 30, 31, true},    {Shuffle::down, 3, 0x181f, 12, 15, true},
      {Shuffle::down, 3, 0x181f, 13, 13, false}, {Shuffle::bfly, 16, 0x1f, 3, 19, true},
      {Shuffle::bfly, 8, 0x181f, 3, 3, false},   {Shuffle::bfly, 4, 0x181f, 11, 15, true},
      {Shuffle::bfly, 8, 0x181f, 11, 3, true},   {Shuffle::idx, 5, 0x1f, 30, 5, true},
      {Shuffle::idx, 37, 0x1f, 30, 5, true},     {Shuffle::idx, 5, 0x181f, 30, 29, true},
      {Shuffle::idx, 9, 0x181f, 17, 17, true},
  };
  in_all_orders([&] {
    for (const Case& each : cases) {
      SCOPED_TRACE(testing::Message()
                   << "mode " << static_cast<int>(each.mode) << ", b " << each.b << ", lane " << each.lane);
      std::uint32_t d = 0;
      bool p = false;
      EXPECT_EQ(run(32,
                    [&](unsigned lane) {
                      bool mine;
                      const std::uint32_t value =
                          shfl_sync(each.mode, 100 + lane, each.b, each.c, ~0u, &mine);
                      if (lane == each.lane) d = value, p = mine;
                    }),
                "");
      EXPECT_EQ(d, 100 + each.from);
      EXPECT_EQ(p, each.in_range);
    }
  });
}

TEST(PtxInstructions, LanesOfAMaskMeet) {
  in_all_orders([] {
    std::array<std::uint32_t, 32> ballots{};
    EXPECT_EQ(run(32,
                  [&](unsigned lane) {
                    // One lane alone, then each half, then all.
                    if (lane == 0) bar_warp_sync(1);
                    const std::uint32_t half = lane < 16 ? 0xffffu : 0xffff0000u;
                    EXPECT_EQ(vote_any(lane == 3, half), lane < 16);
                    EXPECT_EQ(vote_all(lane != 3, half), lane >= 16);
                    ballots[lane] = vote_ballot(lane % 2 == 1, ~0u);
                  }),
              "");
    for (const std::uint32_t ballot : ballots) EXPECT_EQ(ballot, 0xaaaaaaaau);
  });
}

TEST(PtxInstructions, LanesThatMissACollectiveAreNamed) {
  std::string text = run(32, [](unsigned lane) {
    if (lane != 7) shfl_sync(Shuffle::bfly, 0, 1, 0x1f, ~0u, nullptr, {"k.ptx", 12});
  });
  EXPECT_TEXT(text, "deadlock");
  EXPECT_TEXT(text, "k.ptx:12 for shfl.sync.bfly, where of the lanes 0xffffffff there are 0xffffff7f");
  text = run(32, [](unsigned lane) {
    if (lane < 16) shfl_sync(Shuffle::down, 0, 1, 0x1f, 0xffff, nullptr, {"k.ptx", 13});
  });
  EXPECT_TEXT(text,
              "shfl.sync: thread (15,0,0) reads lane 16, which the mask 0xffff leaves out, at k.ptx:13");
  text = run(32, [](unsigned lane) { bar_warp_sync(lane == 4 ? 0xf : ~0x10u, {"k.ptx", 14}); });
  EXPECT_TEXT(text, "thread (4,0,0) is lane 4, which its mask 0xf leaves out, at k.ptx:14");
  text = run(32, [](unsigned lane) {
    std::uint32_t r;
    std::uint32_t* const d[] = {&r};
    ldmatrix(1, false, kTile, d, {"k.ptx", lane == 9 ? 15u : 16u});
  });
  EXPECT_TEXT(text, "ldmatrix");
  EXPECT_TEXT(text, "k.ptx:15");
}

TEST(PtxInstructions, BarriersOfTheBlock) {
  in_all_orders([] {
    EXPECT_EQ(run(128,
                  [](unsigned thread) {
                    put<std::uint32_t>(kTile + 4 * thread, thread);
                    bar_sync(0);
                    EXPECT_EQ(get<std::uint32_t>(kTile + 4 * (127 - thread)), 127 - thread);
                    EXPECT_EQ(bar_red_popc(0, 0, thread % 4 == 0), 32u);
                    EXPECT_EQ(bar_red_and(0, 0, thread != 5), false);
                    EXPECT_EQ(bar_red_or(0, 0, thread == 5), true);
                    // Half of the block at a barrier of its own, twice.
                    for (int i = 0; i < 2 && thread >= 64; ++i) bar_sync(1, 64);
                  }),
              "");
  });
  std::string text = run(64, [](unsigned thread) {
    if (thread != 3) bar_sync(0, 0, {"k.ptx", 5});
  });
  EXPECT_TEXT(text, "k.ptx:5 for bar.sync, to which 63 of 64 threads have come");
  text = run(64, [](unsigned thread) { bar_sync(0, 0, {"k.ptx", thread == 40 ? 6u : 5u}); });
  EXPECT_TEXT(text, "bar.sync: thread (");
  EXPECT_TEXT(text, "k.ptx:6");
  // Another warp may be at another place.
  EXPECT_EQ(run(64, [](unsigned thread) { bar_sync(0, 0, {"k.ptx", thread < 32 ? 6u : 5u}); }), "");
  EXPECT_TEXT(run(64, [](unsigned) { bar_sync(0, 40); }), "expects 40 threads");
}

TEST(PtxInstructions, SharedMemoryHasEnds) {
  EXPECT_TEXT(run(1, [](unsigned) { shared(kShared - 4, 8, {"k.ptx", 3}); }), "at k.ptx:3");
  EXPECT_TEXT(run(1, [](unsigned) { shared(0, 4); }), "accesses 4 bytes at 0x0");
  EXPECT_TEXT(run(1, [](unsigned) { shared(kTile + 8, 16); }), "misaligned");
  EXPECT_EQ(run(1,
                [](unsigned) {
                  shared(kTile, 16);
                  EXPECT_EQ(generic_to_shared(shared_to_generic(kTile)), kTile);
                  EXPECT_EQ(shared_to_generic(kTile) % 1024, 0u);
                  EXPECT_EQ(get<std::uint32_t>(kTile), ~0u) << "NaN until it is written";
                }),
            "");
  EXPECT_TEXT(run(1, [](unsigned) { generic_to_shared(16); }), "which is not in shared memory");
}

// ---- mbarrier

TEST(PtxInstructions, PhasesOfAnMbarrier) {
  in_all_orders([] {
    // 64 threads hand a word to each other, through four phases.
    EXPECT_EQ(run(64,
                  [](unsigned thread) {
                    if (thread == 0) mbarrier_init(kTile, 64);
                    bar_sync(0);
                    for (std::uint32_t phase = 0; phase < 4; ++phase) {
                      const std::uint32_t words = kTile + 256 * (1 + phase % 2);
                      put<std::uint32_t>(words + 4 * thread, phase * 100 + thread);
                      mbarrier_arrive(kTile);
                      EXPECT_TRUE(mbarrier_try_wait(kTile, phase % 2));
                      EXPECT_EQ(get<std::uint32_t>(words + 4 * (63 - thread)), phase * 100 + 63 - thread);
                    }
                  }),
              "");
  });
  // The phase before the current one counts as complete, from the beginning on.
  EXPECT_EQ(run(1,
                [](unsigned) {
                  mbarrier_init(kTile, 1);
                  EXPECT_TRUE(mbarrier_try_wait(kTile, 1));
                  mbarrier_arrive(kTile);
                  EXPECT_TRUE(mbarrier_try_wait(kTile, 0));
                }),
            "");
}

TEST(PtxInstructions, WhoWaitsForAPhaseMustNotMissIt) {
  const std::string text = run(2, [](unsigned thread) {
    if (thread == 0) mbarrier_init(kTile, 1, {"k.ptx", 1});
    bar_sync(0);  // behind which the last to come goes on first
    if (thread == 1) {
      mbarrier_try_wait(kTile, 0, {"k.ptx", 2});
    } else {
      mbarrier_arrive(kTile);
      mbarrier_arrive(kTile);
    }
  });
  EXPECT_TEXT(text,
              "waits for phase 0 of the mbarrier of k.ptx:1, but may miss it: phase 2 has begun, at k.ptx:2");
}

TEST(PtxInstructions, WhatAnMbarrierLacksIsSaid) {
  EXPECT_TEXT(run(1,
                  [](unsigned) {
                    mbarrier_init(kTile, 2, {"k.ptx", 1});
                    mbarrier_arrive(kTile);
                    mbarrier_try_wait(kTile, 0, {"k.ptx", 2});
                  }),
              "k.ptx:2 for phase 0 of the mbarrier of k.ptx:1, which lacks 1 of 2 arrivals");
  EXPECT_TEXT(run(1,
                  [](unsigned) {
                    mbarrier_init(kTile, 1);
                    mbarrier_arrive_expect_tx(kTile, 48);
                    mbarrier_try_wait(kTile, 0);
                  }),
              "lacks 0 of 1 arrivals and 48 bytes");
  EXPECT_TEXT(run(1,
                  [](unsigned) {
                    mbarrier_init(kTile, 1, {"k.ptx", 1});
                    mbarrier_arrive_expect_tx(kTile, 48);
                    mbarrier_arrive(kTile, {"k.ptx", 2});
                  }),
              "one arrival more than the 1 that phase 0 of the mbarrier of k.ptx:1 expects, at k.ptx:2");
  EXPECT_TEXT(run(1, [](unsigned) { mbarrier_arrive(kTile); }), "finds no mbarrier at 0x400");
  EXPECT_TEXT(run(1, [](unsigned) { mbarrier_init(kTile, 0); }), "expects 0 arrivals");
  EXPECT_TEXT(run(1, [](unsigned) { mbarrier_init(kTile + 4, 1); }), "misaligned");
  EXPECT_TEXT(run(1,
                  [](unsigned) {
                    mbarrier_init(kTile, 1);
                    mbarrier_init(kTile, 1);
                  }),
              "where there is that of");
  EXPECT_TEXT(run(1,
                  [](unsigned) {
                    mbarrier_init(kTile, 1);
                    mbarrier_arrive_expect_tx(kTile, 1 << 20);
                  }),
              "expects 1048576 bytes");
}

// ---- copies

TEST(PtxInstructions, CpAsyncInGroups) {
  std::vector<std::uint32_t> source(16);
  for (std::uint32_t i = 0; i < 16; ++i) source[i] = i + 1;
  const auto from = (reinterpret_cast<std::uintptr_t>(source.data()) + 15) & ~std::uintptr_t{15};
  const auto first = *reinterpret_cast<const std::uint32_t*>(from);
  early_and_late([&] {
    const bool late = options().async == Async::late;
    EXPECT_EQ(run(1,
                  [&](unsigned) {
                    cp_async(kTile, from, 16, 16);
                    cp_async_commit();
                    cp_async(kTile + 16, from, 16, 4);
                    cp_async(kTile + 32, 0, 8, 0);
                    cp_async_commit();
                    cp_async(kTile + 48, from, 4, 4);
                    EXPECT_EQ(get<std::uint32_t>(kTile), late ? ~0u : first);
                    cp_async_wait_group(1);
                    EXPECT_EQ(get<std::uint32_t>(kTile + 12), first + 3);
                    EXPECT_EQ(get<std::uint32_t>(kTile + 16), late ? ~0u : first);
                    cp_async_wait_group(0);
                    EXPECT_EQ(get<std::uint32_t>(kTile + 16), first);
                    EXPECT_EQ(get<std::uint32_t>(kTile + 20), 0u) << "beyond the source's bytes";
                    EXPECT_EQ(get<std::uint64_t>(kTile + 32), 0u);
                    EXPECT_EQ(get<std::uint32_t>(kTile + 48), late ? ~0u : first) << "in no group";
                    cp_async_wait_all();
                    EXPECT_EQ(get<std::uint32_t>(kTile + 48), first);
                  }),
              "");
  });
  EXPECT_TEXT(run(1,
                  [&](unsigned) {
                    cp_async(kTile + 8, from, 16, 16, {"k.ptx", 9});
                  }),
              "cp.async: thread (0,0,0) writes at 0x408, which is no multiple of 16, at k.ptx:9");
  EXPECT_TEXT(run(1, [&](unsigned) { cp_async(kTile, from + 8, 16, 16); }), "no multiple of 16");
  EXPECT_TEXT(run(1, [&](unsigned) { cp_async(kTile, from, 4, 8); }), "copies 8 bytes of 4");
}

TEST(PtxInstructions, BulkCopiesCountTheirBytes) {
  std::vector<std::uint32_t> source(32);
  for (std::uint32_t i = 0; i < 32; ++i) source[i] = i + 1;
  const auto from = (reinterpret_cast<std::uintptr_t>(source.data()) + 15) & ~std::uintptr_t{15};
  const auto first = *reinterpret_cast<const std::uint32_t*>(from);
  early_and_late([&] {
    EXPECT_EQ(run(32,
                  [&](unsigned thread) {
                    if (thread == 0) {
                      mbarrier_init(kTile, 1);
                      // Bytes may come before they are expected.
                      cp_async_bulk(kTile + 64, from, 32, kTile);
                      cp_async_bulk(kTile + 128, from, 16, kTile);
                      mbarrier_arrive_expect_tx(kTile, 48);
                    }
                    bar_sync(0);
                    mbarrier_try_wait(kTile, 0);
                    EXPECT_EQ(get<std::uint32_t>(kTile + 64 + 28), first + 7);
                    EXPECT_EQ(get<std::uint32_t>(kTile + 128), first);
                  }),
              "");
  });
  const std::string text = run(1, [&](unsigned) {
    mbarrier_init(kTile, 1);
    mbarrier_arrive_expect_tx(kTile, 16);
    cp_async_bulk(kTile + 64, from, 16, kTile, {"k.ptx", 4});
  });
  EXPECT_TEXT(
      text,
      "cp.async.bulk: that of thread (0,0,0), started at k.ptx:4, is still in flight at the kernel's end");
  EXPECT_TEXT(run(1,
                  [&](unsigned) {
                    mbarrier_init(kTile, 1);
                    mbarrier_arrive_expect_tx(kTile, 16);
                    cp_async_bulk(kTile + 64, from, 32, kTile);
                    mbarrier_try_wait(kTile, 0);
                  }),
              "16 bytes came that were not expected");
  const std::string late = run(1, [&](unsigned) {
    mbarrier_init(kTile, 1, {"k.ptx", 1});
    cp_async_bulk(kTile + 64, from, 32, kTile, {"k.ptx", 2});
    mbarrier_arrive(kTile);
  });
  EXPECT_TEXT(
      late,
      "cp.async.bulk: thread (0,0,0) brings 32 bytes that phase 0 of the mbarrier of k.ptx:1 does not "
      "expect, at k.ptx:2");
}

/// Which piece of 16 bytes of a line of 128 bytes piece `piece` of line `line` is moved to: the ISA's figures
/// of the swizzling modes, written down.
unsigned swizzled_piece(Swizzle swizzle, unsigned line, unsigned piece) {
  static constexpr unsigned k32[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}};
  static constexpr unsigned k64[4][8] = {
      {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4}};
  static constexpr unsigned k128[8][8] = {
      {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4},
      {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2}, {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}};
  switch (swizzle) {
    case Swizzle::bytes_32: return k32[line % 2][piece];
    case Swizzle::bytes_64: return k64[line % 4][piece];
    case Swizzle::bytes_128: return k128[line % 8][piece];
    default: return piece;
  }
}
/// The same for an offset from a multiple of 1024.
std::uint32_t swizzled_offset(Swizzle swizzle, std::uint32_t offset) {
  return offset / 128 * 128 + swizzled_piece(swizzle, offset / 128, offset / 16 % 8) * 16 + offset % 16;
}

TEST(PtxInstructions, TensorTilesAreSwizzledAndFilledWithZeros) {
  constexpr std::uint32_t kX = 40, kY = 20, kZ = 3, kPitch = 48;  // elements of 2 bytes
  std::vector<std::uint16_t> values(kZ * kY * kPitch);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i + 1);
  const OnDevice<std::uint16_t> tensor(values);
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::bytes_32, Swizzle::bytes_64, Swizzle::bytes_128}) {
    TensorMap map;
    const std::uint32_t row =
        swizzle == Swizzle::none ? 24 : static_cast<std::uint32_t>(bytes_of(swizzle)) / 2;
    EXPECT_OK(make_tensor_map(&map, {.type = TensorType::f16,
                                     .rank = 3,
                                     .data = tensor.data(),
                                     .size = {kX, kY, kZ},
                                     .stride = {0, kPitch * 2, kY * kPitch * 2},
                                     .tile = {row, 8, 2},
                                     .swizzle = swizzle}));
    // Begins before the tensor along x, ends beyond it along y and z.
    const std::int32_t at[] = {-5, 16, 2};
    early_and_late([&] {
      EXPECT_EQ(run(1,
                    [&](unsigned) {
                      mbarrier_init(16, 1);
                      mbarrier_arrive_expect_tx(16, row * 8 * 2 * 2);  // zeros count, too
                      cp_async_bulk_tensor(kTile, reinterpret_cast<std::uintptr_t>(&map), 3, at, 16);
                      mbarrier_try_wait(16, 0);
                      for (std::uint32_t z = 0; z < 2; ++z)
                        for (std::uint32_t y = 0; y < 8; ++y)
                          for (std::uint32_t x = 0; x < row; ++x) {
                            const std::uint32_t offset = ((z * 8 + y) * row + x) * 2;
                            const int from_x = static_cast<int>(x) + at[0];
                            const bool inside =
                                from_x >= 0 && from_x < static_cast<int>(kX) && y + 16 < kY && z + 2 < kZ;
                            const auto wanted = inside ? ((z + 2) * kY + y + 16) * kPitch +
                                                             static_cast<std::uint32_t>(from_x) + 1
                                                       : 0;
                            ASSERT_EQ(get<std::uint16_t>(kTile + swizzled_offset(swizzle, offset)), wanted)
                                << "x " << x << ", y " << y << ", z " << z;
                          }
                    }),
                "");
    });
    const std::string text = run(1, [&](unsigned) {
      mbarrier_init(16, 1);
      cp_async_bulk_tensor(kTile + 64, reinterpret_cast<std::uintptr_t>(&map), 3, at, 16, {"k.ptx", 8});
    });
    EXPECT_TEXT(text, "cp.async.bulk.tensor: thread (0,0,0) writes at 0x440, which is no multiple of");
  }
}

// ---- matrices of a warp

TEST(PtxInstructions, LdmatrixLanes) {
  in_all_orders([] {
    for (const int count : {1, 2, 4}) {
      for (const bool trans : {false, true}) {
        EXPECT_EQ(run(32,
                      [&](unsigned lane) {
                        // Element (row, column) of matrix i is 64 i + 8 row + column; rows lie 48 bytes
                        // apart.
                        const auto row_at = [](unsigned i) { return kTile + 48 * i; };
                        for (unsigned column = 0; column < 8; ++column) {
                          put<std::uint16_t>(row_at(lane) + 2 * column,
                                             static_cast<std::uint16_t>(8 * lane + column));
                        }
                        bar_warp_sync(~0u);
                        std::uint32_t r[4] = {~0u, ~0u, ~0u, ~0u};
                        std::uint32_t* const d[] = {&r[0], &r[1], &r[2], &r[3]};
                        // The addresses of other lanes are not used.
                        const bool gives = lane < 8 * static_cast<unsigned>(count);
                        ldmatrix(count, trans, gives ? row_at(lane) : 7, d);
                        for (unsigned i = 0; i < 4; ++i) {
                          const unsigned row = lane / 4, column = 2 * (lane % 4);
                          const unsigned low = 64 * i + (trans ? 8 * column + row : 8 * row + column);
                          const unsigned high =
                              64 * i + (trans ? 8 * (column + 1) + row : 8 * row + column + 1);
                          EXPECT_EQ(r[i], i < static_cast<unsigned>(count) ? low | high << 16 : ~0u);
                        }
                      }),
                  "");
      }
    }
  });
  const std::string text = run(32, [](unsigned lane) {
    std::uint32_t r;
    std::uint32_t* const d[] = {&r};
    ldmatrix(1, false, kTile + (lane == 5 ? 8 : 0), d, {"k.ptx", 2});
  });
  EXPECT_TEXT(text, "ldmatrix: thread (5,0,0) gives the address 0x408");
  EXPECT_TEXT(run(16,
                  [](unsigned) {
                    std::uint32_t r;
                    std::uint32_t* const d[] = {&r};
                    ldmatrix(1, false, kTile, d);
                  }),
              "in a warp of 16 threads");
}

int a_of(unsigned row, unsigned k) {
  return static_cast<int>((row * 5 + k * 3) % 17) - 8;
}
int b_of(unsigned k, unsigned column) {
  return static_cast<int>((k * 7 + column * 11) % 13) - 6;
}
int c_of(unsigned row, unsigned column) {
  return static_cast<int>(row * 100 + column);
}
float product_of(unsigned row, unsigned column, unsigned depth, int sign = 1) {
  int sum = 0;
  for (unsigned k = 0; k < depth; ++k) sum += a_of(row, k) * b_of(k, column);
  return static_cast<float>(sign * sum);
}

TEST(PtxInstructions, MmaFragments) {
  for (const MmaType type : kTypes) {
    const bool tf32 = type == MmaType::tf32;
    const unsigned depth = tf32 ? 8 : 16;
    in_all_orders([&] {
      EXPECT_EQ(run(32,
                    [&](unsigned lane) {
                      const unsigned group = lane >> 2, in_group = lane % 4;
                      std::uint32_t a[4], b[2], c[4], d[4];
                      // The formulas of the ISA, register by register.
                      if (tf32) {
                        a[0] = bits_of(type, a_of(group, in_group));
                        a[1] = bits_of(type, a_of(group + 8, in_group));
                        a[2] = bits_of(type, a_of(group, in_group + 4));
                        a[3] = bits_of(type, a_of(group + 8, in_group + 4));
                        b[0] = bits_of(type, b_of(in_group, group));
                        b[1] = bits_of(type, b_of(in_group + 4, group));
                        for (std::uint32_t& bits : a) bits |= 0x1fff;  // below what tf32 holds
                      } else {
                        const auto two = [&](auto&& f) {
                          return bits_of(type, f(0)) | bits_of(type, f(1)) << 16;
                        };
                        a[0] = two([&](unsigned i) { return a_of(group, 2 * in_group + i); });
                        a[1] = two([&](unsigned i) { return a_of(group + 8, 2 * in_group + i); });
                        a[2] = two([&](unsigned i) { return a_of(group, 2 * in_group + i + 8); });
                        a[3] = two([&](unsigned i) { return a_of(group + 8, 2 * in_group + i + 8); });
                        b[0] = two([&](unsigned i) { return b_of(2 * in_group + i, group); });
                        b[1] = two([&](unsigned i) { return b_of(2 * in_group + i + 8, group); });
                      }
                      for (unsigned i = 0; i < 4; ++i) {
                        c[i] = bits_of(static_cast<float>(c_of(group + 8 * (i / 2), 2 * in_group + i % 2)));
                      }
                      std::uint32_t* const out[] = {&d[0], &d[1], &d[2], &d[3]};
                      mma(type, static_cast<int>(depth), out, a, b, c);
                      for (unsigned i = 0; i < 4; ++i) {
                        const unsigned row = group + 8 * (i / 2), column = 2 * in_group + i % 2;
                        EXPECT_EQ(float_of(d[i]),
                                  product_of(row, column, depth) + static_cast<float>(c_of(row, column)));
                      }
                    }),
                "");
    });
  }
}

// Of the ISA's formulas for .u8 and .s8, register by register. Some sums wrap round.
TEST(PtxInstructions, MmaFragmentsOfBytes) {
  const auto a = [](unsigned row, unsigned k) { return (row * 41 + k * 7) % 256; };
  const auto b = [](unsigned k, unsigned column) {
    return static_cast<int>((k * 31 + column * 59) % 256) - 128;
  };
  EXPECT_EQ(run(32,
                [&](unsigned lane) {
                  const unsigned group = lane >> 2, in_group = lane % 4;
                  const auto four = [](auto&& f) {
                    std::uint32_t bits = 0;
                    for (unsigned i = 0; i < 4; ++i)
                      bits |= (static_cast<std::uint32_t>(f(i)) & 255) << 8 * i;
                    return bits;
                  };
                  const std::uint32_t left[] = {
                      four([&](unsigned i) { return a(group, 4 * in_group + i); }),
                      four([&](unsigned i) { return a(group + 8, 4 * in_group + i); }),
                      four([&](unsigned i) { return a(group, 4 * in_group + i + 16); }),
                      four([&](unsigned i) { return a(group + 8, 4 * in_group + i + 16); })};
                  const std::uint32_t right[] = {
                      four([&](unsigned i) { return b(4 * in_group + i, group); }),
                      four([&](unsigned i) { return b(4 * in_group + i + 16, group); })};
                  const std::uint32_t c[] = {5, 0x7fffffff, 0, 0x80000000};
                  std::uint32_t d[4];
                  std::uint32_t* const out[] = {&d[0], &d[1], &d[2], &d[3]};
                  mma_u8_s8(out, left, right, c);
                  for (unsigned i = 0; i < 4; ++i) {
                    const unsigned row = group + 8 * (i / 2), column = 2 * in_group + i % 2;
                    std::uint32_t sum = c[i];
                    for (unsigned k = 0; k < 32; ++k)
                      sum += static_cast<std::uint32_t>(static_cast<int>(a(row, k)) * b(k, column));
                    EXPECT_EQ(d[i], sum) << row << ", " << column;
                  }
                }),
            "");
}

TEST(PtxInstructions, SumsFollowTheOrderAskedFor) {
  // 2^24 + 1 + 1 is 2^24 from the left, and 2^24 + 2 from the right.
  const auto sum = [](Order::Kind kind) {
    const Order saved = options().sums;
    options().sums = {kind, 1};
    float result = 0;
    EXPECT_EQ(run(32,
                  [&](unsigned lane) {
                    const std::uint32_t one = lane % 4 < 2 ? bits_of(1.0f) : 0;
                    const std::uint32_t a[] = {one, one, 0, 0}, b[] = {bits_of(1.0f), bits_of(1.0f)};
                    std::uint32_t c[] = {0, 0, 0, 0};
                    for (std::uint32_t& bits : c) bits = bits_of(0x1p24f);
                    std::uint32_t* const d[] = {&c[0], &c[1], &c[2], &c[3]};
                    mma(MmaType::tf32, 8, d, a, b, c);
                    if (lane == 0) result = float_of(c[0]);
                  }),
              "");
    options().sums = saved;
    return result;
  };
  EXPECT_EQ(sum(Order::Kind::forward), 0x1p24f);
  EXPECT_EQ(sum(Order::Kind::reverse), 0x1p24f + 2);
}

// ---- wgmma

/// One factor in shared memory, in a canonical layout: where element (row, k) lies, and its descriptor.
struct FactorLayout {
  Swizzle swizzle;
  bool mn_major;
  unsigned rows, depth, each;  // bytes of an element

  unsigned span() const { return static_cast<unsigned>(bytes_of(swizzle)); }
  unsigned per_span() const { return span() / each; }
  /// From the beginning. Blocks of 8 lines of one span follow each other; with no swizzle those along the
  /// dense axis lie next to each other, otherwise those along the other.
  std::uint32_t offset(unsigned row, unsigned k) const {
    const unsigned dense = mn_major ? row : k, other = mn_major ? k : row;
    const unsigned others = (mn_major ? depth : rows) / 8;
    const unsigned block = dense / per_span() * others + other / 8;
    const std::uint32_t at = block * 8 * span() + other % 8 * span() + dense % per_span() * each;
    return swizzled_offset(swizzle, at);
  }
  std::uint64_t descriptor(std::uint32_t start) const {
    const std::uint64_t next_dense = (mn_major ? depth : rows) / 8 * 8 * span(), next_other = 8 * span();
    // No swizzle: `leading` is along k, in MN-major the other axis, `stride` along the rows.
    // Swizzled: `leading` is along the dense axis, `stride` along the other.
    const bool swap = swizzle == Swizzle::none && mn_major;
    const std::uint64_t leading = swap ? next_other : next_dense, stride = swap ? next_dense : next_other;
    static constexpr std::uint64_t kModes[] = {0, 3, 2, 1};
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | kModes[static_cast<int>(swizzle)] << 62;
  }
  std::uint32_t bytes() const { return (rows * depth * each + 1023) / 1024 * 1024; }
};

template <class F> void fill(const FactorLayout& layout, std::uint32_t start, MmaType type, F&& value) {
  for (unsigned row = 0; row < layout.rows; ++row)
    for (unsigned k = 0; k < layout.depth; ++k) {
      const std::uint32_t at = start + layout.offset(row, k);
      if (layout.each == 4) {
        put<std::uint32_t>(at, bits_of(type, value(row, k)));
      } else {
        put<std::uint16_t>(at, static_cast<std::uint16_t>(bits_of(type, value(row, k))));
      }
    }
}

/// Registers of the sums, and the product that is asked for of them.
struct Sums {
  std::vector<std::uint32_t> bits;
  std::vector<std::uint32_t*> d;
  explicit Sums(int n) : bits(static_cast<std::size_t>(n) / 2) {
    for (std::uint32_t& each : bits) d.push_back(&each);
  }
};

class PtxWgmma : public testing::Test {
 protected:
  static constexpr std::uint32_t kA = kTile;
  FactorLayout a{Swizzle::bytes_128, false, 64, 64, 2};
  FactorLayout b{Swizzle::bytes_128, false, 64, 64, 2};
  std::uint32_t at_b() const { return kA + a.bytes(); }

  /// Thread 0 fills both; then all are past a barrier.
  void prepare(unsigned thread, MmaType type = MmaType::f16) const {
    if (thread == 0) {
      fill(a, kA, type, a_of);
      fill(b, at_b(), type, [](unsigned column, unsigned k) { return b_of(k, column); });
    }
    bar_sync(0);
  }
  void issue(Sums& sums, bool scale_d = true, Site site = {"k.ptx", 1}) const {
    wgmma(static_cast<int>(b.rows), MmaType::f16, sums.d.data(), a.descriptor(kA), b.descriptor(at_b()),
          scale_d, 1, 1, a.mn_major, b.mn_major, site);
  }
  static unsigned row_of(unsigned thread, unsigned i) {
    return thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
  }
  static unsigned column_of(unsigned thread, unsigned i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }
};

TEST_F(PtxWgmma, FactorsInEveryCanonicalLayout) {
  for (const MmaType type : kTypes) {
    const bool tf32 = type == MmaType::tf32;
    for (const Swizzle swizzle : {Swizzle::none, Swizzle::bytes_32, Swizzle::bytes_64, Swizzle::bytes_128}) {
      for (const int majors : {0, 1, 2, 3}) {
        if (tf32 && majors != 0) continue;
        for (const unsigned n : {8u, 64u, 128u, 256u}) {
          const unsigned depth = tf32 ? 8 : 16, each = tf32 ? 4 : 2;
          a = {swizzle, (majors & 1) != 0, 64, depth, each};
          b = {swizzle, (majors & 2) != 0, n, depth, each};
          // A matrix is whole spans.
          const auto whole = [&](FactorLayout& f) {
            unsigned& dense = f.mn_major ? f.rows : f.depth;
            dense = (dense + f.per_span() - 1) / f.per_span() * f.per_span();
          };
          whole(a), whole(b);
          SCOPED_TRACE(testing::Message() << "type " << static_cast<int>(type) << ", span " << a.span()
                                          << ", majors " << majors << ", n " << n);
          EXPECT_EQ(run(128,
                        [&](unsigned thread) {
                          prepare(thread, type);
                          Sums sums(static_cast<int>(n));
                          for (unsigned i = 0; i < n / 2; ++i) {
                            sums.bits[i] =
                                bits_of(static_cast<float>(c_of(row_of(thread, i), column_of(thread, i))));
                          }
                          wgmma_fence();
                          wgmma(static_cast<int>(n), type, sums.d.data(), a.descriptor(kA),
                                b.descriptor(at_b()), true, 1, 1, a.mn_major, b.mn_major);
                          wgmma_commit();
                          wgmma_wait(0);
                          for (unsigned i = 0; i < n / 2; ++i) {
                            const unsigned row = row_of(thread, i), column = column_of(thread, i);
                            ASSERT_EQ(float_of(sums.bits[i]),
                                      product_of(row, column, depth) + static_cast<float>(c_of(row, column)))
                                << "row " << row << ", column " << column;
                          }
                        }),
                    "");
        }
      }
    }
  }
}

TEST_F(PtxWgmma, DepthsOfASwizzledLineOneAfterTheOther) {
  early_and_late([&] {
    EXPECT_EQ(run(256,
                  [&](unsigned thread) {
                    prepare(thread);
                    Sums sums(64);
                    wgmma_fence();
                    for (unsigned k = 0; k < 64; k += 16) {
                      wgmma(64, MmaType::f16, sums.d.data(), a.descriptor(kA + 2 * k),
                            b.descriptor(at_b() + 2 * k), k > 0, thread < 128 ? 1 : -1, 1, 0, 0);
                    }
                    wgmma_commit();
                    EXPECT_EQ(sums.bits[5], options().async == Async::late ? ~0u : 0u) << "until the wait";
                    wgmma_wait(0);
                    for (unsigned i = 0; i < 32; ++i) {
                      ASSERT_EQ(float_of(sums.bits[i]),
                                product_of(row_of(thread % 128, i), column_of(thread, i), 64,
                                           thread < 128 ? 1 : -1));
                    }
                  }),
              "");
  });
}

TEST_F(PtxWgmma, WaitGroupKeepsTheLatest) {
  early_and_late([&] {
    EXPECT_EQ(run(128,
                  [&](unsigned thread) {
                    prepare(thread);
                    Sums first(64), second(64);
                    wgmma_fence();
                    issue(first, false);
                    wgmma_commit();
                    issue(second, false);
                    wgmma_commit();
                    wgmma_wait(1);
                    EXPECT_EQ(float_of(first.bits[0]),
                              product_of(row_of(thread, 0), column_of(thread, 0), 16));
                    EXPECT_EQ(second.bits[0], options().async == Async::late ? ~0u : 0u);
                    wgmma_wait(0);
                    EXPECT_EQ(second.bits, first.bits);
                  }),
              "");
  });
}

TEST_F(PtxWgmma, WhatAWarpgroupMustNotDo) {
  const auto mistake = [&](auto&& f) {
    return run(128, [&](unsigned thread) {
      prepare(thread);
      Sums sums(64);
      f(thread, sums);
    });
  };
  const auto finish = [] {
    wgmma_commit();
    wgmma_wait(0, {"k.ptx", 9});
  };
  EXPECT_TEXT(
      mistake([&](unsigned thread, Sums& sums) {
        wgmma_fence();
        if (thread != 77) issue(sums), finish();
      }),
      "k.ptx:9 for wgmma.mma_async of k.ptx:1, which 127 of the warpgroup's 128 threads have started");
  EXPECT_TEXT(mistake([&](unsigned thread, Sums& sums) {
                wgmma_fence();
                issue(sums, thread != 77), finish();
              }),
              "but another thread of its warpgroup");
  EXPECT_TEXT(mistake([&](unsigned thread, Sums& sums) {
                wgmma_fence();
                issue(sums, true, {"k.ptx", thread < 32 ? 1u : 2u}), finish();
              }),
              "is there, but another thread of its warpgroup at k.ptx:");
  EXPECT_TEXT(mistake([&](unsigned, Sums& sums) { issue(sums), finish(); }), "comes before any wgmma.fence");
  EXPECT_TEXT(mistake([&](unsigned, Sums& sums) {
                wgmma_fence();
                issue(sums), finish();
                sums.bits[3] = 0;
                issue(sums), finish();
              }),
              "has accumulators that were written to, and no wgmma.fence came after");
  EXPECT_EQ(mistake([&](unsigned, Sums& sums) {
              wgmma_fence();
              issue(sums), finish();
              issue(sums), finish();
            }),
            "")
      << "the same accumulators, untouched, need no fence";
  EXPECT_TEXT(mistake([&](unsigned, Sums& sums) {
                wgmma_fence();
                issue(sums);
                sums.bits[3] = 0;
                finish();
              }),
              "accumulator 3 of the product of k.ptx:1 was written to meanwhile, at k.ptx:9");
  EXPECT_TEXT(mistake([&](unsigned, Sums& sums) {
                wgmma_fence();
                issue(sums);
                wgmma_commit();
              }),
              "wgmma.mma_async of k.ptx:1: of the warpgroup's 128 threads 128 have started it and 0 have "
              "waited for it");
  EXPECT_TEXT(mistake([&](unsigned, Sums& sums) {
                wgmma_fence();
                b.rows = 72;
                wgmma(64, MmaType::f16, sums.d.data(), a.descriptor(kA + 128), b.descriptor(at_b()), true, 1,
                      1, 0, 0);
              }),
              "in line 1 of the pattern of its swizzle");
  EXPECT_TEXT(mistake([&](unsigned, Sums& sums) {
                wgmma_fence();
                wgmma(64, MmaType::f16, sums.d.data(), a.descriptor(kA) | 1ull << 46, b.descriptor(at_b()),
                      true, 1, 1, 0, 0);
              }),
              "bits that mean nothing");
  EXPECT_TEXT(mistake([&](unsigned, Sums& sums) {
                wgmma_fence();
                wgmma(64, MmaType::f16, sums.d.data(), a.descriptor(kShared - 1024), b.descriptor(at_b()),
                      true, 1, 1, 0, 0);
              }),
              "but shared memory ends at 0x10000");
  EXPECT_TEXT(run(64, [&](unsigned) { wgmma_fence(); }), "in a warpgroup of 64 threads");
}

TEST_F(PtxWgmma, MemoryUnderAProductMustStay) {
  early_and_late([&] {
    const OnDevice<float> source(std::vector<float>(4));
    const auto from = reinterpret_cast<std::uintptr_t>(source.data());
    const auto overwrite = [&](unsigned pending) {
      return run(128, [&](unsigned thread) {
        prepare(thread);
        Sums sums(64);
        wgmma_fence();
        issue(sums);
        wgmma_commit();
        wgmma_wait(pending);
        bar_sync(0);
        if (thread == 0) {
          cp_async(kA, from, 16, 16, {"k.ptx", 20});
          cp_async_wait_all();
        }
        bar_sync(0);
        wgmma_wait(0);
      });
    };
    EXPECT_EQ(overwrite(0), "");
    EXPECT_TEXT(overwrite(1), "writes at 0x400 of shared memory, which a wgmma in flight reads, at k.ptx:20");
  });
}

TEST(PtxInstructions, RegistersOfAWarp) {
  EXPECT_EQ(run(32, [](unsigned) { setmaxnreg(true, 240); }), "");
  EXPECT_TEXT(run(1, [](unsigned) { setmaxnreg(false, 20); }), "setmaxnreg.dec");
}

}  // namespace
}  // namespace simt::ptx
