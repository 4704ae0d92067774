#include "transformer.h"

#include <cmath>
#include <stdexcept>

#include "random.h"

namespace engine {
namespace {

using Parameters = std::vector<std::pair<std::string, Variable>>;

void append(Parameters& all, const std::string& prefix, const Module& part) {
  for (const auto& [name, parameter] : part.parameters()) all.emplace_back(prefix + name, parameter);
}

}  // namespace

Variable softmax(const Variable& x) {
  return exp(log_softmax(x));
}

Variable attention(const Variable& q, const Variable& k, const Variable& v) {
  const std::int64_t rank = k.value().rank();
  const float factor = 1.0f / std::sqrt(static_cast<float>(k.shape().back()));
  return matmul(softmax(scale(matmul(q, transpose(k, rank - 2, rank - 1)), factor)), v);
}

LayerNorm::LayerNorm(std::int64_t width)
    : weight_(map(Tensor({width}), [](float) { return 1.0f; }), true), bias_(Tensor({width}), true) {}

Variable LayerNorm::forward(const Variable& x) {
  const std::int64_t last = x.value().rank() - 1;
  const Variable centred = sub(x, mean(x, last));
  const Variable variance = mean(mul(centred, centred), last);
  const Variable deviation = sqrt(add(variance, Variable(Tensor({1}, {1e-5f}))));
  return add(mul(div(centred, deviation), weight_), bias_);
}

Parameters LayerNorm::parameters() const {
  return {{"weight", weight_}, {"bias", bias_}};
}

SelfAttention::SelfAttention(std::int64_t width, std::int64_t heads, std::uint64_t seed)
    : heads_(heads), qkv_(width, 3 * width, seed), out_(width, width, seed + 1) {
  if (heads < 1 || width % heads != 0)
    throw std::invalid_argument("SelfAttention: heads must divide the width, but there are " +
                                std::to_string(heads) + " heads and a width of " + std::to_string(width));
}

Variable SelfAttention::forward(const Variable& x) {
  const std::int64_t n = x.shape()[0], t = x.shape()[1], width = x.shape()[2];
  const Variable all = qkv_.forward(x);  // [n, t, 3 width]
  const auto heads_of = [&](std::int64_t which) {
    const Variable part = narrow(all, 2, which * width, width);
    return transpose(reshape(part, {n, t, heads_, width / heads_}), 1, 2);  // [n, heads, t, width / heads]
  };
  const Variable results = attention(heads_of(0), heads_of(1), heads_of(2));
  return out_.forward(reshape(transpose(results, 1, 2), {n, t, width}));
}

Parameters SelfAttention::parameters() const {
  Parameters all;
  append(all, "qkv.", qkv_);
  append(all, "out.", out_);
  return all;
}

Block::Block(std::int64_t width, std::int64_t heads, std::uint64_t seed)
    : norm1_(width),
      attention_(width, heads, seed),
      norm2_(width),
      up_(width, 2 * width, seed + 2),
      down_(2 * width, width, seed + 3) {}

Variable Block::forward(const Variable& x) {
  const Variable y = add(x, attention_.forward(norm1_.forward(x)));
  return add(y, down_.forward(relu(up_.forward(norm2_.forward(y)))));
}

Parameters Block::parameters() const {
  Parameters all;
  append(all, "norm1.", norm1_);
  append(all, "attention.", attention_);
  append(all, "norm2.", norm2_);
  append(all, "up.", up_);
  append(all, "down.", down_);
  return all;
}

namespace {
constexpr std::int64_t kRows = 8, kColumns = 8, kClasses = 10;
}

DigitsTransformer::DigitsTransformer(Options options, std::uint64_t seed)
    : embed_(kColumns, options.width, seed),
      position_(random_tensor({kRows, options.width}, seed + 1, 0.02f), true),
      norm_(options.width),
      head_(options.width, kClasses, seed + 2) {
  for (std::int64_t i = 0; i < options.blocks; ++i)
    blocks_.push_back(
        std::make_unique<Block>(options.width, options.heads, seed + 10 * static_cast<std::uint64_t>(i + 1)));
}

Variable DigitsTransformer::forward(const Variable& images) {
  const std::int64_t n = images.shape()[0];
  Variable x = add(embed_.forward(reshape(images, {n, kRows, kColumns})), position_);
  for (const std::unique_ptr<Block>& block : blocks_) x = block->forward(x);
  const Variable tokens = mean(norm_.forward(x), 1);  // [n, 1, width]
  return head_.forward(reshape(tokens, {n, tokens.shape()[2]}));
}

Parameters DigitsTransformer::parameters() const {
  Parameters all;
  append(all, "embed.", embed_);
  all.emplace_back("position", position_);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    append(all, "block" + std::to_string(i) + ".", *blocks_[i]);
  append(all, "norm.", norm_);
  append(all, "head.", head_);
  return all;
}

}  // namespace engine
