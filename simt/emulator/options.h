#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace simt {

/// Which of the things that may run next does. CUDA promises nothing about it, so neither does the emulator:
/// results must be the same in every order.
struct Order {
  enum class Kind : std::uint8_t { forward, reverse, random };
  Kind kind = Kind::forward;
  std::uint64_t seed = 1;
};

/// When asynchronous work of kernels is done: as late as it may be, or at once.
enum class Async : std::uint8_t { late, at_issue };

/// Set once by the environment, before the first call; tests may change the orders between launches.
struct Options {
  Order threads;                                    ///< SIMT_ORDER=forward|reverse|random[:seed]; blocks too
  Order streams;                                    ///< SIMT_STREAM_ORDER, the same
  Order sums;                                       ///< SIMT_SUMS, the same: of tensor cores
  Async async = Async::late;                        ///< SIMT_ASYNC=late|early
  int devices = 1;                                  ///< SIMT_DEVICES
  std::size_t memory_bytes = std::size_t{4} << 30;  ///< SIMT_MEMORY, of each device
  std::size_t pinned_bytes = SIZE_MAX;              ///< SIMT_PINNED, of page-locked memory
  std::string error;                                ///< what is wrong with the environment; else empty
};
Options& options();
Options options_from_environment();

/// Small and quick; its numbers decide orders, nothing else.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Below `bound`, which is small against 2^64.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace simt
