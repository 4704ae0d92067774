#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cudnn.h>

#include "kernels/cuda/conv_plan.h"
#include "kernels/cuda/plan_ways.h"
#include "tensor/base/status.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

// cuDNN's graph API, owned and typed. Everything cuDNN knows is a descriptor: attributes are set one by one,
// then it is finalised and never changes again. One goes through five of them to run an operation:
//
//   Graph        tensors, and the operations between them
//   EngineConfig an engine that can run the graph, with its settings; heuristics list them, best first
//   Plan         an engine made ready for a graph and a device; it can be written as text and read back
//   (variant)    the pointers of one run, made inside Plan::run
//
// The device enters as DeviceProperties, which may describe a device this machine does not have: plans are
// made and checked for it all the same, and only running them needs it. Or it enters as a Handle, which is
// that of a device: Target is either.

namespace athanor {

template <> struct detail::StatusTraits<cudnnStatus_t> {
  static constexpr const char* library = "cuDNN";
  static bool ok(cudnnStatus_t status) { return status == CUDNN_STATUS_SUCCESS; }
  static std::string text(cudnnStatus_t status);
};

namespace cudnn {

/// TypeOf<T>::value is the CUDNN_TYPE_* of a C++ type.
template <class T> struct TypeOf;
template <cudnnBackendAttributeType_t type>
using Type = std::integral_constant<cudnnBackendAttributeType_t, type>;
template <> struct TypeOf<std::int64_t> : Type<CUDNN_TYPE_INT64> {};
template <> struct TypeOf<float> : Type<CUDNN_TYPE_FLOAT> {};
template <> struct TypeOf<bool> : Type<CUDNN_TYPE_BOOLEAN> {};
template <> struct TypeOf<char> : Type<CUDNN_TYPE_CHAR> {};
template <> struct TypeOf<std::int32_t> : Type<CUDNN_TYPE_INT32> {};
template <> struct TypeOf<void*> : Type<CUDNN_TYPE_VOID_PTR> {};
template <> struct TypeOf<cudnnHandle_t> : Type<CUDNN_TYPE_HANDLE> {};
template <> struct TypeOf<cudnnDataType_t> : Type<CUDNN_TYPE_DATA_TYPE> {};
template <> struct TypeOf<cudnnConvolutionMode_t> : Type<CUDNN_TYPE_CONVOLUTION_MODE> {};
template <> struct TypeOf<cudnnPointwiseMode_t> : Type<CUDNN_TYPE_POINTWISE_MODE> {};
template <> struct TypeOf<cudnnGenStatsMode_t> : Type<CUDNN_TYPE_GENSTATS_MODE> {};
template <> struct TypeOf<cudnnBackendHeurMode_t> : Type<CUDNN_TYPE_HEUR_MODE> {};
template <> struct TypeOf<cudnnBackendNumericalNote_t> : Type<CUDNN_TYPE_NUMERICAL_NOTE> {};
template <> struct TypeOf<cudnnBackendBehaviorNote_t> : Type<CUDNN_TYPE_BEHAVIOR_NOTE> {};

template <class T>
concept Attribute = requires {
  TypeOf<T>::value;
};

/// cudnnBackendDescriptor_t, owned. Members throw BackendError where cuDNN refuses.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : native_(std::exchange(other.native_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(native_, other.native_);
    return *this;
  }

  template <Attribute T> void set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    set(name, TypeOf<T>::value, values.size(), values.data());
  }
  template <Attribute T> void set(cudnnBackendAttributeName_t name, const T& value) {
    set(name, TypeOf<T>::value, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.native_);
  }
  void set(cudnnBackendAttributeName_t name, std::span<const Descriptor> values);
  void set(cudnnBackendAttributeName_t name, const Dims& values) {
    set(name, CUDNN_TYPE_INT64, static_cast<std::size_t>(values.rank()), values.begin());
  }
  void set(cudnnBackendAttributeName_t name, std::string_view text) {
    set(name, CUDNN_TYPE_CHAR, text.size(), text.data());
  }

  template <Attribute T> T get(cudnnBackendAttributeName_t name) const {
    T value{};
    get(name, TypeOf<T>::value, 1, &value);
    return value;
  }
  template <Attribute T> std::vector<T> get_all(cudnnBackendAttributeName_t name) const {
    std::vector<T> values(count(name, TypeOf<T>::value));
    if (!values.empty()) values.resize(get(name, TypeOf<T>::value, values.size(), values.data()));
    return values;
  }
  std::string text(cudnnBackendAttributeName_t name) const;
  /// Fills descriptors that exist already; returns how many it filled.
  std::size_t get(cudnnBackendAttributeName_t name, std::span<Descriptor> into) const;
  /// How many values an attribute has; 0 where cuDNN does not support what was asked for.
  std::size_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;

  void finalize();
  /// False where cuDNN says that it does not support what was described; all else that it refuses for is
  /// an error.
  bool try_finalize();

  cudnnBackendDescriptor_t native() const { return native_; }

 private:
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
           const void* values);
  std::size_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
                  void* values) const;

  cudnnBackendDescriptor_t native_ = nullptr;
};

/// What planning needs to know of a device.
class DeviceProperties {
 public:
  static DeviceProperties of_device(int index);
  /// From the text that json() gives, of any device.
  static DeviceProperties from_json(std::string_view json);

  std::string json() const { return descriptor_.text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION); }
  // These throw BackendError where json() is not what it was in the versions that we know.
  std::string name() const;
  /// Compute capability, 90 for sm_90.
  int sm() const;
  int multiprocessors() const;
  const Descriptor& descriptor() const { return descriptor_; }

 private:
  explicit DeviceProperties(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  Descriptor descriptor_;
};

class Handle;

/// What plans are made for, and in which way. Refers to it.
struct Target {
  /// A device as it is described; `text`: plans are those that are read back from their text.
  Target(const DeviceProperties& device, bool text = false) : properties(&device), through_text(text) {}
  /// The device that is there.
  explicit Target(const Handle& of) : handle(&of) {}

  const DeviceProperties* properties = nullptr;  // either this,
  const Handle* handle = nullptr;                // or this
  bool through_text = false;
};

cudnnDataType_t data_type(DType dtype);
/// cudnnGetVersion(): 91900 for 9.19.0.
std::int64_t version();

/// A window sliding over images, as Conv2dParams has it.
struct Window {
  std::array<std::int64_t, 2> stride{1, 1}, padding{}, dilation{1, 1};  ///< along H, W

  bool operator==(const Window&) const = default;
};

/// Operations between tensors. Plan::run takes the pointers of those in memory in the order they were made.
/// Sizes and strides in cuDNN's order N C H W, which says nothing about the layout.
class Graph {
 public:
  using Id = std::size_t;  ///< a tensor of the graph

  /// A tensor in memory whose address is a multiple of `alignment` bytes.
  Id tensor(const Shape& shape, const Strides& strides, DType dtype, std::int64_t alignment);
  /// A tensor of f32 between two operations, which is nowhere in memory.
  Id intermediate(const Shape& shape, const Strides& strides);

  using Pass = cuda::ConvPass;
  /// The tensor that `pass` computes (y, dx, dw) from the other two; x [N, C, H, W], w [K, C / groups, R, S],
  /// y [N, K, P, Q].
  /// Sums are f32.
  void convolution(Pass pass, const Window& window, Id x, Id w, Id y, bool adds = false);
  /// y = mode(x) or, with b, mode(x, scale_of_b b), in f32. Whether relu keeps NaN is the engine's choice.
  void pointwise(cudnnPointwiseMode_t mode, Id x, std::optional<Id> b, Id y, float scale_of_b = 1);
  /// dx = dy where x > 0, else 0.
  void relu_gradient(Id dy, Id x, Id dx);
  /// sum[c], squares[c] = sums of x[n, c, h, w] and of their squares, in f32.
  void channel_sums(Id x, Id sum, Id squares);
  /// What the gradient of a batch norm sums: dbeta[c] = sum of g[n, c, h, w], dgamma[c] = sum of g times the
  /// normalised x, in f32.
  struct NormSums {
    Id x, g, mean, inverse, gamma;                   ///< inverse: 1 / standard deviation
    Id dgamma, dbeta, scale_of_g, scale_of_x, bias;  ///< dL/dx = scale_of_g g + scale_of_x x + bias
  };
  void norm_gradient_sums(const NormSums& operands);

  /// No more operations. With a handle, for its device alone; may follow one without.
  void finalize(const Handle* handle = nullptr);

  const Descriptor& descriptor() const { return *graph_; }

 private:
  static constexpr std::int64_t kFirstIntermediate = 1000;
  Id add(const Shape& shape, const Strides& strides, DType dtype, std::int64_t alignment,
         std::int64_t number);

  // All that the graph refers to lives as long as it does.
  std::vector<Descriptor> tensors_, operations_, parts_;
  std::optional<Descriptor> graph_;
  std::int64_t in_memory_ = 0, intermediates_ = 0;  // numbers of tensors: from 1, and from the first
};

/// An engine with settings, and what cuDNN notes about it.
class EngineConfig {
 public:
  explicit EngineConfig(Descriptor config);

  std::int64_t engine() const { return engine_; }
  bool has(cudnnBackendNumericalNote_t note) const { return (numerical_ >> note) & 1; }
  bool has(cudnnBackendBehaviorNote_t note) const { return (behavior_ >> note) & 1; }
  const Descriptor& descriptor() const { return config_; }

 private:
  Descriptor config_;
  std::int64_t engine_ = 0;
  std::uint32_t numerical_ = 0, behavior_ = 0;
};

/// What one heuristic proposes for a graph on a device, best first; empty where it does not know the graph.
/// For a handle, the graph was finalised with it.
std::vector<EngineConfig> propose(const Graph& graph, const Target& target, cudnnBackendHeurMode_t mode);

/// cudnnHandle_t, owned: makes and destroys the library's state on the current device.
class Handle {
 public:
  Handle();
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  cudnnHandle_t native() const { return native_; }
  /// What is run from now on goes to that stream.
  void set_stream(void* stream);

 private:
  cudnnHandle_t native_ = nullptr;
  void* stream_ = nullptr;
};

/// An engine made ready to run a graph.
class Plan {
 public:
  /// Nothing where the engine turns out not to support the graph on that device.
  static std::optional<Plan> make(const EngineConfig& config, const Target& target);
  /// From the text that json() gave. Nothing where cuDNN does not take it: another version's, damaged.
  static std::optional<Plan> from_json(std::string_view json, const DeviceProperties& device);

  std::string json() const { return plan_.text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION); }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  // What cuDNN notes of its engine; a plan read from text has no notes: false and -1.
  bool tensor_cores() const { return tensor_cores_; }
  std::int64_t engine() const { return engine_; }

  /// Queues it: pointers[i] is tensor i + 1 of the graph.
  void run(const Handle& handle, std::span<void* const> pointers, void* workspace) const;

 private:
  explicit Plan(Descriptor plan);

  Descriptor plan_;
  std::size_t workspace_bytes_ = 0;
  std::int64_t engine_ = -1;
  bool tensor_cores_ = false;
};

}  // namespace cudnn
}  // namespace athanor
