#pragma once

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "dist/all_gather.h"
#include "tests/support/cases.h"
#include "tests/support/compare.h"
#include "tests/support/errors.h"

// Bodies that each rank runs, in a thread or in a process of its own.

namespace athanor::test {

/// How many rows ranks have: as many, fewer and more, and none.
inline constexpr std::array<std::array<std::int64_t, 8>, 4> kRows{
    {{3, 3, 3, 3, 3, 3, 3, 3}, {2, 5, 1, 3, 4, 1, 2, 6}, {0, 4, 0, 1, 0, 0, 2, 0}, {}}};
inline constexpr DType kGathered[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

/// Values of which hardly a sum is exact: those of a rank, or what its loss gives to every row of all.
inline Tensor uneven_values(const Shape& shape, DType dtype, int rank, int what = 0) {
  return filled({shape}, dtype, {static_cast<std::uint64_t>(100 * what + rank)}, -2, 2);
}

inline std::vector<double> rows_between(const Tensor& t, std::int64_t begin, std::int64_t count) {
  return contiguous(narrow(t, 0, begin, count)).to_vector();
}

/// All rows on all ranks; and each rank's own gradient, added up in the order of ranks with one rounding, to
/// the bit.
inline void check_rows_and_gradients(dist::Transport& transport) {
  const int world = transport.world_size(), rank = transport.rank();
  const dist::Communicator comm(transport);
  const dist::PassNetwork network(comm);
  for (const auto& rows : kRows) {
    std::int64_t all = 0, first = 0;
    for (int r = 0; r < world; ++r) {
      if (r == rank) first = all;
      all += rows[static_cast<std::size_t>(r)];
    }
    const std::int64_t own = rows[static_cast<std::size_t>(rank)];
    for (const DType dtype : kGathered) {
      const std::string where =
          fmt::format("{} rows of {} {} on rank {} of {}", own, all, dtype, rank, world);
      Tensor x = uneven_values({own, 2, 3}, dtype, rank).to(transport.device());
      require_grad(x);
      const Tensor strided = permute(x, {0, 2, 1});
      const Tensor y = dist::all_gather(strided, network);
      ASSERT_EQ(y.shape(), (Shape{all, 3, 2})) << where;
      EXPECT_EQ(y.same_as(strided), world == 1) << "one rank needs no copy";
      std::int64_t begin = 0;
      for (int r = 0; r < world; ++r) {
        const std::int64_t count = rows[static_cast<std::size_t>(r)];
        const Tensor theirs = permute(uneven_values({count, 2, 3}, dtype, r), {0, 2, 1});
        EXPECT_EQ(rows_between(y.to(kCpu), begin, count), theirs.to_vector()) << where << ", those of " << r;
        begin += count;
      }
      backward(sum(y * uneven_values({all, 3, 2}, dtype, rank, 1).to(transport.device())));
      Tensor expected;
      for (int r = 0; r < world; ++r) {
        const Tensor weights =
            cast(uneven_values({all, 3, 2}, dtype, r, 1), dtype == DType::f64 ? DType::f64 : DType::f32);
        expected = expected.defined() ? expected + weights : weights;
      }
      const Tensor mine = permute(narrow(cast(expected, dtype), 0, first, own), {0, 2, 1});
      EXPECT_TRUE(same_bits(grad_of(x).to(kCpu), contiguous(mine))) << where;
    }
  }
}

/// Labels, say; and what is gathered where nothing is recorded.
inline void check_no_gradient_is_asked_for(dist::Transport& transport) {
  const dist::Communicator comm(transport);
  const dist::PassNetwork network(comm);
  const int world = transport.world_size(), rank = transport.rank();
  const Tensor labels = Tensor::from(std::vector<std::int64_t>(2, rank), {2}).to(transport.device());
  std::vector<double> expected;
  for (int r = 0; r < world; ++r) expected.insert(expected.end(), 2, r);
  EXPECT_EQ(dist::all_gather(labels, network).to(kCpu).to_vector(), expected);
  Tensor x = uneven_values({rank + 1, 4}, DType::f32, rank).to(transport.device());
  require_grad(x);
  const InferenceMode inference;
  const Tensor y = dist::all_gather(x, network);
  EXPECT_EQ(y.dim(0), world * (world + 1) / 2);
  EXPECT_FALSE(y.requires_grad() && world > 1);
}

/// All ranks say so, and can go on.
inline void check_ranks_that_differ_are_told(dist::Transport& transport) {
  if (transport.world_size() == 1) return;
  const dist::Communicator comm(transport);
  const dist::PassNetwork network(comm);
  const bool last = transport.rank() + 1 == transport.world_size();
  for (const bool by_dtype : {true, false}) {
    const Tensor x = Tensor::zeros({2, last && !by_dtype ? 4 : 3},
                                   {last && by_dtype ? DType::f64 : DType::f32, transport.device()});
    EXPECT_ERROR(ArgumentError, dist::all_gather(x, network), "all_gather", "rank 0",
                 fmt::format("rank {}", transport.world_size() - 1), fmt::format("rank {}", transport.rank()),
                 fmt::format("{} {}", x.dtype(), x.shape()));
  }
  EXPECT_THROW(dist::all_gather(Tensor::zeros({}), network), ArgumentError);
  EXPECT_THROW(dist::all_gather({}, network), ArgumentError);
  EXPECT_EQ(dist::all_gather(Tensor::zeros({1, 2}, {DType::f32, transport.device()}), network).dim(0),
            transport.world_size());
}

}  // namespace athanor::test
