#include "trainer/profile/profiler.h"

#include <algorithm>
#include <cstring>

#include "kernels/account/flops.h"
#include "tensor/base/trace.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

double bytes_of(const Tensor& x) {
  return x.defined() ? static_cast<double>(x.numel()) * static_cast<double>(size_of(x.dtype())) : 0;
}

bool is(const char* op, const char* name) {
  return std::strcmp(op, name) == 0;
}

std::int64_t forward_flops(const char* op, const Tensor& y, std::span<const Input> inputs) {
  if (inputs.size() < 2 || !inputs[1].tensor->defined()) return 0;
  const Tensor &x = *inputs[0].tensor, &other = *inputs[1].tensor;
  if (is(op, "conv2d") || is(op, "linear")) return layer_flops(other.shape(), y.numel());
  if (is(op, "matmul")) return product_flops(y.numel(), x.dim(-1));
  if (is(op, "conv_transpose2d")) return transposed_flops(other.shape(), x.numel());
  return 0;
}

// Each gradient costs as much as the forward pass. Without the weight's gradient, its shape is not known
// here.
std::int64_t backward_flops(const char* op, const Tensor& dy, std::span<const Tensor> dx) {
  if (dx.size() < 2 || !dx[1].defined()) return 0;
  const std::int64_t asked = dx[0].defined() ? 2 : 1;
  if (is(op, "conv2d") || is(op, "linear")) return asked * layer_flops(dx[1].shape(), dy.numel());
  if (is(op, "matmul") && dx[0].defined()) return 2 * product_flops(dy.numel(), dx[0].dim(-1));
  return 0;
}

}  // namespace

// A training -----------------------------------------------------------------------------------------------

void Profiler::on_fit_begin(Trainer& trainer, const FitInfo& info) {
  const TrainerConfig& config = info.config;
  order_.clear();
  totals_.clear();
  opening_s_ = 0;
  not_written_.clear();
  roof_ = kind_ == Profile::trace ? Roof() : measure_roof({compute_dtype(config.precision), config.device});
  backward_.reserve(8);
  layers_.reserve(64);
  if (kind_ != Profile::simple) {
    networks_ = &trainer.networks();
    networks_->name_layers(true);
  }
  if (kind_ == Profile::trace) {
    if (config.run_dir.empty()) not_written_ = "the run has no folder";
    trace_ =
        config.run_dir / (config.phase.empty() ? "trace.json" : fmt::format("trace_{}.json", config.phase));
    name_thread("training");
    start_trace();
  }
  observing_.emplace(static_cast<OpObserver&>(*this));
}

void Profiler::on_step_begin(Trainer&, const StepInfo&) {
  in_step_ = true;
  step_ns_ = last_ns_ = detail::trace_now();
}

void Profiler::on_step_end(Trainer&, const StepInfo&) {
  end_layer_backward();
  if (kind_ == Profile::trace) detail::trace_push("step", step_ns_, detail::trace_now(), "step");
  end_step();
}

void Profiler::end_step() {
  in_step_ = false;
  layer_backward_ = nullptr;
  backward_.clear();
  layers_.clear();
}

void Profiler::on_epoch_end(Trainer&, const EpochReport& report) {
  opening_s_ += report.loader.waits.opening_s;
}

// Ignores the rest of a run.
void Profiler::end() {
  end_step();
  observing_.reset();
  if (networks_) networks_->name_layers(false);
  networks_ = nullptr;
  if (kind_ == Profile::trace) stop_trace();
}

void Profiler::on_train_end(Trainer&) {
  end();
  if (kind_ != Profile::trace || !not_written_.empty()) return;
  const std::vector<std::string> lists = strategy_.gather(trace_json(strategy_.rank()));
  try {
    strategy_.run_on_rank0([&] { write_trace(trace_.string(), lists); });
  } catch (const Error& error) {  // must not cost the user the model
    not_written_ = error.what();
  }
}

// Ops ------------------------------------------------------------------------------------------------------

void Profiler::add(const Key& key, std::int64_t begin_ns, std::int64_t end_ns, std::int64_t within_ns,
                   double bytes, double flops) {
  if (kind_ == Profile::trace)
    detail::trace_push(key.op, begin_ns, end_ns, key.backward ? "backward" : "forward", key.layer);
  const auto [found, fresh] = totals_.try_emplace(key, OpTotal{key.op, key.layer, key.backward});
  OpTotal& total = found->second;
  if (fresh) order_.push_back(&total);
  ++total.calls;
  total.seconds += static_cast<double>(end_ns - begin_ns - within_ns) * 1e-9;
  total.bytes += bytes;
  total.flops += flops;
  if (!backward_.empty()) backward_.back().within_ns += end_ns - begin_ns;
  last_ns_ = end_ns;
}

// The time of an op without a gradient counts for the next one.
void Profiler::recorded(const OpCall& op, const Tensor& y, std::span<const Input> inputs) {
  if (!in_step_ || !op.has_gradient) return;
  double bytes = bytes_of(y);
  for (const Input& input : inputs) bytes += input.has_gradient ? bytes_of(*input.tensor) : 0;
  add({op.name, LayerScope::innermost(), false}, last_ns_, detail::trace_now(), 0, bytes,
      static_cast<double>(forward_flops(op.name, y, inputs)));
}

void Profiler::backward_began(const char* op, const char* layer) {
  if (!in_step_) return;
  if (backward_.empty() && layer != layer_backward_) {
    end_layer_backward();
    layer_backward_ = layer;
    layer_ns_ = detail::trace_now();
  }
  const std::int64_t now = detail::trace_now();
  backward_.push_back({now, 0, op});
  last_ns_ = now;
}

void Profiler::backward_ended(const char* op, const char* layer, const Tensor& dy,
                              std::span<const Tensor> dx) {
  if (!in_step_ || backward_.empty()) return;
  const Open open = backward_.back();
  backward_.pop_back();
  double bytes = bytes_of(dy);
  for (const Tensor& one : dx) bytes += bytes_of(one);
  add({op, layer, true}, open.begin_ns, detail::trace_now(), open.within_ns, bytes,
      static_cast<double>(backward_flops(op, dy, dx)));
}

void Profiler::layer_began(const char* layer) {
  if (!in_step_) return;
  last_ns_ = detail::trace_now();
  layers_.push_back({last_ns_, 0, layer});
}

void Profiler::layer_ended(const char*) {
  if (!in_step_ || layers_.empty()) return;
  const Open open = layers_.back();
  layers_.pop_back();
  last_ns_ = detail::trace_now();
  if (kind_ == Profile::trace) detail::trace_push(open.name, open.begin_ns, last_ns_, "layer");
}

// Excludes waiting for and preparing a batch from its first op.
void Profiler::pass_began() {
  if (in_step_) last_ns_ = detail::trace_now();
}

// Merges consecutive ops of a layer into one span.
void Profiler::end_layer_backward() {
  if (kind_ == Profile::trace && layer_backward_)
    detail::trace_push(layer_backward_, layer_ns_, last_ns_, "layer backward");
  layer_backward_ = nullptr;
}

// What is said of them -------------------------------------------------------------------------------------

std::vector<OpTotal> Profiler::totals() const {
  std::vector<OpTotal> all;
  for (const OpTotal* const one : order_) all.push_back(*one);
  return all;
}

std::string Profiler::text() const {
  std::string text;
  if (opening_s_ > 0)
    text +=
        fmt::format("  of data, {:.3f} s were opening: first reads, and the workers' start\n", opening_s_);
  if (kind_ == Profile::trace && not_written_.empty())
    return text += fmt::format("\ntrace   {}: open it in ui.perfetto.dev\n", trace_.string());
  if (kind_ == Profile::trace) return text += fmt::format("\nno trace: {}\n", not_written_);
  if (kind_ == Profile::advanced) text += fmt::format("\n{}", text_by_layer(totals()));
  return text += fmt::format("\n{}", text_by_op(totals(), roof_));
}

}  // namespace athanor
