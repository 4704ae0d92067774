#include "kernels/context.h"
#include "tests/support/ops.h"

namespace athanor::shape_test {

using Values = std::vector<double>;
using In = std::span<const Tensor>;

Tensor counting(const Shape& shape, DType dtype = DType::f64) {
  Values values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return cast(Tensor::from(values, shape), dtype);
}
Tensor counting_leaf(const Shape& shape) {
  Tensor x = counting(shape);
  require_grad(x);
  return x;
}
Tensor indices(std::vector<std::int64_t> values, const Shape& shape) {
  return Tensor::from(values, shape);
}

TEST(View, SharesMemoryAndVersion) {
  const Tensor x = counting({2, 3, 4});
  for (const Tensor& view :
       {reshape(x, {4, 6}), permute(x, {2, 0, 1}), transpose(x, 0, -1), narrow(x, 1, 1, 2), select(x, 2, -1),
        unsqueeze(x, 0), expand(unsqueeze(x, 0), {5, 2, 3, 4}), flatten(x), squeeze(narrow(x, 0, 1, 1), 0)}) {
    EXPECT_EQ(view.storage(), x.storage());
    EXPECT_EQ(view.version(), x.version());
    view.bump_version();
    EXPECT_EQ(view.version(), x.version());
  }
}

TEST(View, HasTheValuesWorkedOutByHand) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(reshape(x, {3, -1}).to_vector(), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(reshape(transpose(x, 0, 1), {6}).to_vector(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(permute(x, {1, 0}).to_vector(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(narrow(x, 1, 1, 2).to_vector(), (Values{1, 2, 4, 5}));
  EXPECT_EQ(narrow(x, 1, 3, 0).shape(), (Shape{2, 0}));
  EXPECT_EQ(select(x, 0, -1).to_vector(), (Values{3, 4, 5}));
  EXPECT_EQ(expand(select(x, 1, 1), {2, 2}).to_vector(), (Values{1, 4, 1, 4}));
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(squeeze(unsqueeze(x, 1), 1).shape(), (Shape{2, 3}));
  EXPECT_EQ(flatten(counting({2, 3, 4, 5})).shape(), (Shape{2, 60}));
  EXPECT_EQ(flatten(counting({2, 3, 4, 5}), 0, 1).shape(), (Shape{6, 4, 5}));
  EXPECT_EQ(reshape(counting({1}), {}).shape(), Shape{});
  EXPECT_EQ(reshape(counting({0, 4}), {2, 0}).shape(), (Shape{2, 0}));
}

TEST(View, RejectsInvalidArguments) {
  const Tensor x = counting({2, 3});
  EXPECT_THROW(reshape(x, {4, 2}), ArgumentError);
  EXPECT_THROW(reshape(x, {-1, -1}), ArgumentError);
  EXPECT_THROW(reshape(x, {-1, 4}), ArgumentError);
  EXPECT_THROW(reshape(counting({0}), {-1, 0}), ArgumentError);
  EXPECT_THROW(permute(x, {0}), ArgumentError);
  EXPECT_THROW(permute(x, {0, 0}), ArgumentError);
  EXPECT_THROW(permute(x, {0, 2}), ArgumentError);
  EXPECT_THROW(narrow(x, 0, 1, 2), ArgumentError);
  EXPECT_THROW(narrow(x, 0, -1, 1), ArgumentError);
  EXPECT_THROW(narrow(x, 0, 1, INT64_MAX), ArgumentError);
  EXPECT_THROW(select(x, 1, 3), ArgumentError);
  EXPECT_THROW(squeeze(x, 1), ArgumentError);
  EXPECT_THROW(expand(x, {2, 6}), ArgumentError);
  EXPECT_THROW(reshape(Tensor(), {1}), ArgumentError);
}

// The identity, which adds its whole gradient through an accumulator and notes where that lay.
Tensor noting(const Tensor& x, std::vector<const void*>& seen) {
  return record("noting", clone(x.detach()), {x}, [&seen, shape = x.shape()](const Tensor& dy, Grads& dx) {
    const Tensor sum = dx.accumulator(0, shape, dy.options());
    seen.push_back(sum.raw_data());
    for (std::int64_t i = 0; i < dy.numel(); ++i) sum.data<double>()[i] += dy.data<double>()[i];
  });
}

TEST(View, SlicesOfOneTensorAddIntoOneSum) {
  for (const bool through_node : {true, false}) {
    const Tensor leaf = counting_leaf({4});
    const Tensor x = through_node ? leaf * leaf : leaf;
    std::vector<const void*> seen;
    const Tensor parts[] = {noting(x, seen), noting(x, seen), select(x, 0, 1), noting(x, seen)};
    backward(parts[0] + parts[1] + expand(parts[2], {4}) + parts[3], counting({4}));
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_EQ(seen[0], seen[1]);  // were each part given zeros of its own, n parts would cost n whole tensors
    EXPECT_EQ(seen[0], seen[2]);
    EXPECT_EQ(grad_of(leaf).to_vector(),
              through_node ? (Values{0, 2 * 1 * 9, 2 * 2 * 6, 2 * 3 * 9}) : (Values{0, 9, 6, 9}));
  }
}

TEST(View, GradLeavesTheLeavesAlone) {
  const Tensor x = counting_leaf({3});
  const Tensor slice = Tensor::zeros({3}, {DType::f64, kCpu});
  leaf_of(x).bind(slice);
  const Tensor mid = x * x;
  const std::vector<Tensor> gradients =
      grad(select(mid, 0, 2) + select(x, 0, 1), std::array{mid}, Tensor::from(Values{1}, {}));
  EXPECT_EQ(gradients[0].to_vector(), (Values{0, 0, 1}));
  EXPECT_EQ(slice.to_vector(), (Values{0, 0, 0}));
  EXPECT_FALSE(grad_of(x).defined());
}

TEST(View, SliceGradientsMixWithWholeOnes) {
  const Tensor x = counting_leaf({3, 2});
  const auto mixed = [](In in) {
    const Tensor y = square(in[0]);
    return select(y, 0, 0) + select(y, 0, 2) + select(in[0] * y, 0, 2) + select(in[0], 0, 1) +
           select(y, 0, 0);
  };
  gradcheck(mixed, std::array{x});
  const Tensor slice = Tensor::zeros({3, 2}, {DType::f64, kCpu});
  leaf_of(x).bind(slice);
  const Tensor dy = Tensor::from(Values{1, 10}, {2});
  backward(select(x, 0, 1) + select(x, 0, 1), dy);
  EXPECT_EQ(slice.to_vector(), (Values{0, 0, 2, 20, 0, 0}));
  backward(select(x, 0, 2), dy);
  EXPECT_EQ(slice.to_vector(), (Values{0, 0, 2, 20, 1, 10}));
  zero_grad(x);
  backward(select(x, 0, 0), dy);
  EXPECT_EQ(slice.to_vector(), (Values{1, 10, 0, 0, 0, 0}));
}

TEST(View, UnderNoGradAndInferenceRecordsNothing) {
  const Tensor x = counting_leaf({2, 3});
  const TapeCounters before = tape_counters();
  {
    const NoGrad no_grad;
    EXPECT_FALSE(select(x, 0, 1).requires_grad());
    EXPECT_FALSE(reshape(x, {6}).is_inference());
    EXPECT_FALSE(reshape(x, {6}).requires_grad());
    EXPECT_FALSE(reshape(x, {2, 3}).requires_grad()) << "the same shape";
  }
  {
    const InferenceMode inference;
    const Tensor view = narrow(x, 0, 0, 1);
    EXPECT_TRUE(view.is_inference());
    EXPECT_STREQ(view.made_by(), "narrow");
    EXPECT_STREQ(select(view, 0, 0).made_by(), "select");
  }
  EXPECT_EQ(tape_counters().nodes, before.nodes);
  EXPECT_FALSE(x.is_inference());
  EXPECT_TRUE(x.requires_grad());
}

TEST(Copy, CloneSharesNothing) {
  const Tensor x = counting({2, 3});
  const Tensor y = clone(x);
  y.data<double>()[0] = 9;
  EXPECT_EQ(x.to_vector()[0], 0);
  EXPECT_TRUE(contiguous(x).same_as(x));
  EXPECT_TRUE(contiguous(transpose(x, 0, 1)).is_contiguous());
}

TEST(Copy, CastIsRecordedBetweenFloatingTypes) {
  const Tensor x = counting_leaf({3});
  const Tensor y = cast(x, DType::bf16);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(cast(x, DType::i64).requires_grad());
  EXPECT_TRUE(cast(x, DType::f64).same_as(x));
  backward(y, cast(counting({3}), DType::bf16));
  EXPECT_EQ(grad_of(x).dtype(), DType::f64);
  EXPECT_EQ(grad_of(x).to_vector(), (Values{0, 1, 2}));
}

TEST(Join, CatAndStackByHand) {
  const Tensor a = counting({2, 1}), b = counting({2, 2});
  EXPECT_EQ(cat(std::array{a, b, a}, 1).to_vector(), (Values{0, 0, 1, 0, 1, 2, 3, 1}));
  EXPECT_EQ(cat(std::array{b, transpose(b, 0, 1)}, 0).to_vector(), (Values{0, 1, 2, 3, 0, 2, 1, 3}));
  EXPECT_EQ(stack(std::array{a, a}, -1).to_vector(), (Values{0, 0, 1, 1}));
  EXPECT_EQ(stack(std::array{a, a}, 0).shape(), (Shape{2, 2, 1}));
  EXPECT_EQ(cat(std::array{counting({0, 2}), b}, 0).to_vector(), b.to_vector());
  EXPECT_EQ(cat(std::array{b}, 1).to_vector(), b.to_vector());
  EXPECT_EQ(stack(std::array{b}, 0).shape(), (Shape{1, 2, 2}));
  EXPECT_THROW(cat(std::array{a, b}, 0), ArgumentError);
  EXPECT_THROW(cat(std::array{a, cast(a, DType::f32)}, 0), ArgumentError);
  EXPECT_THROW(cat(std::span<const Tensor>{}, 0), ArgumentError);
  EXPECT_THROW(cat(std::array{a, Tensor()}, 0), ArgumentError);
  EXPECT_THROW(stack(std::array{a, b}, 0), ArgumentError);
}

TEST(Index, SelectAndGatherByHand) {
  const Tensor x = counting({3, 2});
  EXPECT_EQ(index_select(x, 0, indices({2, 0, 2}, {3})).to_vector(), (Values{4, 5, 0, 1, 4, 5}));
  EXPECT_EQ(index_select(x, 1, indices({1}, {1})).to_vector(), (Values{1, 3, 5}));
  EXPECT_EQ(index_select(x, 0, indices({}, {0})).shape(), (Shape{0, 2}));
  EXPECT_EQ(gather(x, 1, indices({1, 0, 1}, {3, 1})).to_vector(), (Values{1, 2, 5}));
  EXPECT_EQ(gather(x, 0, indices({2, 1}, {1, 2})).to_vector(), (Values{4, 3}));
  EXPECT_THROW(index_select(x, 0, indices({3}, {1})), ArgumentError);
  EXPECT_THROW(index_select(x, 0, indices({-1}, {1})), ArgumentError);
  EXPECT_THROW(index_select(x, 0, cast(indices({1}, {1}), DType::f32)), ArgumentError);
  EXPECT_THROW(index_select(x, 0, cast(indices({1}, {1}), DType::boolean)), ArgumentError);
  EXPECT_THROW(gather(x, 1, indices({0, 0, 0, 0}, {4, 1})), ArgumentError);
  EXPECT_THROW(gather(x, 1, indices({0}, {1})), ArgumentError);
}

TEST(Index, MayBeAnyInteger) {
  const Tensor x = counting_leaf({3, 2});
  const Tensor rows = indices({2, 0, 2, 1}, {2, 2}), row = indices({2, 0, 2}, {3});
  for (const DType dtype : {DType::i64, DType::i32, DType::u8}) {
    EXPECT_EQ(index_select(x, 0, cast(row, dtype)).to_vector(), (Values{4, 5, 0, 1, 4, 5}));
    EXPECT_EQ(gather(x, 0, transpose(cast(rows, dtype), 0, 1)).to_vector(), (Values{4, 5, 0, 3}));
    zero_grad(x);
    backward(sum(index_select(x, 0, cast(row, dtype))));
    EXPECT_EQ(grad_of(x).to_vector(), (Values{1, 1, 0, 0, 2, 2}));
  }
  EXPECT_THROW(index_select(x, 0, cast(indices({-1}, {1}), DType::i32)), ArgumentError);
}

TEST(Index, HalfGradientsAreSummedInFloat) {
  // 4096 + 1 is 4096 in bf16: added one by one, the ones would all be lost.
  const Tensor x = cast(counting({1, 1}), DType::bf16);
  require_grad(x);
  const Tensor y = index_select(x, 0, Tensor::zeros({4097}, {DType::i64, kCpu}));
  Values seed(4097, 1.0);
  seed[0] = 4096;
  backward(y, cast(Tensor::from(seed, {4097, 1}), DType::bf16));
  EXPECT_EQ(grad_of(x).item(), 8192);
}

TEST(Index, ThreadsShareLongRows) {
  const std::int64_t columns = 40'000;  // more than one thread's share, in either direction
  const test::Threads three(3);
  const Tensor x = counting_leaf({2, columns});
  const Tensor y = index_select(x, 0, indices({1, 0, 1}, {3}));
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < columns; ++i) rows.push_back(i % 2);
  const Tensor z = gather(x, 0, indices(rows, {1, columns}));
  backward(sum(y * counting({3, columns})) + sum(z));
  const Values dx = grad_of(x).to_vector(), selected = y.to_vector(), gathered = z.to_vector();
  for (std::int64_t i = 0; i < columns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(selected[at], columns + i);
    ASSERT_EQ(gathered[at], i % 2 * columns + i);
    ASSERT_EQ(dx[at], columns + i + (i % 2 == 0 ? 1 : 0)) << i;
    ASSERT_EQ(dx[at + static_cast<std::size_t>(columns)], 2 * columns + 2 * i + i % 2) << i;
  }
}

TEST(Where, ChoosesAndBroadcasts) {
  const Tensor condition = cast(Tensor::from(Values{1, 0}, {2, 1}), DType::boolean);
  const Tensor a = counting_leaf({3}), b = counting_leaf({2, 3});
  EXPECT_EQ(where(condition, a, b).to_vector(), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_THROW(where(a, a, b), ArgumentError);
  EXPECT_THROW(where(condition, a, cast(b, DType::f32)), ArgumentError);
}

}  // namespace athanor::shape_test
