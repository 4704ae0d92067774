#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "simt/emulator/nccl/communicators.h"
#include "simt/emulator/nccl/half.h"
#include "tensor/half.h"
#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

// The stand-in for NCCL. Nothing it does blocks, so that one thread can be all ranks.

namespace simt::test {
namespace {

/// A rank: a device, a stream there, some memory.
struct Rank {
  explicit Rank(int on, std::size_t count = 8) : device(on), set(cudaSetDevice(on)), x(count), y(count) {}

  /// A kernel on its stream.
  cudaError_t fill(std::int64_t n, float value, float* to) {
    cudaSetDevice(device);
    return test::fill(n, value, to, stream);
  }

  int device;
  cudaError_t set;
  TestStream stream;
  OnDevice<float> x, y;
  ncclComm_t comm = nullptr;
};

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

/// Asks until a communicator is no longer in progress.
ncclResult_t settle(ncclComm_t comm) {
  for (int asked = 0; asked < 10; ++asked) {
    if (const ncclResult_t state = state_of(comm); state != ncclInProgress) return state;
  }
  return ncclInProgress;
}

struct World {
  explicit World(int size, bool same_device = false) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(std::make_unique<Rank>(same_device ? 0 : rank));
      EXPECT_EQ(ncclCommInitRankConfig(&ranks.back()->comm, size, id, rank, &config), ncclInProgress);
      if (rank + 1 < size) {
        EXPECT_EQ(settle(ranks[0]->comm), ncclInProgress) << "before all have come";
      }
    }
    if (!same_device) expect_settled();
  }
  ~World() {
    for (auto& rank : ranks) ncclCommAbort(rank->comm);
    for (int device = 0; device < 3; ++device) {
      cudaSetDevice(device);
      cudaDeviceSynchronize();
    }
    cudaSetDevice(0);
  }
  Rank& operator[](std::size_t rank) { return *ranks[rank]; }
  void expect_settled() {
    for (auto& rank : ranks) EXPECT_EQ(settle(rank->comm), ncclSuccess);
  }

  std::vector<std::unique_ptr<Rank>> ranks;
};

ncclResult_t send(Rank& rank, int to, const float* from, std::size_t count = 4) {
  return ncclSend(from, count, ncclFloat32, to, rank.comm, rank.stream);
}
ncclResult_t receive(Rank& rank, int from, float* to, std::size_t count = 4) {
  return ncclRecv(to, count, ncclFloat32, from, rank.comm, rank.stream);
}

/// A call that was put into the rank's stream.
void expect_queued(Rank& rank, ncclResult_t result) {
  EXPECT_EQ(result, ncclInProgress);
  EXPECT_EQ(settle(rank.comm), ncclSuccess);
}

bool over(Rank& rank) {
  for (int asked = 0; asked < 50; ++asked) {
    if (cudaStreamQuery(rank.stream) == cudaSuccess) return true;
  }
  cudaGetLastError();
  return false;
}

std::vector<float> first(const std::vector<float>& values) {
  return {values[0], values[1], values[2], values[3]};
}

TEST(Nccl, MessagesPassWhenBothEndsAreAtThem) {
  in_all_orders([] {
    World world(2);
    EXPECT_OK(world[0].fill(4, 7.0f, world[0].x.data()));
    expect_queued(world[0], send(world[0], 1, world[0].x.data()));
    EXPECT_FALSE(over(world[0])) << "nobody has asked for it";
    expect_queued(world[1], receive(world[1], 0, world[1].y.data()));
    EXPECT_TRUE(over(world[1]));
    EXPECT_TRUE(over(world[0]));
    EXPECT_EQ(first(world[1].y.read()), std::vector<float>(4, 7));
  });
}

TEST(Nccl, AWaitRunsWhatTheOtherRankHasQueued) {
  in_all_orders([] {
    World world(2);
    EXPECT_OK(world[0].fill(4, 3.0f, world[0].x.data()));
    EXPECT_EQ(send(world[0], 1, world[0].x.data()), ncclInProgress);
    EXPECT_EQ(receive(world[1], 0, world[1].y.data()), ncclInProgress);
    world.expect_settled();
    EXPECT_OK(cudaStreamSynchronize(world[1].stream));
    EXPECT_EQ(first(world[1].y.read()), std::vector<float>(4, 3));
  });
}

TEST(Nccl, AGroupIsOnePieceOfWork) {
  in_all_orders([] {
    World world(2);
    for (auto& rank : world.ranks) {
      const int other = rank == world.ranks[0] ? 1 : 0;
      EXPECT_OK(rank->fill(4, static_cast<float>(other), rank->x.data()));
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(send(*rank, other, rank->x.data()), ncclSuccess);
      EXPECT_EQ(receive(*rank, other, rank->y.data()), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
      EXPECT_EQ(settle(rank->comm), ncclSuccess);
    }
    EXPECT_TRUE(over(world[0]) && over(world[1]));
    EXPECT_EQ(first(world[0].y.read()), std::vector<float>(4, 0));
    EXPECT_EQ(first(world[1].y.read()), std::vector<float>(4, 1));
  });
}

// Both send first, one thing after the other: each waits for the other to receive.
TEST(Nccl, WithoutAGroupBothWaitForEver) {
  in_all_orders([] {
    World world(2);
    for (auto& rank : world.ranks) {
      const int other = rank == world.ranks[0] ? 1 : 0;
      expect_queued(*rank, send(*rank, other, rank->x.data()));
      expect_queued(*rank, receive(*rank, other, rank->y.data()));
    }
    EXPECT_FALSE(over(world[0]) || over(world[1]));
  });
}

TEST(Nccl, MessagesBetweenTwoRanksMeetInTheirOrder) {
  in_all_orders([] {
    World world(2);
    EXPECT_OK(world[0].fill(4, 1.0f, world[0].x.data()));
    EXPECT_OK(world[0].fill(4, 2.0f, world[0].x.data() + 4));
    ncclGroupStart();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(send(world[0], 1, world[0].x.data() + 4 * i), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    ncclGroupStart();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(receive(world[1], 0, world[1].y.data() + 4 * i), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    world.expect_settled();
    EXPECT_TRUE(over(world[1]));
    EXPECT_EQ(world[1].y.read(), (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
  });
}

// What is queued before the communicator says that the group is in its stream comes before the group.
TEST(Nccl, AGroupInProgressIsNotInItsStream) {
  in_all_orders([] {
    World world(2);
    EXPECT_OK(world[0].fill(4, 1.0f, world[0].x.data()));
    EXPECT_EQ(send(world[0], 1, world[0].x.data()), ncclInProgress);
    EXPECT_OK(world[0].fill(4, 2.0f, world[0].x.data()));  // too early
    EXPECT_EQ(send(world[0], 1, world[0].x.data()), ncclInvalidUsage);
    EXPECT_TEXT(ncclGetLastError(world[0].comm), "ncclCommGetAsyncError");
    EXPECT_EQ(settle(world[0].comm), ncclSuccess);
    expect_queued(world[1], receive(world[1], 0, world[1].y.data()));
    EXPECT_TRUE(over(world[1]));
    EXPECT_EQ(first(world[1].y.read()), std::vector<float>(4, 2));
  });
}

TEST(Nccl, GroupsOfACommunicatorRunInTheirOrderOnAnyStream) {
  in_all_orders([] {
    World world(3);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    const TestStream other;
    expect_queued(world[0], send(world[0], 1, world[0].x.data()));
    EXPECT_EQ(ncclSend(world[0].x.data(), 4, ncclFloat32, 2, world[0].comm, other), ncclInProgress);
    EXPECT_EQ(settle(world[0].comm), ncclSuccess);
    expect_queued(world[2], receive(world[2], 0, world[2].y.data()));
    EXPECT_FALSE(over(world[2])) << "rank 0 is still at the message before";
    expect_queued(world[1], receive(world[1], 0, world[1].y.data()));
    EXPECT_TRUE(over(world[2]));
    EXPECT_OK(cudaStreamSynchronize(other));
  });
}

TEST(Nccl, CommonCalls) {
  in_all_orders([] {
    World world(3);
    const auto each = [&](const auto& call) {
      for (std::size_t r = 0; r < 3; ++r) {
        Rank& rank = world[r];
        for (int i = 0; i < 6; ++i)
          EXPECT_OK(rank.fill(1, static_cast<float>(10 * i + static_cast<int>(r)), rank.x.data() + i));
        expect_queued(rank, call(rank));
      }
      for (auto& rank : world.ranks) EXPECT_OK(cudaStreamSynchronize(rank->stream));
    };
    each([](Rank& rank) {
      return ncclAllReduce(rank.x.data(), rank.y.data(), 6, ncclFloat32, ncclSum, rank.comm, rank.stream);
    });
    for (auto& rank : world.ranks) EXPECT_EQ(rank->y.read()[5], 153);
    each([](Rank& rank) {
      return ncclReduceScatter(rank.x.data(), rank.y.data(), 2, ncclFloat32, ncclMax, rank.comm, rank.stream);
    });
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(world[r].y.read()[1], static_cast<float>(20 * r + 12));
    each([](Rank& rank) {
      return ncclAllGather(rank.x.data() + 1, rank.y.data(), 2, ncclFloat32, rank.comm, rank.stream);
    });
    for (auto& rank : world.ranks) {
      const auto y = rank->y.read();
      EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 6), (std::vector<float>{10, 20, 11, 21, 12, 22}));
    }
  });
}

// Pieces of unequal sizes: NCCL has no call for them, but a group of calls.
TEST(Nccl, CommonCallsToARoot) {
  in_all_orders([] {
    World world(3);
    for (std::size_t r = 0; r < 3; ++r) {
      Rank& rank = world[r];
      EXPECT_OK(rank.fill(8, static_cast<float>(r + 1), rank.x.data()));
      EXPECT_OK(rank.fill(8, -1.0f, rank.y.data()));
      ncclGroupStart();
      EXPECT_EQ(ncclReduce(rank.x.data(), rank.x.data(), 3, ncclFloat32, ncclSum, 2, rank.comm, rank.stream),
                ncclSuccess);
      EXPECT_EQ(ncclReduce(rank.x.data() + 3, rank.x.data() + 3, 1, ncclFloat32, ncclMax, 0, rank.comm,
                           rank.stream),
                ncclSuccess);
      EXPECT_EQ(ncclBroadcast(rank.x.data() + 4, rank.y.data(), 2, ncclFloat32, 1, rank.comm, rank.stream),
                ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
      EXPECT_EQ(settle(rank.comm), ncclSuccess);
      if (r < 2) {
        EXPECT_FALSE(over(rank)) << "not all have come";
      }
    }
    for (auto& rank : world.ranks) EXPECT_OK(cudaStreamSynchronize(rank->stream));
    for (std::size_t r = 0; r < 3; ++r) {
      const auto mine = static_cast<float>(r + 1);
      EXPECT_EQ(first(world[r].x.read()), (r == 2   ? std::vector<float>{6, 6, 6, 3}
                                           : r == 0 ? std::vector<float>{1, 1, 1, 3}
                                                    : std::vector<float>(4, mine)));
      EXPECT_EQ(first(world[r].y.read()), (std::vector<float>{2, 2, -1, -1}));
    }
    EXPECT_EQ(ncclBroadcast(world[0].x.data(), world[0].y.data(), 2, ncclFloat32, 3, world[0].comm,
                            world[0].stream),
              ncclInvalidArgument);
  });
}

// Every pattern of 16 bits, and every float that is near one: ties, and the next on either side.
template <class Mine, class Theirs> void expect_same_conversions() {
  for (unsigned pattern = 0; pattern < 65536; ++pattern) {
    Mine mine;
    Theirs theirs;
    mine.bits = theirs.bits = static_cast<std::uint16_t>(pattern);
    const auto value = static_cast<float>(mine), expected = static_cast<float>(theirs);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << pattern;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected)) << pattern;
    mine.bits = static_cast<std::uint16_t>(pattern + 1);
    const float tie = value + (static_cast<float>(mine) - value) / 2;
    for (const float near : {value, tie, std::nextafter(tie, INFINITY), std::nextafter(tie, -INFINITY),
                             std::nextafter(value, INFINITY), std::nextafter(value, -INFINITY)}) {
      if (std::isnan(near)) continue;
      ASSERT_EQ(Mine(near).bits, Theirs(near).bits) << pattern << ' ' << near;
    }
  }
  ASSERT_TRUE(std::isnan(static_cast<float>(Mine(NAN))));
}

TEST(Nccl, RoundsNumbersOfSixteenBitsAsTheLibraryDoes) {
  expect_same_conversions<Float16, athanor::Half>();
  expect_same_conversions<BFloat16, athanor::BFloat16>();
}

TEST(Nccl, AnAbortEndsTheGroupsOfItsOwnRank) {
  in_all_orders([] {
    World world(2);
    EXPECT_EQ(receive(world[0], 1, world[0].y.data()), ncclInProgress);
    EXPECT_EQ(receive(world[1], 0, world[1].y.data()), ncclInProgress);
    world.expect_settled();
    EXPECT_FALSE(over(world[0]) || over(world[1]));
    EXPECT_EQ(ncclCommAbort(world[0].comm), ncclSuccess);
    EXPECT_TRUE(over(world[0]));
    EXPECT_FALSE(over(world[1]));
    EXPECT_EQ(live_communicators(), 1);
  });
}

TEST(Nccl, MismatchedSizesAreAnError) {
  World world(2);
  EXPECT_EQ(send(world[0], 1, world[0].x.data(), 3), ncclInProgress);
  EXPECT_EQ(receive(world[1], 0, world[1].y.data(), 4), ncclInProgress);
  world.expect_settled();
  EXPECT_FALSE(over(world[1]));
  EXPECT_EQ(state_of(world[0].comm), ncclInvalidUsage);
  for (const char* value : {"rank 0", "12 bytes", "rank 1", "16"})
    EXPECT_TEXT(ncclGetLastError(world[1].comm), value);
}

TEST(Nccl, RejectsWhatNcclRejects) {
  World world(2, true);
  EXPECT_EQ(settle(world[0].comm), ncclInvalidUsage);
  EXPECT_TRUE(says(ncclGetLastError(world[0].comm), "Duplicate GPU detected"));
  World good(2);
  float host[4] = {};
  EXPECT_EQ(send(good[0], 1, host), ncclInvalidArgument);
  EXPECT_EQ(send(good[0], 1, good[0].x.data() + 6), ncclInvalidArgument) << "beyond the end";
  EXPECT_EQ(send(good[0], 1, good[1].x.data()), ncclInvalidArgument) << "of another device";
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(ncclCommDestroy(good[0].comm), ncclInvalidUsage) << "not finalized";
  EXPECT_EQ(ncclCommFinalize(good[0].comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(good[0].comm), ncclSuccess);
}

TEST(Nccl, MemoryFreedUnderAMessageIsAFault) {
  World world(2);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    const OnDevice<float> gone(4);
    expect_queued(world[0], send(world[0], 1, gone.data()));
  }
  const std::string text = diagnosis();
  EXPECT_TEXT(text, "cudaFree");
  EXPECT_TEXT(text, "16 bytes");
}

#if defined(SIMT_RACE)
TEST(Nccl, AMessageThatNoEventOrdersIsARace) {
  World world(2);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  const TestStream compute;
  EXPECT_OK(fill(4, 1.0f, world[0].x.data(), compute));
  EXPECT_EQ(send(world[0], 1, world[0].x.data()), ncclInProgress);
  EXPECT_EQ(receive(world[1], 0, world[1].y.data()), ncclInProgress);
  world.expect_settled();
  EXPECT_TEXT(diagnosis(), "race between streams");
}
#endif

}  // namespace
}  // namespace simt::test
