#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

// Only in the race build.

namespace simt::test {
namespace {

class RaceFinds : public testing::TestWithParam<Planted> {};

TEST_P(RaceFinds, ItInEveryOrderAndSaysWhere) {
  expect_found(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Race, RaceFinds,
    testing::Values(
        BUG(uninitialised_dynamic, "thread (9,0,0) of block (0,0,0)", "shared memory",
            "@uninitialised_dynamic"),
        BUG(uninitialised_static, "thread (9,0,0) of block (0,0,0)", "shared memory",
            "@uninitialised_static"),
        BUG(left_by_another_block, "thread (9,0,0) of block (1,0,0)", "shared memory",
            "@left_by_another_block"),
        BUG(dynamic_race, "race in shared memory", "barrier", "@dynamic_race_write", "@dynamic_race_read")
            .by([](unsigned a, unsigned b) { return a + b == 63; }),
        BUG(two_writers, "race in shared memory", "@two_writers").by([](unsigned a, unsigned b) {
          return a != b;
        }),
        BUG(bytes_race, "race in shared memory", "__syncwarp", "@bytes_race_write", "@bytes_race_read")
            .by([](unsigned a, unsigned b) { return (a ^ b) == 1; }),
        BUG(shared_atomic, "race in shared memory", "atomically", "@shared_atomic_write",
            "@shared_atomic_add")
            .by([](unsigned a, unsigned b) { return (a == 0) != (b == 0); }),
        BUG(warps_of_a_block, "race in global memory", "barrier", "@warps_of_a_block_write",
            "@warps_of_a_block_read")
            .by([](unsigned a, unsigned b) { return (a ^ b) == 32; }),
        BUG(missing_barrier, "race in shared memory", "barrier", "@missing_barrier_write",
            "@missing_barrier_read")
            .by([](unsigned a, unsigned b) { return a + b == 63; }),
        BUG(missing_second_barrier, "race in shared memory", "barrier", "@missing_second_barrier_write",
            "@missing_second_barrier_read")
            .by([](unsigned a, unsigned b) { return a != b && (a % 32 == 0 || b % 32 == 0); }),
        BUG(barrier_in_helper, "barrier divergence", "thread (0,0,0)", "@barrier_in_helper",
            "@barrier_in_helper_then", "thread (40,0,0)", "@barrier_in_helper_else"),
        BUG(barrier_in_function, "barrier divergence", "thread (0,0,0)", "@barrier_in_function",
            "@barrier_in_function_then", "thread (40,0,0)", "@barrier_in_function_else"),
        BUG(shuffle_in_helper, "warp collective mismatch", "thread (0,0,0)", "@shuffle_in_helper",
            "@shuffle_in_helper_then", "thread (16,0,0)", "@shuffle_in_helper_else"),
        BUG(missing_syncwarp, "race in shared memory", "__syncwarp", "@missing_syncwarp")
            .by([](unsigned a, unsigned b) { return (a ^ b) == 1; }),
        BUG(shuffle_is_no_barrier, "race in shared memory", "__syncwarp", "@shuffle_is_no_barrier_write",
            "@shuffle_is_no_barrier_read")
            .by([](unsigned a, unsigned b) { return (a ^ b) == 1; }),
        BUG(vote_is_no_barrier, "race in shared memory", "__syncwarp", "@vote_is_no_barrier_write",
            "@vote_is_no_barrier_read")
            .by([](unsigned a, unsigned b) { return (a ^ b) == 1; }),
        BUG(syncwarp_across_warps, "race in shared memory", "barrier", "@syncwarp_across_warps")
            .by([](unsigned a, unsigned b) { return (a ^ b) == 32; }),
        BUG(partial_mask, "race in shared memory", "__syncwarp", "@partial_mask")
            .by([](unsigned a, unsigned b) { return (a ^ b) == 16; }),
        BUG(plain_add, "race in global memory", "@plain_add").by([](unsigned a, unsigned b) {
          return a != b && a < 32 && b < 32;
        }),
        BUG(two_blocks_one_cell, "race in global memory", "thread (5,0,0)", "@two_blocks_one_cell"),
        BUG(atomic_and_plain, "race in global memory", "atomically", "@atomic_and_plain_write",
            "@atomic_and_plain_add")
            .by([](unsigned a, unsigned b) { return (a == 0) != (b == 0); }),
        BUG(blocks_one_variable, "race in global memory", "thread (5,0,0)", "@blocks_one_variable"),
        BUG(memory_of_the_host, "block (0,0,0)", "@memory_of_the_host").by([](unsigned first, unsigned) {
          const auto order = options().threads.kind;
          return order == Order::Kind::random || first == (order == Order::Kind::forward ? 0 : 63);
        })),
    name_of);

TEST(Race, GoodKernelsAreClean) {
  in_all_orders([] {
    const OnDevice<float> x(std::vector<float>(4096, 0.5f)), y(std::vector<float>(4096, 0.0f));
    const OnDevice<unsigned> words(8 * 32);
    const OnDevice<int> ints(std::vector<int>(4096, 0));
    const OnDevice<std::uint8_t> small(200);
    EXPECT_OK(axpy(4096, 2.0f, x.data(), y.data(), nullptr));
    EXPECT_OK(row_sum(4, 1024, x.data(), y.data(), nullptr));
    EXPECT_OK(softmax(4, 1024, x.data(), y.data(), nullptr));
    EXPECT_OK(matmul(40, 50, 60, x.data(), x.data(), y.data(), nullptr));
    EXPECT_OK(warp_functions(words.data(), nullptr));
    EXPECT_OK(block_votes(ints.data(), nullptr));
    EXPECT_OK(count(8, 96, ints.data(), nullptr));
    EXPECT_OK(neighbours(y.data(), nullptr));
    EXPECT_OK(half_warps(y.data(), nullptr));
    EXPECT_OK(half_then_all(words.data(), nullptr));
    EXPECT_OK(shuffle_and_syncwarp(y.data(), nullptr));
    EXPECT_OK(two_ways(y.data(), nullptr));
    EXPECT_OK(bytes(small.data(), nullptr));
    EXPECT_OK(order_of_threads(5, 70, ints.data(), ints.data() + 4000, nullptr));
    EXPECT_EQ(diagnosis(), "");
  });
}

// ---- between streams

struct TwoStreams {
  TestStream a, b;
  TestEvent event;
  OnDevice<float> x{std::vector<float>(64, 1.0f)}, y{std::vector<float>(64, 1.0f)};

  void b_waits_for_a() {
    EXPECT_OK(cudaEventRecord(event, a));
    EXPECT_OK(cudaStreamWaitEvent(b, event));
  }
};

TEST(StreamRace, AReaderThatDoesNotWaitForItsWriter) {
  in_all_orders([] {
    TwoStreams s;
    EXPECT_OK(fill(64, 2.0f, s.x.data(), s.a));
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), s.b));
    const std::string text = diagnosis();
    EXPECT_TEXT(text, "race between streams");
    EXPECT_TEXT(text, "kernel fill");
    EXPECT_TEXT(text, "kernel axpy");
    EXPECT_TEXT(text, marked_line("good.cu", "fill"));
    EXPECT_TEXT(text, marked_line("good.cu", "axpy"));
    EXPECT_TEXT(text, "event");

    EXPECT_OK(fill(64, 2.0f, s.x.data(), s.a));
    s.b_waits_for_a();
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), s.b));
    EXPECT_EQ(diagnosis(), "");
  });
}

TEST(StreamRace, ABufferReusedBeforeItsReaderIsDone) {
  in_all_orders([] {
    TwoStreams s;
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), s.a));
    EXPECT_OK(fill(64, 2.0f, s.x.data(), s.b));
    const std::string text = diagnosis();
    EXPECT_TEXT(text, "race between streams");
    EXPECT_TEXT(text, marked_line("good.cu", "fill"));
    EXPECT_TEXT(text, marked_line("good.cu", "axpy"));
  });
}

// Each reads with two warps, so that there are more readers than the detector keeps.
TEST(StreamRace, AWriterThatForgetsOneOfThreeReaders) {
  in_all_orders([] {
    for (int forgotten = 0; forgotten < 3; ++forgotten) {
      const TestStream readers[3], writer;
      const TestEvent done[3];
      const OnDevice<float> x(std::vector<float>(1, 1.0f)), y0(64), y1(64), y2(64);
      const float* const to[] = {y0.data(), y1.data(), y2.data()};
      for (int i = 0; i < 3; ++i) {
        EXPECT_OK(broadcast(x.data(), const_cast<float*>(to[i]), readers[i]));
        EXPECT_OK(cudaEventRecord(done[i], readers[i]));
        if (i == forgotten) continue;
        EXPECT_OK(cudaStreamWaitEvent(writer, done[i]));
      }
      EXPECT_OK(fill(1, 2.0f, x.data(), writer));
      const std::string text = diagnosis();
      EXPECT_TEXT(text, "race between streams");
      EXPECT_TEXT(text, marked_line("good.cu", "fill"));
      EXPECT_TEXT(text, marked_line("good.cu", "broadcast"));
    }
  });
}

TEST(StreamRace, TwoReadersAreNoRace) {
  in_all_orders([] {
    TwoStreams s;
    const OnDevice<float> z(std::vector<float>(64, 0.0f));
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), s.a));
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), z.data(), s.b));
    EXPECT_EQ(diagnosis(), "");
  });
}

TEST(StreamRace, CopiesAndFillsAreNamedWithTheirLine) {
  in_all_orders([] {
    TwoStreams s;
    const Pinned<float> host(64);
    for (std::size_t i = 0; i < 64; ++i) host[i] = 1;
    const std::string line = "race_test.cpp:" + std::to_string(__LINE__ + 1);
    EXPECT_OK(cudaMemcpyAsync(s.x.data(), host.data(), 256, cudaMemcpyHostToDevice, s.a));
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), s.b));
    const std::string text = diagnosis();
    EXPECT_TEXT(text, "race between streams");
    EXPECT_TEXT(text, "copy of 256 bytes from host to device");
    EXPECT_TEXT(text, line);

    EXPECT_OK(cudaMemsetAsync(s.x.data(), 0, 256, s.a));
    EXPECT_OK(fill(64, 2.0f, s.x.data(), s.b));
    EXPECT_TEXT(diagnosis(), "memset of 256 bytes");
  });
}

TEST(StreamRace, AnEventRecordedTooEarlyOrdersNothing) {
  in_all_orders([] {
    TwoStreams s;
    EXPECT_OK(cudaEventRecord(s.event, s.a));
    EXPECT_OK(fill(64, 2.0f, s.x.data(), s.a));
    EXPECT_OK(cudaStreamWaitEvent(s.b, s.event));
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), s.b));
    EXPECT_TEXT(diagnosis(), "race between streams");
  });
}

TEST(StreamRace, AHostThatWaitedInBetweenOrders) {
  in_all_orders([] {
    TwoStreams s;
    EXPECT_OK(fill(64, 2.0f, s.x.data(), s.a));
    EXPECT_OK(cudaStreamSynchronize(s.a));
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), s.b));
    EXPECT_OK(cudaEventRecord(s.event, s.b));
    while (cudaEventQuery(s.event) == cudaErrorNotReady) {
    }
    cudaGetLastError();
    EXPECT_OK(fill(64, 3.0f, s.x.data(), s.a));
    EXPECT_EQ(diagnosis(), "");
  });
}

TEST(StreamRace, OrderIsPassedOnThroughAThirdStream) {
  in_all_orders([] {
    TwoStreams s;
    const TestStream c;
    const TestEvent second;
    EXPECT_OK(fill(64, 2.0f, s.x.data(), s.a));
    s.b_waits_for_a();
    EXPECT_OK(cudaEventRecord(second, s.b));
    EXPECT_OK(cudaStreamWaitEvent(c, second));
    EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), c));
    EXPECT_EQ(diagnosis(), "");
  });
}

TEST(StreamRace, BranchesOfAGraphAreStreamsToo) {
  in_all_orders([] {
    for (const bool shared_output : {false, true}) {
      TwoStreams s;
      const TestEvent fork, join;
      const OnDevice<float> z(std::vector<float>(64, 0.0f));
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      EXPECT_OK(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
      EXPECT_OK(fill(64, 1.0f, s.x.data(), s.a));
      EXPECT_OK(cudaEventRecord(fork, s.a));
      EXPECT_OK(cudaStreamWaitEvent(s.b, fork));
      EXPECT_OK(axpy(64, 1.0f, s.x.data(), s.y.data(), s.a));
      EXPECT_OK(axpy(64, 1.0f, s.x.data(), shared_output ? s.y.data() : z.data(), s.b));
      EXPECT_OK(cudaEventRecord(join, s.b));
      EXPECT_OK(cudaStreamWaitEvent(s.a, join));
      EXPECT_OK(axpy(64, 1.0f, z.data(), s.y.data(), s.a));
      EXPECT_OK(cudaStreamEndCapture(s.a, &graph));
      EXPECT_OK(cudaGraphInstantiate(&exec, graph));
      EXPECT_OK(cudaGraphLaunch(exec, s.a));
      EXPECT_OK(cudaGraphLaunch(exec, s.a));
      const std::string text = diagnosis();
      if (shared_output) {
        EXPECT_TEXT(text, "race between streams");
      } else {
        EXPECT_EQ(text, "");
      }
      EXPECT_OK(cudaGraphExecDestroy(exec));
      EXPECT_OK(cudaGraphDestroy(graph));
    }
  });
}

TEST(StreamRace, MemoryThatWasFreedHasNoHistory) {
  TwoStreams s;
  for (int i = 0; i < 10; ++i) {
    float* memory = nullptr;
    EXPECT_OK(cudaMalloc(&memory, 256));
    EXPECT_OK(fill(64, 2.0f, memory, i % 2 == 0 ? s.a : s.b));
    EXPECT_OK(cudaStreamSynchronize(i % 2 == 0 ? s.a : s.b));
    EXPECT_OK(cudaFree(memory));
  }
  EXPECT_EQ(diagnosis(), "");
}

}  // namespace
}  // namespace simt::test
