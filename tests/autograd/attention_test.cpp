#include "autograd/attention.h"

#include "nn/attention.h"
#include "nn/init.h"
#include "nn/models/vision_transformer.h"
#include "tests/support/ops.h"

namespace athanor::attention_test {

using test::close;

Tensor values(const Shape& shape, std::uint64_t key, DType dtype = DType::f64) {
  return test::filled({shape}, dtype, {key}, -2, 2);
}

TEST(Attention, AQueryWithoutKeysGetsZerosAndNoGradient) {
  const Tensor q = values({3, 5}, 1), k = values({6, 5}, 2), v = values({6, 3}, 3);
  for (const Tensor& x : {q, k, v}) require_grad(x);
  const Tensor mask = cast(Tensor::from(std::vector<float>{1, 0, 1}, {3, 1}), DType::boolean);
  const Tensor y = scaled_dot_product_attention(q, k, v, {.mask = expand(mask, {3, 6})});
  const std::vector<double> result = y.to_vector();
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(result[i], 0);
  backward(sum(square(y)));
  const std::vector<double> dq = grad_of(q).to_vector();
  for (std::size_t i = 0; i < dq.size(); ++i) EXPECT_EQ(dq[i] == 0, i >= 5 && i < 10) << i;
  for (const Tensor& x : {k, v}) {
    for (const double value : grad_of(x).to_vector()) EXPECT_TRUE(std::isfinite(value));
  }
}

// Nor is there a NaN or an infinity on the way.
TEST(Attention, MaskedScoresAreFiniteAndWeighNothing) {
  const AnomalyMode anomaly;
  for (const DType dtype : test::kFloating) {
    const Tensor q = values({3, 5}, 1, dtype), k = values({4, 5}, 2, dtype), v = values({4, 2}, 3, dtype);
    for (const Tensor& x : {q, k, v}) require_grad(x);
    const Tensor none = Tensor::zeros({3, 4}, {DType::boolean, kCpu});
    const Tensor y = scaled_dot_product_attention(q, k, v, {.mask = none});
    EXPECT_EQ(y.to_vector(), std::vector<double>(6, 0.0));
    backward(sum(square(y)));
    for (const Tensor& x : {q, k, v}) {
      for (const double value : grad_of(x).to_vector()) EXPECT_EQ(value, 0);
    }
    backward(sum(scaled_dot_product_attention(q, k, v, {.causal = true})));
  }
}

TEST(Attention, NothingLeaksWhereScoresOverflow) {
  const Tensor q = Tensor::from(std::vector<float>{-1e25f}, {1, 1});
  const Tensor k = Tensor::from(std::vector<float>{1e25f, 0}, {2, 1});
  const Tensor v = Tensor::from(std::vector<float>{1, 2}, {2, 1});
  EXPECT_EQ(scaled_dot_product_attention(q, k, v, {.causal = true}).item(), 0);
}

TEST(Attention, HalfTypesAreRoundedOnce) {
  // A score beyond f16's range is one of f32.
  const Tensor far = cast(Tensor::from(std::vector<float>{-60000}, {1, 1}), DType::f16);
  const Tensor keys = cast(Tensor::from(std::vector<float>{60000, 0}, {2, 1}), DType::f16);
  const Tensor pair = cast(Tensor::from(std::vector<float>{1, 2}, {2, 1}), DType::f16);
  EXPECT_EQ(scaled_dot_product_attention(far, keys, pair, {.causal = true}).item(), 1);

  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<Tensor> half, wide;
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      half.push_back(test::filled({{2, 5, 4}}, dtype, {seed}, -3, 3));
      wide.push_back(cast(half.back(), DType::f32));
    }
    const Tensor y = scaled_dot_product_attention(half[0], half[1], half[2]);
    const Tensor exact = scaled_dot_product_attention(wide[0], wide[1], wide[2]);
    EXPECT_TRUE(test::same_bits(y, cast(exact, dtype))) << name_of(dtype);
    const Tensor wrong = Tensor::zeros({5, 5}, {DType::f32, kCpu});
    EXPECT_THROW(scaled_dot_product_attention(half[0], half[1], half[2], {.mask = wrong}), ArgumentError);
  }
}

// With the unit matrix as values, a query's result is its weights.
TEST(Attention, DropoutZeroesWeightsAndScalesTheRest) {
  constexpr std::int64_t kKeys = 100, kQueries = 400;
  const Tensor q = values({2, kQueries, 4}, 1), k = values({2, kKeys, 4}, 2);
  std::vector<double> unit(kKeys * kKeys);
  for (std::size_t i = 0; i < kKeys; ++i) unit[i * kKeys + i] = 1;
  const Tensor v = Tensor::from(unit, {kKeys, kKeys});
  const Tensor some = test::filled({{kQueries, kKeys}}, DType::boolean, {5});
  for (const AttentionOptions& plain : {AttentionOptions{}, {.mask = some}, {.causal = true}}) {
    AttentionOptions drops = plain;
    drops.dropout = 0.3f;
    const std::vector<double> weights = scaled_dot_product_attention(q, k, v, plain).to_vector(),
                              found = scaled_dot_product_attention(q, k, v, drops).to_vector();
    double positive = 0, dropped = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0) continue;  // masked
      positive += 1;
      dropped += found[i] == 0 ? 1 : 0;
      if (found[i] == 0) continue;
      ASSERT_NEAR(found[i], weights[i] / (1 - double{0.3f}), 1e-12);
    }
    EXPECT_NEAR(dropped / positive, 0.3, 5 * std::sqrt(0.21 / positive));
  }
  EXPECT_EQ(scaled_dot_product_attention(q, k, v, {.dropout = 1}).to_vector(),
            std::vector<double>(2 * kQueries * kKeys, 0));
}

TEST(Attention, RejectsInvalidArguments) {
  const Tensor q = Tensor::zeros({2, 4, 5}), k = Tensor::zeros({2, 6, 5});
  const Tensor flags = Tensor::zeros({4, 6}, {DType::boolean, kCpu});
  EXPECT_REFUSED(scaled_dot_product_attention(q, k, Tensor()), "q", "k", "v", "undefined");
  EXPECT_REFUSED(scaled_dot_product_attention(q, k, Tensor::zeros({2, 6, 5}, {DType::f64, kCpu})), "q", "k",
                 "v", "f32", "f64");
  EXPECT_REFUSED(scaled_dot_product_attention(q, k, q), "q", "k", "v", "[2, 4, 5]", "[2, 6, 5]");
  EXPECT_REFUSED(scaled_dot_product_attention(q, k, k, {.mask = flags, .causal = true}), "causal", "mask");
  EXPECT_REFUSED(scaled_dot_product_attention(q, k, k, {.mask = Tensor::zeros({5, 6})}), "mask", "bool",
                 "f32", "[2, 4, 6]", "[5, 6]");
  EXPECT_REFUSED(scaled_dot_product_attention(q, k, k, {.mask = Tensor::zeros({4, 6}, {DType::i64, kCpu})}),
                 "mask", "bool", "f32", "i64");
  EXPECT_REFUSED(nn::MultiheadAttention(6, {.heads = 4}), "heads", "4", "6");
  EXPECT_REFUSED(nn::MultiheadAttention(6, {.dropout = 1.5}), "dropout", "[0, 1]", "1.5");
  EXPECT_REFUSED(scaled_dot_product_attention(q, k, k, {.dropout = -1}), "dropout", "[0, 1]", "-1");
  nn::MultiheadAttention layer(6, {.heads = 2});
  layer.initialize(1);
  EXPECT_ERROR(ArgumentError, layer(Tensor::zeros({2, 5})), "MultiheadAttention", "input", "[B, T, 6]",
               "[2, 5]");
}

// sin(1.7 i + phase), i = 0, 1, ...
Tensor wave(const Shape& shape, double phase) {
  std::vector<double> sines;
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    sines.push_back(std::sin(1.7 * static_cast<double>(i) + phase));
  return Tensor::from(sines, shape);
}
StateDict waves() {
  StateDict state;
  state.set("in_proj_weight", wave({12, 4}, 0));
  state.set("in_proj_bias", wave({12}, 1));
  state.set("out_proj.weight", wave({4, 4}, 2));
  state.set("out_proj.bias", wave({4}, 3));
  return state;
}

// torch.nn.MultiheadAttention(4, 2, batch_first=True) of PyTorch 2.15, in f64, with the same weights.
TEST(MultiheadAttention, MatchesPyTorch) {
  const Tensor x = wave({2, 3, 4}, 4);
  require_grad(x);
  nn::MultiheadAttention layer(4, {.heads = 2}), causal(4, {.heads = 2, .causal = true});
  for (nn::MultiheadAttention* each : {&layer, &causal}) {
    each->to(DType::f64);
    each->load_state_dict(waves());
  }
  const Tensor y = layer(x);
  EXPECT_TRUE(close(
      y,
      std::vector<double>{2.2848701943, 1.0969919947, 1.6189047342, 1.4852628123, 2.4585678322, 1.2748384384,
                          1.7544455998, 1.5430941454, 2.6889528808, 1.5216428103, 1.9532027543, 1.6418877161,
                          1.9003785153, 1.8566107968, 3.3242177735, 3.6908337634, 1.8333124706, 1.9085684345,
                          3.4816274978, 3.9125793643, 1.7475420424, 1.9457839047, 3.6321079988, 4.1370186339},
      1e-9));
  backward(sum(square(y)));
  EXPECT_TRUE(
      close(grad_of(x),
            std::vector<double>{8.9469898764,   -3.168011636,   -8.130628162,   5.2631849837,  3.3823553264,
                                -0.9375819025,  -3.1407507943,  1.7469187981,   -5.2711546016, 29.3220290548,
                                -2.2848094089,  -28.7332588291, -8.1635153054,  21.7445185864, 2.5601923034,
                                -22.4042519516, -12.0904554178, 32.3778285903,  3.7470455156,  -33.3434009594,
                                40.6461996567,  -4.6307717225,  -39.4529007751, 14.7973498202},
            1e-9));
  EXPECT_TRUE(close(grad_of(layer.parameters()[1].tensor),
                    std::vector<double>{7.4355843463, 6.9677762763, -1.4041719823, 5.5847158266, 0, 0, 0, 0,
                                        25.0693008761, -90.2879995587, -1.8030775879, 90.7526327987},
                    1e-9));
  EXPECT_TRUE(close(causal(x),
                    std::vector<double>{2.5226555261, 0.3743482758, 0.1245901311, -0.3904002003, 2.4446425725,
                                        0.8149649672, 0.9687451763, 0.6367956637, 2.6889528808,  1.5216428103,
                                        1.9532027543, 1.6418877161, 1.9816425549, 1.3551559696,  2.3710265973,
                                        2.5348845578, 1.9005717652, 1.5750142593, 2.8343858776,  3.120713059,
                                        1.7475420424, 1.9457839047, 3.6321079988, 4.1370186339},
                    1e-9));
}

TEST(MultiheadAttention, HasPyTorchsNamesAndInitialValues) {
  nn::MultiheadAttention layer(8, {.heads = 4}), bare(8, {.heads = 4, .bias = false});
  layer.initialize(1);
  std::vector<std::string> names;
  for (const Parameter& parameter : layer.parameters()) names.push_back(parameter.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  EXPECT_EQ(bare.parameters().size(), 2u);
  const auto largest = [](const Tensor& w) {
    double most = 0;
    for (const double value : w.to_vector()) most = std::max(most, std::abs(value));
    return most;
  };
  const double glorot = std::sqrt(6.0 / (8 + 24)), standard = 1 / std::sqrt(8.0);
  EXPECT_GT(largest(layer.parameters()[0].tensor), 0.9 * glorot);
  EXPECT_LE(largest(layer.parameters()[0].tensor), glorot);
  EXPECT_GT(largest(layer.parameters()[2].tensor), 0.8 * standard);
  EXPECT_LE(largest(layer.parameters()[2].tensor), standard);
  EXPECT_EQ(largest(layer.parameters()[1].tensor), 0);
  EXPECT_EQ(largest(layer.parameters()[3].tensor), 0);
}

TEST(MultiheadAttention, TakesAMaskForEveryHead) {
  nn::MultiheadAttention layer(4, {.heads = 2}), causal(4, {.heads = 2, .causal = true});
  layer.initialize(1);
  causal.initialize(1);
  const Tensor x = cast(values({2, 3, 4}, 1), DType::f32);
  const Tensor mask =
      cast(Tensor::from(std::vector<float>{1, 0, 0, 1, 1, 0, 1, 1, 1}, {3, 3}), DType::boolean);
  EXPECT_TRUE(test::same_bits(layer.forward(x, mask), causal(x)));
  EXPECT_EQ(layer(Tensor::zeros({0, 3, 4})).shape(), Shape({0, 3, 4}));
  EXPECT_EQ(layer(Tensor::zeros({2, 0, 4})).shape(), Shape({2, 0, 4}));
}

TEST(MultiheadAttention, DropsWeightsOnlyInTraining) {
  nn::MultiheadAttention layer(4, {.heads = 2, .dropout = 0.5}), plain(4, {.heads = 2});
  for (nn::MultiheadAttention* each : {&layer, &plain}) {
    each->to(DType::f64);
    each->load_state_dict(waves());
  }
  const Tensor x = values({64, 3, 4}, 1), y = plain(x);
  const Tensor first = layer(x), second = layer(x);
  EXPECT_FALSE(test::same_bits(first, y));
  EXPECT_FALSE(test::same_bits(first, second)) << "a mask of its own in every call";
  layer.eval();
  EXPECT_TRUE(test::same_bits(layer(x), y));
  // What is dropped is made up for: the mean over many masks is the result without.
  layer.train();
  const Tensor same = expand(contiguous(narrow(x, 0, 0, 1)), {20000, 3, 4});
  EXPECT_TRUE(close(mean(layer(same), {0}), plain(narrow(x, 0, 0, 1)).to_vector(), 0.05));
}

// The last layer is zero at first.
void init_head(nn::Module& model) {
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.name == "heads.head.weight") nn::init::normal(parameter.tensor, {3, 1}, 0, 1);
  }
}

TEST(VisionTransformer, DropsAttentionOnlyInTraining) {
  const nn::ModelOptions size{3, 3, 16};
  nn::VisionTransformerOptions options{.patch = 8, .layers = 2, .heads = 2, .width = 8, .mlp = 16};
  nn::VisionTransformer plain(size, options);
  options.attention_dropout = 0.5;
  nn::VisionTransformer drops(size, options);
  plain.initialize(1);
  init_head(plain);
  drops.load_state_dict(plain.state_dict());
  const Tensor x = values({2, 16, 16, 3}, 1, DType::f32);
  EXPECT_FALSE(test::same_bits(drops(x), plain(x)));
  drops.eval();
  EXPECT_TRUE(test::same_bits(drops(x), plain(x)));
}

}  // namespace athanor::attention_test
