#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "simt/launch.h"

// An exercise of the kernel lab: a .cu file with a kernel and lab::run, which launches it, and a header with
// lab::task, which defines the expected result in plain C++. lab.cpp has main: it makes the inputs, runs the
// kernel and compares. scripts/kernel_lab.sh NAME builds and runs it all, with or without a GPU.

namespace lab {

/// All arrays are dense and of float; the task defines rows and cols.
struct Size {
  int rows, cols;
};

/// The number of elements of an array.
using Length = std::size_t (*)(Size);
inline std::size_t all(Size size) {
  return static_cast<std::size_t>(size.rows) * static_cast<std::size_t>(size.cols);
}
inline std::size_t rows(Size size) {
  return static_cast<std::size_t>(size.rows);
}
inline std::size_t cols(Size size) {
  return static_cast<std::size_t>(size.cols);
}

/// Input arrays on the host.
using Arrays = std::span<const std::vector<float>>;

/// What a typical mistake computes: a result that equals it is called by its name.
struct Mistake {
  std::string name;
  std::function<std::vector<double>(Size, Arrays x)> result;
};

/// What a kernel must compute.
struct Task {
  std::string formula;         ///< for the reader of the report
  std::vector<Size> sizes;     ///< each is checked; accesses are counted on the last
  Size large;                  ///< timed if there is a GPU
  std::vector<Length> inputs;  ///< of each input, filled with numbers in [-1, 1)
  Length result;               ///< of y
  /// y, in double.
  std::function<std::vector<double>(Size, Arrays x)> reference;
  double tolerance = 0;  ///< largest |y - reference| / (1 + |reference|)
  std::vector<Mistake> mistakes = {};
};

/// The exercise: its task, and the launch of its kernel. x[i] are the inputs and y the result, in device
/// memory.
Task task();
void run(Size size, std::span<const float* const> x, float* y);

/// Device memory that one kernel leaves to the next. Zeros at the first call for a length; the same memory at
/// later calls.
float* scratch(std::size_t length);

using simt::dynamic_shared;  ///< dynamic_shared<float>() in a kernel

/// launch({"my_kernel", grid, block, shared bytes}, my_kernel, arguments...): like <<<>>>, for both
/// compilers.
void check(cudaError_t status, const char* what);
template <class... P, class... A>
void launch(const simt::Launch& how, void (*kernel)(P...), A&&... arguments) {
  check(simt::launch(nullptr, how, kernel, std::forward<A>(arguments)...), how.name);
}

/// Blocks of `each` that cover `count`.
inline unsigned blocks(int count, int each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

}  // namespace lab
