#include "kernels/cuda/cudnn_backend.h"

#include <array>

#include <nlohmann/json.hpp>

namespace athanor {

std::string detail::StatusTraits<cudnnStatus_t>::text(cudnnStatus_t status) {
  std::array<char, 1024> last{};
  cudnnGetLastErrorString(last.data(), last.size());
  std::string text = cudnnGetErrorString(status);
  if (last[0] != '\0') text += std::string(": ") + last.data();
  return text;
}

namespace cudnn {

// Descriptor -----------------------------------------------------------------------------------------------

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  ATH_TRY(cudnnBackendCreateDescriptor(type, &native_));
}
Descriptor::~Descriptor() {
  if (native_) cudnnBackendDestroyDescriptor(native_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
                     const void* values) {
  ATH_TRY(cudnnBackendSetAttribute(native_, name, type, static_cast<std::int64_t>(count), values));
}

void Descriptor::set(cudnnBackendAttributeName_t name, std::span<const Descriptor> values) {
  std::vector<cudnnBackendDescriptor_t> natives;
  for (const Descriptor& value : values) natives.push_back(value.native_);
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, natives.size(), natives.data());
}

std::size_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::size_t count, void* values) const {
  std::int64_t got = 0;
  ATH_TRY(cudnnBackendGetAttribute(native_, name, type, static_cast<std::int64_t>(count), &got, values));
  return static_cast<std::size_t>(got);
}

std::size_t Descriptor::count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
  std::int64_t values = 0;
  const cudnnStatus_t status = cudnnBackendGetAttribute(native_, name, type, 0, &values, nullptr);
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return 0;
  ATH_TRY(status);
  return static_cast<std::size_t>(values);
}

std::string Descriptor::text(cudnnBackendAttributeName_t name) const {
  const std::vector<char> characters = get_all<char>(name);
  return std::string(characters.data(), characters.size());
}

std::size_t Descriptor::get(cudnnBackendAttributeName_t name, std::span<Descriptor> into) const {
  std::vector<cudnnBackendDescriptor_t> natives;
  for (const Descriptor& descriptor : into) natives.push_back(descriptor.native_);
  return get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, natives.size(), natives.data());
}

void Descriptor::finalize() {
  ATH_TRY(cudnnBackendFinalize(native_));
}
bool Descriptor::try_finalize() {
  const cudnnStatus_t status = cudnnBackendFinalize(native_);
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
  ATH_TRY(status);
  return true;
}

// Devices and types ----------------------------------------------------------------------------------------

namespace {

template <class T> T property(const DeviceProperties& device, const char* name) {
  const std::string json = device.json();
  try {
    return nlohmann::json::parse(json).at(name).get<T>();
  } catch (const nlohmann::json::exception& error) {
    throw BackendError(fmt::format("cuDNN: a device's properties must be JSON with {}, but are '{}': {}",
                                   name, json.substr(0, 200), error.what()));
  }
}

}  // namespace

std::string DeviceProperties::name() const {
  return property<std::string>(*this, "deviceName");
}
int DeviceProperties::sm() const {
  return property<int>(*this, "deviceVer") / 10;  // 900 for 9.0
}
int DeviceProperties::multiprocessors() const {
  return property<int>(*this, "multiProcessorCount");
}

DeviceProperties DeviceProperties::of_device(int index) {
  Descriptor descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, std::int32_t{index});
  descriptor.finalize();
  return DeviceProperties(std::move(descriptor));
}

DeviceProperties DeviceProperties::from_json(std::string_view json) {
  Descriptor descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json);
  descriptor.finalize();
  return DeviceProperties(std::move(descriptor));
}

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    default: detail::fail<>("cuDNN: dtype must be f32, f16 or bf16, but got {}", dtype);
  }
}

std::int64_t version() {
  return static_cast<std::int64_t>(cudnnGetVersion());
}

// Graph ----------------------------------------------------------------------------------------------------

Graph::Id Graph::tensor(const Shape& shape, const Strides& strides, DType dtype, std::int64_t alignment) {
  return add(shape, strides, dtype, alignment, ++in_memory_);
}
Graph::Id Graph::intermediate(const Shape& shape, const Strides& strides) {
  return add(shape, strides, DType::f32, 16, kFirstIntermediate + intermediates_++);
}
Graph::Id Graph::add(const Shape& shape, const Strides& strides, DType dtype, std::int64_t alignment,
                     std::int64_t number) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, shape);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, number >= kFirstIntermediate);
  tensor.finalize();
  tensors_.push_back(std::move(tensor));
  return tensors_.size() - 1;
}

namespace {

struct ConvolutionNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};

constexpr ConvolutionNames names_of(Graph::Pass pass) {
  switch (pass) {
    case Graph::Pass::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Graph::Pass::backward_weights:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case Graph::Pass::forward: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

}  // namespace

void Graph::convolution(Pass pass, const Window& window, Id x, Id w, Id y, bool adds) {
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const std::span<const std::int64_t> stride(window.stride), padding(window.padding),
      dilation(window.dilation);
  convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
  convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding);
  convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
  convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation);
  convolution.finalize();

  const ConvolutionNames names = names_of(pass);
  Descriptor operation(names.operation);
  operation.set(names.convolution, convolution);
  operation.set(names.x, tensors_[x]);
  operation.set(names.w, tensors_[w]);
  operation.set(names.y, tensors_[y]);
  operation.set(names.alpha, 1.0f);
  operation.set(names.beta, adds ? 1.0f : 0.0f);
  operation.finalize();
  parts_.push_back(std::move(convolution));
  operations_.push_back(std::move(operation));
}

namespace {

Descriptor pointwise_in_f32(cudnnPointwiseMode_t mode) {
  Descriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.set(CUDNN_ATTR_POINTWISE_MODE, mode);
  pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  pointwise.finalize();
  return pointwise;
}

}  // namespace

void Graph::pointwise(cudnnPointwiseMode_t mode, Id x, std::optional<Id> b, Id y, float scale_of_b) {
  Descriptor pointwise = pointwise_in_f32(mode);
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[x]);
  if (b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[*b]);
  if (scale_of_b != 1) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, scale_of_b);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[y]);
  operation.finalize();
  parts_.push_back(std::move(pointwise));
  operations_.push_back(std::move(operation));
}

void Graph::relu_gradient(Id dy, Id x, Id dx) {
  Descriptor pointwise = pointwise_in_f32(CUDNN_POINTWISE_RELU_BWD);
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, tensors_[dy]);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[x]);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, tensors_[dx]);
  operation.finalize();
  parts_.push_back(std::move(pointwise));
  operations_.push_back(std::move(operation));
}

void Graph::norm_gradient_sums(const NormSums& t) {
  Descriptor operation(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT);
  const std::pair<cudnnBackendAttributeName_t, Id> operands[] = {
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, t.x},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, t.g},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, t.mean},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, t.inverse},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, t.gamma},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, t.dgamma},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, t.dbeta},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, t.scale_of_g},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, t.scale_of_x},
      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, t.bias}};
  for (const auto& [name, tensor] : operands) operation.set(name, tensors_[tensor]);
  operation.finalize();
  operations_.push_back(std::move(operation));
}

void Graph::channel_sums(Id x, Id sum, Id squares) {
  Descriptor operation(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, tensors_[x]);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, tensors_[sum]);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, tensors_[squares]);
  operation.finalize();
  operations_.push_back(std::move(operation));
}

void Graph::finalize(const Handle* handle) {
  graph_.emplace(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const Descriptor>(operations_));
  if (handle) graph_->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle->native());
  graph_->finalize();
}

// Engines and plans ----------------------------------------------------------------------------------------

EngineConfig::EngineConfig(Descriptor config) : config_(std::move(config)) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  config_.get(CUDNN_ATTR_ENGINECFG_ENGINE, std::span(&engine, 1));
  engine_ = engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  for (const auto note : engine.get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE))
    numerical_ |= 1u << note;
  for (const auto note : engine.get_all<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE))
    behavior_ |= 1u << note;
}

std::vector<EngineConfig> propose(const Graph& graph, const Target& target, cudnnBackendHeurMode_t mode) {
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor());
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.properties) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties->descriptor());
  if (!heuristic.try_finalize()) return {};
  std::vector<Descriptor> found;
  const std::size_t count = heuristic.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  for (std::size_t i = 0; i < count; ++i) found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  found.erase(found.begin() + static_cast<std::ptrdiff_t>(
                                  count == 0 ? 0 : heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, found)),
              found.end());
  std::vector<EngineConfig> configs;
  for (Descriptor& config : found) configs.emplace_back(std::move(config));
  return configs;
}

Handle::Handle() {
  ATH_TRY(cudnnCreate(&native_));
}
Handle::~Handle() {
  cudnnDestroy(native_);
}
void Handle::set_stream(void* stream) {
  if (stream == stream_) return;
  ATH_TRY(cudnnSetStream(native_, static_cast<cudaStream_t>(stream)));
  stream_ = stream;
}

Plan::Plan(Descriptor plan) : plan_(std::move(plan)) {
  workspace_bytes_ =
      static_cast<std::size_t>(plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

std::optional<Plan> Plan::make(const EngineConfig& config, const Target& target) {
  Descriptor descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target.handle) descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle->native());
  descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.descriptor());
  if (target.properties)
    descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties->descriptor());
  if (!descriptor.try_finalize()) return std::nullopt;
  Plan plan(std::move(descriptor));
  if (target.through_text) {
    std::optional<Plan> read = from_json(plan.json(), *target.properties);
    if (!read) throw BackendError("cuDNN: a plan's own text must make the plan again, but is not taken");
    plan = std::move(*read);
  }
  plan.engine_ = config.engine();
  plan.tensor_cores_ = config.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  return plan;
}

std::optional<Plan> Plan::from_json(std::string_view json, const DeviceProperties& device) {
  try {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.descriptor());  // cuDNN 9.19 crashes without
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, json);
    if (plan.try_finalize()) return Plan(std::move(plan));
  } catch (const BackendError&) {  // whatever is the matter, another plan can be made
  }
  return std::nullopt;
}

void Plan::run(const Handle& handle, std::span<void* const> pointers, void* workspace) const {
  constexpr std::size_t kMax = 32;
  std::array<std::int64_t, kMax> ids;
  ATH_CHECK(pointers.size() <= kMax, "cuDNN: a graph may have {} tensors, but got {}", kMax, pointers.size());
  for (std::size_t i = 0; i < pointers.size(); ++i) ids[i] = static_cast<std::int64_t>(i) + 1;
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(ids.data(), pointers.size()));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  pack.finalize();
  ATH_TRY(cudnnBackendExecute(handle.native(), plan_.native(), pack.native()));
}

}  // namespace cudnn
}  // namespace athanor
