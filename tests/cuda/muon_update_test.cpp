// Muon's updates of matrices on a device.
#include <algorithm>
#include <utility>

#include "kernels/muon.h"
#include "kernels/on_device.h"
#include "kernels/update.h"
#include "tests/cuda/bound_step.h"
#include "tests/cuda/device.h"

namespace athanor::muon_update_test {

using kernels::kUpdateChunk;
using kernels::MuonStep;
using kernels::UpdateRange;
using kernels::UpdateTable;
using test::BoundStep;
using test::bytes_of;
using test::close;
using test::filled;
using test::make_step;
using test::same_bits;

using UpdateStepOnDevice = test::DeviceTest;

TEST_F(UpdateStepOnDevice, MatricesAreNormalizedAndShifted) {
  CudaContext& context = cuda_context(test::device());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t n : {1, 7, 8, 144}) {
      for (const std::int64_t matrices : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} {} x {}", dtype, matrices, n));
        const Tensor x = filled({{matrices, n, n}}, dtype, {1}), x_on = x.to(test::device());
        const Tensor y = empty_like(x), y_on = empty_like(x_on);
        kernels::scale_add_identity(cpu_context(), x, -1.5f, 0.25f, y);
        kernels::scale_add_identity(context, x_on, -1.5f, 0.25f, y_on);
        EXPECT_TRUE(same_bits(y_on.to(kCpu), y));
        kernels::scale_add_identity(context, x_on, -1.5f, 0.25f, x_on);
        EXPECT_TRUE(same_bits(x_on.to(kCpu), y));
        kernels::normalize(cpu_context(), y, 1e-7f);
        kernels::normalize(context, y_on, 1e-7f);
        EXPECT_TRUE(close(y_on.to(kCpu), y, 2 * test::epsilon_of(dtype)));
      }
    }
  }
}

/// Matrices of one shape in one table, their ranges in another order than their memory, each with a rate and
/// decay of its own; what Muon's kernels make of all of them, and of each alone.
struct Matrices {
  static constexpr std::int64_t kCount = 3;
  UpdateTable table;
  Tensor momentum, x;

  Matrices(std::int64_t rows, std::int64_t columns, DType dtype, Device device, int first = 0,
           int count = kCount)
      : momentum(filled({{kCount * rows * columns}}, DType::f32, {3}).to(device)),
        x(Tensor::zeros({count, rows, columns}, {dtype, device})) {
    const std::int64_t size = rows * columns;
    std::vector<UpdateRange> ranges;
    for (int i = first; i < first + count; ++i) {
      const std::int64_t begin = (kCount - 1 - i) * size;
      for (std::int64_t at = 0; at < size; at += kUpdateChunk) {
        UpdateRange range{};
        range.start = 1000 + table.elements;  // a table may be part of a larger one
        range.count = std::min(kUpdateChunk, size - at);
        range.gradients = range.weights = range.masters = range.averages = range.state = begin + at;
        range.member = static_cast<std::int32_t>(i);
        range.group = static_cast<std::int16_t>(i % 2);
        range.decay = i != 1;
        range.last = at + range.count == size;
        ranges.push_back(range);
        table.elements += range.count;
      }
    }
    table.count = static_cast<std::int64_t>(ranges.size());
    table.ranges = bytes_of(ranges.data(), ranges.size() * sizeof(UpdateRange)).to(device);
    table.gradients = filled({{kCount * size}}, DType::bf16, {1}).to(device);
    table.masters = filled({{kCount * size}}, DType::f32, {2}).to(device);
    table.weights = Tensor::zeros({kCount * size}, {DType::bf16, device});
    table.averages = filled({{kCount * size}}, DType::f32, {4}).to(device);
    table.average = {0.75, false};
    table.steps = Tensor::zeros({kCount}, {DType::i64, device});
  }
  void run(auto& context, float norm) const {
    kernels::muon_momentum(context, table, 0.9f, true, momentum, x);
    kernels::normalize(context, x, 1e-7f);
    kernels::muon_apply(context, table, MuonStep{0.1f, 0.5f, norm}, x);
  }
  std::vector<Tensor> written() const {
    return {table.masters, table.weights, table.averages, momentum, table.steps};
  }
};

TEST_F(UpdateStepOnDevice, MatricesDoNotDependOnTheirBatch) {
  const Device device = test::device();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [rows, columns] : {std::pair(5, 7), {16, 24}, {131, 131}}) {
      for (const float norm : {0.0f, 3.0f}) {
        SCOPED_TRACE(fmt::format("{} {} x {} {}", dtype, rows, columns, norm));
        const BoundStep here(kCpu, make_step()), there(device, make_step());
        const Matrices cpu(rows, columns, dtype, kCpu), together(rows, columns, dtype, device);
        cpu.run(cpu_context(), norm);
        together.run(cuda_context(device), norm);
        for (std::size_t i = 0; i < cpu.written().size(); ++i) {
          const Tensor expected = cpu.written()[i];
          const bool half = expected.dtype() == DType::bf16 || dtype == DType::bf16;
          EXPECT_TRUE(
              close(together.written()[i].to(kCpu), expected, half ? test::epsilon_of(DType::bf16) : 1e-6));
        }
        EXPECT_EQ(together.table.steps.to_vector(), (std::vector<double>{1, 1, 1}));
        for (const Device where : {kCpu, device}) {
          for (int i = 0; i < Matrices::kCount; ++i) {
            const Matrices alone(rows, columns, dtype, where, i, 1);
            on_device(where, [&](auto& context) { alone.run(context, norm); });
            const std::int64_t size = std::int64_t{rows} * columns, begin = (Matrices::kCount - 1 - i) * size;
            for (std::size_t k = 0; k + 1 < cpu.written().size(); ++k) {
              const auto matrix = [&](const Matrices& all) {
                return all.written()[k].to(kCpu).view_as_strided({size}, {1}, begin);
              };
              EXPECT_TRUE(same_bits(matrix(alone), matrix(where.is_cpu() ? cpu : together))) << i << " " << k;
            }
          }
        }
      }
    }
  }
}

}  // namespace athanor::muon_update_test
