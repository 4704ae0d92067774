#include "nn/module.h"

#include <type_traits>

#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "tensor/io/safetensors.h"
#include "tests/support/ops.h"
#include "tests/support/temp_dir.h"

namespace athanor::nn::module_test {

static_assert(!std::is_copy_constructible_v<Linear> && !std::is_move_constructible_v<Linear>);

// Two linear layers, a scale of its own, and a running count.
class Net : public Module {
 public:
  explicit Net(std::int64_t hidden = 4) : first(3, hidden), second(hidden, 2, {.bias = false}) {
    register_module("first", first);
    register_module("second", second);
    scale = register_parameter("scale", Tensor::zeros({1}), {.keep_f32 = true, .decay = false});
    seen = register_buffer("seen", Tensor::zeros({1}));
  }
  Tensor forward(const Tensor& x) override { return second(first(x)) * scale; }

  Linear first, second;
  Tensor scale, seen;

 private:
  void reset(const InitKeys& keys) override { init::uniform(scale, keys("scale"), 1, 2); }
};

// A second head with the first one's weight.
class Tied : public Module {
 public:
  Tied() {
    register_module("a", a);
    weight = register_parameter("weight", a.weight());
  }
  Tensor forward(const Tensor& x) override { return a(x) + linear_again(x); }
  Tensor linear_again(const Tensor& x) const { return x * weight; }

  Linear a{1, 1, {.bias = false}};
  Tensor weight;
};

std::vector<std::string> names_of(const Module& module) {
  std::vector<std::string> names;
  for (const Parameter& parameter : module.parameters()) names.push_back(parameter.name);
  return names;
}

TEST(Module, NamesParametersByTheirPath) {
  const Net net;
  EXPECT_EQ(names_of(net),
            (std::vector<std::string>{"scale", "first.weight", "first.bias", "second.weight"}));
  ASSERT_EQ(net.buffers().size(), 1u);
  EXPECT_EQ(net.buffers()[0].name, "seen");
  EXPECT_EQ(net.parameter_count(), 1 + 12 + 4 + 8);
  EXPECT_EQ(net.state_dict().names(),
            (std::vector<std::string>{"scale", "first.weight", "first.bias", "second.weight", "seen"}));
  std::vector<std::string> modules;
  for (const NamedModule& module : net.modules()) modules.push_back(module.name);
  EXPECT_EQ(modules, (std::vector<std::string>{"", "first", "second"}));
}

TEST(Module, KeepsHintsForTheOptimizer) {
  const std::vector<Parameter> parameters = Net().parameters();
  EXPECT_TRUE(parameters[0].keep_f32);
  EXPECT_FALSE(parameters[0].decay);
  EXPECT_TRUE(parameters[1].decay);   // weight
  EXPECT_FALSE(parameters[2].decay);  // bias
  for (const Parameter& parameter : parameters) EXPECT_TRUE(parameter.tensor.requires_grad());
}

TEST(Module, NeedsValuesBeforeTheFirstCall) {
  Net net;
  const Tensor x = Tensor::zeros({1, 3});
  EXPECT_ERROR(ArgumentError, net(x), "module", "'weight'", "athanor::nn::Linear", "initialize(seed)",
               "load_state_dict()", "register_module(NAME, MODULE)");
  net.initialize(1);
  EXPECT_EQ(net(x).shape(), (Shape{1, 2}));
  Net loaded;
  loaded.load_state_dict(net.state_dict());
  EXPECT_EQ(loaded(x).to_vector(), net(x).to_vector());
}

TEST(Module, InitialValuesDependOnSeedAndNameAlone) {
  Net a, b, wide(5);
  a.initialize(3);
  b.initialize(3);
  wide.initialize(3);
  EXPECT_EQ(a.first.weight().to_vector(), b.first.weight().to_vector());
  EXPECT_EQ(a.scale.item(), wide.scale.item());  // another layer's size changes nothing here
  EXPECT_NE(a.first.weight().to_vector()[0], a.second.weight().to_vector()[0]);
  b.initialize(4);
  EXPECT_NE(a.first.weight().to_vector(), b.first.weight().to_vector());
  b.initialize(3);
  EXPECT_EQ(a.first.weight().to_vector(), b.first.weight().to_vector());

  // A layer more in the model leaves the others as they were.
  Sequential few, more;
  few.add_named<Linear>("in", 3, 4).add_named<Linear>("out", 4, 2);
  more.add_named<Linear>("in", 3, 4).add_named<Linear>("middle", 4, 4).add_named<Linear>("out", 4, 2);
  few.initialize(9);
  more.initialize(9);
  EXPECT_EQ(few.state_dict().tensor("out.weight").to_vector(),
            more.state_dict().tensor("out.weight").to_vector());
}

TEST(Module, LinearStartsWithinItsBound) {
  Linear linear(16, 100);
  linear.initialize(1);
  for (const Tensor& tensor : {linear.weight(), linear.bias()}) {
    double greatest = 0;
    for (const double v : tensor.to_vector()) greatest = std::max(greatest, std::abs(v));
    EXPECT_LE(greatest, 0.25);
    EXPECT_GT(greatest, 0.22);
  }
}

TEST(Module, LinearComputesItsFormula) {
  Linear linear(2, 2, {.activation = Activation::relu});
  StateDict state;
  state.set("weight", Tensor::from(std::vector<float>{1, 2, 3, -4}, {2, 2}));
  state.set("bias", Tensor::from(std::vector<float>{0.5f, 1}, {2}));
  linear.load_state_dict(state);
  EXPECT_EQ(linear(Tensor::from(std::vector<float>{1, 1}, {1, 2})).to_vector(),
            (std::vector<double>{3.5, 0}));
}

TEST(Module, TrainAndEvalReachTheWholeTree) {
  Net net;
  EXPECT_TRUE(net.second.training());
  net.eval();
  EXPECT_FALSE(net.training() || net.first.training() || net.second.training());
  net.train();
  EXPECT_TRUE(net.training() && net.first.training() && net.second.training());
}

TEST(Module, TiedWeightIsListedOnceAndCollectsBothGradients) {
  Tied tied;
  tied.initialize(1);
  EXPECT_EQ(names_of(tied), (std::vector<std::string>{"weight"}));
  EXPECT_TRUE(tied.weight.same_as(tied.a.weight()));
  backward(tied(Tensor::from(std::vector<float>{3}, {1, 1})));
  EXPECT_EQ(grad_of(tied.weight).item(), 6);
}

TEST(Module, StateComesBackExactlyThroughAFile) {
  const test::TempDir folder;
  const auto path = folder / "net.safetensors";
  Net net, back;
  net.initialize(5);
  init::constant(net.seen, 42);
  safetensors::save(path, net.state_dict());
  back.load_state_dict(safetensors::load(path));
  const StateDict want = net.state_dict();
  for (const StateDict::Entry& entry : back.state_dict())
    EXPECT_EQ(std::get<Tensor>(entry.value).to_vector(), want.tensor(entry.name).to_vector());
  EXPECT_EQ(back.seen.item(), 42);
}

TEST(Module, LoadingKeepsHandlesAndCountsTheWrite) {
  Net net, other;
  other.initialize(1);
  const Tensor handle = net.parameters()[1].tensor;
  const std::uint32_t version = handle.version();
  net.load_state_dict(other.state_dict());
  EXPECT_EQ(handle.to_vector(), other.first.weight().to_vector());
  EXPECT_NE(handle.version(), version);
  EXPECT_FALSE(handle.storage() == other.first.weight().storage());  // values were copied
  EXPECT_TRUE(handle.requires_grad());
}

TEST(Module, LoadingConvertsFloatingDtypes) {
  Linear linear(1, 2, {.bias = false});
  StateDict state;
  state.set("weight", Tensor::from(std::vector<Half>{Half(1.5f), Half(-2.0f)}, {2, 1}));
  linear.load_state_dict(state);
  EXPECT_EQ(linear.weight().dtype(), DType::f32);
  EXPECT_EQ(linear.weight().to_vector(), (std::vector<double>{1.5, -2}));
  StateDict wrong;
  wrong.set("weight", Tensor::zeros({2, 1}, {DType::i32, kCpu}));
  EXPECT_THROW(linear.load_state_dict(wrong), ArgumentError);
}

TEST(Module, LoadNamesWhatIsWrongAndChangesNothing) {
  Net net;
  net.initialize(1);
  const std::vector<double> before = net.first.weight().to_vector();

  StateDict state;
  state.set("scale", Tensor::zeros({1}));
  state.set("first.weight", Tensor::zeros({4, 3}));
  state.set("first.bais", Tensor::zeros({4}));
  state.set("second.weight", Tensor::zeros({4, 2}));
  state.set("seen", std::int64_t{3});
  EXPECT_ERROR(ArgumentError, net.load_state_dict(state), "load_state_dict", "first.bias", "first.bais",
               "second.weight", "[2, 4]", "[4, 2]", "seen", "integer");
  EXPECT_EQ(net.first.weight().to_vector(), before);
}

TEST(Module, RefusesBadNames) {
  struct Bad : Module {
    Tensor forward(const Tensor& x) override { return x; }
    void parameter(const std::string& name) { register_parameter(name, Tensor::zeros({1})); }
    void buffer(const std::string& name) { register_buffer(name, Tensor::zeros({1})); }
    void child(const std::string& name, Module& module) { register_module(name, module); }
  } bad;
  bad.parameter("w");
  EXPECT_THROW(bad.parameter("w"), ArgumentError);
  EXPECT_THROW(bad.buffer("w"), ArgumentError);
  EXPECT_THROW(bad.parameter(""), ArgumentError);
  EXPECT_THROW(bad.parameter("a.b"), ArgumentError);
  EXPECT_THROW(bad.child("self", bad), ArgumentError);
  Linear linear(1, 1);
  EXPECT_THROW(bad.child("w", linear), ArgumentError);
}

TEST(Module, ConvertsToOtherDtypes) {
  Net net;
  net.initialize(1);
  const std::vector<double> before = net.first.weight().to_vector();
  net.to(DType::f64);
  EXPECT_EQ(net.first.weight().dtype(), DType::f64);
  EXPECT_EQ(net.seen.dtype(), DType::f64);
  EXPECT_EQ(net.first.weight().to_vector(), before);
  net.to(DType::bf16);
  EXPECT_EQ(net.first.weight().dtype(), DType::bf16);
  EXPECT_EQ(net.scale.dtype(), DType::f32);  // keep_f32
  EXPECT_EQ(net.seen.dtype(), DType::f32);
  EXPECT_THROW(net.to(DType::i64), ArgumentError);
}

TEST(Sequential, RunsInOrderUnderNumbersOrNames) {
  Sequential net;
  net.add<Linear>(2, 3).add<Relu>().add<Linear>(3, 1);
  EXPECT_EQ(names_of(net), (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}));
  net.initialize(1);
  EXPECT_EQ(net(Tensor::zeros({5, 2})).shape(), (Shape{5, 1}));
  EXPECT_EQ(net.size(), 3u);
  EXPECT_THROW(net.add_named<Relu>("1"), ArgumentError);
  EXPECT_THROW(net.append("x", std::unique_ptr<Module>()), ArgumentError);
}

}  // namespace athanor::nn::module_test
