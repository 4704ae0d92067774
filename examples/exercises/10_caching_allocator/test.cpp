#include <cstdint>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "cache.h"
#include "device.h"

namespace {

TEST(Cache, AsksTheDeviceOnceForASize) {
  Device device(1 << 20);
  Cache cache(device);
  for (int step = 0; step < 100; ++step) {
    const std::int64_t a = cache.allocate(4096, 0), b = cache.allocate(4096, 0), c = cache.allocate(8192, 0);
    ASSERT_NE(a, b) << "two blocks that are in use at the same time must differ";
    ASSERT_GE(device.size_of(c), 8192) << "the block is smaller than what was asked for";
    for (const std::int64_t block : {a, b, c}) cache.release(block, 0);
  }
  EXPECT_EQ(device.allocations, 3) << "every step asked the device again: freed blocks are not used again";
}

TEST(Cache, RoundsSizesUp) {
  Device device(1 << 20);
  Cache cache(device);
  for (std::int64_t bytes = 513; bytes <= 1024; ++bytes) cache.release(cache.allocate(bytes, 0), 0);
  EXPECT_EQ(device.allocations, 1) << "513 to 1,024 bytes are one size of block";
  const std::int64_t block = cache.allocate(512, 0);
  EXPECT_EQ(device.size_of(block), 512) << "a multiple of 512 needs no more";
}

TEST(Cache, WaitsForOtherStreams) {
  Device device(1 << 20);
  Cache cache(device);
  const std::int64_t a = cache.allocate(4096, 1);
  device.work(1);
  cache.release(a, 1);
  EXPECT_NE(cache.allocate(4096, 2), a)
      << "stream 2 got a block that queued work of stream 1 still uses: both would write to it";
  EXPECT_EQ(cache.allocate(4096, 1), a)
      << "on the same stream it may be used at once: new work is queued behind the old";
  device.work(1);
  cache.release(a, 1);
  device.run_all();
  EXPECT_EQ(cache.allocate(4096, 2), a)
      << "the work of stream 1 is done, so that any stream may have the block";
  device.work(2);
  cache.release(a, 2);
  EXPECT_NE(cache.allocate(4096, 1), a)
      << "the block belongs to the stream that used it last, not to the one that first asked for it";
}

TEST(Cache, NeverWaitsForTheDevice) {
  Device device(1 << 20);
  Cache cache(device);
  for (int step = 0; step < 10; ++step) {
    for (int stream = 0; stream < 3; ++stream) {
      const std::int64_t block = cache.allocate(1000 * (stream + 1), stream);
      device.work(stream);
      cache.release(block, stream);
    }
  }
  EXPECT_EQ(device.waits, 0) << "the host waited for the device, in every step";
  EXPECT_EQ(device.frees, 0) << "a free waits for the device, too: keep the blocks";
}

TEST(Cache, EmptiesOnlyWhenMemoryIsShort) {
  Device device(10 * 512);
  Cache cache(device);
  std::vector<std::int64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(cache.allocate(512, 0));
  for (const std::int64_t block : blocks) cache.release(block, 0);
  EXPECT_EQ(device.frees, 0) << "memory is not short yet";
  const std::int64_t large = cache.allocate(9 * 512, 0);
  EXPECT_EQ(device.size_of(large), 9 * 512) << "after the cache was emptied there is room for it";
  EXPECT_EQ(device.frees, 8) << "all cached blocks are freed";
  EXPECT_THROW(cache.allocate(2 * 512, 0), std::bad_alloc) << "then it does not fit";
  EXPECT_NO_THROW(cache.release(cache.allocate(512, 0), 0))
      << "a failed allocation must leave the cache usable";
}

}  // namespace
