#pragma once

#include <functional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/support/roof.h"
#include "tensor/tensor.h"

// What every benchmark shares: ids, a check before the clock starts, and one set of columns.
//
//   void athanor::bench::register_all() {
//     add({"relu", "fwd", DType::f32, "1048576", "athanor"}, {.bytes = 8e6}, [] { ...; return Prepared{...};
//     });
//   }

namespace athanor::bench {

/// Names a row: `op/dir/dtype/device/shape/impl`. dir is fwd, bwd or step; impl tells ways to do one thing
/// apart.
struct Id {
  std::string op;
  std::string dir;
  DType dtype = DType::f32;
  std::string shape;
  std::string impl = "athanor";
  Device device = kCpu;

  std::string str() const;
};

/// What one run moves (reads and writes, each byte once) and computes; 0 leaves the column out.
struct Work {
  double bytes = 0;
  double flops = 0;
  double elements = 0;          ///< for a column of bytes per element
  double (*peak)() = fma_peak;  ///< that `flops` are held against
};

/// A case made ready: its tensors are alive in `run`, and its result has been compared with a reference.
struct Prepared {
  std::function<void()> run;
  double max_error = 0;
  double tolerance = 0;  ///< a larger max_error (or NaN) makes the row an error instead of a time
};

/// Adds a row for the CPU. `prepare` is called when its turn comes; what it made is dropped before the next
/// row. (A row for a GPU: bench/support/device_case.h.)
void add(const Id& id, const Work& work, std::function<Prepared()> prepare);

/// Fills the columns of a row: median_us, p10_us, p90_us, GB/s and GFLOP/s (at the median), B/element,
/// max_err, and `roof_%`, the larger part of its roofs that the median reaches, whose name becomes the row's
/// label.
void report(benchmark::State& state, const Work& work, const Roofs& roofs, std::vector<double>& seconds,
            double max_error);

struct WorkerOptions {
  double planted_slowdown = 0;  ///< each run is followed by this part of its time, spent waiting: for tests
};

/// Times rows on request, for scripts/bench.sh, in the protocol of bench/peers/README.md: writes a line with
/// all rows and their work, then answers each line "ROW VARIANT SECONDS" of stdin with the times of single
/// runs, or, for the variant "roof", with the bytes and FLOP per second that the row is held against. A row
/// whose result is wrong is an "error" and can be asked for again. Returns main()'s exit code.
int serve_rows(const std::string& binary, const WorkerOptions& options);

/// Defined by each benchmark binary: its add() calls.
void register_all();

/// "64x56x56x64"
std::string shape_name(const Shape& shape);

/// Deterministic values in [low, high), so that timings see no denormals and errors repeat.
Tensor filled(const Shape& shape, DType dtype, double low = -1, double high = 1, std::uint64_t seed = 1);

/// Largest |got - expected| / (1 + |expected|) over all elements; NaN where one of them alone is NaN.
double max_error(const Tensor& got, const std::vector<double>& expected);
double max_error(const Tensor& got, const Tensor& expected);

/// Rounding a value of that dtype costs at most this much of it.
double epsilon_of(DType dtype);

}  // namespace athanor::bench
