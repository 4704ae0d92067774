#include "trainer/checkpoints/run_state.h"

#include <concepts>
#include <utility>

#include "kernels/conv_choices.h"
#include "optim/load.h"
#include "tensor/base/error.h"
#include "trainer/config.h"

namespace athanor {
namespace {

/// One list of fields serves both writing and reading of a dictionary.
struct Writer {
  StateDict state;
  template <std::integral T> void operator()(const char* name, T& value) {
    state.set(name, static_cast<std::int64_t>(value));
  }
  template <std::floating_point T> void operator()(const char* name, T& value) {
    state.set(name, double{value});
  }
  void operator()(const char* name, std::string& value) { state.set(name, value); }
};

struct Reader {
  const StateDict& state;
  template <std::integral T> void operator()(const char* name, T& value) const {
    const std::int64_t wide = state.integer(name);
    value = static_cast<T>(wide);
    ATH_CHECK(static_cast<std::int64_t>(value) == wide, "state_dict: '{}' must {}, but is {}", name,
              std::is_same_v<T, bool> ? "be 0 or 1" : "fit into 32 bits", wide);
  }
  template <std::floating_point T> void operator()(const char* name, T& value) const {
    value = static_cast<T>(state.real(name));
  }
  void operator()(const char* name, std::string& value) const { value = state.text(name); }
};

constexpr char kRateScale[] = "rate_scale";        // omitted if 1
constexpr char kThreads[] = "threads";             // omitted if 0
constexpr char kConvChoices[] = "conv_choices";    // omitted if empty
const std::string kLogged = "validation.logged.";  // plus the name of a task's metric

template <class Visit>
void visit_fields(RunPosition& at, std::string& ended_by, std::string& why_ended, Visit& visit) {
  visit("epoch", at.epoch);
  visit("epoch_samples", at.epoch_samples);
  visit("epoch_steps", at.epoch_steps);
  visit("attempted_steps", at.attempted);
  visit("trained_samples", at.trained_samples);
  visit("train_s", at.train_s);
  visit("epoch_began_s", at.epoch_began_s);
  visit("elapsed_s", at.elapsed_s);
  for (const TimesPart& part : kTimesParts)
    visit(fmt::format("times.{}", part.name).c_str(), at.times.*part.seconds);
  visit("validation.loss", at.validation.loss);
  visit("validation.accuracy", at.validation.accuracy);
  visit("validation.samples", at.validation.samples);
  visit("validated", at.validated);
  visit("averages_hold", at.averages_hold);
  visit("ended_by", ended_by);
  visit("why_ended", why_ended);
}

// A field missing here would be lost in every resumed run.
static_assert(sizeof(StepState) == 144, "StepState gained or lost a field: update visit_fields()");

template <class Visit> void visit_fields(StepState& step, Visit& visit) {
  visit("seed", step.seed);
  visit("applied_steps", step.applied_steps);
  visit("overflow_steps", step.overflow_steps);
  visit("outlier_steps", step.outlier_steps);
  for (int i = 0; i < kMaxParamGroups; ++i) {
    visit(fmt::format("learning_rate.{}", i).c_str(), step.learning_rate[i]);
  }
  visit("found_inf", step.found_inf);
  visit("found_outlier", step.found_outlier);
  visit("grad_norm", step.grad_norm);
  visit("clip_coefficient", step.clip_coefficient);
  visit("clip_value", step.clip_value);
  visit("loss_scale", step.loss_scale);
  visit("growth_counter", step.growth_counter);
  visit("stuck_steps", step.overflows_at_floor);  // its name in files
  visit("norm_mean", step.norm_mean);
  visit("norm_variance", step.norm_variance);
  visit("norm_count", step.norm_count);
  visit("outliers_in_a_row", step.outliers_in_a_row);
}

}  // namespace

StateDict state_of(const RunPosition& position) {
  RunPosition at = position;
  std::string ended_by(at.ended ? name_of(at.ended->reason) : ""), why(at.ended ? at.ended->why : "");
  Writer write;
  visit_fields(at, ended_by, why, write);
  for (const auto& [name, value] : position.validation.others) write.state.set(kLogged + name, value);
  if (position.rate_scale != 1) write.state.set(kRateScale, position.rate_scale);
  if (position.threads > 0) write.state.set(kThreads, std::int64_t{position.threads});
  if (!position.conv_choices.empty()) write.state.set(kConvChoices, position.conv_choices);
  return std::move(write.state);
}

RunPosition position_from(const StateDict& state) {
  RunPosition at;
  std::string ended_by, why;
  Reader read{state};
  visit_fields(at, ended_by, why, read);
  if (state.contains(kRateScale)) at.rate_scale = state.real(kRateScale);
  ATH_CHECK(at.rate_scale > 0 && at.rate_scale < 1e30, "state_dict: '{}' must be above 0, but is {}",
            kRateScale, at.rate_scale);
  if (state.contains(kConvChoices)) at.conv_choices = state.text(kConvChoices);
  ATH_CHECK(are_conv_choices(at.conv_choices), "state_dict: '{}' must be choices of --benchmark, but is '{}'",
            kConvChoices, at.conv_choices.substr(0, 200));
  if (state.contains(kThreads)) at.threads = static_cast<int>(state.integer(kThreads));
  ATH_CHECK(at.threads >= 0 && at.threads <= 1024, "state_dict: '{}' must be 1 to 1024, but is {}", kThreads,
            at.threads);
  const StateDict logged = state.under(kLogged);
  for (const std::string& name : logged.names()) at.validation.others.push_back({name, logged.real(name)});
  state.require_all_used("run");
  const std::int64_t counts[] = {at.epoch, at.epoch_samples, at.epoch_steps, at.attempted,
                                 at.trained_samples};
  for (const std::int64_t count : counts) {
    ATH_CHECK(count >= 0, "state_dict: counts of a run must be at least 0, but got {}", count);
  }
  const std::pair<const char*, double> seconds[] = {
      {"train_s", at.train_s}, {"epoch_began_s", at.epoch_began_s}, {"elapsed_s", at.elapsed_s}};
  for (const auto& [name, value] : seconds)
    ATH_CHECK(value >= 0 && value <= 1e9,
              "state_dict: '{}' must be a number of seconds from 0 to 1e9, but is {}", name, value);
  for (const StoppedBy reason : {StoppedBy::epochs, StoppedBy::max_steps, StoppedBy::early_stop,
                                 StoppedBy::max_time, StoppedBy::signal}) {
    if (ended_by == name_of(reason)) at.ended = {reason, why};
  }
  ATH_CHECK(at.ended || ended_by.empty(),
            "state_dict: 'ended_by' must be a known reason or empty, but is '{}'", ended_by);
  return at;
}

StateDict state_of(const StepState& step) {
  StepState copy = step;
  Writer write;
  visit_fields(copy, write);
  return std::move(write.state);
}

StepState step_from(const StateDict& state) {
  StepState step;
  Reader read{state};
  visit_fields(step, read);
  state.require_all_used("step");
  return step;
}

// Parts ----------------------------------------------------------------------------------------------------

StateDict save_parts(std::span<const StatePart> parts) {
  StateDict all;
  for (const StatePart& part : parts) all.set_all(part.prefix, part.save());
  return all;
}

void load_parts(std::span<const StatePart> parts, const StateDict& state) {
  std::vector<StateDict> given, before;
  for (const StatePart& part : parts) given.push_back(state.under(part.prefix));
  state.require_all_used("a run with these settings and callbacks");
  try {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      before.push_back(clone_tensors(parts[i].save()));
      try {
        parts[i].load(given[i]);
      } catch (const ArgumentError& error) {
        detail::fail<>("'{}': {}", parts[i].prefix.substr(0, parts[i].prefix.size() - 1), error.what());
      }
    }
  } catch (...) {
    for (std::size_t i = 0; i + 1 < before.size(); ++i) parts[i].load(before[i]);
    throw;
  }
}

}  // namespace athanor
