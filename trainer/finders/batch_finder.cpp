// --find-batch-size: short runs with one batch size each.

#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "kernels/on_device.h"
#include "optim/load.h"
#include "optim/step.h"
#include "tensor/base/error.h"
#include "trainer/finders/finders.h"
#include "trainer/finders/largest_fit.h"
#include "trainer/finders/lr_finder.h"
#include "trainer/loop.h"
#include "trainer/readable.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

constexpr std::int64_t kSmallest = 8;
constexpr int kWarm = 1, kTimed = 5;
constexpr double kEnough_s = 2;   // per size, once there are three steps
constexpr double kLongest_s = 4;  // a slower step makes its size the last one tried
constexpr double kAsFast = 0.97;

struct Timed {
  std::int64_t batch = 0, images = 0;  // images per step
  double seconds = 0;
  double images_per_s() const { return static_cast<double>(images) / seconds; }
};

/// Results of a search by size; a size without time does not fit.
struct Search {
  std::vector<Timed> rows = {};
  std::int64_t largest = 0;  // that fits
  bool all_images = false, too_slow = false;
};

std::string text_of(const Search& search, const TrainerConfig& config, std::int64_t images) {
  std::string text = fmt::format("{:>9}  {:>10}  {:>10}\n", "batch", "ms a step", "images/s");
  for (const Timed& row : search.rows)
    text += fmt::format("{:>9}  {:>10.1f}  {:>10}\n", with_commas(row.batch), 1e3 * row.seconds,
                        rate(row.images_per_s()));
  if (search.largest == 0) return text + "\nlargest that fits   none\n";
  const auto faster = [](const Timed& a, const Timed& b) { return a.images_per_s() < b.images_per_s(); };
  const Timed& fastest = *std::max_element(search.rows.begin(), search.rows.end(), faster);
  const Timed& enough = *std::find_if(search.rows.begin(), search.rows.end(), [&](const Timed& row) {
    return row.images_per_s() >= kAsFast * fastest.images_per_s();
  });
  text += fmt::format("\nlargest that fits   {}{}\n", with_commas(search.largest),
                      search.all_images ? fmt::format(", all {} images", with_commas(images))
                      : search.too_slow ? fmt::format(" or more: its step takes longer than {} s", kLongest_s)
                                        : "");
  text += fmt::format("fastest             {}, {} images/s", with_commas(fastest.batch),
                      rate(fastest.images_per_s()));
  if (enough.batch != fastest.batch)
    text += fmt::format("; {} is within {:.0f} % of that", with_commas(enough.batch),
                        100 * (1 - enough.images_per_s() / fastest.images_per_s()));
  return text + fmt::format("\nnext                {}\n",
                            command_with(config, "--batch-size", fmt::to_string(enough.batch)));
}

/// Doubles the size while it fits, then bisects. `timed` returns a size's time; nullopt: it does not fit.
template <class TimeOf> Search search_sizes(std::int64_t images, const int& signal, const TimeOf& timed) {
  Search search;
  std::int64_t unfit = 0;
  for (std::int64_t batch = std::min(kSmallest, images); signal == 0;) {
    const std::optional<Timed> row = timed(batch);
    if (!row) {
      unfit = batch;
      break;
    }
    search.rows.push_back(*row);
    search.largest = batch;
    search.all_images = batch == images;
    search.too_slow = row->seconds > kLongest_s;
    if (search.all_images || search.too_slow) break;
    batch = std::min(2 * batch, images);
  }
  if (unfit > 0)
    search.largest = largest_that_fits(search.largest, unfit, [&](std::int64_t batch) {
      const std::optional<Timed> row = signal == 0 ? timed(batch) : std::nullopt;
      if (row) search.rows.push_back(*row);
      return row.has_value();
    });
  return search;
}

}  // namespace

FitReport Trainer::find_batch_size(Task& task, const Dataset& train) {
  ATH_CHECK(world_size() == 1,
            "--find-batch-size: needs a single rank, but there are {}: running out of memory on one would "
            "end the others; run it without --devices, and multiply the result",
            world_size());
  FitReport report;
  nn::Module& networks = task.networks();
  const bool training = networks.training();
  const StateDict before = clone_tensors(networks.state_dict());
  ModelMemory memory;
  /// nullopt: it does not fit.
  const auto timed = [&](std::int64_t batch) -> std::optional<Timed> {
    TrainerConfig config = config_;
    config.batch_size = batch;
    config.threads = std::max(config.threads, 0);
    config.question = Question::none;
    config.limit_train_batches = {};
    config.overfit_batches = config.sanity_val = 0;
    config.image_sizes.clear();  // the size of the last epochs must fit
    const Callbacks none;
    allocator_of(config.device).trim();
    try {
      return on_device(config.device, [&](auto& context) {
        Run run({*this, none}, config, *dir_, *strategy_, memory, task, train, nullptr);
        TrainingLoop loop(run);
        const BoundStep bound(context, run.step);
        const double seconds = median(loop.time_first_steps(kWarm, kTimed, kEnough_s));
        report.signal = run.limits.signal();
        return Timed{batch, std::min(batch * config.accumulate, train.size() / batch * batch), seconds};
      });
    } catch (const OutOfMemoryError&) {
    } catch (const std::bad_alloc&) {
    }
    return std::nullopt;
  };
  Search search = search_sizes(train.size(), report.signal, timed);
  if (memory.frozen) memory.frozen->put_back();
  networks.to(DType::f32);
  networks.load_state_dict(before);
  networks.train(training);
  memory = {};
  if (report.signal != 0) return report;
  std::sort(search.rows.begin(), search.rows.end(),
            [](const Timed& a, const Timed& b) { return a.batch < b.batch; });
  for (const auto& callback : callbacks_)
    callback->on_answer(*this, [&](int) { return text_of(search, config_, train.size()); });
  return report;
}

}  // namespace athanor
