#include "data/defects.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "data/detail/thread_scratch.h"
#include "tensor/base/printable.h"

namespace athanor {
namespace {

std::string listed(std::int64_t samples, const std::vector<std::string>& unreadable) {
  std::string text =
      fmt::format("{} of {} samples cannot be read: replace or remove them, or use --bad-samples skip",
                  unreadable.size(), samples);
  for (const std::string& line : unreadable) text += "\n  " + printable(line);
  return text;
}

}  // namespace

Defects find_defects(std::int64_t size, const std::function<std::string(std::int64_t index)>& check,
                     const FindDefectsOptions& options) {
  Defects found;
  std::atomic<std::int64_t> next{options.first};
  std::mutex mutex;  // guards `found`, `done` and `error`
  std::int64_t done = 0;
  std::exception_ptr error;
  const auto read_one = [&](std::int64_t index) {
    std::string unreadable, harmless;
    try {
      harmless = check(index);
    } catch (const IoError& problem) {
      unreadable = problem.what();
    }
    const std::lock_guard lock(mutex);
    if (!unreadable.empty()) found.unreadable.push_back({index, std::move(unreadable)});
    if (!harmless.empty() && (found.harmless++ == 0 || index < found.first_harmless.index))
      found.first_harmless = {index, std::move(harmless)};
    if (options.progress) options.progress(++done);
  };
  const auto work = [&] {
    try {
      for (std::int64_t i; (i = next.fetch_add(options.step)) < size;) read_one(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      next = size;
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < options.threads; ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
  std::sort(found.unreadable.begin(), found.unreadable.end(),
            [](const auto& a, const auto& b) { return a.index < b.index; });
  return found;
}

std::string harmless_note(std::int64_t images, const std::string& first) {
  return fmt::format("{} image{} defects that change no pixel, and {} used; the first: {}", images,
                     images == 1 ? " has" : "s have", images == 1 ? "is" : "are", first);
}

UnreadableSamplesError::UnreadableSamplesError(std::int64_t samples,
                                               const std::vector<std::string>& unreadable)
    : IoError(listed(samples, unreadable)) {}

bool is_unreadable(const Dataset& data, std::int64_t index, bool keeps_going) {
  detail::ThreadScratch scratch;
  try {
    data.fetch(index, scratch.bytes());
  } catch (const IoError&) {
    if (!keeps_going) throw;
    return true;
  }
  return false;
}

void check_all(const Dataset& data, int threads) {
  const Defects found = find_defects(
      data.size(), [&](std::int64_t index) { return data.check_sample(index); }, {.threads = threads});
  if (found.unreadable.empty()) return;
  std::vector<std::string> lines;
  for (const Defects::Sample& one : found.unreadable) lines.push_back(one.what);
  throw UnreadableSamplesError(data.size(), lines);
}

}  // namespace athanor
