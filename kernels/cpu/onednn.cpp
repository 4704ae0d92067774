#include "kernels/cpu/onednn.h"

#include <atomic>
#include <cstring>
#include <utility>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "kernels/cpu/context.h"
#include "kernels/cpu/deferred_signals.h"
#include "kernels/cpu/onednn_api.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/implementations.h"
#include "kernels/scratch.h"

namespace athanor {
namespace {

std::atomic<std::int64_t> created{0}, reorders{0};

/// While alive, sets the number of OpenMP threads, which oneDNN uses.
class Threads {
 public:
#if defined(_OPENMP)
  explicit Threads(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~Threads() {
    omp_set_num_threads(before_);
  }
#else
  explicit Threads(int) {}
#endif
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  [[maybe_unused]] int before_ = 1;
};

}  // namespace

std::int64_t primitives_created() {
  return created.load(std::memory_order_relaxed);
}

std::int64_t reorders_run() {
  return reorders.load(std::memory_order_relaxed);
}

namespace cpu {
namespace {

using dnnl::memory;
using Op = PrimitiveKey::Op;

constexpr std::size_t kAlignment = 64;

memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return memory::data_type::f32;
    case DType::bf16: return memory::data_type::bf16;
    case DType::f16: return memory::data_type::f16;
    default: return memory::data_type::undef;
  }
}

// A primitive and its memory objects -----------------------------------------------------------------------

/// A compiled operation. `in` are its three inputs in the order of Primitive::run. If the operation requires
/// another layout of an operand, a reorder precedes it (or follows it, for the result).
class Compiled final : public Primitive {
 public:
  struct Operand {
    int argument = 0;  // DNNL_ARG_...; 0: missing
    memory::desc plain, wanted;
  };

  static constexpr std::size_t kOperands = 5;

  /// `clears`: the primitive leaves parts of its result or scratchpad unwritten, which must be zero.
  Compiled(int threads, dnnl::primitive primitive, const std::array<Operand, kOperands>& operands,
           const memory::desc& scratchpad, bool clears = false,
           std::shared_ptr<const kernels::WeightLayout> layout = nullptr)
      : threads_(threads),
        primitive_(std::move(primitive)),
        stream_(engine()),
        clears_(clears),
        layout_(std::move(layout)) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      Slot& slot = slots_[i];
      slot.argument = operands[i].argument;
      if (slot.argument == 0) continue;
      const memory::desc &plain = operands[i].plain, &wanted = operands[i].wanted;
      slot.plain = memory(plain, engine(), nullptr);
      slot.work = slot.plain;
      if (same(plain, wanted)) continue;
      slot.work = memory(wanted, engine(), nullptr);
      const memory &from = i == kResult ? slot.work : slot.plain, &to = i == kResult ? slot.plain : slot.work;
      dnnl::primitive_attr attr;
      attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::reorder::primitive_desc desc(from, to, attr);
      slot.reorder = dnnl::reorder(desc);
      slot.offset = reserve(wanted.get_size());
      slot.reorder_scratch = memory(desc.scratchpad_desc(), engine(), nullptr);
      slot.reorder_scratch_offset = reserve(desc.scratchpad_desc().get_size());
      slot.reordered = true;
    }
    scratchpad_ = memory(scratchpad, engine(), nullptr);
    scratchpad_offset_ = reserve(scratchpad.get_size());
  }

  void run(const CpuContext& context, const Operands& operands) override {
    const Scratch scratch = context.scratch(scratch_bytes_);
    std::byte* const base = scratch.as<std::byte>();
    if (clears_) {
      std::memset(base, 0, scratch_bytes_);
      std::memset(operands.out, 0, slots_[kResult].plain.get_desc().get_size());
    }
    const Threads threads(threads_);
    const DeferredSignals deferred(threads_);
    if (ThreadTeam* const team = context.team(); team && threads_ > 1) team->rest();
    const std::array<void*, kOperands> data{
        const_cast<void*>(operands.first), const_cast<void*>(operands.second),
        const_cast<void*>(operands.bias), operands.out, const_cast<void*>(operands.residual)};
    std::array<dnnl_exec_arg_t, kOperands + 1> arguments;
    int count = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (slot.argument == 0) continue;
      point(slot.plain, data[i]);
      if (slot.reordered) {
        point(slot.work, base + slot.offset);
        if (i != kResult) run_reorder(slot, slot.plain, slot.work, base);
      }
      arguments[static_cast<std::size_t>(count++)] = {slot.argument, slot.work.get()};
    }
    point(scratchpad_, base + scratchpad_offset_);
    arguments[static_cast<std::size_t>(count++)] = {DNNL_ARG_SCRATCHPAD, scratchpad_.get()};
    execute(primitive_, count, arguments.data());
    if (Slot& result = slots_[kResult]; result.reordered)
      run_reorder(result, result.work, result.plain, base);
  }

  std::shared_ptr<const kernels::WeightLayout> layout() const override { return layout_; }

 private:
  static constexpr std::size_t kResult = 3;

  struct Slot {
    int argument = 0;
    bool reordered = false;
    memory plain, work, reorder_scratch;
    dnnl::reorder reorder;
    std::size_t offset = 0, reorder_scratch_offset = 0;
  };

  std::size_t reserve(std::size_t bytes) {
    const std::size_t at = scratch_bytes_;
    scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }

  static void point(memory& target, void* data) {
    if (dnnl_memory_set_data_handle(target.get(), data) != dnnl_success)
      athanor::detail::fail<BackendError>("oneDNN: dnnl_memory_set_data_handle failed");
  }

  void run_reorder(Slot& slot, const memory& from, const memory& to, std::byte* base) {
    reorders.fetch_add(1, std::memory_order_relaxed);
    point(slot.reorder_scratch, base + slot.reorder_scratch_offset);
    const std::array<dnnl_exec_arg_t, 3> arguments{{{DNNL_ARG_FROM, from.get()},
                                                    {DNNL_ARG_TO, to.get()},
                                                    {DNNL_ARG_SCRATCHPAD, slot.reorder_scratch.get()}}};
    execute(slot.reorder, 3, arguments.data());
  }

  void execute(const dnnl::primitive& primitive, int count, const dnnl_exec_arg_t* arguments) {
    const dnnl_status_t status = dnnl_primitive_execute(primitive.get(), stream_.get(), count, arguments);
    if (status != dnnl_success)
      athanor::detail::fail<BackendError>("oneDNN: dnnl_primitive_execute failed with status {}",
                                          static_cast<int>(status));
  }

  int threads_;
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  bool clears_;
  std::array<Slot, kOperands> slots_;
  std::shared_ptr<const kernels::WeightLayout> layout_;
  memory scratchpad_;
  std::size_t scratchpad_offset_ = 0, scratch_bytes_ = 0;
};

// Making them ----------------------------------------------------------------------------------------------

void append(dnnl::post_ops& ops, dnnl::algorithm algorithm, float alpha = 0, float beta = 0) {
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(algorithm, alpha, beta);
#else
  ops.append_eltwise(1.0f, algorithm, alpha, beta);
#endif
}

void append(dnnl::post_ops& ops, Activation activation) {
  using enum dnnl::algorithm;
  switch (activation) {
    case Activation::none: return;
    case Activation::relu: return append(ops, eltwise_relu);
    case Activation::gelu: return append(ops, eltwise_gelu_erf);
    case Activation::relu6: return append(ops, eltwise_clip_v2, 0, 6);
#if DNNL_VERSION_MAJOR >= 3
    case Activation::hardswish: return append(ops, eltwise_hardswish, 1.0f / 6, 0.5f);
#else
    case Activation::hardswish: return append(ops, eltwise_hardswish);
#endif
    default: athanor::detail::fail<BackendError>("oneDNN: an activation must be one of kOneDnnActivations");
  }
}

dnnl::primitive_attr attributes(const PrimitiveKey& key, const memory::desc& result) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (key.fused.accumulate) ops.append_sum(1.0f);
  if (key.fused.residual) ops.append_binary(dnnl::algorithm::binary_add, result);
  append(ops, key.fused.activation);
  attr.set_post_ops(ops);
  return attr;
}

using Made = MadePrimitive;
using Operand = Compiled::Operand;
using Descriptors = std::array<Operand, Compiled::kOperands>;

// The summand of the first post-operation.
constexpr int kResidual = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1;

class PackedLayout final : public kernels::WeightLayout {
 public:
  PackedLayout(const memory::desc& plain, const memory::desc& wanted) : plain_(plain), wanted_(wanted) {}
  bool equals(const kernels::WeightLayout& other) const override {
    const auto* const that = dynamic_cast<const PackedLayout*>(&other);
    return that && same(plain_, that->plain_) && same(wanted_, that->wanted_);
  }
  std::size_t bytes() const override { return wanted_.get_size(); }
  void fill(const CpuContext&, const float* weights, void* to) const override {
    memory from(plain_, engine(), const_cast<float*>(weights)), target(wanted_, engine(), to);
    const dnnl::reorder::primitive_desc direct(from, target, {}, true);
    if (direct) return run(dnnl::reorder(direct), from, target);
    // Winograd's transform reads only dense filters in the order of their dimensions.
    const memory::dims dims = dims_of(plain_);
    memory::dims strides(dims.size(), 1);
    for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    memory dense({dims, memory::data_type::f32, strides}, engine());
    run(dnnl::reorder(from, dense), from, dense);
    run(dnnl::reorder(dense, target), dense, target);
  }

 private:
  static void run(const dnnl::reorder& reorder, memory& from, memory& to) {
    const DeferredSignals deferred(1);  // threads that it starts are those of products
    dnnl::stream stream(engine());
    reorder.execute(stream, from, to);
    stream.wait();
  }

  memory::desc plain_, wanted_;
};

/// The dtype of a bias, and of weights before they are packed.
DType given_type(const PrimitiveKey& key) {
  return key.fused.packed ? DType::f32 : key.in;
}

/// Sets the operand of weights; returns the required layout if they are packed.
std::shared_ptr<const kernels::WeightLayout> weights_operand(const PrimitiveKey& key,
                                                             const memory::desc& plain,
                                                             const memory::desc& wanted, Operand& operand) {
  operand = {DNNL_ARG_WEIGHTS, key.fused.packed ? wanted : plain, wanted};
  if (!key.fused.packed) return nullptr;
  return std::make_shared<PackedLayout>(plain, wanted);
}

// A descriptor of oneDNN's logical order (N C H W; [G] K C R S) over our NHWC and KRSC memory.
memory::desc image(DType dtype, memory::dim n, memory::dim h, memory::dim w, memory::dim c) {
  return {{n, c, h, w}, type_of(dtype), memory::dims{h * w * c, 1, w * c, c}};
}
memory::desc filter(DType dtype, const PrimitiveKey& key, bool any) {
  const auto [n, h, w, c, k, r, s, p, q, sh, sw, ph, pw, dh, dw, g] = key.sizes;
  const memory::dim inner = c / g;
  memory::dims dims{k / g, inner, r, s}, strides{r * s * inner, 1, s * inner, inner};
  if (g > 1) {
    dims.insert(dims.begin(), g);
    strides.insert(strides.begin(), k / g * r * s * inner);
  }
  if (any) return {dims, type_of(dtype), memory::format_tag::any};
  return {dims, type_of(dtype), strides};
}

/// One axis of a convolution: through each tap, output i reads the pixel i * stride + tap * dilation -
/// padding.
struct Axis {
  memory::dim size, padding, outputs, stride, taps, dilation;

  /// Whether some tap only meets padding, for every output.
  bool has_unused_tap() const { return exceeds_image(taps, dilation, outputs, stride); }
  /// Whether some output only reads padding, through every tap.
  bool has_empty_output() const { return exceeds_image(outputs, stride, taps, dilation); }

 private:
  bool exceeds_image(memory::dim each, memory::dim step, memory::dim of, memory::dim inner_step) const {
    for (memory::dim i = 0; i < each; ++i) {
      bool meets = false;
      for (memory::dim j = 0; j < of && !meets; ++j) {
        const memory::dim at = i * step + j * inner_step - padding;
        meets = at >= 0 && at < size;
      }
      if (!meets) return true;
    }
    return false;
  }
};

/// Errors of oneDNN 3.6's convolution by small matmuls. If an output reads only padding, it dereferences a
/// null pointer. With one channel per group (not depthwise, which is other code), one output per row and a
/// stride along it, it reads beyond the row. 2.6 computes both correctly.
bool is_wrong_in_onednn_3([[maybe_unused]] const Axis& rows, [[maybe_unused]] const Axis& columns,
                          [[maybe_unused]] memory::dim group_channels, [[maybe_unused]] bool depthwise) {
#if DNNL_VERSION_MAJOR >= 3
  return rows.has_empty_output() || columns.has_empty_output() ||
         (group_channels == 1 && !depthwise && columns.outputs == 1 && columns.stride > 1);
#else
  return false;
#endif
}

Made make_convolution(const PrimitiveKey& key) {
  const auto [n, h, w, c, k, r, s, p, q, sh, sw, ph, pw, dh, dw, g] = key.sizes;
  const Axis rows{h, ph, p, sh, r, dh}, columns{w, pw, q, sw, s, dw};
  if (is_wrong_in_onednn_3(rows, columns, c / g, g > 1 && k == g)) return {};
  const ConvArguments arguments{{sh, sw}, {dh - 1, dw - 1}, {ph, pw}};  // oneDNN counts the gaps of dilation
  const memory::desc x = image(key.in, n, h, w, c), y = image(key.in, n, p, q, k);
  const memory::desc weights = filter(key.in, key, true);
  const memory::desc bias =
      key.bias ? memory::desc({k}, type_of(given_type(key)), memory::format_tag::a) : memory::desc();
  const dnnl::primitive_attr attr = attributes(key, y);

  if (key.op == Op::conv_forward) {
    const auto kind =
        key.fused.packed ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
    const auto desc = forward_desc(arguments, kind, x, weights, bias, y, attr);
    // 2.6's convolutions as a product add the first pixel's residual to other pixels.
    if (key.fused.residual && std::string_view(desc.impl_info_str()).find("gemm") != std::string_view::npos)
      return {};
    Descriptors operands;
    operands[0] = {DNNL_ARG_SRC, x, desc.src_desc()};
    const auto layout =
        weights_operand(key, filter(given_type(key), key, false), desc.weights_desc(), operands[1]);
    if (key.bias) operands[2] = {DNNL_ARG_BIAS, bias, desc.bias_desc()};
    operands[3] = {DNNL_ARG_DST, y, desc.dst_desc()};
    if (key.fused.residual) operands[4] = {kResidual, y, y};
    return {std::make_unique<Compiled>(key.threads, dnnl::convolution_forward(desc), operands,
                                       desc.scratchpad_desc(), false, layout),
            desc.impl_info_str()};
  }
  const auto hint = forward_desc(arguments, dnnl::prop_kind::forward_training, x, weights, memory::desc(), y,
                                 dnnl::primitive_attr());
  Descriptors operands;
  if (key.op == Op::conv_backward_data) {
    const auto desc = backward_desc<dnnl::convolution_backward_data>(arguments, x, weights, y, hint, attr);
    operands[0] = {DNNL_ARG_DIFF_DST, y, desc.diff_dst_desc()};
    operands[1] = {DNNL_ARG_WEIGHTS, filter(key.in, key, false), desc.weights_desc()};
    operands[3] = {DNNL_ARG_DIFF_SRC, x, desc.diff_src_desc()};
    return {std::make_unique<Compiled>(key.threads, dnnl::convolution_backward_data(desc), operands,
                                       desc.scratchpad_desc()),
            desc.impl_info_str()};
  }
  const auto desc = backward_desc<dnnl::convolution_backward_weights>(
      arguments, x, filter(key.out, key, true), y, hint, attr);
  operands[0] = {DNNL_ARG_SRC, x, desc.src_desc()};
  operands[1] = {DNNL_ARG_DIFF_DST, y, desc.diff_dst_desc()};
  operands[3] = {DNNL_ARG_DIFF_WEIGHTS, filter(key.out, key, false), desc.diff_weights_desc()};
  const bool clears = rows.has_unused_tap() || columns.has_unused_tap();
  return {std::make_unique<Compiled>(key.threads, dnnl::convolution_backward_weights(desc), operands,
                                     desc.scratchpad_desc(), clears),
          desc.impl_info_str()};
}

Made make_matmul(const PrimitiveKey& key) {
  const auto [m, n, k, a_row, a_col, b_row, b_col, y_row, u0, u1, u2, u3, u4, u5, u6, u7] = key.sizes;
  const memory::desc a({m, k}, type_of(key.in), memory::dims{a_row, a_col});
  const memory::desc b({k, n}, type_of(given_type(key)), memory::dims{b_row, b_col});
  const memory::desc any({k, n}, type_of(key.in), memory::format_tag::any);
  const memory::desc y({m, n}, type_of(key.out), memory::dims{y_row, 1});
  const memory::desc bias =
      key.bias ? memory::desc({1, n}, type_of(given_type(key)), memory::format_tag::ab) : memory::desc();
  const auto desc = matmul_desc(a, key.fused.packed ? any : b, bias, y, attributes(key, y));
  Descriptors operands;
  operands[0] = {DNNL_ARG_SRC, a, desc.src_desc()};
  const auto layout = weights_operand(key, b, desc.weights_desc(), operands[1]);
  if (key.bias) operands[2] = {DNNL_ARG_BIAS, bias, bias};
  operands[3] = {DNNL_ARG_DST, y, desc.dst_desc()};
  return {std::make_unique<Compiled>(key.threads, dnnl::matmul(desc), operands, desc.scratchpad_desc(), false,
                                     layout),
          desc.impl_info_str()};
}

}  // namespace

MadePrimitive make_onednn(const PrimitiveKey& key) {
  if (type_of(key.in) == memory::data_type::undef || type_of(key.out) == memory::data_type::undef) return {};
  const Threads threads(key.threads);
  try {
    MadePrimitive made = key.op == Op::matmul ? make_matmul(key) : make_convolution(key);
    created.fetch_add(1, std::memory_order_relaxed);
    if (made.implementation.find("ref") != std::string::npos) made.primitive = nullptr;
    return made;
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return {};
    athanor::detail::fail<BackendError>("oneDNN: {} (status {})", error.what(),
                                        static_cast<int>(error.status));
  }
}

void multiply_int8_onednn(const CpuContext& context, int threads, const Int8Product& z) {
  const Threads of_omp(threads);
  const DeferredSignals deferred(threads);
  if (ThreadTeam* const team = context.team(); team && threads > 1) team->rest();
  const std::int32_t offset = 0;
  const dnnl_status_t status = dnnl_gemm_u8s8s32('N', 'T', 'F', z.m, z.n, z.k, 1.0f, z.a, z.k, 0, z.b, z.k, 0,
                                                 0.0f, z.y, z.n, &offset);
  if (status != dnnl_success)
    athanor::detail::fail<BackendError>("oneDNN: dnnl_gemm_u8s8s32 failed with status {}",
                                        static_cast<int>(status));
}

bool has_exact_int8_onednn() {
  // Each instruction set's number has the bits of those it includes.
  static const bool found =
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_vnni) == dnnl_cpu_isa_avx512_core_vnni;
  return found;
}

bool has_onednn() {
  return true;
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();  // of the loaded library
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace cpu
}  // namespace athanor
