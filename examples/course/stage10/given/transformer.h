#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn.h"

namespace engine {

/// The softmax along the last axis: each row is positive and has the sum 1. Finite for any finite x.
Variable softmax(const Variable& x);

/// softmax(q k^T / sqrt(d)) v: for each query the mean of the values, weighted by how well their keys match
/// it. q [..., t, d], k [..., s, d], v [..., s, e], with equal axes before the last two; the result is [...,
/// t, e].
Variable attention(const Variable& q, const Variable& k, const Variable& v);

/// Layer norm over the last axis, of size `width`: (x - mean) / sqrt(variance + 1e-5) weight + bias, with the
/// biased variance. "weight" [width] starts at 1, "bias" [width] at 0.
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(std::int64_t width);
  Variable forward(const Variable& x) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;

 private:
  Variable weight_, bias_;
};

/// Attention of a sequence to itself, x [n, t, width] to [n, t, width]. "qkv" [3 width, width] makes queries,
/// keys and values of each token, in this order; head h has columns [h width / heads, (h + 1) width / heads)
/// of each of the three. "out" [width, width] mixes the heads' results, which stand beside each other in the
/// order of the heads. Both are Linear, with a bias and seeds of their own, made from `seed`. Throws
/// std::invalid_argument if heads does not divide width.
class SelfAttention final : public Module {
 public:
  SelfAttention(std::int64_t width, std::int64_t heads, std::uint64_t seed);
  Variable forward(const Variable& x) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;

 private:
  std::int64_t heads_;
  Linear qkv_, out_;
};

/// A transformer's block with the norms first: y = x + attention(norm1(x)), and y + down(relu(up(norm2(y)))).
/// `up` is Linear(width, 2 width), `down` its inverse shape. Parameters "norm1.", "attention.", "norm2.",
/// "up.", "down.", in this order.
class Block final : public Module {
 public:
  Block(std::int64_t width, std::int64_t heads, std::uint64_t seed);
  Variable forward(const Variable& x) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;

 private:
  LayerNorm norm1_;
  SelfAttention attention_;
  LayerNorm norm2_;
  Linear up_, down_;
};

/// Reads a digit row by row: images [n, 1, 8, 8] to logits [n, 10]. Each row of eight pixels is a token.
/// "embed." is Linear(8, width); "position" [8, width] is added, which starts normal with deviation 0.02;
/// then come the blocks "block0.", "block1.", ..., "norm.", the mean over the eight tokens, and "head.",
/// which is Linear(width, 10). Parameters in this order. Layers have different seeds, made from `seed`.
class DigitsTransformer final : public Module {
 public:
  struct Options {
    std::int64_t width = 32, heads = 4, blocks = 2;
  };
  DigitsTransformer(Options options, std::uint64_t seed);
  Variable forward(const Variable& images) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;

 private:
  Linear embed_;
  Variable position_;
  std::vector<std::unique_ptr<Block>> blocks_;
  LayerNorm norm_;
  Linear head_;
};

}  // namespace engine
