
#include "tests/simt/support.h"
#include "tests/simt/tensor_kernels.h"

// Barriers in shared memory, bulk copies, tensor maps.

namespace simt::test {
namespace {

TEST(Mbarrier, ARingOfTwoStagesBringsEveryTile) {
  early_and_late([] {
    for (const int tiles : {1, 2, 3, 9}) {
      const auto n = static_cast<std::size_t>(tiles) * 64;
      const OnDevice<float> x(numbers(n)), y(n);
      EXPECT_OK(ring(tiles, x.data(), y.data()));
      EXPECT_EQ(diagnosis(), "");
      const std::vector<float> result = y.read();
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(result[i], static_cast<float>(i / 64 * 64 + 64 - i % 64)) << i;
    }
  });
}

TEST(BulkCopy, WithoutItsWaitNothingHasArrived) {
  if (can_find_races()) GTEST_SKIP() << "the race build names it";
  for (const Async async : {Async::late, Async::at_issue}) {
    options().async = async;
    const OnDevice<float> out(numbers(128));
    EXPECT_OK(bulk_no_wait(out.data()));
    EXPECT_EQ(diagnosis(), "");
    const float value = out.read()[64 + 40];
    EXPECT_TRUE(async == Async::late ? is_nan(value) : value == 41)
        << "done at once, the mistake does not show";
  }
  options().async = Async::late;
}

// ---- tiles

struct Case {
  TensorType type;
  int bytes;  // of an element
  int rank;
  std::vector<std::uint64_t> size;
  std::vector<std::uint32_t> tile;
  Swizzle swizzle;
  std::vector<int> at;
};

// Where the manual's figures have the 16-byte piece `piece` of the line `line` of a tile whose lines are as
// long as the swizzle: at 128 bytes, piece 0 of lines 0 to 7 is at pieces 0 to 7; at 64, two lines share 128
// bytes and the pieces move after two lines; at 32, after four.
unsigned place_of_piece(Swizzle swizzle, unsigned line, unsigned piece) {
  switch (swizzle) {
    case Swizzle::none: return piece;
    case Swizzle::bytes_128: return piece ^ line % 8;
    case Swizzle::bytes_64: return piece ^ line / 2 % 4;
    case Swizzle::bytes_32: return piece ^ line / 4 % 2;
  }
  return 0;
}

void check_tile(const Case& c) {
  std::size_t elements = 1, rows = 1;
  for (const std::uint64_t n : c.size) elements *= n;
  const std::size_t row_bytes = c.tile[0] * static_cast<unsigned>(c.bytes);
  for (std::size_t axis = 1; axis < c.tile.size(); ++axis) rows *= c.tile[axis];
  std::vector<std::uint8_t> memory(elements * static_cast<std::size_t>(c.bytes));
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint8_t>(i * 7 % 251 + 1);
  const OnDevice<std::uint8_t> from(memory), shown(rows * row_bytes);
  TensorLayout layout{.type = c.type, .rank = c.rank, .data = from.data(), .swizzle = c.swizzle};
  std::uint64_t stride = static_cast<std::uint64_t>(c.bytes);
  for (std::size_t axis = 0; axis < c.size.size(); ++axis) {
    layout.size[axis] = c.size[axis], layout.tile[axis] = c.tile[axis], layout.stride[axis] = stride;
    stride *= c.size[axis];
  }
  TensorMap map;
  EXPECT_OK(make_tensor_map(&map, layout));
  const int at[3] = {c.at[0], c.at[1], c.rank > 2 ? c.at[2] : 0};
  EXPECT_OK(bring_tile(map, static_cast<unsigned>(rows * row_bytes), at, c.rank, shown.data()));
  EXPECT_EQ(diagnosis(), "");

  const auto tile = shown.read();
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t byte = 0; byte < row_bytes; ++byte) {
      const std::int64_t x = c.at[0] + static_cast<std::int64_t>(byte) / c.bytes;
      const std::int64_t y = c.at[1] + static_cast<std::int64_t>(row % c.tile[1]);
      const std::int64_t z = c.rank > 2 ? c.at[2] + static_cast<std::int64_t>(row / c.tile[1]) : 0;
      const bool inside = x >= 0 && x < static_cast<std::int64_t>(c.size[0]) && y >= 0 &&
                          y < static_cast<std::int64_t>(c.size[1]) && z >= 0 &&
                          (c.rank < 3 || z < static_cast<std::int64_t>(c.size[2]));
      std::size_t source = 0;
      if (inside) {
        source =
            static_cast<std::size_t>(
                ((z * static_cast<std::int64_t>(c.size[1]) + y) * static_cast<std::int64_t>(c.size[0]) + x) *
                c.bytes) +
            byte % static_cast<std::size_t>(c.bytes);
      }
      const std::size_t place =
          row * row_bytes +
          place_of_piece(c.swizzle, static_cast<unsigned>(row), static_cast<unsigned>(byte / 16)) * 16 +
          byte % 16;
      ASSERT_EQ(tile[place], inside ? memory[source] : 0) << "row " << row << ", byte " << byte;
    }
  }
}

TEST(Tma, TilesAreSwizzledAsTheManualDrawsThem) {
  early_and_late([] {
    check_tile({TensorType::f16, 2, 2, {64, 32}, {64, 16}, Swizzle::bytes_128, {0, 8}});
    check_tile({TensorType::bf16, 2, 2, {64, 32}, {32, 16}, Swizzle::bytes_64, {32, 0}});
    check_tile({TensorType::f16, 2, 2, {64, 32}, {16, 16}, Swizzle::bytes_32, {16, 3}});
    check_tile({TensorType::f32, 4, 2, {64, 32}, {32, 8}, Swizzle::bytes_128, {32, 24}});
    check_tile({TensorType::u8, 1, 2, {64, 32}, {48, 8}, Swizzle::none, {5, 1}});
    check_tile({TensorType::f16, 2, 3, {24, 10, 6}, {8, 4, 3}, Swizzle::none, {8, 2, 1}});
  });
}

TEST(Tma, OutsideOfTheTensorAreZeros) {
  early_and_late([] {
    check_tile({TensorType::f16, 2, 2, {40, 20}, {64, 16}, Swizzle::bytes_128, {0, 8}});
    check_tile({TensorType::f16, 2, 2, {40, 20}, {64, 16}, Swizzle::bytes_128, {-5, -3}});
    check_tile({TensorType::f32, 4, 2, {20, 20}, {16, 8}, Swizzle::bytes_64, {15, 17}});
    check_tile({TensorType::f16, 2, 2, {40, 20}, {16, 8}, Swizzle::bytes_32, {80, 40}});
    check_tile({TensorType::u8, 1, 2, {32, 3}, {16, 8}, Swizzle::none, {30, -7}});
    check_tile({TensorType::f16, 2, 3, {24, 10, 6}, {8, 4, 3}, Swizzle::none, {20, 8, -1}});
  });
}

TEST(Tma, RejectsMapsThatTheDriverWouldReject) {
  const OnDevice<float> memory(1024);
  const TensorLayout good{.type = TensorType::f16,
                          .data = memory.data(),
                          .size = {64, 16},
                          .stride = {0, 128},
                          .tile = {64, 8},
                          .swizzle = Swizzle::bytes_128};
  TensorMap map;
  EXPECT_OK(make_tensor_map(&map, good));
  const auto refused = [&](auto&& change, std::initializer_list<const char*> values) {
    TensorLayout layout = good;
    change(layout);
    const cudaError_t code = make_tensor_map(&map, layout);
    EXPECT_EQ(code, cudaErrorInvalidValue);
    const std::string text = text_of(code);
    for (const char* value : values) EXPECT_TEXT(text, value);
  };
  refused([](auto& l) { l.rank = 6; }, {"1 to 5", "6"});
  refused([&](auto& l) { l.data = memory.data() + 1; }, {"data", "16"});
  refused([](auto& l) { l.size[1] = 0; }, {"axis 1", "2^32", "0"});
  refused([](auto& l) { l.tile[1] = 257; }, {"axis 1", "1 to 256", "257"});
  refused([](auto& l) { l.stride[1] = 120; }, {"stride", "axis 1", "16", "120"});
  refused([](auto& l) { l.tile[0] = 4; }, {"row", "16 bytes", "8"});
  refused([](auto& l) { l.swizzle = Swizzle::bytes_64; }, {"row", "64 bytes", "128"});
}

// ---- planted

class BulkBugs : public testing::TestWithParam<Planted> {};
TEST_P(BulkBugs, AreNamedInEveryOrder) {
  expect_found(GetParam(), "bulk.cu");
}
class BarrierBugs : public testing::TestWithParam<Planted> {};
TEST_P(BarrierBugs, AreNamedInEveryOrder) {
  expect_found(GetParam(), "mbarriers.cu");
}
INSTANTIATE_TEST_SUITE_P(Mbarrier, BarrierBugs,
                         testing::Values(BUG(mbarrier_uninitialised, "mbarrier.arrive",
                                             "@mbarrier_uninitialised"),
                                         BUG(mbarrier_init_twice, "mbarrier.init", "thread (0,0,0)",
                                             "@mbarrier_init_twice_first", "@mbarrier_init_twice"),
                                         BUG(mbarrier_lacks_arrivals, "deadlock", "@mbarrier_lacks_arrivals",
                                             "phase 0", "1 of 64")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    BulkCopy, BulkBugs,
    testing::Values(BUG(bulk_no_init_fence, "cp.async.bulk", "thread (0,0,0)", "fence.mbarrier_init",
                        "@bulk_init", "@bulk_copy"),
                    BUG(bulk_nobody_waits, "@bulk_copy", "phase 0"),
                    BUG(bulk_expects_too_much, "deadlock", "@bulk_wait", "256 bytes"),
                    BUG(bulk_misaligned, "cp.async.bulk", "thread (0,0,0)", "16", "@bulk_copy"),
                    BUG(bulk_odd_size, "cp.async.bulk", "thread (0,0,0)", "100 bytes", "@bulk_copy"),
                    BUG(tensor_misaligned, "cp.async.bulk.tensor", "thread (0,0,0)", "1024", "@tensor_load"),
                    BUG(tensor_wrong_rank, "3 coordinates", "2 axes", "@tensor_of_three"),
                    BUG(tensor_expects_inside, "deadlock", "@tensor_wait", "512 bytes")),
    name_of);

TEST(BulkCopy, UnexpectedBytesAreReported) {
  in_all_orders([] {
    const OnDevice<float> out(numbers(128));
    EXPECT_OK(bulk_expects_nothing(out.data()));
    const std::string late = diagnosis();
    EXPECT_TEXT(late, "phase 0");
    EXPECT_TEXT(late, marked_line("bulk.cu", "bulk_arrive"));
    EXPECT_TEXT(late, marked_line("bulk.cu", "bulk_copy"));
    options().async = Async::at_issue;
    EXPECT_OK(bulk_expects_nothing(out.data()));
    EXPECT_TEXT(diagnosis(), "256 bytes");
    options().async = Async::late;
  });
}

// A wrong parity is either waited for in vain, or taken for the phase before.
TEST(Mbarrier, AWrongParityIsTakenForThePhaseBefore) {
  const OnDevice<float> out(64);
  EXPECT_OK(mbarrier_wrong_parity(out.data()));
  const std::string text = diagnosis();
  EXPECT_TEXT(text, "deadlock");
  EXPECT_TEXT(text, marked_line("mbarriers.cu", "mbarrier_wrong_parity"));
  EXPECT_TEXT(text, "phase 2");
}

#if defined(SIMT_RACE)
INSTANTIATE_TEST_SUITE_P(MbarrierRace, BarrierBugs,
                         testing::Values(BUG(mbarrier_no_barrier, "thread (32,0,0)", "@mbarrier_no_barrier"),
                                         BUG(mbarrier_no_wait, "race in shared memory", "@mbarrier_no_wait",
                                             "@mbarrier_no_wait_write"),
                                         BUG(mbarrier_writes_after_arrival, "race in shared memory",
                                             "@mbarrier_writes_after_arrival",
                                             "@mbarrier_writes_after_arrival_write")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    BulkCopyRace, BulkBugs,
    testing::Values(BUG(bulk_no_wait, "race in shared memory", "@bulk_read", "@bulk_copy"),
                    BUG(bulk_by_all, "race in shared memory", "asynchronously", "@bulk_copy", "mbarrier"),
                    BUG(bulk_over_reader, "race in shared memory", "@bulk_copy", "@bulk_read"),
                    BUG(bulk_over_writes, "asynchronously", "@bulk_copy", "@bulk_write",
                        "fence.proxy.async")),
    name_of);
#endif

}  // namespace
}  // namespace simt::test
