// The first backward pass of a run, which detects whether a batch fits: in memory, and in batch norms.

#include <cstdint>
#include <string>

#include "autograd/norm.h"
#include "autograd/shape.h"
#include "tensor/allocator.h"
#include "tensor/error.h"
#include "trainer/finders/largest_fit.h"
#include "trainer/run.h"

namespace athanor {
namespace {

/// Whether the batch's first samples are the first rows of each field.
bool can_be_cut(const Batch& batch) {
  return batch.size() > 0 && batch.views == 1 && !batch.rows.defined();
}

Batch first_samples(const Batch& batch, std::int64_t count) {
  Batch part = batch;
  const auto cut = [count](Tensor& field) {
    if (field.defined()) field = narrow(field, 0, 0, count);
  };
  cut(part.images);
  cut(part.labels);
  cut(part.samples);
  for (Tensor& field : part.more) cut(field);
  return part;
}

}  // namespace

// 0 if none fits. The run is over, so the results of these passes are not used.
std::int64_t Run::samples_that_fit(const Batch& batch) {
  now_.updates = false;  // on this rank alone: no rank waits for messages of such a pass
  // Later passes find the cache in other pieces, so the batch should need less than there is.
  if (config_.memory_limit > 0)
    allocator_of(config_.device).set_limit(static_cast<std::size_t>(config_.memory_limit / 8 * 7));
  return largest_that_fits(0, batch.size(), [&](std::int64_t samples) {
    try {
      now_.pass.samples = samples;
      // The second finds the cache of the first, in pieces.
      for (int pass = 0; pass < 2; ++pass) run_pass(first_samples(batch, samples));
      return true;
    } catch (const OutOfMemoryError&) {
      return false;
    }
  });
}

// What gives each rank two images, for batch norms that see one value of an image in each channel.
std::string Run::batch_for_norms() const {
  const std::int64_t ranks = strategy_.world_size(), needed = 2 * ranks, has = pipeline_.train().samples();
  const std::string shares = ranks > 1 ? fmt::format("2 images for each of {} ranks", ranks) : "2 images";
  if (has >= needed) return fmt::format("; --batch-size {} works, with {}", needed, shares);
  const bool may_join = ranks > 1 && has > 1 && !config_.sync_bn;
  return fmt::format("; a batch needs {}, and there are only {} to train on{}", shares, has,
                     may_join ? "; --sync-bn makes the ranks share theirs" : "");
}

void Run::run_first_pass(const Batch& batch) {
  try {
    run_pass(batch);
  } catch (TooFewValuesError& error) {
    error.append(batch_for_norms());
    throw;
  } catch (const OutOfMemoryError& error) {
    if (trying_ || joined_ || !can_be_cut(batch)) throw;
    const std::int64_t fit = samples_that_fit(batch), batch_size = config_.batch_size * fit / batch.size();
    if (batch_size == 0)
      detail::fail<OutOfMemoryError>("{}. The run does not fit in memory, not even with a smaller batch",
                                     error.what());
    detail::fail<OutOfMemoryError>(
        "{}. The run does not fit in memory, but would with --batch-size {}; --accumulate {} keeps the "
        "samples per step",
        error.what(), batch_size, config_.accumulate * ((config_.batch_size + batch_size - 1) / batch_size));
  }
}

}  // namespace athanor
