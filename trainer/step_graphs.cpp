#include "trainer/step_graphs.h"

#include <algorithm>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "kernels/on_device.h"
#include "tensor/base/counters.h"
#include "tensor/base/error.h"
#include "trainer/classifier.h"
#include "trainer/flags/recipe.h"
#include "trainer/multi_label.h"
#include "trainer/regression.h"
#include "trainer/run/networks.h"

namespace athanor {
namespace {

// Work of more kinds runs as usual: each has the memory of its handles, and finding it takes time.
constexpr std::size_t kMaxWorks = 64;

Tensor bytes_of(const Ref<Storage>& storage) {
  return Tensor::wrap(storage, 0, {static_cast<std::int64_t>(storage->bytes())}, {1}, DType::u8);
}

// A module of another namespace may do on the host what is not captured: count its calls, draw numbers.
bool is_of_library(nn::Module& networks) {
  bool all = true;
  networks.for_each_module([&](nn::Module& module, const std::vector<Parameter>&) {
    all = all && std::string_view(typeid(module).name()).starts_with("N7athanor2nn");
  });
  return all;
}

template <class... Tasks> bool is_any(const Task& task) {
  return (... || (dynamic_cast<const Tasks*>(&task) != nullptr));
}

}  // namespace

std::string why_not_captured(const TrainerConfig& config, int ranks, Task& task,
                             std::span<const std::unique_ptr<OptimizedNetworks>> networks) {
  if (ranks > 1) return "several ranks share the steps";
  if (config.profile == Profile::simple || config.profile == Profile::advanced)
    return "--profile times the parts of a step";
  if (config.augment.mixes()) return "the host draws the mixing ratios of mixup and cutmix";
  if (!task.captured_as({})) return "the task does not allow capture (Task::captured_as)";
  for (const auto& one : networks) {
    const std::string_view kind = one->optimizer->kind();
    if (std::ranges::find(optimizer_table(), kind, &OptimizerEntry::name) == optimizer_table().end())
      return fmt::format("the optimizer '{}' is the program's own", kind);
  }
  const bool asks = config.graph == GraphMode::automatic && is_any<Classifier, MultiLabel, Regression>(task);
  if (asks && !is_of_library(task.networks()))
    return "the network has modules of the program's own; if they do the same work each time, use --graph on";
  return "";
}

StepGraphs::StepGraphs(GraphMode mode, const std::string& why_not, StepBuffer& step, Note on_note)
    : mode_(mode), step_(step), on_note_(std::move(on_note)) {
  if (mode == GraphMode::off || step.device().is_cpu()) return;
  if (!why_not.empty()) {
    why_off_ = "steps are not captured as CUDA graphs: " + why_not;
    return;
  }
  memory_ = std::make_unique<GraphMemory>(step.device());
  epoch_ = Tensor::empty({}, {DType::i64, step.device()});
}

StepGraphs::~StepGraphs() {
  try {
    clear();
  } catch (const Error&) {  // a device that has failed runs nothing
  }
}

void StepGraphs::clear() {
  if (works_.empty()) return;
  const AllowSync between_steps;
  synchronize(step_.device());
  works_.clear();
}

StepGraphs::Work* StepGraphs::find(const Key& key) {
  if (!memory_ || !key.number) return nullptr;
  for (const auto& work : works_) {
    if (work->key == key) return work.get();
  }
  if (works_.size() == kMaxWorks) return nullptr;
  works_.push_back(std::make_unique<Work>());
  works_.back()->key = key;
  return works_.back().get();
}

void StepGraphs::begin(const Key& key, const void* sums) {
  work_ = find(key);
  how_ = How::plain;
  if (!work_ || work_->failures == kMaxFailures) return;
  held_ = memory_->held_bytes();
  next_ = 0;
  // Something has since taken memory that the graphs write to, or has freed what they read.
  if (work_->in_use != memory_->in_use() || work_->sums != sums) {
    if (!work_->passes.empty()) work_->warm = kWarm - 1;  // other blocks are free now: perhaps too few
    work_->passes.clear();
  }
  work_->sums = sums;
  how_ = !work_->passes.empty()                  ? How::replay
         : work_->warm >= kWarm && work_->steady ? How::capture
                                                 : How::warm;
}

void StepGraphs::end() {
  if (how_ == How::warm) {
    ++work_->warm;
    work_->steady = memory_->held_bytes() == held_;
  }
  if (how_ == How::capture) work_->in_use = memory_->in_use();
  how_ = How::plain;
}

void StepGraphs::run(const Batch& batch, std::int64_t epoch, const std::function<void(const Batch&)>& work) {
  const Tensor& there = stage(batch, epoch);
  if (how_ == How::replay) return launch(work_->passes.at(next_++));
  const Batch staged = on_stage(batch, there);
  if (how_ == How::capture) return capture(staged, work);
  const GraphMemory::Use use(*memory_);
  work(staged);
}

void StepGraphs::capture(const Batch& staged, const std::function<void(const Batch&)>& work) {
  updated_.clear();
  const auto context = [&](const auto& f) {
    return on_device(step_.device(), [&](auto& one) { return f(static_cast<ContextBase&>(one)); });
  };
  const std::int64_t random_ops = context([](ContextBase& one) { return one.random_ops(); });
  try {
    Graph graph = memory_->capture([&] { work(staged); });
    ++captured_;
    work_->passes.push_back({std::move(graph), updated_});
  } catch (const Error& error) {
    failed(error.what());
    context([&](ContextBase& one) { one.set_random_ops(random_ops); });
    const GraphMemory::Use use(*memory_);
    return work(staged);  // and so are the other passes of the step
  }
  launch(work_->passes.back());
}

// The next step tries again: the memory may have lacked a block of the right size.
void StepGraphs::failed(const std::string& why) {
  how_ = How::warm;
  work_->passes.clear();
  work_->warm = 0;
  if (++work_->failures < kMaxFailures) return;
  ATH_CHECK(mode_ != GraphMode::on, "--graph on: a {} could not be captured: {}",
            work_->key.training ? "step" : "validation batch", why);
  on_note_(fmt::format("a {} of {} samples is not captured as a CUDA graph: {}",
                       work_->key.training ? "step" : "validation batch", work_->key.samples, why));
}

bool StepGraphs::sets_rates_of(OptimizedNetworks& networks) {
  if (how_ != How::capture) return false;
  updated_.push_back(&networks);
  return true;
}

void StepGraphs::launch(const Pass& pass) {
  for (OptimizedNetworks* const networks : pass.updated) networks->set_learning_rates(step_);
  pass.graph.launch();
  ++launched_;
  for (OptimizedNetworks* const networks : pass.updated) {  // as the host does when it queues the work
    networks->arena.updated();
    networks->arena.buffers().bump();
  }
}

// The batch ------------------------------------------------------------------------------------------------

const Tensor& StepGraphs::stage(const Batch& batch, std::int64_t epoch) {
  const Tensor from = bytes_of(batch.samples.storage());
  auto found = std::ranges::find(stages_, from.numel(), [](const Tensor& one) { return one.numel(); });
  if (found == stages_.end())
    found = stages_.insert(stages_.end(), Tensor::empty(from.shape(), from.options()));
  found->copy_bytes_from(from);
  if (epoch != epoch_there_) {
    epoch_.copy_bytes_from(Tensor::from(std::vector<std::int64_t>{epoch}, {}));
    epoch_there_ = epoch;
  }
  return *found;
}

// Images that lie on the device as a whole are read from there.
Batch StepGraphs::on_stage(const Batch& batch, const Tensor& stage) const {
  Batch staged = batch;
  const auto move = [&](Tensor& field) {
    if (!field.defined() || field.storage() != batch.samples.storage()) return;
    field = Tensor::wrap(stage.storage(), field.offset(), field.shape(), field.strides(), field.dtype());
  };
  move(staged.images);
  move(staged.labels);
  for (Tensor& field : staged.more) move(field);
  if (staged.rows.defined()) move(staged.rows);
  move(staged.samples);
  staged.epoch = epoch_;
  return staged;
}

}  // namespace athanor
