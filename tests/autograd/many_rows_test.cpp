// Sums over more than a million elements, which kernels divide into chunks. A block of rows is repeated: sums
// are the block's times the repetitions, means are the block's, and every row's result is that of its row.
#include "autograd/softmax.h"
#include "tests/support/ops.h"

namespace athanor::many_rows_test {

using test::close;

constexpr std::int64_t kRows = 8, kSize = 8, kRepeats = 18'751;  // 1.2 million elements
constexpr double kTolerance = 3e-5;                              // the last chunk is more of the sum

/// x, again and again along its first axis.
Tensor repeated(const Tensor& x) {
  Shape shape = x.shape(), all = x.shape();
  all[0] *= kRepeats;
  Shape stacked{kRepeats};
  for (int i = 0; i < shape.rank(); ++i) stacked.push_back(shape[i]);
  return reshape(expand(unsqueeze(x, 0), stacked), all);
}

/// Of x [rows, 8] and w [8].
using Op = std::function<Tensor(const Tensor& x, const Tensor& w)>;
struct Results {
  Tensor y, dx, dw;
};
Results run(const Op& op, const Tensor& x, const Tensor& w, const Tensor& dy) {
  require_grad(x);
  require_grad(w);
  const Tensor y = op(x, w);
  backward(y, y.shape() == dy.shape() ? dy : ones(y.shape()));
  return {y.detach(), grad_of(x), grad_of(w)};
}

void expect_like_one_block(const char* name, const Op& op, bool is_mean) {
  SCOPED_TRACE(name);
  // Quarters from 0.5 to 1.5: sums of their products are exact in f32, in whichever order a kernel or oneDNN
  // adds.
  const auto quarters = [](const Shape& shape, std::uint64_t stream) {
    return affine(cast(randint(shape, {1, stream}, 2, 7), DType::f32), 0.25);
  };
  const auto block = [&](std::uint64_t stream) { return quarters({kRows, kSize}, stream); };
  const auto row = [&] { return quarters({kSize}, 9); };
  const Results one = run(op, block(1), row(), block(2));
  const Results all = run(op, repeated(block(1)), row(), repeated(block(2)));
  const auto times = [](const Tensor& x, double factor) { return affine(x, factor); };
  const double summed = is_mean ? 1 : kRepeats, each = is_mean ? 1.0 / kRepeats : 1;
  const bool has_rows = all.y.rank() > 0 && all.y.dim(0) == kRepeats * one.y.dim(0);
  EXPECT_TRUE(close(all.y, has_rows ? repeated(one.y) : times(one.y, summed), kTolerance));
  EXPECT_TRUE(close(all.dx, repeated(times(one.dx, each)), kTolerance));
  EXPECT_TRUE(close(all.dw, times(one.dw, summed), kTolerance));
}

TEST(ManyRows, SumsAreThoseOfABlockTimesItsRepetitions) {
  const std::vector<std::pair<const char*, Op>> ops{
      {"sum", [](const Tensor& x, const Tensor& w) { return sum(x * w); }},
      {"columns", [](const Tensor& x, const Tensor& w) { return sum(x * w, std::array{0}); }},
      {"broadcast", [](const Tensor& x, const Tensor& w) { return x * w + w; }},
      {"layer_norm", [](const Tensor& x, const Tensor& w) { return layer_norm(x, w, w); }},
      {"group_norm", [](const Tensor& x, const Tensor& w) { return group_norm(x, 2, w, w); }},
      {"batch_norm",
       [](const Tensor& x, const Tensor& w) {
         return batch_norm(x, w, w, Tensor::zeros({kSize}), ones({kSize}), true);
       }},
      {"softmax", [](const Tensor& x, const Tensor& w) { return softmax(x * w) + log_softmax(x * w); }},
      {"linear", [](const Tensor& x, const Tensor& w) { return linear(x, eye(kSize), w); }},
      {"conv2d", [](const Tensor& x, const Tensor& w) {
         const Tensor images = reshape(x, {x.dim(0) / kRows, 2, 4, kSize});
         return conv2d(images, expand(w, {3, 3, 3, kSize}), sum(w) * ones({3}), {.padding = {1, 1}});
       }}};
  for (const auto& [name, op] : ops) expect_like_one_block(name, op, false);
}

TEST(ManyRows, MeansAreThoseOfABlock) {
  const std::vector<std::pair<const char*, Op>> ops{
      {"mean", [](const Tensor& x, const Tensor& w) { return mean(x * w); }},
      {"var", [](const Tensor& x, const Tensor& w) { return var(x * w, {}, 0); }},
      {"max", [](const Tensor& x, const Tensor& w) { return max(x * w); }},
      {"mse_loss", [](const Tensor& x, const Tensor& w) { return mse_loss(x * w, x); }},
      {"bce_with_logits", [](const Tensor& x, const Tensor& w) { return bce_with_logits(x * w, 0.25); }},
      {"cross_entropy", [](const Tensor& x, const Tensor& w) {
         std::vector<std::int64_t> target(static_cast<std::size_t>(x.dim(0)));
         for (std::size_t i = 0; i < target.size(); ++i) target[i] = static_cast<std::int64_t>(i % kSize);
         return cross_entropy(x * w, Tensor::from(target, {x.dim(0)}));
       }}};
  for (const auto& [name, op] : ops) expect_like_one_block(name, op, true);
}

}  // namespace athanor::many_rows_test
