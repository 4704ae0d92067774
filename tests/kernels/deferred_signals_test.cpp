// A signal that arrives while oneDNN multiplies does not touch its memory.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/time.h>

#include "autograd/matmul.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/onednn.h"
#include "tensor/tensor.h"

namespace athanor::deferred_signals_test {

const char *stack_begin = nullptr, *stack_end = nullptr;
volatile std::sig_atomic_t handled = 0, handled_elsewhere = 0;

void note_stack(int) {
  const char here = 0;
  if (&here < stack_begin || &here >= stack_end) handled_elsewhere = 1;
  handled = handled + 1;
}

// With sums of 1024 terms oneDNN's stack is in the heap nine tenths of the time.
struct Product {
  Tensor x = Tensor::zeros({32, 1024}), weight = Tensor::zeros({128, 1024});
  void run() const { linear(x, weight, {}, Activation::none, MatmulImpl::vendor); }
};

TEST(DeferredSignals, AHandlerRunsOnTheStackOfItsThread) {
  if (!cpu::has_onednn()) GTEST_SKIP() << "without oneDNN";
  cpu_context().set_threads(1);
  pthread_attr_t attributes;
  void* stack = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  ASSERT_EQ(pthread_attr_getstack(&attributes, &stack, &bytes), 0);
  pthread_attr_destroy(&attributes);
  stack_begin = static_cast<const char*>(stack);
  stack_end = stack_begin + bytes;

  const Product product;
  product.run();
  struct sigaction noting {};
  noting.sa_handler = note_stack;
  noting.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGALRM, &noting, nullptr), 0);
  const itimerval often{{0, 200}, {0, 200}}, never{};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  while (handled < 100 && handled_elsewhere == 0) product.run();
  setitimer(ITIMER_REAL, &never, nullptr);
  EXPECT_EQ(handled_elsewhere, 0);
}

/// Of this process, by the number the system gives them.
std::set<std::string> threads() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    found.insert(entry.path().filename());
  return found;
}

bool blocks(const std::string& thread, int signal) {
  std::ifstream status("/proc/self/task/" + thread + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1;
  }
  return false;
}

TEST(DeferredSignals, TheTeamOfOneDnnHandlesNone) {
  if (!cpu::has_onednn()) GTEST_SKIP() << "without oneDNN";
  const std::set<std::string> before = threads();
  cpu_context().set_threads(4);
  const Product product;
  for (int i = 0; i < 3; ++i) product.run();
  int started = 0;
  for (const std::string& thread : threads()) {
    if (before.contains(thread)) {
      EXPECT_FALSE(blocks(thread, SIGTERM)) << "this thread must handle signals";
      continue;
    }
    ++started;
    EXPECT_TRUE(blocks(thread, SIGTERM) && blocks(thread, SIGINT) && blocks(thread, SIGUSR1));
    EXPECT_FALSE(blocks(thread, SIGSEGV));
  }
  EXPECT_GT(started, 0);
}

}  // namespace athanor::deferred_signals_test
