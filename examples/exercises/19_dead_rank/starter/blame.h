#pragma once

#include <optional>
#include <vector>

class Deadline {
 public:
  explicit Deadline(double limit) : limit_(limit) {}

  /// `now` in seconds, from any start; the first call begins.
  bool expired(double now, bool progress) {
    if (!since_ || progress) since_ = now;
    return now - *since_ >= limit_;
  }

 private:
  double limit_;
  std::optional<double> since_;
};

struct Record {
  int collective = 0;     // the one it is in, or the last it finished
  bool finished = false;  // whether it has finished it
  int waits_for = -1;     // a rank, or -1: it does not wait
};

inline int culprit(int rank, const std::vector<std::optional<Record>>& records) {
  return records[static_cast<std::size_t>(rank)]->waits_for;
}
