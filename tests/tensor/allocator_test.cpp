#include "tensor/allocator.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/base/error.h"
#include "tensor/base/pool.h"
#include "tensor/base/ref.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"

namespace athanor::allocator_test {

Allocator& cpu() {
  return allocator_of(kCpu);
}

// Blocks that are freed again, whatever the test does.
struct Held {
  explicit Held(std::size_t bytes) : block(cpu().allocate(bytes)) {}
  ~Held() { cpu().free(block); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Block block;
};

TEST(Allocator, EverySizeIsAlignedLargeEnoughAndWastesLittle) {
  for (std::size_t bytes = 1; bytes < 9'000'000; bytes += 1 + bytes / 37) {
    const Held held(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(held.block.data) % 64, 0u);
    EXPECT_GE(held.block.bytes, bytes);
    const std::size_t waste = held.block.bytes - bytes;
    EXPECT_LE(waste, std::max<std::size_t>(bytes > 1'048'576 ? bytes / 4 + 2'097'152 : bytes / 8, 64))
        << bytes;
    std::memset(held.block.data, 0xab, bytes);
  }
  const Held none(0);
  EXPECT_EQ(none.block.data, nullptr);
}

TEST(Allocator, LiveBlocksNeverOverlap) {
  struct Live {
    Block block;
    std::uint8_t mark;
  };
  std::vector<Live> live;
  std::uint64_t random = 1;
  for (int i = 0; i < 20'000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (live.size() > 200 || (random >> 60) < 6) {
      if (live.empty()) continue;
      const std::size_t at = (random >> 20) % live.size();
      const auto* bytes = static_cast<const std::uint8_t*>(live[at].block.data);
      ASSERT_EQ(bytes[0], live[at].mark);
      ASSERT_EQ(bytes[live[at].block.bytes - 1], live[at].mark);
      cpu().free(live[at].block);
      live[at] = live.back();
      live.pop_back();
    } else {
      const std::size_t bytes = 1 + (random >> 30) % (std::size_t{1} << ((random >> 10) % 22));
      const Live block{cpu().allocate(bytes), static_cast<std::uint8_t>(i)};
      static_cast<std::uint8_t*>(block.block.data)[0] = block.mark;
      static_cast<std::uint8_t*>(block.block.data)[block.block.bytes - 1] = block.mark;
      live.push_back(block);
    }
  }
  for (const Live& left : live) cpu().free(left.block);
}

TEST(Allocator, ReusesFreedBlocks) {
  void* first = nullptr;
  for (const std::size_t bytes : {100u, 5000u, 3'000'000u}) {
    {
      const Held held(bytes);
      first = held.block.data;
    }
    const std::int64_t growths = cpu().stats().growths;
    const Held again(bytes - 10);
    EXPECT_EQ(again.block.data, first);
    EXPECT_EQ(cpu().stats().growths, growths);
  }
}

TEST(Allocator, DoesNotGrowAfterWarmUp) {
  const auto step = [] {
    std::vector<Block> blocks;
    for (const std::size_t bytes : {64u, 4096u, 700'000u, 2'500'000u, 9'000'000u, 2'500'000u})
      blocks.push_back(cpu().allocate(bytes));
    for (const Block& block : blocks) cpu().free(block);
  };
  step();
  const std::int64_t growths = cpu().stats().growths;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(cpu().stats().growths, growths);
}

TEST(Allocator, StatsCountLivePeakAndTags) {
  const AllocatorStats before = cpu().stats();
  cpu().reset_peak();
  {
    const AllocTag outer("test.weights");
    const Held a(1024);
    {
      const AllocTag inner("test.activations");
      const Held b(2048);
      EXPECT_EQ(cpu().stats().by_tag.at("test.activations"), 2048);
    }
    const Held c(1024);
    const AllocatorStats stats = cpu().stats();
    EXPECT_EQ(stats.by_tag.at("test.weights"), 2048);
    EXPECT_EQ(stats.by_tag.count("test.activations"), 0u);
    EXPECT_EQ(stats.current - before.current, 2048);
    EXPECT_EQ(stats.peak - before.current, 3072);
  }
  EXPECT_EQ(cpu().stats().current, before.current);
}

TEST(Allocator, ChargesBlocksToTheCurrentTag) {
  Block block;
  {
    const AllocTag tag("test.moved");
    block = cpu().allocate(512);
  }
  const AllocTag other("test.other");
  EXPECT_EQ(cpu().stats().by_tag.at("test.moved"), 512);
  cpu().free(block);
  EXPECT_EQ(cpu().stats().by_tag.count("test.moved"), 0u);
}

struct Limit {
  explicit Limit(std::int64_t bytes) { cpu().set_limit(static_cast<std::size_t>(bytes)); }
  ~Limit() { cpu().set_limit(0); }
};

TEST(Allocator, LimitErrorListsMemoryByTag) {
  const AllocTag tag("test.hoard");
  const Held held(5'000'000);
  cpu().trim();
  const AllocatorStats before = cpu().stats();
  const Limit limit(before.current + before.cached + 9'000'000);
  EXPECT_ERROR(OutOfMemoryError, Held(50'000'000), "cpu", "50000000", std::to_string(before.current),
               std::to_string(before.cached), "test.hoard", "6291456", "--memory-limit");
  EXPECT_EQ(cpu().stats().current, before.current);
  // What is cached makes room for what is asked.
  { const Held cached(2'100'000); }
  EXPECT_NO_THROW(Held(7'000'000));
}

using Blocks = std::vector<std::unique_ptr<Held>>;

// Of one small size, as a batch of one size leaves them; with a tiny block beside each one, which is
// returned.
Blocks cache_small_blocks(std::size_t bytes, int count) {
  Blocks small, tiny;
  for (int i = 0; i < count; ++i) {
    small.push_back(std::make_unique<Held>(bytes));
    tiny.push_back(std::make_unique<Held>(100));
  }
  return tiny;
}

TEST(Allocator, SlabsWithoutALiveBlockMakeRoomAtTheLimit) {
  cpu().trim();
  const Blocks tiny = cache_small_blocks(1'000'000, 16);
  const AllocatorStats before = cpu().stats();
  const Limit limit(before.current + before.cached);
  EXPECT_NO_THROW(Held(10'000'000));                  // a mapping of its own
  EXPECT_NO_THROW(cache_small_blocks(100'000, 100));  // slabs, cut anew
  EXPECT_THROW(cache_small_blocks(100'000, 400), OutOfMemoryError);
}

TEST(Allocator, AtTheLimitASmallRequestGetsALargerFreeBlock) {
  cpu().trim();
  Blocks held;  // every second block lives, so that no slab is free
  for (int i = 0; i < 80; ++i) held.push_back(std::make_unique<Held>(1'000'000));
  for (std::size_t i = 0; i < held.size(); i += 2) held[i].reset();
  const AllocatorStats before = cpu().stats();
  const Limit limit(before.current + before.cached);
  Blocks small;
  EXPECT_NO_THROW({
    for (int i = 0; i < 40; ++i) small.push_back(std::make_unique<Held>(400'000));
  });
  ASSERT_EQ(small.size(), 40u);
  EXPECT_GE(small.back()->block.bytes, 400'000u);
}

TEST(Allocator, ReportsSystemOutOfMemory) {
  EXPECT_THROW(Held(std::size_t{1} << 60), OutOfMemoryError);
  EXPECT_NO_THROW(Held(1000));
}

TEST(Allocator, TrimFreesTheCache) {
  { const Held held(30'000'000); }
  const AllocatorStats before = cpu().stats();
  cpu().trim();
  EXPECT_LE(cpu().stats().cached, before.cached - 30'000'000);
  EXPECT_EQ(cpu().stats().current, before.current);
  const Held again(30'000'000);
  EXPECT_EQ(cpu().stats().growths, before.growths + 1);
}

TEST(Allocator, FragmentationIsThePartNoTensorCouldGet) {
  EXPECT_EQ(AllocatorStats{}.fragmentation(), 0);
  AllocatorStats quarter;
  quarter.cached = 100;
  quarter.largest_free = 25;
  EXPECT_EQ(quarter.fragmentation(), 0.75);
  cpu().trim();
  { const Held small(4'000'000), large(9'000'000); }
  const AllocatorStats stats = cpu().stats();
  EXPECT_EQ(stats.largest_free, 10 * 1'048'576);
  EXPECT_GE(stats.cached, 14 * 1'048'576);
}

TEST(Allocator, ThreadsShareIt) {
  const std::int64_t before = cpu().stats().current;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::vector<Block> blocks;
      for (int i = 0; i < 2000; ++i) {
        blocks.push_back(cpu().allocate(static_cast<std::size_t>(1 + (i * 977 + t) % 100'000)));
        std::memset(blocks.back().data, t, blocks.back().bytes);
        if (i % 3 == 2) {
          cpu().free(blocks.front());
          blocks.erase(blocks.begin());
        }
      }
      for (const Block& block : blocks) {
        EXPECT_EQ(static_cast<const char*>(block.data)[block.bytes - 1], t);
        cpu().free(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cpu().stats().current, before);
}

// Pool -----------------------------------------------------------------------------------------------------

struct Small final : RefCounted {
  explicit Small(std::int64_t number) : value(number) {}
  std::int64_t value;
  std::byte padding[200];
};

TEST(Pool, ObjectsFreedOnAnotherThreadAreReused) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  constexpr int kObjects = 1000;
  const auto hand_over = [] {
    std::vector<Ref<Small>> objects;
    objects.reserve(kObjects);
    for (int i = 0; i < kObjects; ++i) objects.push_back(make_ref<Small>(i));
    std::thread([taken = std::move(objects)]() mutable {
      for (int i = 0; i < kObjects; ++i) EXPECT_EQ(taken[static_cast<std::size_t>(i)]->value, i);
      taken.clear();
    }).join();  // leaves its lists for others as it ends
  };
  hand_over();
  const std::int64_t before = test::operator_news();
  hand_over();
  EXPECT_LT(test::operator_news() - before, 20);  // the vector, the thread: not a thousand objects
}

TEST(Pool, SteadyStateAllocatesNothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  const auto churn = [] {
    for (std::size_t bytes = 1; bytes <= kMaxPooledBytes; bytes += 13) pool_free(pool_allocate(bytes), bytes);
    PoolVector<int> list(20, 1);
    list.push_back(2);
  };
  churn();
  const std::int64_t before = test::operator_news();
  churn();
  EXPECT_EQ(test::operator_news(), before);
  pool_free(pool_allocate(kMaxPooledBytes + 1), kMaxPooledBytes + 1);
  EXPECT_EQ(test::operator_news(), before + (test::counts_operator_news() ? 1 : 0));
}

}  // namespace athanor::allocator_test
