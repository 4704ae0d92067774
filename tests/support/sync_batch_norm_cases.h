#pragma once

#include <array>
#include <chrono>
#include <span>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/norm.h"
#include "autograd/reduce.h"
#include "tests/support/compare.h"
#include "tests/support/errors.h"
#include "tests/support/joined_training.h"
#include "tests/support/waves.h"

// What a batch norm over several ranks must give, whatever lies between them: bodies that each rank runs.

namespace athanor::test {

/// No norms in it: what is tested calls batch_norm() itself.
struct NoModel final : nn::Module {
  Tensor forward(const Tensor& x) override { return x; }
};

inline Tensor norm_wave(const Shape& shape, DType dtype, double center, double phase) {
  return cast_to(wave(shape, center, phase), dtype);
}

inline Tensor samples_between(const Tensor& x, std::int64_t first, std::int64_t count) {
  Shape shape = x.shape();
  const std::int64_t each = x.numel() / shape[0];
  shape[0] = count;
  return contiguous(x.detach().view_as_strided(shape, contiguous_strides(shape), first * each));
}

struct JoinCase {
  DType dtype = DType::f32;
  Activation activation = Activation::none;
  bool residual = false;
  std::int64_t channels = 6;
};

/// Everything a batch norm takes and gives, of samples [first, first + count).
struct JoinRun {
  Tensor x, residual, gamma, beta, mean, var, y;
  std::uint64_t version_before = 0;

  JoinRun(const JoinCase& c, std::int64_t all, std::int64_t first, std::int64_t count, JoinedBatch* joined,
          Device device = kCpu) {
    const DType stats = c.dtype == DType::f64 ? DType::f64 : DType::f32;
    const Shape shape{all, 3, 2, c.channels}, channels{c.channels};
    const auto part = [&](double center, double phase) {
      return samples_between(norm_wave(shape, c.dtype, center, phase), first, count).to(device);
    };
    x = part(2, 0);
    residual = part(0, 1);
    gamma = norm_wave(channels, stats, 1.5, 2).to(device);
    beta = norm_wave(channels, stats, 0, 3).to(device);
    mean = norm_wave(channels, stats, 0, 4).to(device);
    var = norm_wave(channels, stats, 3, 5).to(device);
    for (const Tensor& leaf : {x, residual, gamma, beta}) require_grad(leaf);
    version_before = mean.version();
    y = batch_norm(x, gamma, beta, mean, var, true, {.activation = c.activation, .joined = joined},
                   c.residual ? residual : Tensor());
    backward(y, part(0, 6));
  }
};

/// The sum over all ranks, in f64.
inline std::vector<double> sum_over_ranks(dist::Communicator& comm, const Tensor& mine) {
  const Tensor sum = Tensor::from(mine.to(kCpu).to_vector(), {mine.numel()}, comm.transport().device());
  comm.run(*comm.all_reduce(sum));
  return sum.to(kCpu).to_vector();
}

/// Outputs, gradients and running statistics are those of one rank with all samples: to 1e-12 in f64, 1e-5 of
/// the largest value in f32, and one rounding of half types. Running statistics have the same bits
/// everywhere.
inline void check_join_equals_one_rank(dist::Transport& transport, std::span<const JoinCase> cases) {
  constexpr std::array<std::int64_t, 8> kSamples{5, 0, 1, 12, 3, 0, 2, 2};
  const int world = transport.world_size(), rank = transport.rank();
  std::int64_t first = 0, all = 0;
  for (int r = 0; r < world; ++r) {
    if (r < rank) first += kSamples[static_cast<std::size_t>(r)];
    all += kSamples[static_cast<std::size_t>(r)];
  }
  const std::int64_t count = kSamples[static_cast<std::size_t>(rank)];
  NoModel model;
  dist::Communicator comm(transport);
  dist::SyncBatchNorm sync(model, comm);
  for (const JoinCase& c : cases) {
    const JoinRun mine(c, all, first, count, &sync, transport.device()), one(c, all, 0, all, nullptr);
    const std::string name =
        fmt::format("{} {} {} {}", c.dtype, static_cast<int>(c.activation), c.residual, c.channels);
    const double exact = c.dtype == DType::f64 ? 1e-12 : 1e-5;
    const double tolerance = exact + (c.dtype == DType::f64 ? 0 : 2 * epsilon_of(c.dtype));
    // Of the largest value of the whole batch, not of this rank's few.
    const auto expect_part = [&](const Tensor& part, const Tensor& whole, const char* what) {
      const std::vector<double> got = part.to(kCpu).to_vector(),
                                want = samples_between(whole, first, count).to_vector();
      double largest = 0;
      for (const double value : whole.to_vector()) largest = std::max(largest, std::fabs(value));
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], tolerance * largest) << what << " " << name;
    };
    expect_part(mine.y, one.y, "y");
    expect_part(grad_of(mine.x), grad_of(one.x), "dx");
    if (c.residual) expect_part(grad_of(mine.residual), grad_of(one.residual), "dresidual");
    EXPECT_LT(max_relative_error(grad_of(one.gamma), sum_over_ranks(comm, grad_of(mine.gamma))), tolerance)
        << name;
    EXPECT_LT(max_relative_error(grad_of(one.beta), sum_over_ranks(comm, grad_of(mine.beta))), tolerance)
        << name;
    EXPECT_LT(max_relative_error(mine.mean.to(kCpu), one.mean), exact) << name;
    EXPECT_LT(max_relative_error(mine.var.to(kCpu), one.var), exact) << name;
    EXPECT_EQ(mine.mean.version(), mine.version_before + 1);
    for (const Tensor& statistic : {mine.mean, mine.var}) {
      const Tensor copy = empty_like(statistic);
      copy.copy_bytes_from(statistic);
      comm.run(*comm.broadcast(copy, 0));
      EXPECT_TRUE(same_bits(statistic.to(kCpu), copy.to(kCpu))) << name;
    }
  }
}

inline void check_join_equals_one_rank(dist::Transport& transport) {
  std::vector<JoinCase> cases;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
      for (const bool residual : {false, true}) cases.push_back({dtype, activation, residual, 6});
    }
  }
  for (const std::int64_t channels : {1, 65, 300})
    cases.push_back({DType::f32, Activation::relu, true, channels});
  check_join_equals_one_rank(transport, cases);
}

/// Finite differences over all ranks: every rank's values are changed in turn, and all ranks answer. The
/// value is the sum over ranks of w y, which dL/dx and the sum of all ranks' dgamma and dbeta are the
/// gradients of.
inline void check_join_gradients(dist::Transport& transport) {
  const int world = transport.world_size(), rank = transport.rank();
  constexpr double kStep = 1e-5;
  NoModel model;
  dist::Communicator comm(transport);
  dist::SyncBatchNorm sync(model, comm);
  const auto count_of = [](int r) { return std::int64_t{r == 1 ? 0 : r == 2 ? 1 : 3}; };
  for (const Activation activation : {Activation::none, Activation::gelu}) {
    for (const bool with_residual : {false, true}) {
      const Shape shape{count_of(rank), 2, 2}, channels{2};
      const double phase = rank;
      const Tensor x = norm_wave(shape, DType::f64, 0.5, phase),
                   residual = norm_wave(shape, DType::f64, 0, phase + 1);
      const Tensor w = norm_wave(shape, DType::f64, 0.3, phase + 2);
      const Tensor gamma = norm_wave(channels, DType::f64, 1, 3),
                   beta = norm_wave(channels, DType::f64, 0, 4);
      const auto run = [&] {
        return batch_norm(x, gamma, beta, {}, {}, true, {.activation = activation, .joined = &sync},
                          with_residual ? residual : Tensor());
      };
      const auto value = [&] {
        const NoGrad no_grad;
        const std::vector<double> y = run().to_vector(), weight = w.to_vector();
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weight[i];
        double all = 0;
        for (const double part : from_all(comm, sum)) all += part;
        return all;
      };
      const auto slope = [&](double* at) {  // of all ranks together; null where it is another's turn
        const double before = at ? *at : 0;
        if (at) *at = before + kStep;
        const double up = value();
        if (at) *at = before - kStep;
        const double down = value();
        if (at) *at = before;
        return (up - down) / (2 * kStep);
      };
      for (const Tensor& leaf : {x, residual, gamma, beta}) require_grad(leaf);
      backward(run(), w);
      const std::vector<double> dx = grad_of(x).to_vector();
      for (int turn = 0; turn < world; ++turn) {
        for (std::int64_t i = 0; i < count_of(turn) * 4; ++i) {
          const double found = slope(turn == rank ? x.data<double>() + i : nullptr);
          if (turn == rank) {
            EXPECT_NEAR(dx[static_cast<std::size_t>(i)], found, 1e-7) << i;
          }
        }
      }
      const std::vector<double> dgamma = sum_over_ranks(comm, grad_of(gamma)),
                                dbeta = sum_over_ranks(comm, grad_of(beta));
      for (std::size_t c = 0; c < 2; ++c) {  // all ranks change theirs
        EXPECT_NEAR(dgamma[c], slope(gamma.data<double>() + c), 1e-7);
        EXPECT_NEAR(dbeta[c], slope(beta.data<double>() + c), 1e-7);
      }
    }
  }
}

/// One value per channel over all ranks is refused by all of them; two are not, wherever they are.
inline void check_one_sample_is_refused(dist::Transport& transport) {
  const int world = transport.world_size(), rank = transport.rank();
  NoModel model;
  dist::Communicator comm(transport);
  dist::SyncBatchNorm sync(model, comm);
  const auto run = [&](std::int64_t count) {
    return batch_norm(norm_wave({count, 3}, DType::f32, 0, rank).to(transport.device()), {}, {}, {}, {}, true,
                      {.joined = &sync});
  };
  for (const std::int64_t all : {0, 1}) {
    EXPECT_ERROR(ArgumentError, run(rank == world - 1 ? all : 0), "batch_norm", "2") << all;
  }
  run(world == 1 ? 2 : rank < 2);  // the ranks go on together
  run(rank == world - 1 ? 2 : 0);
}

/// Evaluation needs nobody: one rank alone may do it.
inline void check_evaluation_is_local(dist::Transport& transport) {
  nn::BatchNorm norm(3), plain(3);
  // Rank 0 alone evaluates: where it asks the others, it is not to hang.
  dist::Communicator comm(transport, {.timeout = std::chrono::seconds(100)});
  const dist::SyncBatchNorm sync(norm, comm);
  norm.eval();
  plain.eval();
  const Tensor x = norm_wave({4, 3}, DType::f32, 1, 0);
  if (transport.rank() == 0) {
    EXPECT_TRUE(same_bits(norm(x), plain(x)));
  }
  comm.run(*comm.barrier());
}

/// A part that is recomputed in the backward pass asks all ranks again, and leaves running statistics alone.
inline void check_recomputation(dist::Transport& transport) {
  const int rank = transport.rank();
  DigitsNet kept(true), recomputed(true);
  dist::Communicator comm(transport);
  const dist::SyncBatchNorm one(kept, comm), two(recomputed, comm);
  const DigitsBatch batch = digits_batch(rank * 8, 8);
  backward(sum(square(kept(batch.images))));
  const auto inner = [&](const Tensor& x) { return recomputed(x); };
  const Tensor x = batch.images;
  backward(sum(square(checkpoint(inner, x))));
  const auto a = kept.parameters(), b = recomputed.parameters();
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(same_bits(grad_of(a[i].tensor), grad_of(b[i].tensor))) << a[i].name;
  for (std::size_t i = 0; i < kept.buffers().size(); ++i)
    EXPECT_TRUE(same_bits(kept.buffers()[i].tensor, recomputed.buffers()[i].tensor));
}

}  // namespace athanor::test
