#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "dist/watch/flight_record.h"
#include "dist/watch/rank_record.h"
#include "tests/support/temp_dir.h"

namespace athanor::test {

/// Records made up, as files.
class FlightJob {
 public:
  explicit FlightJob(int world_size) : world_size_(world_size) {}

  /// A rank that has finished `finished` collectives.
  dist::FlightRecord& rank(int rank, std::int64_t finished) {
    flights_.push_back(std::make_unique<dist::FlightRecord>(rank, world_size_));
    dist::FlightRecord& flight = *flights_.back();
    for (std::int64_t seq = 0; seq < finished; ++seq) {
      flight.begin(seq, kSum);
      flight.end();
    }
    return flight;
  }
  /// It enters one more, and waits for a rank there; -1: for none.
  static void enter(dist::FlightRecord& flight, const dist::Call& call, int waits_for,
                    std::int64_t bytes = 0) {
    flight.begin(flight.size(), call);
    flight.moved(bytes);
    flight.waits_for(waits_for);
  }
  std::filesystem::path file(int rank) const { return dist::record_file(folder_.path(), rank); }
  void write(const dist::FlightRecord& flight, const char* reason = "deadline", const char* error = "") {
    ASSERT_TRUE(flight.write(file(flight.rank()).c_str(), reason, error));
  }
  const std::filesystem::path& folder() const { return folder_.path(); }

  static constexpr dist::Call kSum{"ring all_reduce", DType::f32, 4096, 4};

 private:
  int world_size_;
  TempDir folder_;
  std::vector<std::unique_ptr<dist::FlightRecord>> flights_;
};

}  // namespace athanor::test
