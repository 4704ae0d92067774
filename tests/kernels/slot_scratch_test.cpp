// Memory that slots of parallel work keep between kernels.
#include <cstring>

#include <gtest/gtest.h>

#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"

namespace athanor::slot_scratch_test {

TEST(SlotScratch, KeepsMemoryOfEachSlotUntilItMustGrow) {
  CpuContext context;
  const SlotScratch& scratch = context.slot_scratch(3, 1000);
  char* const first[] = {scratch.as<char>(0), scratch.as<char>(1), scratch.as<char>(2)};
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[1], first[2]);
  const std::int64_t allocated = allocator_of(kCpu).stats().current;
  for (const std::int64_t slots : {1, 2, 3}) {
    const SlotScratch& again = context.slot_scratch(slots, 900);
    for (std::int64_t i = 0; i < slots; ++i) EXPECT_EQ(again.as<char>(i), first[i]);
  }
  EXPECT_EQ(allocator_of(kCpu).stats().current, allocated);
  const SlotScratch& grown = context.slot_scratch(2, std::size_t{1} << 20);
  std::memset(grown.as<char>(0), 1, std::size_t{1} << 20);
  std::memset(grown.as<char>(1), 2, std::size_t{1} << 20);
  EXPECT_EQ(grown.as<char>(0)[(1 << 20) - 1], 1);
  EXPECT_EQ(context.slot_scratch(3, 10).as<char>(2), first[2]);
}

TEST(SlotScratch, IsFreedWithItsContext) {
  const std::int64_t before = allocator_of(kCpu).stats().current;
  {
    CpuContext context;
    context.slot_scratch(4, 100000);
    EXPECT_GE(allocator_of(kCpu).stats().current, before + 400000);
  }
  EXPECT_EQ(allocator_of(kCpu).stats().current, before);
}

TEST(SlotScratch, SlotsWriteAtTheSameTime) {
  CpuContext context;
  context.set_threads(4);
  constexpr std::int64_t kCount = 10000;
  const SlotScratch& scratch = context.slot_scratch(4, kCount * sizeof(int));
  cpu::for_each_slot(context, 4, 4, [&](std::int64_t slot, const auto&) {
    for (std::int64_t i = 0; i < kCount; ++i) scratch.as<int>(slot)[i] = static_cast<int>(slot);
  });
  for (std::int64_t slot = 0; slot < 4; ++slot)
    for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(scratch.as<int>(slot)[i], slot);
}

}  // namespace athanor::slot_scratch_test
