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

// What an exercise of the kernel lab is made of: a .cu file with a kernel and lab::run, which launches it,
// and a header with lab::task, which says in plain C++ what must come out. lab.cpp holds main: it makes the
// inputs, runs the kernel, compares. scripts/kernel_lab.sh NAME builds and runs it all, with a GPU or
// without.

namespace lab {

/// All arrays are of float, dense; what rows and cols mean is the task's to say.
struct Size {
  int rows, cols;
};

/// How many elements an array has.
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

/// What a kernel must compute.
struct Task {
  std::string formula;         ///< for the reader of the report
  std::vector<Size> sizes;     ///< each is checked; accesses are counted on the last
  Size large;                  ///< is timed, where there is a GPU
  std::vector<Length> inputs;  ///< of each input, filled with numbers in [-1, 1)
  Length result;               ///< of y
  /// y, in double.
  std::function<std::vector<double>(Size, Arrays x)> reference;
  double tolerance = 0;  ///< largest |y - reference| / (1 + |reference|)
};

/// The exercise: its task, and how its kernel is launched. x[i] are the inputs and y the result, in memory of
/// the device.
Task task();
void run(Size size, std::span<const float* const> x, float* y);

/// Memory of the device for what one kernel leaves to the next. Zeros, when a length is asked for the first
/// time; the same memory again after that.
float* scratch(std::size_t length);

using simt::dynamic_shared;  ///< dynamic_shared<float>() in a kernel

/// launch({"my_kernel", grid, block, shared bytes}, my_kernel, arguments...): what <<<>>> does, for both
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
