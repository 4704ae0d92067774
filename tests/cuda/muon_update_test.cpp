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

TEST_F(UpdateStepOnDevice, MatricesAreNormalized) {
  CudaContext& context = cuda_context(test::device());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t n : {1, 7, 8, 144}) {
      for (const std::int64_t matrices : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} {} x {}", dtype, matrices, n));
        const Tensor y = filled({{matrices, n, n}}, dtype, {1}), y_on = y.to(test::device());
        kernels::normalize(cpu_context(), y, 1e-7f);
        kernels::normalize(context, y_on, 1e-7f);
        EXPECT_TRUE(close(y_on.to(kCpu), y, 2 * test::epsilon_of(dtype)));
      }
    }
  }
}

/// a X + (b A + c A^2) X in f64, with A = X X^T or, for a tall X, on the other side.
std::vector<double> iterated(const Tensor& x, const std::array<float, 3>& coefficients) {
  const std::int64_t matrices = x.dim(0), rows = x.dim(1), columns = x.dim(2), n = std::min(rows, columns),
                     m = std::max(rows, columns);
  const std::vector<double> from = x.to_vector();
  const auto product = [](const auto& a, const auto& b, std::int64_t size, std::int64_t depth,
                          std::int64_t width) {
    std::vector<double> y(static_cast<std::size_t>(size * width));
    for (std::int64_t i = 0; i < size; ++i)
      for (std::int64_t k = 0; k < depth; ++k)
        for (std::int64_t j = 0; j < width; ++j)
          y[static_cast<std::size_t>(i * width + j)] += a(i, k) * b(k, j);
    return y;
  };
  std::vector<double> result(from.size());
  for (std::int64_t matrix = 0; matrix < matrices; ++matrix) {
    const auto place = [&](std::int64_t i, std::int64_t j) {  // of element (i, j) of the wide matrix
      return static_cast<std::size_t>(matrix * n * m + (rows > columns ? j * n + i : i * m + j));
    };
    const auto wide = [&](std::int64_t i, std::int64_t j) { return from[place(i, j)]; };
    const auto tall = [&](std::int64_t i, std::int64_t j) { return from[place(j, i)]; };
    const auto of = [n](const std::vector<double>& square) {
      return [&square, n](std::int64_t i, std::int64_t j) {
        return square[static_cast<std::size_t>(i * n + j)];
      };
    };
    const std::vector<double> gram = product(wide, tall, n, m, n),
                              again = product(of(gram), of(gram), n, n, n);
    std::vector<double> factor(gram.size());
    for (std::size_t i = 0; i < gram.size(); ++i)
      factor[i] = coefficients[1] * gram[i] + coefficients[2] * again[i];
    const std::vector<double> moved = product(of(factor), wide, n, n, m);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < m; ++j)
        result[place(i, j)] = coefficients[0] * wide(i, j) + moved[static_cast<std::size_t>(i * m + j)];
  }
  return result;
}

// Wide, tall and square matrices, of whole packets or not, by both backends.
TEST_F(UpdateStepOnDevice, AnIterationOfNewtonAndSchulzFollowsItsFormula) {
  constexpr std::array<float, 3> kCoefficients{3.4445f, -4.7750f, 2.0315f};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape :
         {Shape{1, 1, 1}, {3, 5, 7}, {2, 16, 40}, {2, 40, 16}, {3, 24, 24}, {1, 70, 9}}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, shape));
      const Tensor x = filled({shape}, dtype, {1});
      kernels::normalize(cpu_context(), x, 1e-7f);  // as it is before the first iteration
      const std::int64_t n = std::min(shape[1], shape[2]);
      for (const Device device : {kCpu, test::device()}) {
        const Tensor from = x.to(device), next = empty_like(from),
                     gram = Tensor::empty({shape[0], n, n}, from.options()), factor = empty_like(gram);
        on_device(device, [&](auto& context) {
          kernels::newton_schulz(context, from, kCoefficients, gram, factor, next);
        });
        EXPECT_TRUE(close(next.to(kCpu), iterated(x, kCoefficients), 4 * test::epsilon_of(dtype)));
        EXPECT_TRUE(same_bits(from.to(kCpu), x));
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
        range.lr_scale = i % 2 == 0 ? 0.5f : 1;
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
