#include "kernels/cpu/context.h"
#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/sequential.h"
#include "optim/arena.h"
#include "tests/support/mixed_run.h"
#include "tests/support/ops.h"

namespace athanor::precision_test {

// Saved activations ----------------------------------------------------------------------------------------

struct ModelCase {
  const char* name;
  nn::ModelOptions options;
};

/// Bytes alive between forward and backward that were not before.
std::int64_t activation_bytes(const ModelCase& wanted, Precision precision) {
  const auto model = nn::make_model(wanted.name, wanted.options, 0);
  const ParameterArena arena(model->parameters(), model->buffers(), {.precision = precision});
  const std::int64_t size = wanted.options.image_size;
  const auto alive = [] {
    const auto tags = allocator_of(kCpu).stats().by_tag;
    const auto at = tags.find("activations");
    return at == tags.end() ? 0 : at->second;
  };
  const std::int64_t before = alive();
  const AllocTag named("activations");
  const Tensor images =
      Tensor::empty({8, size, size, wanted.options.in_channels}, {compute_dtype(precision), kCpu});
  kernels::fill(cpu_context(), images, 0.5);
  const Tensor labels = Tensor::from(std::vector<std::int64_t>(8, 1), {8});
  const Tensor loss = cross_entropy((*model)(images), labels);
  return alive() - before;
}

class Activations : public testing::TestWithParam<ModelCase> {};

TEST_P(Activations, AreHalfAsLargeInHalfPrecision) {
  const auto f32 = static_cast<double>(activation_bytes(GetParam(), Precision::f32));
  ASSERT_GT(f32, 0);
  for (const Precision precision : {Precision::bf16, Precision::f16}) {
    const auto half = static_cast<double>(activation_bytes(GetParam(), precision));
    EXPECT_GE(half / f32, 0.49) << name_of(precision) << ": was everything counted?";
    // Where maxima are takes a byte each in every precision: of what lenet5 keeps in f32, an eighth.
    EXPECT_LE(half / f32, GetParam().name == std::string("lenet5") ? 0.57 : 0.55) << name_of(precision);
    RecordProperty(std::string(name_of(precision)), std::to_string(half / f32));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Activations,
                         testing::Values(ModelCase{"digits_cnn", {10, 1, 8}},
                                         ModelCase{"lenet5", {10, 1, 28}}, ModelCase{"resnet20", {10, 3, 32}},
                                         ModelCase{"resnet18_cifar", {10, 3, 32}},
                                         ModelCase{"cifarnet", {10, 3, 32}}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// What stays in f32 ----------------------------------------------------------------------------------------

TEST(KeepF32, ComputesAModuleInF32AmongHalfOnes) {
  class Net final : public nn::Module {
   public:
    Net() {
      register_module("in", in);
      register_module("middle", middle);
      register_module("out", out);
      initialize(4);
    }
    Tensor forward(const Tensor& x) override {
      const Tensor h = in(x), m = middle(h);
      seen = {h.dtype(), m.dtype()};
      return out(m);
    }
    nn::Linear in{8, 16, {.activation = Activation::relu}}, middle{16, 16}, out{16, 3};
    std::vector<DType> seen;
  };
  Net plain, kept;
  kept.middle.keep_f32();
  const ParameterArena plain_arena(plain.parameters(), {}, {.precision = Precision::f16});
  ParameterArena arena(kept.parameters(), {}, {.precision = Precision::f16});
  EXPECT_EQ(plain.middle.weight().dtype(), DType::f16);
  EXPECT_EQ(kept.in.weight().dtype(), DType::f16);
  EXPECT_EQ(kept.middle.weight().dtype(), DType::f32);
  EXPECT_EQ(kept.middle.bias().dtype(), DType::f32);
  std::vector<float> values(5 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_uniform(philox_word({9, 9}, i));
  const Tensor x = cast(Tensor::from(values, {5, 8}), DType::f16);
  const Tensor y = kept(x);
  EXPECT_EQ(kept.seen, (std::vector<DType>{DType::f16, DType::f16}));
  EXPECT_TRUE(test::close(y, plain(x).to_vector(), 4 * test::epsilon_of(DType::f16)));
  EXPECT_FALSE(test::same_bits(y, plain(x))) << "the weights of the middle are not rounded";
  // Gradients pass through in the dtype of each parameter.
  backward(cross_entropy(y, Tensor::from(std::vector<std::int64_t>(5, 1), {5})));
  for (int i = 0; i < arena.size(); ++i) {
    const Parameter& parameter = arena.parameters()[static_cast<std::size_t>(i)];
    EXPECT_TRUE(arena.has_gradient(i)) << parameter.name;
    EXPECT_EQ(arena.gradient(i).dtype(), parameter.tensor.dtype()) << parameter.name;
  }
  // In f32 it changes nothing.
  Net wide, wide_kept;
  wide_kept.middle.keep_f32();
  EXPECT_TRUE(test::same_bits(wide(Tensor::from(values, {5, 8})), wide_kept(Tensor::from(values, {5, 8}))));
  wide_kept.middle.keep_f32(false);
  EXPECT_FALSE(wide_kept.parameters()[2].keep_f32);
}

TEST(KeepF32, NormsAndTheirStatisticsStayAsTheyAre) {
  test::MixedNet net;
  net.keep_f32();
  net.keep_f32(false);
  const ParameterArena arena(net.parameters(), net.buffers(), {.precision = Precision::bf16});
  for (const Parameter& parameter : net.parameters()) {
    const bool norm = parameter.name.starts_with("norm.");
    EXPECT_EQ(parameter.tensor.dtype(), norm ? DType::f32 : DType::bf16) << parameter.name;
  }
  for (const NamedTensor& buffer : net.buffers()) EXPECT_EQ(buffer.tensor.dtype(), DType::f32) << buffer.name;
}

}  // namespace athanor::precision_test
