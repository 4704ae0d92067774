#include "kernels/update.h"

#include <cstring>

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"
#include "kernels/update_ops.h"

namespace athanor::bench {
namespace {

using kernels::UpdateRange;
using kernels::UpdateTable;

constexpr std::int64_t kParameters = 1 << 16;  // of the small case; the large one has as many as a ResNet-50
constexpr std::int64_t kTiles = 391;

std::int64_t tiles() {
  return cuda_is_emulated() ? 1 : kTiles;
}

Tensor ranges(std::int64_t tiles) {
  const std::int64_t total = tiles * kParameters, count = total / kernels::kUpdateChunk;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(UpdateRange));
  const Tensor bytes = Tensor::zeros({count * kBytes}, {DType::u8, kCpu});
  auto* range = reinterpret_cast<UpdateRange*>(bytes.raw_data());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = i * kernels::kUpdateChunk;
    range[i] = {.start = at,
                .count = kernels::kUpdateChunk,
                .gradients = at,
                .weights = at,
                .masters = at,
                .averages = at,
                .state = at,
                .member = 0,
                .group = 0,
                .decay = true,
                .last = i + 1 == count};
  }
  return bytes;
}

// A StepState, in floats so that a tensor can hold it.
Tensor step_state() {
  StepState state;
  state.learning_rate[0] = 1e-3f;
  static_assert(sizeof state % sizeof(float) == 0);
  const Tensor held = Tensor::empty({static_cast<std::int64_t>(sizeof state / sizeof(float))});
  std::memcpy(held.raw_data(), &state, sizeof state);
  return held;
}

// While alive, kernels read their scalars from that tensor.
class Bound {
 public:
  Bound(ContextBase& context, const Tensor& state) : context_(context) {
    context.bind_step(reinterpret_cast<StepState*>(state.raw_data()));
  }
  ~Bound() { context_.bind_step(nullptr); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

 private:
  ContextBase& context_;
};

// The first operands of every update: gradients, masters, compute copy (f32: none), steps, ranges, step
// state.
std::vector<Operand> operands(DType dtype) {
  const bool copies = dtype != DType::f32;
  return {{pattern({kParameters}, dtype, -1, 1, 1)},
          {pattern({kParameters}, DType::f32, -1, 1, 2), Role::row_result},
          copies ? result(Role::row_result, {kParameters}, dtype) : result(Role::small_result, {1}, dtype),
          {Tensor::zeros({1}, {DType::i64, kCpu}), Role::same_result},
          {ranges(1), Role::whole, ranges},
          {step_state(), Role::small_result}};
}

UpdateTable table_of(std::span<const Tensor> t) {
  UpdateTable table;
  table.gradients = t[0];
  table.masters = t[1];
  if (t[0].dtype() != DType::f32) table.weights = t[2];
  table.steps = t[3];
  table.ranges = t[4];
  table.count = t[4].numel() / static_cast<std::int64_t>(sizeof(UpdateRange));
  table.elements = t[1].numel();
  return table;
}

// `state` f32 tensors beside the masters; f(context, table, tensors).
template <class F> void add_optimizer(const char* op, DType dtype, int states, double bytes, const F& f) {
  const double copy = dtype == DType::f32 ? 0 : static_cast<double>(size_of(dtype));
  add({.op = op,
       .dir = "step",
       .dtype = dtype,
       .shape = {kParameters},
       .work = {.bytes = kParameters * (bytes + static_cast<double>(size_of(dtype)) + copy)},
       .prepare =
           [=] {
             std::vector<Operand> all = operands(dtype);
             for (int i = 0; i < states; ++i) all.push_back({Tensor::zeros({kParameters}), Role::row_result});
             return call(std::move(all), 4 * epsilon_of(dtype) + 1e-6,
                         [f](auto& context, std::span<const Tensor> t) {
                           const Bound bound(context, t[5]);
                           f(context, table_of(t), t);
                         });
           },
       .tiles = tiles()});
}

void add_measure(DType dtype) {
  add({.op = "measure_gradients",
       .dir = "step",
       .dtype = dtype,
       .shape = {kParameters},
       .work = {.bytes = bytes_of({kParameters}, dtype)},
       .prepare =
           [=] {
             return call(operands(dtype), 1e-5, [](auto& context, std::span<const Tensor> t) {
               const Bound bound(context, t[5]);
               const UpdateTable tables[] = {table_of(t)};
               kernels::measure_gradients(context, tables, {.max_norm = 1});
             });
           },
       .tiles = tiles()});
}

}  // namespace

void add_update() {
  for (const DType dtype : bench_dtypes()) {
    add_optimizer("sgd_nesterov", dtype, 1, 16, [](auto& context, const UpdateTable& table, auto t) {
      const kernels::SgdGroup group{.momentum = 0.9f, .weight_decay = 1e-4f, .nesterov = true};
      kernels::update_parameters<kernels::MomentumRule>(context, table, {&group, 1}, t.subspan(6, 1));
    });
    add_optimizer("adamw", dtype, 2, 24, [](auto& context, const UpdateTable& table, auto t) {
      const kernels::AdamGroup group{.weight_decay = 0.01f, .decoupled = true};
      kernels::update_parameters<kernels::AdamRule>(context, table, {&group, 1}, t.subspan(6, 2));
    });
    add_optimizer("adamw_ema", dtype, 3, 32, [](auto& context, UpdateTable table, auto t) {
      table.averages = t[8];
      table.average = {.decay = 0.999, .warm_up = false};
      const kernels::AdamGroup group{.weight_decay = 0.01f, .decoupled = true};
      kernels::update_parameters<kernels::AdamRule>(context, table, {&group, 1}, t.subspan(6, 2));
    });
    add_measure(dtype);
  }
}

}  // namespace athanor::bench
