// Every convolution of every model has a plan on the GPUs we build for. No GPU is needed to know: cuDNN makes
// plans for a device that is described to it (tests/cuda/devices/).

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <unordered_set>

#include <gtest/gtest.h>

#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
#include "kernels/account/context.h"
#include "kernels/cuda/cublas_matmul.h"
#include "kernels/cuda/cudnn_conv.h"
#include "kernels/cuda/vendor_conv_plan.h"
#include "nn/models/model.h"

namespace athanor::plans_test {
namespace {

using cudnn::ConvSignature;
using cudnn::Graph;

/// A call of conv2d, as a model made it.
struct Call {
  Shape x, w, y;
  bool bias;
  Conv2dParams params;
  bool wants_dx, wants_dw;
};

Conv2dParams params_of(const TracedOp& op) {
  Conv2dParams params;
  for (const TracedAttribute& attribute : op.attributes) {
    const auto value = [&](std::size_t i) { return static_cast<std::int64_t>(attribute.values[i]); };
    for (std::size_t axis = 0; axis < 2; ++axis) {
      if (attribute.name == "stride") params.stride[axis] = value(axis);
      if (attribute.name == "padding") params.padding[axis] = value(axis);
      if (attribute.name == "dilation") params.dilation[axis] = value(axis);
    }
    if (attribute.name == "groups") params.groups = value(0);
    if (attribute.name == "activation") params.activation = static_cast<Activation>(value(0));
  }
  return params;
}

/// What a model convolves: it says so to a trace, and nothing is computed.
std::vector<Call> calls_of(const std::string& model) {
  const nn::ModelOptions options = nn::model_options(model);
  const auto module = nn::make_model(model, {});
  module->eval();
  const NoGrad no_grad;
  const Tensor batch = Tensor::zeros({1, options.image_size, options.image_size, options.in_channels});
  AccountContext account([](const KernelCost&) {});
  const AccountScope scope(account);
  module->load_state_dict(module->state_dict());  // any values will do
  const OpTrace trace;
  (*module)(batch);
  std::vector<Call> calls;
  for (const TracedOp& op : trace.ops()) {
    if (op.name != "conv2d") continue;
    const Tensor &x = op.inputs[0], &w = op.inputs[1], &bias = op.inputs[2];
    calls.push_back({x.shape(), w.shape(), op.outputs[0].shape(), bias.defined(), params_of(op),
                     x.storage() != batch.storage(), w.requires_grad()});
  }
  return calls;
}

struct Planned {
  std::string model;  // the first that has it
  ConvSignature signature;
};

/// Every signature a training step of any model meets, once each.
const std::vector<Planned>& signatures() {
  static const std::vector<Planned> all = [] {
    struct Hash {
      std::size_t operator()(const ConvSignature& z) const { return z.hash(); }
    };
    std::unordered_set<ConvSignature, Hash> seen;
    std::vector<Planned> planned;
    for (const std::string& model : nn::model_names()) {
      for (Call& call : calls_of(model)) {
        call.x[0] = call.y[0] = call.x[1] >= 128 || nn::model_options(model).image_size >= 128 ? 256 : 512;
        for (const auto pass :
             {Graph::Pass::forward, Graph::Pass::backward_data, Graph::Pass::backward_weights}) {
          if (pass == Graph::Pass::backward_data && !call.wants_dx) continue;
          if (pass == Graph::Pass::backward_weights && !call.wants_dw) continue;
          ConvSignature z =
              cudnn::conv_signature(pass, DType::f16, call.x, call.w, call.y, call.bias, call.params);
          if (seen.insert(z).second) planned.push_back({model, z});
          if (pass != Graph::Pass::backward_data) continue;
          z.accumulate = true;  // where the gradient of a shortcut is there already
          if (seen.insert(z).second) planned.push_back({model, z});
        }
      }
    }
    return planned;
  }();
  return all;
}

cudnn::DeviceProperties device_of(const std::string& file) {
  std::ifstream in(std::string(ATHANOR_DEVICES_DIR) + "/" + file + ".json");
  return cudnn::DeviceProperties::from_json(std::string(std::istreambuf_iterator<char>(in), {}));
}

/// What cuDNN has for the models in one dtype on one device.
struct Tally {
  std::size_t planned = 0, most_workspace = 0;
  std::size_t uncertain = 0;  // whose answer would not be kept
  std::vector<std::string> without_tensor_cores, without_plan;
};

Tally tally_of(const cudnn::DeviceProperties& device, DType dtype) {
  Tally tally;
  for (const auto& [model, signature] : signatures()) {
    ConvSignature z = signature;
    z.dtype = z.out = dtype;
    z.rules.deterministic = true;
    const std::string name = model + ": " + z.str();
    const auto [plans, certain, why] = cudnn::find_conv_plans(z, device, 1);
    tally.uncertain += !certain;
    if (!certain) fmt::print("{}: {}\n", name, why);
    if (plans.empty()) {
      tally.without_plan.push_back(name);
      continue;
    }
    ++tally.planned;
    tally.most_workspace = std::max(tally.most_workspace, plans[0].workspace_bytes());
    if (dtype != DType::f32 && !plans[0].tensor_cores()) tally.without_tensor_cores.push_back(name);
  }
  return tally;
}

std::string table_of(const cudnn::DeviceProperties& device, DType dtype, const Tally& tally) {
  std::string table = fmt::format(
      "sm_{:<4} {:5} {:>5} of {} graphs planned, {} without tensor cores; at most {} MiB of workspace\n",
      device.sm(), dtype, tally.planned, signatures().size(), tally.without_tensor_cores.size(),
      tally.most_workspace >> 20);
  const auto list = [&](const char* what, const std::vector<std::string>& names) {
    for (const std::string& name : names) table += fmt::format("    {:22} {}\n", what, name);
  };
  list("without tensor cores", tally.without_tensor_cores);
  if (tally.planned > 0) list("no plan", tally.without_plan);
  return table;
}

class ConvPlans : public testing::TestWithParam<const char*> {};

TEST_P(ConvPlans, EveryModelEveryPass) {
  ASSERT_GT(signatures().size(), 100u);
  const cudnn::DeviceProperties device = device_of(GetParam());
  const bool must_plan = device.sm() == 80 || device.sm() == 90;
  std::string tables = fmt::format("{}, cuDNN {}\n", device.name(), cudnn::version());
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    if (dtype == DType::f32 && !must_plan) continue;  // IEEE f32: the slow way, everywhere the same
    const Tally tally = tally_of(device, dtype);
    tables += table_of(device, dtype, tally);
    EXPECT_EQ(tally.uncertain, 0u) << name_of(dtype);
    if (must_plan) {
      EXPECT_EQ(tally.planned, signatures().size()) << name_of(dtype);
    }
    if (dtype == DType::bf16 && device.sm() < 80) {
      EXPECT_EQ(tally.planned, 0u);  // refused: there is no hardware for it
    }
  }
  fmt::print("{}", tables);
  std::filesystem::create_directories(ATHANOR_PLANS_DIR);
  std::ofstream(std::string(ATHANOR_PLANS_DIR) + "/" + GetParam() + ".txt") << tables;
}

ConvSignature example(DType dtype = DType::f16) {
  return cudnn::conv_signature(Graph::Pass::forward, dtype, {64, 28, 28, 64}, {64, 3, 3, 64},
                               {64, 28, 28, 64}, false, {.padding = {1, 1}});
}

TEST(ConvPlan, TextGivesThePlanBack) {
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  const std::vector<cudnn::Plan> plans = cudnn::find_conv_plans(example(), device, 3).plans;
  ASSERT_EQ(plans.size(), 3u);
  for (const cudnn::Plan& plan : plans) {
    const std::optional<cudnn::Plan> read = cudnn::Plan::from_json(plan.json(), device);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->json(), plan.json());
    EXPECT_EQ(read->workspace_bytes(), plan.workspace_bytes());
  }
  EXPECT_NE(plans[0].json(), plans[1].json());
}

TEST(ConvPlan, ThroughTextComeTheSamePlans) {
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  const auto plans = cudnn::find_conv_plans(example(), device, 3).plans;
  const auto [read, certain, why] = cudnn::find_conv_plans(example(), cudnn::Target(device, true), 3);
  EXPECT_TRUE(certain) << why;
  ASSERT_EQ(read.size(), plans.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].json(), plans[i].json());
    EXPECT_EQ(read[i].engine(), plans[i].engine());
  }
}

TEST(ConvPlan, AGraphMayBeFinalizedAgain) {
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  Graph graph = cudnn::conv_graph(example());
  const std::size_t proposed = cudnn::propose(graph, device, CUDNN_HEUR_MODE_A).size();
  graph.finalize();
  EXPECT_GT(proposed, 0u);
  EXPECT_EQ(cudnn::propose(graph, device, CUDNN_HEUR_MODE_A).size(), proposed);
}

TEST(ConvPlan, RejectsTextThatIsNotAPlan) {
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  const std::string good = cudnn::find_conv_plans(example(), device, 1).plans.at(0).json();
  std::string older = good;
  older.replace(older.find("\"cudnnVersion\":9"), 16, "\"cudnnVersion\":8");
  for (const std::string& text : {std::string(), std::string("{}"), good.substr(0, good.size() / 2), older})
    EXPECT_FALSE(cudnn::Plan::from_json(text, device)) << text;
}

TEST(ConvPlan, RulesDecideWhichEnginesAreTaken) {
  const cudnn::DeviceProperties device = device_of("sm80_a100");
  ConvSignature z = example(DType::f32);
  const auto all_on_tensor_cores = [&](bool expected) {
    const std::vector<cudnn::Plan> plans = cudnn::find_conv_plans(z, device, 100).plans;
    EXPECT_FALSE(plans.empty());
    return std::all_of(plans.begin(), plans.end(),
                       [&](const cudnn::Plan& plan) { return plan.tensor_cores() == expected; });
  };
  EXPECT_TRUE(all_on_tensor_cores(false));  // f32 is IEEE f32
  z.rules.tf32 = true;
  EXPECT_FALSE(all_on_tensor_cores(false));

  z = example();
  z.rules.workspace_bytes = 4096;
  const cuda::Found<cudnn::Plan> small = cudnn::find_conv_plans(z, device, 100);
  for (const cudnn::Plan& plan : small.plans) EXPECT_LE(plan.workspace_bytes(), 4096u);

  z = example(DType::f32);
  z.pass = Graph::Pass::backward_weights;
  std::size_t nondeterministic = 0;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const auto& config : cudnn::propose(cudnn::conv_graph(z), device, mode)) {
      if (!config.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) continue;
      nondeterministic += cudnn::permits({.tf32 = true}, z.dtype, config);
      EXPECT_FALSE(cudnn::permits({.tf32 = true, .deterministic = true}, z.dtype, config));
    }
  }
  EXPECT_GT(nondeterministic, 0u);
}

TEST(ConvPlan, CandidatesAreSpreadOverEngines) {
  EXPECT_EQ(cudnn::spread(std::vector<std::int64_t>{7, 7, 7, 3, 7, 3, 9}),
            (std::vector<std::size_t>{0, 3, 6, 1, 5, 2, 4}));
  EXPECT_TRUE(cudnn::spread({}).empty());
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  const auto configs = cudnn::propose(cudnn::conv_graph(example()), device, CUDNN_HEUR_MODE_A);
  std::vector<std::int64_t> offered;  // engines, by cuDNN's order, which differs from machine to machine
  for (const auto& config : configs) {
    if (cudnn::permits({}, DType::f16, config)) offered.push_back(config.engine());
  }
  const std::set<std::int64_t> engines(offered.begin(), offered.end());
  const auto most = std::ssize(engines);
  ASSERT_LT(std::set(offered.begin(), offered.begin() + most).size(), engines.size());
  std::set<std::int64_t> taken;
  const auto plans = cudnn::find_conv_plans(example(), device, engines.size()).plans;
  for (const cudnn::Plan& plan : plans) taken.insert(plan.engine());
  EXPECT_EQ(taken, engines);
  EXPECT_EQ(plans.at(0).engine(), offered.at(0));  // the guess is cuDNN's favourite
}

// All of ResNet-50 but the stem, whose three channels are no whole packet. cuDNN notes nothing of these
// engines, not even tensor cores: whether they are fast is measured on the device.
TEST(ConvPlan, ConvolutionsBeforeANormSumTheirChannels) {
  std::set<std::string> seen;
  for (const char* const file : {"sm80_a100", "sm90_h200"}) {
    const cudnn::DeviceProperties device = device_of(file);
    std::string table;
    for (Call& call : calls_of("resnet50")) {
      if (call.x[3] % 8 != 0) continue;
      call.x[0] = call.y[0] = 256;
      ConvSignature z =
          cudnn::conv_signature(Graph::Pass::forward, DType::f16, call.x, call.w, call.y, false, call.params);
      z.sums = true;
      if (!seen.insert(file + z.str()).second) continue;
      const cuda::Found<cudnn::Plan> found = cudnn::find_conv_plans(z, device, 10);
      EXPECT_FALSE(found.plans.empty()) << z.str() << found.why;
      table += fmt::format("{:2} plans  {}\n", found.plans.size(), z.str());
    }
    std::filesystem::create_directories(ATHANOR_PLANS_DIR);
    std::ofstream(std::string(ATHANOR_PLANS_DIR) + "/" + file + "_sums.txt") << table;
  }
  EXPECT_EQ(seen.size(), 2u * 22);
}

// The same convolutions, each as if a norm with ReLU lay before it: the norm in the forward pass and in that
// to the weights, and its gradient in that to the data. In f16; cuDNN has nothing for bf16. On an A100, a
// plan to the data writes that gradient in f32 to its workspace before it gives it to the norm.
TEST(ConvPlan, ConvolutionsComputeTheNormBeforeThem) {
  for (const char* const file : {"sm80_a100", "sm90_h200"}) {
    const cudnn::DeviceProperties device = device_of(file);
    std::set<std::string> seen;
    std::string table;
    for (Call& call : calls_of("resnet50")) {
      if (call.x[3] % 8 != 0) continue;
      call.x[0] = call.y[0] = 256;
      for (const auto pass :
           {Graph::Pass::forward, Graph::Pass::backward_data, Graph::Pass::backward_weights}) {
        ConvSignature z = cudnn::conv_signature(pass, DType::f16, call.x, call.w, call.y, false, call.params);
        z.norm = true;
        z.sums = pass == Graph::Pass::forward;
        if (!seen.insert(z.str()).second) continue;
        const cuda::Found<cudnn::Plan> found = cudnn::find_conv_plans(z, device, 10);
        const auto gradient = call.x[0] * call.x[1] * call.x[2] * call.x[3] * sizeof(float);
        const bool fits =
            device.sm() == 90 || pass != Graph::Pass::backward_data || gradient <= z.rules.workspace_bytes;
        EXPECT_EQ(!found.plans.empty(), fits) << file << ": " << z.str();
        EXPECT_FALSE(cuda::product_of(z));  // cuBLASLt knows no norms
        std::size_t workspace = 0;
        for (const cudnn::Plan& plan : found.plans) workspace = std::max(workspace, plan.workspace_bytes());
        table += fmt::format("{:2} plans, {:2} MiB  {}\n", found.plans.size(), workspace >> 20, z.str());
      }
    }
    EXPECT_EQ(seen.size(), 3u * 22);
    std::ofstream(std::string(ATHANOR_PLANS_DIR) + "/" + file + "_norm.txt") << table;
  }
}

// Where a block begins with a 1 x 1 filter, the norm before it has a shortcut, a tensor or another norm, and
// its result is kept; backward, the shortcut's gradient is added.
TEST(ConvPlan, ConvolutionsComputeTheEndOfTheBlockBeforeThem) {
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  int found = 0;
  for (Call& call : calls_of("resnet50")) {
    if (call.w[1] != 1 || call.params.stride[0] != 1 || call.x[3] < 4 * call.w[0]) continue;
    call.x[0] = call.y[0] = 256;
    for (const auto pass : {Graph::Pass::forward, Graph::Pass::backward_data}) {
      for (const auto shortcut : {ConvSignature::Shortcut::tensor, ConvSignature::Shortcut::norm}) {
        ConvSignature z = cudnn::conv_signature(pass, DType::f16, call.x, call.w, call.y, false, call.params);
        z.norm = true;
        z.shortcut = shortcut;
        z.sums = pass == Graph::Pass::forward;
        z.others = pass == Graph::Pass::backward_data;
        EXPECT_FALSE(cudnn::find_conv_plans(z, device, 1).plans.empty()) << z.str();
        ++found;
      }
    }
  }
  EXPECT_EQ(found, 4 * 12);
}

// A pixel of three half elements lies on no boundary but its own: most of cuDNN's engines first copy x to
// memory of theirs, with 8 channels, and some need 4.
TEST(ConvPlan, PaddedImagesHaveMoreEnginesThatTakeThemAsTheyAre) {
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  std::string table;
  for (const auto pass : {Graph::Pass::forward, Graph::Pass::backward_weights}) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const ConvSignature stem =
          cudnn::conv_signature(pass, dtype, {256, 224, 224, 3}, {64, 7, 7, 3}, {256, 112, 112, 64}, false,
                                {.stride = {2, 2}, .padding = {3, 3}});
      const auto widths = cuda::padded_channels(stem);
      ASSERT_EQ(std::vector(widths.begin(), widths.end()), (std::vector<std::int64_t>{4, 8}));
      const auto direct = [&](const ConvSignature& z) {
        auto plans = cudnn::find_conv_plans(z, device, 100).plans;
        std::erase_if(plans, [](const cudnn::Plan& plan) { return !plan.tensor_cores(); });
        const std::int64_t copy = z.n * z.h * z.w * z.c * 2;
        const auto count = std::ranges::count_if(plans, [&](const cudnn::Plan& plan) {
          return static_cast<std::int64_t>(plan.workspace_bytes()) < copy;
        });
        table += fmt::format("{:2} of {:2} plans with tensor cores take x as it is  {}\n", count,
                             plans.size(), z.str());
        return count;
      };
      const auto three = direct(stem), four = direct(cuda::padded(stem, 4)),
                 eight = direct(cuda::padded(stem, 8));
      EXPECT_EQ(four > three, dtype == DType::f16);
      EXPECT_GT(eight, three);
    }
  }
  fmt::print("{}", table);
  std::filesystem::create_directories(ATHANOR_PLANS_DIR);
  std::ofstream(std::string(ATHANOR_PLANS_DIR) + "/sm90_h200_padded.txt") << table;
}

TEST(ConvPlan, ImagesOfThreeChannelsInHalfTypesArePadded) {
  const auto pads = [](Graph::Pass pass, DType dtype, std::int64_t c, bool bias, const Conv2dParams& params) {
    return !cuda::padded_channels(cudnn::conv_signature(pass, dtype, {2, 8, 8, c},
                                                        {6, 3, 3, c / params.groups}, {2, 6, 6, 6}, bias,
                                                        params))
                .empty();
  };
  const auto forward = Graph::Pass::forward;
  EXPECT_TRUE(pads(forward, DType::f16, 3, false, {}));
  EXPECT_TRUE(pads(forward, DType::bf16, 3, true, {}));
  EXPECT_TRUE(pads(Graph::Pass::backward_weights, DType::f16, 3, false, {}));
  EXPECT_FALSE(pads(Graph::Pass::backward_data, DType::f16, 3, false, {}));
  EXPECT_FALSE(pads(forward, DType::f32, 3, false, {}));
  EXPECT_FALSE(pads(forward, DType::f16, 1, false, {}));
  EXPECT_FALSE(pads(forward, DType::f16, 4, false, {}));
  EXPECT_FALSE(pads(forward, DType::f16, 3, false, {.groups = 3}));
  EXPECT_FALSE(pads(forward, DType::f16, 3, true, {.activation = Activation::relu})) << "cuDNN may fuse it";
}

TEST(ConvPlan, EnginesThatRoundPartialSumsAreNotTaken) {
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  const ConvSignature stem =
      cudnn::conv_signature(Graph::Pass::forward, DType::f16, {256, 224, 224, 3}, {64, 7, 7, 3},
                            {256, 112, 112, 64}, false, {.stride = {2, 2}, .padding = {3, 3}});
  std::size_t rounding = 0;
  for (const auto& config : cudnn::propose(cudnn::conv_graph(stem), device, CUDNN_HEUR_MODE_A)) {
    if (!config.has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) continue;
    ++rounding;
    EXPECT_FALSE(cudnn::permits({}, DType::f16, config));
  }
  EXPECT_GT(rounding, 0u);
}

// What cuBLASLt may do in cuDNN's place.
TEST(ConvPlan, PointwiseConvolutionsAreProducts) {
  const std::vector<Call> calls = calls_of("resnet50");
  EXPECT_EQ(calls.size(), 53u);
  int products = 0;
  for (const Call& call : calls) {
    for (const auto pass :
         {Graph::Pass::forward, Graph::Pass::backward_data, Graph::Pass::backward_weights}) {
      const ConvSignature z =
          cudnn::conv_signature(pass, DType::f16, call.x, call.w, call.y, call.bias, call.params);
      const auto product = cuda::product_of(z);
      products += product.has_value();
      if (!product) continue;
      const auto [m, n, k, batch, a, b] = product->layout;
      EXPECT_EQ(m * n * k, z.n * z.p * z.q * z.k * z.c) << z.str();
    }
  }
  EXPECT_EQ(products, 3 * 33);
  ConvSignature z = cudnn::conv_signature(Graph::Pass::backward_weights, DType::bf16, {8, 7, 7, 64},
                                          {32, 1, 1, 64}, {8, 7, 7, 32}, false, {});
  z.out = DType::f32, z.accumulate = true;
  z.alignment = {16, 8, 4, 2};  // x, dw, (bias), dy
  const auto product = cuda::product_of(z);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->in, DType::bf16);
  EXPECT_EQ(product->out, DType::f32);
  EXPECT_TRUE(product->accumulate);
  EXPECT_EQ(product->alignment, (std::array<std::int64_t, 4>{2, 16, 8, 256}));
  for (const auto& change : std::vector<std::function<void(ConvSignature&)>>{
           [](ConvSignature& one) { one.window.stride[1] = 2; },
           [](ConvSignature& one) { one.window.padding[0] = 1; }, [](ConvSignature& one) { one.groups = 2; },
           [](ConvSignature& one) { one.s = 3; }, [](ConvSignature& one) { one.relu = true; }}) {
    ConvSignature other = z;
    change(other);
    EXPECT_FALSE(cuda::product_of(other)) << other.str();
  }
}

TEST(ConvPlan, OnlyUnsupportedPlansAreCertainlyMissing) {
  const cudnn::DeviceProperties device = device_of("sm90_h200");
  const cuda::Found<cudnn::Plan> found = cudnn::find_conv_plans(example(), device, 10);
  EXPECT_FALSE(found.plans.empty());
  EXPECT_TRUE(found.certain);
  // A descriptor that lacks what it needs is no answer to the question whether cuDNN can.
  EXPECT_THROW(cudnn::Descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR).try_finalize(), BackendError);
}

TEST(ConvPlan, NoneBeforeTheHardwareHasTheType) {
  EXPECT_TRUE(cudnn::find_conv_plans(example(DType::bf16), device_of("sm75_t4"), 1).plans.empty());
  EXPECT_FALSE(cudnn::find_conv_plans(example(DType::bf16), device_of("sm80_a100"), 1).plans.empty());
}

/// Of signatures that differ in one thing each.
template <class Signature> void expect_all_different(const std::vector<Signature>& all) {
  std::unordered_set<std::string> texts;
  std::unordered_set<std::size_t> hashes;
  for (const Signature& z : all) {
    EXPECT_TRUE(texts.insert(z.str()).second) << z.str();
    EXPECT_TRUE(hashes.insert(z.hash()).second) << z.str();
    EXPECT_EQ(z == all[0], &z == &all[0]) << z.str();
  }
}

TEST(ConvPlan, SignaturesDifferInAllThatDecides) {
  std::vector<ConvSignature> all(1, example());
  const auto with = [&](auto&& change) {
    all.push_back(example());
    change(all.back());
  };
  with([](ConvSignature& z) { z.pass = Graph::Pass::backward_data; });
  with([](ConvSignature& z) { z.dtype = DType::bf16; });
  with([](ConvSignature& z) { z.bias = true; });
  with([](ConvSignature& z) { z.relu = true; });
  with([](ConvSignature& z) { z.sums = true; });
  with([](ConvSignature& z) { z.norm = true; });
  with([](ConvSignature& z) { z.shortcut = ConvSignature::Shortcut::tensor; });
  with([](ConvSignature& z) { z.shortcut = ConvSignature::Shortcut::norm; });
  with([](ConvSignature& z) { z.others = true; });
  with([](ConvSignature& z) { z.after = Activation::relu; });
  with([](ConvSignature& z) { z.after = Activation::gelu; });
  with([](ConvSignature& z) { z.out = DType::f32; });
  with([](ConvSignature& z) { z.accumulate = true; });
  for (std::int64_t ConvSignature::*size :
       {&ConvSignature::n, &ConvSignature::h, &ConvSignature::w, &ConvSignature::c, &ConvSignature::k,
        &ConvSignature::r, &ConvSignature::s, &ConvSignature::p, &ConvSignature::q})
    with([&](ConvSignature& z) { z.*size += 1; });
  with([](ConvSignature& z) { z.groups = 2; });
  for (std::size_t axis = 0; axis < 2; ++axis) {
    with([&](ConvSignature& z) { z.window.stride[axis] = 3; });
    with([&](ConvSignature& z) { z.window.padding[axis] = 3; });
    with([&](ConvSignature& z) { z.window.dilation[axis] = 3; });
  }
  for (std::size_t operand = 0; operand < 4; ++operand)
    with([&](ConvSignature& z) { z.alignment[operand] = 2; });
  with([](ConvSignature& z) { z.rules.tf32 = true; });
  with([](ConvSignature& z) { z.rules.deterministic = true; });
  with([](ConvSignature& z) { z.rules.workspace_bytes = 1; });
  expect_all_different(all);
}

TEST(MatmulPlan, SignaturesDifferInAllThatDecides) {
  using cublas::MatmulSignature;
  using cuda::GemmLayout;
  std::vector<MatmulSignature> all(1);
  const auto with = [&](auto&& change) { change(all.emplace_back()); };
  for (std::int64_t GemmLayout::*size : {&GemmLayout::m, &GemmLayout::n, &GemmLayout::k, &GemmLayout::batch})
    with([&](MatmulSignature& z) { z.layout.*size += 1; });
  for (GemmLayout::Operand GemmLayout::*operand : {&GemmLayout::a, &GemmLayout::b}) {
    with([&](MatmulSignature& z) { (z.layout.*operand).transposed = true; });
    with([&](MatmulSignature& z) { (z.layout.*operand).ld = 3; });
    with([&](MatmulSignature& z) { (z.layout.*operand).batch_stride = 3; });
  }
  with([](MatmulSignature& z) { z.in = DType::f16; });
  with([](MatmulSignature& z) { z.out = DType::f16; });
  with([](MatmulSignature& z) { z.bias = true; });
  with([](MatmulSignature& z) { z.accumulate = true; });
  with([](MatmulSignature& z) { z.tf32 = true; });
  with([](MatmulSignature& z) { z.deterministic = true; });
  with([](MatmulSignature& z) { z.after = Activation::relu; });
  with([](MatmulSignature& z) { z.after = Activation::gelu; });
  with([](MatmulSignature& z) { z.bias_after = true; });
  for (std::size_t operand = 0; operand < 4; ++operand)
    with([&](MatmulSignature& z) { z.alignment[operand] = 2; });
  with([](MatmulSignature& z) { z.workspace_bytes = 1; });
  expect_all_different(all);
}

std::string name_of_device(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}
INSTANTIATE_TEST_SUITE_P(Without, ConvPlans,
                         testing::Values("sm75_t4", "sm80_a100", "sm86_rtx3090", "sm89_rtx4090", "sm90_h200",
                                         "sm100_b200", "sm120_rtx5090"),
                         name_of_device);

}  // namespace
}  // namespace athanor::plans_test
