#include "data/detail/sample_reader.h"

#include <algorithm>
#include <new>

#include "tensor/base/error.h"
#include "tensor/philox.h"

namespace athanor::detail {
namespace {

constexpr std::uint64_t kSubstitutes = 0xffff;  // minor number of an epoch's stream of order
constexpr std::uint64_t kAttempts = 16;

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string SampleReader::name_of(std::int64_t sample) const {
  std::string where;
  try {
    where = data_.where(sample);
  } catch (const std::exception& error) {
    where = one_line(error.what());
  }
  return where.empty() ? fmt::format("sample {}", sample) : fmt::format("sample {} ({})", sample, where);
}

std::optional<Problem> SampleReader::try_read(std::int64_t sample, std::int64_t epoch, int worker,
                                              SampleRow row, std::optional<Problem>& harmless) const {
  Problem problem;
  const char* stage = "read";
  std::string what;
  try {
    data_.read_fields(sample, options_.training ? epoch : kEvaluation, row);
    row.check_written();
    const std::int64_t label = row.label();
    if (row.layout().label == SIZE_MAX || (label >= 0 && label < data_.spec().classes)) {
      if (!row.warning().empty())
        harmless = {.line = fmt::format("{}: {}", name_of(sample), one_line(row.warning()))};
      return std::nullopt;
    }
    stage = "label";
    what = fmt::format("must be in [0, {}), but is {}", data_.spec().classes, label);
  } catch (const std::bad_alloc&) {
    problem.fatal = std::current_exception();
  } catch (const OutOfMemoryError&) {
    problem.fatal = std::current_exception();
  } catch (const BackendError&) {
    problem.fatal = std::current_exception();
  } catch (const std::exception& error) {
    what = one_line(error.what());
  } catch (...) {
    what = "an exception not derived from std::exception";
  }
  if (!problem.fatal) {
    problem.line = fmt::format("loader: {}{}, {}: {}: {}",
                               options_.training ? fmt::format("epoch {}: ", epoch + 1) : "", name_of(sample),
                               worker < 0 ? "calling thread" : fmt::format("worker {}", worker), stage, what);
  }
  return problem;
}

std::int64_t SampleReader::substitute(std::int64_t sample, std::int64_t epoch, std::uint64_t attempt) const {
  const bool same_every_epoch = !options_.training && !options_.shuffle;
  const auto stream = random_stream(RandomPurpose::order,
                                    same_every_epoch ? 0 : static_cast<std::uint64_t>(epoch), kSubstitutes);
  const std::uint64_t word =
      philox_word64({options_.seed, stream}, static_cast<std::uint64_t>(sample) * kAttempts + attempt);
  return static_cast<std::int64_t>(random_below(word, static_cast<std::uint64_t>(data_.size())));
}

Read SampleReader::read(std::int64_t sample, std::int64_t epoch, int worker, const SampleRow& row) const {
  Read result;
  result.sample = sample;
  std::optional<Problem> problem = try_read(sample, epoch, worker, row, result.harmless);
  if (!problem) return result;
  if (problem->fatal || !options_.bad_samples.skip) {
    if (!problem->fatal)
      problem->line +=
          "; --bad-samples list names all such samples, and --bad-samples skip does without them";
    result.failed = std::move(problem);
    return result;
  }
  for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    result.sample = substitute(sample, epoch, attempt);
    const std::optional<Problem> again = try_read(result.sample, epoch, worker, row, result.harmless);
    if (!again) {
      result.replaced = std::move(problem);
      return result;
    }
    if (again->fatal) {
      result.failed = again;
      return result;
    }
  }
  problem->line += fmt::format("; and none of {} replacements can be read", kAttempts);
  result.failed = std::move(problem);
  return result;
}

}  // namespace athanor::detail
