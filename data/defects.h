#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "tensor/base/error.h"

namespace athanor {

/// What reading every sample of a data set has found.
struct Defects {
  struct Sample {
    std::int64_t index = 0;
    std::string what;  ///< one line, which names the source
  };
  std::vector<Sample> unreadable;  ///< by index
  std::int64_t harmless = 0;       ///< samples with defects that leave every pixel as it is
  Sample first_harmless = {};      ///< the one with the lowest index
};

struct FindDefectsOptions {
  int threads = 1;
  std::int64_t first = 0, step = 1;  ///< reads samples first, first + step, ...: a rank's share
  /// Called by any thread, one at a time, with the number of samples read so far.
  std::function<void(std::int64_t samples)> progress = {};
};

/// Reads samples [0, size) by several threads. `check` reads one, as Dataset::check_sample() does: an IoError
/// makes it unreadable, and a text it returns is a harmless defect. Throws its other errors.
Defects find_defects(std::int64_t size, const std::function<std::string(std::int64_t index)>& check,
                     const FindDefectsOptions& options = {});

/// "3 images have defects that change no pixel, and are used; the first: a.jpg: ..."
std::string harmless_note(std::int64_t images, const std::string& first);

/// Several samples cannot be read. The message has a line for each, after one that counts them; all are
/// printable.
class UnreadableSamplesError : public IoError {
 public:
  UnreadableSamplesError(std::int64_t samples, const std::vector<std::string>& unreadable);
};

/// Whether a sample cannot be read, as the NaN that Dataset::numbers() has in its place may mean. Throws what
/// reading it throws unless `keeps_going` (BadSamples::keeps_going()).
bool is_unreadable(const Dataset& data, std::int64_t index, bool keeps_going);

/// Reads every sample; throws UnreadableSamplesError if any cannot be read.
void check_all(const Dataset& data, int threads);

}  // namespace athanor
