#include "kernels/cuda/vendor_conv_plan.h"

#include <algorithm>
#include <utility>

namespace athanor::cuda {
namespace {

using cudnn::ConvSignature;

constexpr std::string_view kProduct = "cuBLASLt ", kPadded = "padded to ";  // a plan of cuDNN's is JSON
constexpr std::size_t kMaxWorkspace = std::size_t{32} << 20;                // more is of no use to a product

bool pointwise(const ConvSignature& z) {
  return z.r == 1 && z.s == 1 && z.groups == 1 && z.window.stride[0] == 1 && z.window.stride[1] == 1 &&
         z.window.padding[0] == 0 && z.window.padding[1] == 0;
}

}  // namespace

std::optional<cublas::MatmulSignature> product_of(const ConvSignature& z) {
  if (!pointwise(z) || z.relu || z.sums || z.norm) return std::nullopt;
  cublas::MatmulSignature product;
  product.layout = pointwise_layout(z.pass, z.n * z.h * z.w, z.c, z.k);
  product.in = z.dtype;
  product.out = z.pass == ConvPass::backward_weights ? z.out : z.dtype;
  product.bias = z.bias;
  product.accumulate = z.accumulate;
  product.tf32 = z.rules.tf32 && z.dtype == DType::f32;
  product.deterministic = z.rules.deterministic;
  const auto [x, w, bias, y] = z.alignment;
  switch (z.pass) {
    case ConvPass::forward: product.alignment = {x, w, y, bias}; break;
    case ConvPass::backward_data: product.alignment = {y, w, x, 256}; break;
    case ConvPass::backward_weights: product.alignment = {y, x, w, 256}; break;
  }
  product.workspace_bytes = std::min(z.rules.workspace_bytes, kMaxWorkspace);
  return product;
}

std::span<const std::int64_t> padded_channels(const ConvSignature& z) {
  static constexpr std::int64_t kChannels[] = {4, 8};
  const bool pads = is_half(z.dtype) && z.c == 3 && z.groups == 1 && z.pass != ConvPass::backward_data &&
                    !z.relu && !z.sums;
  return pads ? std::span(kChannels) : std::span<const std::int64_t>();
}

ConvSignature padded(const ConvSignature& signature, std::int64_t channels) {
  ConvSignature z = signature;
  z.c = channels;
  z.alignment[0] = z.alignment[1] = 16;  // x and w are in memory of their own
  return z;
}

Found<ConvPlan> find_conv_plans(const cublas::Handle& handle, const ConvSignature& signature,
                                const cudnn::Target& target, std::size_t most) {
  Found<ConvPlan> found;
  const auto add_graphs = [&](const ConvSignature& z, std::int64_t channels, std::size_t count) {
    Found<cudnn::Plan> graphs = cudnn::find_conv_plans(z, target, count);
    if (found.certain) found.why = std::move(graphs.why);
    found.certain = found.certain && graphs.certain;
    for (cudnn::Plan& graph : graphs.plans) found.plans.push_back({std::move(graph), {}, channels});
  };
  add_graphs(signature, 0, most);
  if (most == 1 && !found.plans.empty()) return found;
  for (const std::int64_t channels : padded_channels(signature))
    add_graphs(padded(signature, channels), channels, std::max<std::size_t>(most / 2, 1));
  const std::optional<cublas::MatmulSignature> product = product_of(signature);
  if (!product) return found;
  try {
    for (const cublas::Algorithm& algorithm :
         cublas::propose(handle, *product, std::max<std::size_t>(most / 4, 1)))
      found.plans.push_back({std::nullopt, algorithm});
  } catch (const BackendError& error) {
    if (found.certain) found.why = error.what();
    found.certain = false;
  }
  return found;
}

std::string write(const ConvPlan& plan) {
  if (plan.product) return std::string(kProduct) + cublas::write(*plan.product);
  return plan.channels > 0 ? fmt::format("{}{} {}", kPadded, plan.channels, plan.graph->json())
                           : plan.graph->json();
}

std::optional<ConvPlan> read(const cublas::Handle& handle, const ConvSignature& signature,
                             const cudnn::DeviceProperties& device, std::string_view text) {
  ConvPlan plan;
  for (const std::int64_t channels : padded_channels(signature)) {
    const std::string prefix = fmt::format("{}{} ", kPadded, channels);
    if (!text.starts_with(prefix)) continue;
    plan.channels = channels;
    text.remove_prefix(prefix.size());
    break;
  }
  if (!text.starts_with(kProduct)) {
    plan.graph = cudnn::Plan::from_json(text, device);
  } else if (const auto product = product_of(signature)) {
    plan.product = cublas::read(handle, *product, text.substr(kProduct.size()));
  }
  if (!plan.graph && !plan.product) return std::nullopt;
  return plan;
}

}  // namespace athanor::cuda
