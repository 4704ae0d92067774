#include "simt/emulator/counters.h"

#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

// Only in the race build. The numbers follow from addresses alone, so they are exact, in every order.

namespace simt::test {
namespace {

constexpr int kN = 64;
constexpr std::uint64_t kWarps = kN * kN / 32;  // accesses of a warp that move the matrix once

template <class F> KernelCounts counted(const std::string& kernel, F&& run) {
  start_counting();
  EXPECT_OK(run());
  EXPECT_EQ(diagnosis(), "");
  const Counts counts = stop_counting();
  const KernelCounts* found = counts.find(kernel);
  EXPECT_NE(found, nullptr) << table(counts);
  return found ? *found : KernelCounts{};
}

const AccessCount* at_line(const KernelCounts& counts, const std::string& mark) {
  const std::string place = marked_line("counted.cu", mark);
  for (const AccessCount& each : counts.accesses) {
    if (each.place == place) return &each;
  }
  ADD_FAILURE() << place << " has no accesses";
  static const AccessCount none;
  return &none;
}

const AccessCount* at_line(const KernelCounts& counts, AccessKind kind, const std::string& mark) {
  const std::string place = marked_line("counted.cu", mark);
  for (const AccessCount& each : counts.accesses) {
    if (each.place == place && each.kind == kind) return &each;
  }
  ADD_FAILURE() << place << " has no accesses of this kind";
  static const AccessCount none;
  return &none;
}

template <class F>
void expect_transpose(const std::string& kernel, F&& run, std::uint64_t write_sectors,
                      std::uint64_t shared_read_rounds) {
  in_all_orders([&] {
    std::vector<float> values(kN * kN);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const OnDevice<float> x(values), y(values.size());
    const KernelCounts counts = counted(kernel, [&] { return run(x.data(), y.data()); });
    const auto result = y.read();
    for (int i = 0; i < kN; ++i) {
      for (int j = 0; j < kN; ++j) ASSERT_EQ(result[j * kN + i], values[i * kN + j]);
    }
    EXPECT_EQ(counts.threads, std::uint64_t{kN * kN});
    EXPECT_EQ(counts.bytes_read, sizeof(float) * kN * kN);
    EXPECT_EQ(counts.bytes_written, sizeof(float) * kN * kN);
    const AccessCount read = counts.total(AccessKind::global_read),
                      write = counts.total(AccessKind::global_write);
    EXPECT_EQ(read.warps, kWarps);
    EXPECT_EQ(read.lanes, 32 * kWarps);
    EXPECT_EQ(read.bytes, std::uint64_t{4 * kN * kN});
    EXPECT_EQ(read.sectors, 4 * kWarps);
    EXPECT_EQ(write.warps, kWarps);
    EXPECT_EQ(write.sectors, write_sectors);
    EXPECT_EQ(write.fewest_sectors, 4 * kWarps);
    const AccessCount shared = counts.total(AccessKind::shared_read);
    EXPECT_EQ(shared.rounds, shared_read_rounds);
    EXPECT_EQ(shared.fewest_rounds, shared_read_rounds == 0 ? 0 : kWarps);
    if (shared_read_rounds > 0) {
      EXPECT_EQ(at_line(counts, AccessKind::global_read, "transpose_in")->sectors, 4 * kWarps);
      EXPECT_EQ(at_line(counts, AccessKind::shared_write, "transpose_in")->rounds, kWarps);
      EXPECT_EQ(at_line(counts, AccessKind::shared_read, "transpose_out")->rounds, shared_read_rounds);
      EXPECT_EQ(at_line(counts, AccessKind::global_write, "transpose_out")->sectors, write_sectors);
    }
    EXPECT_EQ(counts.total_branches().diverged, 0u);
  });
}

TEST(Counters, ANaiveTransposeWritesASectorForEachFloat) {
  expect_transpose(
      "transpose_naive", [](const float* x, float* y) { return transpose_naive(kN, x, y); }, 32 * kWarps, 0);
}

TEST(Counters, ATiledTransposeWritesFourSectorsAWarpButItsColumnsShareABank) {
  expect_transpose(
      "transpose_tiled", [](const float* x, float* y) { return transpose_tiled(false, kN, x, y); },
      4 * kWarps, 32 * kWarps);
}

TEST(Counters, APaddedTileHasNoBankConflicts) {
  expect_transpose(
      "transpose_padded", [](const float* x, float* y) { return transpose_tiled(true, kN, x, y); },
      4 * kWarps, kWarps);
}

TEST(Counters, VectorsOfSixteenBytesGoByQuartersOfAWarp) {
  in_all_orders([] {
    const OnDevice<float4> x(64), y(64);
    const KernelCounts counts = counted("copy_vectors", [&] { return copy_vectors(x.data(), y.data()); });
    for (const AccessKind kind : {AccessKind::global_read, AccessKind::global_write}) {
      EXPECT_EQ(counts.total(kind).warps, 2u);
      EXPECT_EQ(counts.total(kind).bytes, 1024u);
      EXPECT_EQ(counts.total(kind).sectors, 32u);
      EXPECT_EQ(counts.total(kind).fewest_sectors, 32u);
    }
    for (const AccessKind kind : {AccessKind::shared_read, AccessKind::shared_write}) {
      EXPECT_EQ(counts.total(kind).rounds, 8u);
      EXPECT_EQ(counts.total(kind).fewest_rounds, 8u);
    }
  });
}

TEST(Counters, ABroadcastIsOneRoundAndAStrideOfTwoWordsIsTwo) {
  in_all_orders([] {
    const OnDevice<float> out(32);
    const KernelCounts counts = counted("banks", [&] { return banks(out.data()); });
    EXPECT_EQ(at_line(counts, "banks_same")->rounds, 1u);
    EXPECT_EQ(at_line(counts, "banks_strided")->rounds, 2u);
    EXPECT_EQ(at_line(counts, "banks_strided")->fewest_rounds, 1u);
  });
}

TEST(Counters, EightBytesALaneGoByHalvesOfAWarp) {
  const OnDevice<double> out(32);
  const KernelCounts counts = counted("halves", [&] { return halves(out.data()); });
  EXPECT_EQ(at_line(counts, "halves_write")->rounds, 2u);
  EXPECT_EQ(at_line(counts, "halves_write")->fewest_rounds, 2u);
  EXPECT_EQ(at_line(counts, "halves_strided")->rounds, 32u) << "16 lanes, one after the other, twice";
}

TEST(Counters, AtomicsAreAKindOfTheirOwn) {
  for (const unsigned threads : {32u, 20u}) {  // a whole warp, and a part of one
    const OnDevice<int> totals(std::vector<int>(32, 0));
    const KernelCounts counts = counted("atomics", [&] { return atomics(threads, totals.data()); });
    const AccessCount* same = at_line(counts, AccessKind::shared_atomic, "atomics_same");
    EXPECT_EQ(same->rounds, 1u) << "one word is one round, though a GPU adds up one after the other";
    EXPECT_EQ(same->warps, 1u);
    EXPECT_EQ(same->lanes, threads);
    EXPECT_EQ(at_line(counts, AccessKind::shared_atomic, "atomics_own")->rounds, 1u);
    const AccessCount* global = at_line(counts, AccessKind::global_atomic, "atomics_global");
    EXPECT_EQ(global->lanes, threads);
    EXPECT_EQ(global->bytes, 4u * threads);
    EXPECT_EQ(global->sectors, (threads + 7) / 8);
    EXPECT_EQ(global->fewest_sectors, (threads + 7) / 8);
    EXPECT_EQ(counts.total(AccessKind::shared_atomic).warps, 2u);
    EXPECT_EQ(counts.total_branches().diverged, 0u);
  }
}

TEST(Counters, MisalignedReadsTouchOneSectorMore) {
  const OnDevice<float> x(64), y(32);
  const KernelCounts counts =
      counted("misaligned_reads", [&] { return misaligned_reads(x.data(), y.data()); });
  EXPECT_EQ(counts.total(AccessKind::global_read).sectors, 5u);
  EXPECT_EQ(counts.total(AccessKind::global_read).fewest_sectors, 4u);
  EXPECT_EQ(counts.total(AccessKind::global_write).sectors, 4u);
}

TEST(Counters, DivergentLanesAreCounted) {
  in_all_orders([] {
    const OnDevice<float> out(256);
    const KernelCounts apart = counted("diverging", [&] { return diverging(out.data()); });
    EXPECT_EQ(apart.total_branches().diverged, 4u) << "one branch, 4 warps";
    for (const BranchCount& branch : apart.branches) {
      if (branch.diverged == 0) continue;
      EXPECT_EQ(branch.place, marked_line("counted.cu", "diverging_branch"));
      EXPECT_EQ(branch.lanes, 128u);
    }
    EXPECT_EQ(at_line(apart, "diverging_even")->warps, 4u);
    EXPECT_EQ(at_line(apart, "diverging_even")->lanes, 64u);
    EXPECT_EQ(at_line(apart, "diverging_even")->sectors, 4u * 4);
    EXPECT_EQ(at_line(apart, "diverging_even")->fewest_sectors, 4u * 2);
    const KernelCounts uniform_counts = counted("uniform", [&] { return uniform(out.data()); });
    EXPECT_EQ(uniform_counts.total_branches().diverged, 0u);
  });
}

TEST(Counters, ALoopOfDifferentLengthsRunsWithFewerAndFewerLanes) {
  in_all_orders([] {
    const OnDevice<float> out(32 * 32);
    const KernelCounts counts = counted("triangle", [&] { return triangle(out.data()); });
    const AccessCount* line = at_line(counts, "triangle");
    EXPECT_EQ(line->warps, 32u);
    EXPECT_EQ(line->lanes, 32u * 33 / 2);
    EXPECT_EQ(line->sectors, 8u * (1 + 2 + 3 + 4));
    EXPECT_EQ(counts.total_branches().diverged, 31u);
  });
}

template <class T> void expect_packets_in_one_access() {
  in_all_orders([] {
    const OnDevice<T> x(1024 / sizeof(T)), y(1024 / sizeof(T));
    const KernelCounts counts = counted("copy_packets", [&] { return copy_packets(x.data(), y.data()); });
    for (const AccessKind kind : {AccessKind::global_read, AccessKind::global_write}) {
      EXPECT_EQ(counts.total(kind).warps, 2u);
      EXPECT_EQ(counts.total(kind).sectors, 32u);
      EXPECT_EQ(counts.total(kind).fewest_sectors, 32u);
    }
  });
}

TEST(Counters, APacketOfElementsIsOneAccess) {
  expect_packets_in_one_access<float>();
  expect_packets_in_one_access<std::uint8_t>();
}

TEST(Counters, LaunchesAddUpAndTheTableNamesLines) {
  const OnDevice<float> x(kN * kN), y(kN * kN);
  start_counting();
  EXPECT_OK(transpose_naive(kN, x.data(), y.data()));
  EXPECT_OK(transpose_naive(kN, x.data(), y.data()));
  EXPECT_EQ(diagnosis(), "");
  const Counts counts = stop_counting();
  ASSERT_NE(counts.find("transpose_naive"), nullptr);
  EXPECT_EQ(counts.find("transpose_naive")->launches, 2u);
  EXPECT_EQ(counts.find("transpose_naive")->total(AccessKind::global_write).sectors, 2 * 32 * kWarps);
  EXPECT_TEXT(table(counts), "kernel transpose_naive: 2 launches, 8 blocks, 8192 threads");
  EXPECT_TEXT(table(counts), marked_line("counted.cu", "transpose_naive"));
}

TEST(Counters, NothingIsCountedBeforeOrAfter) {
  const OnDevice<float> out(32);
  EXPECT_OK(banks(out.data()));
  EXPECT_EQ(diagnosis(), "");
  start_counting();
  EXPECT_TRUE(stop_counting().kernels.empty());
}

}  // namespace
}  // namespace simt::test
