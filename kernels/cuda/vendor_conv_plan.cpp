#include "kernels/cuda/vendor_conv_plan.h"

#include <algorithm>
#include <utility>

namespace athanor::cuda {
namespace {

using cudnn::ConvSignature;

constexpr std::string_view kProduct = "cuBLASLt ";            // a plan of cuDNN's is JSON
constexpr std::size_t kMaxWorkspace = std::size_t{32} << 20;  // more is of no use to a product

bool pointwise(const ConvSignature& z) {
  return z.r == 1 && z.s == 1 && z.groups == 1 && z.window.stride[0] == 1 && z.window.stride[1] == 1 &&
         z.window.padding[0] == 0 && z.window.padding[1] == 0;
}

}  // namespace

std::optional<cublas::MatmulSignature> product_of(const ConvSignature& z) {
  if (!pointwise(z) || z.relu || z.sums) return std::nullopt;
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

Found<ConvPlan> find_conv_plans(const cublas::Handle& handle, const ConvSignature& signature,
                                const cudnn::DeviceProperties& device, std::size_t most) {
  Found<cudnn::Plan> of_cudnn = cudnn::find_conv_plans(signature, device, most);
  Found<ConvPlan> found{{}, of_cudnn.certain, std::move(of_cudnn.why)};
  for (cudnn::Plan& graph : of_cudnn.plans) found.plans.push_back({std::move(graph)});
  const std::optional<cublas::MatmulSignature> product = product_of(signature);
  if (!product || (most == 1 && !found.plans.empty())) return found;
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
  return plan.graph ? plan.graph->json() : std::string(kProduct) + cublas::write(*plan.product);
}

std::optional<ConvPlan> read(const cublas::Handle& handle, const ConvSignature& signature,
                             const cudnn::DeviceProperties& device, std::string_view text) {
  ConvPlan plan;
  if (!text.starts_with(kProduct)) {
    plan.graph = cudnn::Plan::from_json(text, device);
  } else if (const auto product = product_of(signature)) {
    plan.product = cublas::read(handle, *product, text.substr(kProduct.size()));
  }
  if (!plan.graph && !plan.product) return std::nullopt;
  return plan;
}

}  // namespace athanor::cuda
