// Memory of attention over growing sequences: with the whole table of scores, and in blocks of keys.

#include <cmath>
#include <functional>

#include "athanor.h"
#include "examples/book_figures/figures.h"

namespace athanor::examples {
namespace {

constexpr std::int64_t kBlock = 64, kChannels = 64;  // keys that are scored at a time; channels of a head

struct Attended {
  Tensor y, log_sum;  // [L, E]; [L, 1]: the logarithm of each query's sum of exp(score)
};

Tensor scaled(const Tensor& q) {
  return affine(q, 1 / std::sqrt(static_cast<double>(q.dim(1))));
}

// Milakov and Gimelshein 2018, arXiv:1805.02867: one pass over the keys with a running maximum and sum.
Attended forward_in_blocks(const Tensor& q, const Tensor& k, const Tensor& v) {
  Tensor largest = full({q.dim(0), 1}, -1e30), total = zeros({q.dim(0), 1});
  Tensor mixed = zeros({q.dim(0), v.dim(1)});
  const Tensor queries = scaled(q);
  for (std::int64_t first = 0; first < k.dim(0); first += kBlock) {
    const Tensor scores = matmul(queries, transpose(narrow(k, 0, first, kBlock), 0, 1));
    const Tensor now = maximum(largest, max(scores, 1, true));
    const Tensor shrink = exp(largest - now), parts = exp(scores - now);
    total = total * shrink + sum(parts, {1}, true);
    mixed = mixed * shrink + matmul(parts, narrow(v, 0, first, kBlock));
    largest = now;
  }
  return {mixed / total, largest + log(total)};
}

// The gradients of q, k and v, from the block's scores computed again. Dao et al. 2022, arXiv:2205.14135,
// appendix B.
std::vector<Tensor> backward_in_blocks(const Tensor& q, const Tensor& k, const Tensor& v, const Attended& of,
                                       const Tensor& dy) {
  const Tensor queries = scaled(q), mean = sum(dy * of.y, {1}, true);
  Tensor dq = zeros(q.shape());
  std::vector<Tensor> dk, dv;
  for (std::int64_t first = 0; first < k.dim(0); first += kBlock) {
    const Tensor keys = narrow(k, 0, first, kBlock), values = narrow(v, 0, first, kBlock);
    const Tensor weights = exp(matmul(queries, transpose(keys, 0, 1)) - of.log_sum);
    const Tensor d_scores = weights * (matmul(dy, transpose(values, 0, 1)) - mean);
    dv.push_back(matmul(transpose(weights, 0, 1), dy));
    dk.push_back(matmul(transpose(d_scores, 0, 1), queries));
    dq = dq + matmul(d_scores, keys);
  }
  return {scaled(dq), cat(dk, 0), cat(dv, 0)};
}

// The most bytes alive at once during `work`, beyond those before it.
std::int64_t peak_of(const std::function<void()>& work) {
  Allocator& memory = allocator_of(kCpu);
  memory.reset_peak();
  const std::int64_t before = memory.stats().current;
  work();
  return memory.stats().peak - before;
}

}  // namespace

nlohmann::json attention_memory() {
  nlohmann::json rows;
  for (const std::int64_t tokens : {128, 256, 512, 1024, 2048, 4096}) {
    const auto random = [tokens](std::uint64_t seed) { return randn({tokens, kChannels}, {.seed = seed}); };
    const Tensor q = random(1), k = random(2), v = random(3), dy = random(4);
    nlohmann::json row{{"tokens", tokens}};
    {
      const NoGrad off;
      row["table"] = peak_of([&] { scaled_dot_product_attention(q, k, v); });
      row["blocks"] = peak_of([&] { forward_in_blocks(q, k, v); });
      row["blocks, step"] = peak_of([&] { backward_in_blocks(q, k, v, forward_in_blocks(q, k, v), dy); });
    }
    for (const Tensor& leaf : {q, k, v}) require_grad(leaf);
    row["table, step"] = peak_of([&] { backward(sum(scaled_dot_product_attention(q, k, v) * dy)); });
    rows.push_back(row);
  }
  return rows;
}

}  // namespace athanor::examples
