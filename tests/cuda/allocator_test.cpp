#include "tensor/cuda/allocator.h"

#include <map>
#include <optional>
#include <thread>
#include <vector>

#if defined(ATHANOR_SIMT)
#include "simt/launch.h"
#endif
#include "tensor/base/error.h"
#include "tests/cuda/busy.h"
#include "tests/cuda/device.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"

namespace athanor::allocator_test {

using cuda::DeviceAllocator;
constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(FreeLists, FindAChunkForEverySizeItHolds) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 512; bytes < std::size_t{1} << 41;
       bytes += std::max<std::size_t>(512, bytes / 23 & ~511ul))
    sizes.push_back(bytes);
  for (const std::size_t held : sizes) {
    cuda::FreeLists lists;
    cuda::Chunk chunk;
    chunk.bytes = held;
    lists.insert(chunk);
    EXPECT_EQ(lists.largest(), held);
    for (const std::size_t asked : sizes) ASSERT_EQ(lists.best_fit(asked), asked <= held ? &chunk : nullptr);
    lists.erase(chunk);
    EXPECT_EQ(lists.best_fit(512), nullptr);
    EXPECT_EQ(lists.largest(), 0u);
  }
}

TEST(FreeLists, TakeTheSmallestThatFitsAndOfEqualsTheFirstInMemory) {
  cuda::FreeLists lists;
  std::array<std::byte, 4> memory;
  std::array<cuda::Chunk, 4> chunks;
  for (std::size_t i = 0; i < 4; ++i) {
    chunks[i].bytes = std::array<std::size_t, 4>{66'560, 66'048, 66'048, 67'072}[i];  // of one size class
    chunks[i].data = &memory[i];
    lists.insert(chunks[i]);
  }
  for (const std::size_t best : {1u, 2u, 0u, 3u}) {
    EXPECT_EQ(lists.best_fit(66'000), &chunks[best]);
    lists.erase(chunks[best]);
  }
}

TEST(FreeLists, LookFurtherWhereTheRightClassHoldsOnlySmallerOnes) {
  cuda::FreeLists lists;
  cuda::Chunk small, large;
  small.bytes = 65'536;
  large.bytes = 73'728;  // of the next class
  lists.insert(small);
  lists.insert(large);
  EXPECT_EQ(lists.best_fit(70'144), &large);
}

// An allocator of its own, so that nobody else's blocks come between.
struct Allocators : test::DeviceTest {
  DeviceAllocator cached{test::device(), DeviceAllocator::Blocks::cached};
  DeviceAllocator exact{test::device(), DeviceAllocator::Blocks::exact};

  void* address_of_next(std::size_t bytes) {
    const Block block = cached.allocate(bytes);
    cached.free(block);
    return block.data;
  }
};
using DeviceCache = Allocators;

TEST_F(DeviceCache, EverySizeIsAlignedLargeEnoughAndWastesLittle) {
  for (std::size_t bytes = 1; bytes < 30'000'000; bytes += 1 + bytes / 11) {
    const Block block = cached.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data) % 256, 0u);
    EXPECT_GE(block.bytes, bytes);
    EXPECT_LE(block.bytes - bytes, std::max<std::size_t>(bytes / 8, 511)) << bytes;
    cached.free(block);
  }
  const Block none = cached.allocate(0);
  EXPECT_EQ(none.data, nullptr);
  cached.free(none);
  EXPECT_EQ(cached.stats().current, 0);
}

TEST_F(DeviceCache, LiveBlocksNeverOverlapAndAllComesBackTogether) {
  struct Live {
    Block block;
    int stream;
  };
  const Stream streams[] = {Stream::default_of(test::device()), Stream::create(test::device())};
  std::vector<Live> live;
  std::map<std::byte*, std::byte*> ranges;
  std::uint64_t random = 1;
  for (int i = 0; i < 5000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (live.size() > 100 || (random >> 60) < 6) {
      if (live.empty()) continue;
      const std::size_t at = (random >> 20) % live.size();
      ranges.erase(static_cast<std::byte*>(live[at].block.data));
      cached.free(live[at].block);
      live[at] = live.back();
      live.pop_back();
    } else {
      const StreamGuard guard(streams[i % 2]);
      const Block block = cached.allocate(1 + (random >> 30) % (std::size_t{1} << ((random >> 10) % 24)));
      auto* begin = static_cast<std::byte*>(block.data);
      const auto after = ranges.upper_bound(begin);
      ASSERT_TRUE(after == ranges.end() || begin + block.bytes <= after->first);
      ASSERT_TRUE(after == ranges.begin() || std::prev(after)->second <= begin);
      ranges[begin] = begin + block.bytes;
      live.push_back({block, i % 2});
    }
  }
  for (const Live& left : live) cached.free(left.block);
  EXPECT_EQ(cached.stats().current, 0);
  // Joined again: every segment is in one piece, and can be given back.
  cached.trim();
  EXPECT_EQ(cached.stats().cached, 0);
}

TEST_F(DeviceCache, TheSameStreamGetsABlockBackAtOnce) {
  const test::Busy busy(current_stream(test::device()));  // whatever is still queued there
  for (const std::size_t bytes : {std::size_t{100}, 5000 * std::size_t{100}, 3 * kMiB, 30 * kMiB}) {
    void* first = address_of_next(bytes);
    const std::int64_t growths = cached.stats().growths;
    EXPECT_EQ(address_of_next(bytes - 10), first);
    EXPECT_EQ(cached.stats().growths, growths);
  }
}

TEST_F(DeviceCache, AnotherStreamGetsOtherMemory) {
  void* first = address_of_next(3 * kMiB);
  const StreamGuard guard(Stream::create(test::device()));
  EXPECT_NE(address_of_next(3 * kMiB), first);
  EXPECT_EQ(cached.stats().growths, 2);
}

TEST_F(DeviceCache, ABlockUsedByAnotherStreamIsFreedAfterIt) {
  const Stream other = Stream::create(test::device());
  const Block block = cached.allocate(3 * kMiB);
  cached.record_stream(block, current_stream(test::device()));  // its own: nothing new
  cached.record_stream(block, other);
  cached.record_stream(block, other);
  {
    const test::Busy busy(other);
    cached.free(block);
    EXPECT_EQ(cached.stats().current, 0);
    EXPECT_EQ(cached.stats().cached, static_cast<std::int64_t>(20 * kMiB));
    EXPECT_NE(address_of_next(3 * kMiB), block.data);
    // More than is left: asks whether the other stream has passed, and gets new memory, since it has not.
    const Block large = cached.allocate(18 * kMiB);
    EXPECT_EQ(cached.stats().growths, 2);
    cached.free(large);
  }
}

TEST_F(DeviceCache, ABlockThatAnotherStreamHasPassedIsReused) {
  const Stream other = Stream::create(test::device());
  const Block block = cached.allocate(3 * kMiB);
  cached.record_stream(block, other);
  {
    const test::Busy busy(other);
    cached.free(block);
  }
  const Block rest = cached.allocate(17 * kMiB);
  EXPECT_EQ(address_of_next(3 * kMiB), block.data);
  EXPECT_EQ(cached.stats().growths, 1);
  cached.free(rest);
}

TEST_F(DeviceCache, ABlockIsCutAndJoinedAgain) {
  constexpr std::int64_t kSegment = 20 * kMiB;
  std::vector<Block> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(cached.allocate(4 * kMiB));
  EXPECT_EQ(cached.stats().growths, 1);
  EXPECT_EQ(cached.stats().cached, 0);
  EXPECT_EQ(cached.stats().fragmentation(), 0);
  for (const int i : {0, 4, 1}) cached.free(blocks[static_cast<std::size_t>(i)]);
  AllocatorStats stats = cached.stats();
  EXPECT_EQ(stats.cached, static_cast<std::int64_t>(12 * kMiB));
  EXPECT_EQ(stats.largest_free, static_cast<std::int64_t>(8 * kMiB));  // 0 and 1, side by side
  EXPECT_DOUBLE_EQ(stats.fragmentation(), 1.0 / 3);
  EXPECT_EQ(address_of_next(4 * kMiB), blocks[4].data);  // the best fit, not the first
  for (const int i : {3, 2}) cached.free(blocks[static_cast<std::size_t>(i)]);
  EXPECT_EQ(cached.stats().largest_free, kSegment);
  EXPECT_EQ(address_of_next(kSegment), blocks[0].data);
  EXPECT_EQ(cached.stats().growths, 1);
}

TEST_F(DeviceCache, SteadyStateAllocatesNothing) {
  const auto step = [&] {
    std::array<Block, 6> blocks;
    std::size_t at = 0;
    for (const std::size_t bytes : {64u, 4096u, 700'000u, 2'500'000u, 9'000'000u, 2'500'000u})
      blocks[at++] = cached.allocate(bytes);
    for (const Block& block : blocks) cached.free(block);
  };
  step();
  const std::int64_t growths = cached.stats().growths;
  const std::int64_t news = test::operator_news();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(test::operator_news(), news);
  EXPECT_EQ(cached.stats().growths, growths);
}

TEST_F(DeviceCache, SteadyStateWithAnotherStreamMakesNoEvents) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  if (cuda_is_emulated()) GTEST_SKIP() << "the emulator allocates what it queues";
  const Stream other = Stream::create(test::device());
  const auto step = [&] {
    const Block block = cached.allocate(4096);
    cached.record_stream(block, other);
    cached.free(block);
    const AllowSync own;
    other.synchronize();
    cached.free(cached.allocate(2 * kMiB));
  };
  for (int i = 0; i < 3; ++i) step();
  const std::int64_t news = test::operator_news();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(test::operator_news(), news);
}

TEST_F(DeviceCache, StatsCountLivePeakAndTags) {
  Block a, b;
  {
    const AllocTag outer("test.weights");
    a = cached.allocate(1024);
    const AllocTag inner("test.activations");
    b = cached.allocate(2000);
  }
  AllocatorStats stats = cached.stats();
  EXPECT_EQ(stats.by_tag.at("test.weights"), 1024);
  EXPECT_EQ(stats.by_tag.at("test.activations"), 2048);
  EXPECT_EQ(stats.current, 3072);
  EXPECT_EQ(stats.cached, static_cast<std::int64_t>(2 * kMiB) - 3072);
  cached.free(b);
  EXPECT_EQ(cached.stats().peak, 3072);
  cached.reset_peak();
  EXPECT_EQ(cached.stats().peak, 1024);
  cached.free(a);
  EXPECT_TRUE(cached.stats().by_tag.empty());
}

TEST_F(DeviceCache, LimitErrorListsMemoryByTag) {
  const AllocTag tag("test.hoard");
  const Block held = cached.allocate(12 * kMiB);
  cached.set_limit(40 * kMiB);
  EXPECT_ERROR(OutOfMemoryError, cached.allocate(50'000'000), test::device().str(), "50000000 bytes",
               "12582912", "0", "41943040 bytes", "test.hoard 12582912", "--memory-limit");
  EXPECT_EQ(cached.stats().current, static_cast<std::int64_t>(12 * kMiB));
  // A segment that would pass the limit is made smaller; and what is cached makes room for what is asked.
  const Block first = cached.allocate(9 * kMiB), second = cached.allocate(9 * kMiB);
  EXPECT_EQ(cached.stats().cached, static_cast<std::int64_t>(2 * kMiB));
  cached.free(first);
  cached.free(second);
  const Block large = cached.allocate(25 * kMiB);
  cached.free(large);
  cached.free(held);
}

TEST_F(DeviceCache, ReportsSystemOutOfMemory) {
  EXPECT_THROW(cached.allocate(std::size_t{1} << 50), OutOfMemoryError);
  EXPECT_NO_THROW(address_of_next(1000));
}

TEST_F(DeviceCache, TrimFreesUnusedBlocks) {
  const Block small = cached.allocate(1000), large = cached.allocate(30 * kMiB);
  cached.free(large);
  const std::int64_t waits = host_syncs();
  cached.trim();
  EXPECT_EQ(host_syncs(), waits + 1);
  EXPECT_EQ(cached.stats().current + cached.stats().cached, static_cast<std::int64_t>(2 * kMiB));
  cached.free(small);
  cached.trim();
  EXPECT_EQ(cached.stats().cached, 0);
  const ForbidSync forbid;
  EXPECT_THROW(cached.trim(), Error);
}

TEST_F(DeviceCache, TrimWaitsForBlocksInUse) {
  const Stream other = Stream::create(test::device());
  const test::Busy busy(other), busy_too(current_stream(test::device()));
  const Block block = cached.allocate(3 * kMiB);
  cached.record_stream(block, other);
  detail::set_device_bytes(block.data, test::device(), 1, block.bytes);
  cached.free(block);
  cached.trim();  // the emulator reports memory given back while a queue uses it
  EXPECT_EQ(cached.stats().cached, 0);
}

TEST_F(DeviceCache, ABlockOutlivesTheStreamItWasMadeOn) {
  std::optional<Stream> stream = Stream::create(test::device());
  Block block;
  {
    const StreamGuard guard(*stream);
    block = cached.allocate(3 * kMiB);
  }
  const std::uint32_t id = stream->id();
  stream.reset();
  cached.free(block);
  // Its memory serves the next one to get the queue.
  const Stream next = Stream::create(test::device());
  EXPECT_EQ(next.id(), id);
  const StreamGuard guard(next);
  EXPECT_EQ(address_of_next(3 * kMiB), block.data);
}

TEST_F(DeviceCache, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Stream stream = Stream::create(test::device());
      const StreamGuard guard(stream);
      std::vector<Block> blocks;
      for (int i = 0; i < 500; ++i) {
        blocks.push_back(cached.allocate(static_cast<std::size_t>(1 + (i * 977 + t) % 100'000)));
        if (i % 16 == 0) cached.record_stream(blocks.back(), Stream::default_of(test::device()));
        if (i % 3 == 2) {
          cached.free(blocks.front());
          blocks.erase(blocks.begin());
        }
      }
      std::thread([&] {  // freed by a thread whose current stream is another
        for (const Block& block : blocks) cached.free(block);
      })
          .join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cached.stats().current, 0);
}

// One cudaMalloc a block -----------------------------------------------------------------------------------

using ExactBlocks = Allocators;

TEST_F(ExactBlocks, HaveTheRequestedSizeAndAreFreedAfterTheirStream) {
  Block first = exact.allocate(1001);
  EXPECT_EQ(first.bytes, 1001u);
  EXPECT_EQ(exact.stats().growths, 1);
  {
    const test::Busy busy(current_stream(test::device()));
    detail::set_device_bytes(first.data, test::device(), 1, first.bytes);
    exact.free(first);
    EXPECT_EQ(exact.stats().cached, 1001);  // the stream has not come to the set, let alone passed it
  }
  const Block second = exact.allocate(1001);
  EXPECT_EQ(exact.stats().growths, 2);
  EXPECT_EQ(exact.stats().cached, 0);
  exact.free(second);
}

TEST_F(ExactBlocks, WaitForOtherStreamsToo) {
  const Stream other = Stream::create(test::device());
  const Block block = exact.allocate(4096);
  exact.record_stream(block, other);
  {
    const test::Busy busy(other);
    exact.free(block);
    exact.free(exact.allocate(1));
    EXPECT_GE(exact.stats().cached, 4096);
  }
  exact.trim();
  EXPECT_EQ(exact.stats().cached, 0);
}

#if defined(ATHANOR_SIMT)
// On a GPU there is no way back from this, so only the emulator's device is made to fail.
namespace {
void half_of_it_leaves(float*) {
  if (threadIdx.x < 32) __syncthreads();
}
}  // namespace

struct AFailedKernel : Allocators {
  void SetUp() override {
    Allocators::SetUp();
    const auto stream = static_cast<cudaStream_t>(current_stream(test::device()).native());
    const simt::Launch how{.name = "half_of_it_leaves", .block = 64};
    ATH_TRY(simt::launch(stream, how, half_of_it_leaves, nullptr));
  }
  void TearDown() override { cudaDeviceReset(); }

  template <class F> static void expect_diagnosis(F&& call) {
    const std::string text = test::message_of<BackendError>(call);
    for (const char* value : {"barrier divergence", "thread (32,0,0)"})
      EXPECT_TRUE(test::holds(text, value)) << value << " in: " << text;
  }
};

// Freeing and allocating ask events, which makes the emulator run what is queued, and may be the first to
// hear of the failure.
TEST_F(AFailedKernel, IsNotLostByAnAllocatorThatPollsItsEvents) {
  const Block held = exact.allocate(64);
  exact.free(held);  // parked: its own stream is busy
  for (int i = 0; i < 3; ++i) {
    try {
      exact.free(exact.allocate(64));
    } catch (const BackendError&) {  // it may say so itself
    }
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorLaunchFailure);
  expect_diagnosis([] { synchronize(test::device()); });
}

TEST_F(AFailedKernel, FailsAnAllocationWithItsOwnError) {
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
  expect_diagnosis([&] { cached.allocate(64); });
  expect_diagnosis([&] { cached.trim(); });
}
#endif

}  // namespace athanor::allocator_test
