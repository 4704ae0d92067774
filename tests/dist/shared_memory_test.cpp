// Ranks that share memory: here each is a thread with a mapping of its own.
#include "dist/transports/shared_memory.h"

#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dist/collectives/communicator.h"
#include "dist/collectives/wait.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"
#include "tests/support/collective_cases.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"

namespace athanor::shared_memory_test {

using namespace std::chrono_literals;
using dist::RankMemory;
using dist::Request;
using dist::SharedMemoryTransport;
using dist::Transport;

void run_sharing_ranks(int world, const std::function<void(Transport&)>& f, bool single_copy = true) {
  const RankMemory memory(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      cpu_context().set_threads(1);
      SharedMemoryTransport transport(std::make_shared<RankMemory>(::dup(memory.file()), world), rank,
                                      single_copy);
      f(transport);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::byte> bytes_of(std::size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed));
  return bytes;
}

void finish(Transport& transport, Request& request) {
  while (!transport.test(request)) std::this_thread::yield();
}

// Short ones through a slot, long ones in one copy or, as where the kernel allows none, in pieces.
TEST(SharedMemory, MessagesOfEverySizeArrive) {
  constexpr std::size_t kShort = SharedMemoryTransport::kShort;
  for (const bool single_copy : {true, false}) {
    run_sharing_ranks(
        2,
        [](Transport& transport) {
          for (const std::size_t count :
               {std::size_t{0}, std::size_t{1}, kShort, kShort + 1, 20 * kShort + 3, std::size_t{9} << 20}) {
            const int other = 1 - transport.rank();
            const std::vector<std::byte> mine = bytes_of(count, transport.rank());
            std::vector<std::byte> theirs(count);
            Request sent = transport.isend(other, 7, mine), received = transport.irecv(other, 7, theirs);
            finish(transport, received);
            finish(transport, sent);
            EXPECT_EQ(theirs, bytes_of(count, other)) << count;
          }
        },
        single_copy);
  }
}

// More messages than the ring has slots, of two tags, each received in the order in which it was sent.
TEST(SharedMemory, TagsAreKeptApartAndInOrder) {
  run_sharing_ranks(2, [](Transport& transport) {
    constexpr int kEach = 40;
    std::vector<std::vector<std::byte>> data;
    std::vector<Request> requests;
    for (int i = 0; i < 2 * kEach; ++i) data.push_back(bytes_of(i % 5 == 0 ? 40'000 : 100, i));
    if (transport.rank() == 0) {
      for (int i = 0; i < 2 * kEach; ++i)
        requests.push_back(transport.isend(1, i % 2, data[static_cast<std::size_t>(i)]));
    } else {
      std::vector<std::vector<std::byte>> got(data.size());
      for (const int tag : {1, 0}) {
        for (std::size_t i = static_cast<std::size_t>(tag); i < data.size(); i += 2) {
          got[i].resize(data[i].size());
          requests.push_back(transport.irecv(0, tag, got[i]));
        }
      }
      for (Request& one : requests) finish(transport, one);
      EXPECT_EQ(got, data);
    }
    for (Request& one : requests) finish(transport, one);
  });
}

TEST(SharedMemory, AMessageOfAnotherSizeIsAnError) {
  run_sharing_ranks(2, [](Transport& transport) {
    std::vector<std::byte> bytes(8);
    if (transport.rank() == 0) {
      Request sent = transport.isend(1, 3, bytes);
      finish(transport, sent);
    } else {
      Request received = transport.irecv(0, 3, std::span(bytes).first(4));
      EXPECT_ERROR(Error, finish(transport, received), "rank 1", "4", "rank 0", "8");
      transport.cancel(received);
    }
  });
}

TEST(SharedMemory, CollectivesAndTrainingAreThoseOfOtherNetworks) {
  for (const bool single_copy : {true, false}) {
    for (const int world : {2, 3, 4}) {
      for (const auto& check : {test::check_reductions, test::check_unequal_pieces, test::check_gathers,
                                test::check_restarts, test::check_broadcasts, test::check_all_ranks_agree,
                                test::check_rank_order_rounds_once, test::check_barriers})
        run_sharing_ranks(world, check, single_copy);
    }
  }
  run_sharing_ranks(2, test::check_zero1_equals_ddp);
  run_sharing_ranks(3, test::check_overlap_changes_nothing);
  run_sharing_ranks(2, test::check_ddp_equals_one_rank);
}

TEST(SharedMemory, ADuplicateIsANetworkOfItsOwn) {
  run_sharing_ranks(2, [](Transport& transport) {
    const std::unique_ptr<Transport> other = transport.duplicate();
    const int peer = 1 - transport.rank();
    std::vector<std::byte> here = bytes_of(100, 1), there = bytes_of(100, 2), a(100), b(100);
    Request requests[] = {transport.isend(peer, 0, here), other->isend(peer, 0, there)};
    Request second = other->irecv(peer, 0, b), first = transport.irecv(peer, 0, a);
    finish(*other, second);
    finish(transport, first);
    finish(transport, requests[0]);
    finish(*other, requests[1]);
    EXPECT_EQ(a, here);
    EXPECT_EQ(b, there);
  });
}

TEST(SharedMemory, ALostRankIsKnownWhoeverIsAwaited) {
  RankMemory memory(3);
  const auto shared = std::make_shared<RankMemory>(::dup(memory.file()), 3);
  SharedMemoryTransport transport(shared, 0), ended(shared, 1);
  std::vector<std::byte> bytes(8);
  Request last = ended.isend(0, 0, bytes), arrives = transport.irecv(1, 0, bytes),
          never = transport.irecv(1, 0, bytes), other = transport.irecv(2, 0, bytes);
  EXPECT_FALSE(transport.test(other));
  memory.set_ended(1, 0);  // which the others may not need any more
  EXPECT_FALSE(transport.test(other));
  EXPECT_TRUE(transport.test(arrives));
  EXPECT_ERROR(PeerLostError, transport.test(never), "rank 1");
  EXPECT_EQ(transport.lost(), "");
  memory.set_ended(2, 137);
  memory.set_ended(1, 2);  // a consequence
  EXPECT_TRUE(test::names(transport.lost(), {"rank 2", "signal 9"}));
  EXPECT_ERROR(PeerLostError, transport.test(other), "rank 2", "signal 9", "rank 0");
  for (Request* one : {&last, &never, &other}) transport.cancel(*one);
}

TEST(SharedMemory, RefusesFilesThatMayNotBeLarge) {
  const pid_t other = ::fork();  // no process may raise its limit again
  if (other == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      const RankMemory memory(2);
    } catch (const BackendError& error) {
      ::_exit(test::names(error.what(), {"--devices 2", "ulimit -f"}) ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

}  // namespace athanor::shared_memory_test
