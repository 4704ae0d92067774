#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/support/bench.h"
#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"
#include "tensor/stream.h"

// Rows for a GPU. A case is described once, small: its operands on the CPU, and one lambda that calls the
// kernel with the context of either device. Before it is timed, the CPU's results and the device's are
// compared; then the operands grow to `tiles` copies of themselves, and the ends of the large result are
// compared with what the small one says they must be. So no large case has to run on a CPU.

namespace athanor::bench {

/// What becomes of an operand when the case grows. Results start as NaN unless they are given values.
enum class Role : std::uint8_t {
  rows,          ///< read; `tiles` copies, one after the other
  whole,         ///< read; stays as it is: weights, tables
  row_result,    ///< the small result, `tiles` times
  same_result,   ///< the small result: a mean
  sum_result,    ///< `tiles` times the small result
  first_result,  ///< begins with the small result; the rest depends on where it is: random numbers
  small_result,  ///< grows by nothing, and says nothing of the small result
};

struct Operand {
  Tensor value;  ///< of the small case, dense, on the CPU
  Role role = Role::rows;
  /// Where copies will not do: the operand of the large case, on the CPU.
  std::function<Tensor(std::int64_t tiles)> grow{};
};

/// A result that starts as NaN (in integers: -1).
Operand result(Role role, const Shape& shape, DType dtype);

/// One call of a kernel.
struct Call {
  std::vector<Operand> operands;
  std::function<void(CpuContext&, std::span<const Tensor>)> on_cpu;
  std::function<void(CudaContext&, std::span<const Tensor>)> on_device;
  double tolerance = 0;  ///< of each result's largest magnitude
};
/// f(context, tensors), called with the context of either device.
template <class F> Call call(std::vector<Operand> operands, double tolerance, const F& f) {
  return {std::move(operands), f, f, tolerance};
}

/// While alive, the vendor's products and convolutions of a context may round f32 factors to tf32.
class Tf32 {
 public:
  Tf32(CudaContext& context, bool allowed) : context_(context), before_(context.tf32) {
    context.tf32 = allowed;
  }
  ~Tf32() { context_.tf32 = before_; }
  Tf32(const Tf32&) = delete;
  Tf32& operator=(const Tf32&) = delete;

 private:
  CudaContext& context_;
  bool before_;
};

struct DeviceCase {
  std::string op, dir;
  DType dtype = DType::f32;
  Shape shape;  ///< of the small case; `tiles` times that along the first axis names the row
  Work work;    ///< of the small case
  std::function<Call()> prepare;
  std::int64_t tiles = 1;
  std::string impl = "athanor";
  std::string name{};        ///< of the row, instead of the shape
  std::string peak = "FMA";  ///< roof of its FLOPs: FMA, or a dtype (tf32 too) whose best product is meant
};

/// Adds a row; everything in it happens when its turn comes. What it throws becomes the row's error.
void add(DeviceCase row);
/// The half types the device computes with, and f32.
std::vector<DType> bench_dtypes();
/// The device they run on.
Device bench_device();
/// Rows whose time was not taken, because something failed or a result was wrong.
int failed_rows();

/// From now on a row's largest tensor has at least so many bytes (by default 64 MiB), and its roof is a copy
/// of so many.
void set_row_bytes(std::int64_t bytes);
/// Copies of the small case that make a tensor of it that large.
std::int64_t tiles_for(const Shape& shape, DType dtype);
/// Bytes of a dense tensor.
double bytes_of(const Shape& shape, DType dtype);

/// Like filled(), but values repeat after a while, so that large tensors are quickly made.
Tensor pattern(const Shape& shape, DType dtype, double low = -1, double high = 1, std::uint64_t seed = 1);

/// Operands of a case on the device, `tiles` copies large.
std::vector<Tensor> on_bench_device(const Call& call, std::int64_t tiles);
/// The largest error of results on the device, `tiles` copies large, by those of the CPU, which it computes.
double error_on_device(const Call& call, const std::vector<Tensor>& operands, std::int64_t tiles = 1);

}  // namespace athanor::bench
