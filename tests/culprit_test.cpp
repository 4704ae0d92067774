// Whom one rank blames, in the moment before it ends.
#include "dist/watch/detail/culprit.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/flight_job.h"

namespace athanor {
namespace {

using namespace std::chrono_literals;
using dist::Culprit;
using dist::FlightRecord;
using test::FlightJob;

/// Four ranks in a ring, of which rank 2 is not there: all wait for the one before them in #8.
struct Ring {
  Ring() {
    for (int rank = 0; rank < 4; ++rank) {
      flights.push_back(&job.rank(rank, 8));
      if (rank != 2) FlightJob::enter(*flights.back(), FlightJob::kSum, (rank + 3) % 4);
    }
  }
  FlightRecord& operator[](std::size_t rank) { return *flights[rank]; }
  Culprit of(std::size_t rank, std::chrono::milliseconds patience = 0ms) {
    return dist::find_culprit(*flights[rank], job.folder(), patience);
  }

  FlightJob job{4};
  std::vector<FlightRecord*> flights;
};

/// "rank 2 did not do its part of ring all_reduce #8, bucket 4 (rank 1 waits for rank 2)"
std::string without_time(const Culprit& blame) {
  std::string text = blame.text;
  const std::size_t begin = std::min(text.find(", for "), text.find(" for "));
  const std::size_t end = text.find(" s", begin);
  EXPECT_NE(end, text.npos) << text;
  return text.erase(begin, end + 2 - begin);
}

constexpr char kRank2[] = "rank 2 did not do its part of ring all_reduce #8, bucket 4";

TEST(Culprit, FollowsARingToTheMissingRank) {
  Ring ring;
  for (const std::size_t rank : {0, 1, 3}) ring.job.write(ring[rank]);
  EXPECT_EQ(without_time(ring.of(3)), kRank2);
  EXPECT_EQ(without_time(ring.of(0)), std::string(kRank2) + " (rank 0 waits for rank 3 waits for rank 2)");
  EXPECT_EQ(without_time(ring.of(1)),
            std::string(kRank2) + " (rank 1 waits for rank 0 waits for rank 3 waits for rank 2)");
  EXPECT_EQ(ring.of(1).ended, -1);
}

// It may be in the one before, or ahead; or have done its part of it, and wait for somebody in the next.
TEST(Culprit, SearchEndsAtARankInAnotherCollective) {
  for (const std::int64_t finished : {7, 9}) {
    Ring ring;
    for (const std::size_t rank : {0, 1, 3}) ring.job.write(ring[rank]);
    FlightRecord& other = ring.job.rank(2, finished);
    FlightJob::enter(other, FlightJob::kSum, 1);
    ring.job.write(other);
    EXPECT_EQ(without_time(ring.of(0)), std::string(kRank2) + " (rank 0 waits for rank 3 waits for rank 2)");
  }
}

// Who is one collective behind has not come to this one because of whom it waits for in that.
TEST(Culprit, FollowsRanksThatAreBehind) {
  FlightJob job(4);
  FlightRecord &mine = job.rank(1, 8), &behind = job.rank(0, 7);
  FlightJob::enter(mine, FlightJob::kSum, 0);
  FlightJob::enter(behind, FlightJob::kSum, 3);
  job.write(behind);
  const std::string way =
      "rank 3 did not do its part of ring all_reduce #7, bucket 4 (rank 1 waits for rank 0 waits for rank 3)";
  EXPECT_EQ(without_time(dist::find_culprit(mine, job.folder(), 0ms)), way) << "no record";
  FlightRecord& elsewhere = job.rank(3, 7);
  job.write(elsewhere);
  EXPECT_EQ(without_time(dist::find_culprit(mine, job.folder(), 0ms)), way) << "in no collective";
}

// It has done its part of #8 by now; when the others still waited it had not.
TEST(Culprit, NamesTheLateRankAndNotTheOneThatWaited) {
  for (const bool late : {true, false}) {
    FlightJob job(4);
    FlightRecord &mine = job.rank(0, 9), &behind = job.rank(3, 8), &other = job.rank(2, 8);
    FlightJob::enter(mine, FlightJob::kSum, 3);
    FlightJob::enter(behind, FlightJob::kSum, 2);
    FlightJob::enter(other, FlightJob::kSum, 1);
    if (late) std::this_thread::sleep_for(1200ms);
    other.end();
    if (!late) std::this_thread::sleep_for(1200ms);
    job.write(behind);
    job.write(other);
    EXPECT_EQ(without_time(dist::find_culprit(mine, job.folder(), 0ms)),
              late ? "rank 2 did not do its part of ring all_reduce #8, bucket 4 (rank 0 waits for rank 3 "
                     "waits for rank 2)"
                   : "rank 3 did not do its part of ring all_reduce #9, bucket 4");
  }
}

TEST(Culprit, SearchEndsAtARankThatWaitsForNone) {
  Ring ring;
  FlightJob::enter(ring[2], FlightJob::kSum, -1);
  for (const std::size_t rank : {0, 1, 2, 3}) ring.job.write(ring[rank]);
  EXPECT_EQ(without_time(ring.of(3)), kRank2);
}

TEST(Culprit, InACycleTheNextRankIsNamed) {
  Ring ring;
  FlightJob::enter(ring[2], FlightJob::kSum, 1);
  for (const std::size_t rank : {0, 1, 2, 3}) ring.job.write(ring[rank], rank == 3 ? "error" : "deadline");
  EXPECT_EQ(without_time(ring.of(3)), kRank2);
  EXPECT_EQ(ring.of(0).ended, -1) << "nobody in a circle has ended";
}

/// Ranks 0 and 1 on this host, 3 on another, none of which hears from the other host any more: 1 waits for 0,
/// 0 for 3, and 3 for 1. What each has got is in no order.
struct CutLink {
  explicit CutLink(const std::array<std::int64_t, 3>& bytes) {
    for (const auto& [rank, waits_for, at] : {std::tuple{0, 3, 0}, {1, 0, 1}, {3, 1, 2}}) {
      FlightRecord& flight = job.rank(rank, 8);
      FlightJob::enter(flight, FlightJob::kSum, waits_for, bytes[static_cast<std::size_t>(at)]);
      job.write(flight);
      if (rank < 2) here.push_back(&flight);
    }
    put_on_another_host(job, 3);
  }
  static void put_on_another_host(const FlightJob& job, int rank) {
    std::stringstream text;
    text << std::ifstream(job.file(rank)).rdbuf();
    std::string changed = text.str();
    changed.insert(changed.find("\"host\":\"") + 8, "far");
    std::ofstream(job.file(rank)) << changed;
  }
  FlightJob job{4};
  std::vector<FlightRecord*> here;
};

TEST(Culprit, IfALinkIsCutTheOtherSideIsNamed) {
  std::array<std::int64_t, 3> bytes{100, 200, 300};
  do {
    if (bytes[1] < bytes[0]) continue;  // who waits for another of its side has got further
    const CutLink cut(bytes);
    for (FlightRecord* mine : cut.here) {
      const std::string said = without_time(dist::find_culprit(*mine, cut.job.folder(), 0ms));
      EXPECT_EQ(said.find("rank 3 did not do its part of ring all_reduce #8, bucket 4"), 0u)
          << said << ", " << bytes[0] << " " << bytes[1] << " " << bytes[2];
    }
  } while (std::next_permutation(bytes.begin(), bytes.end()));
}

// 3 has not got what 1 has long sent: nobody names himself, or who is on his side.
TEST(Culprit, ALostMessageDoesNotBlameAFinishedRank) {
  FlightJob job(4);
  FlightRecord &one = job.rank(1, 9), &zero = job.rank(0, 8), &three = job.rank(3, 8);
  FlightJob::enter(one, FlightJob::kSum, 0);
  FlightJob::enter(zero, FlightJob::kSum, 3);
  FlightJob::enter(three, FlightJob::kSum, 1);
  for (const FlightRecord* flight : {&one, &zero, &three}) job.write(*flight);
  CutLink::put_on_another_host(job, 3);
  EXPECT_EQ(without_time(dist::find_culprit(one, job.folder(), 0ms)),
            "rank 3 did not do its part of ring all_reduce #8, bucket 4 (rank 1 waits for rank 0 waits for "
            "rank 3)");
  EXPECT_EQ(without_time(dist::find_culprit(zero, job.folder(), 0ms)),
            "rank 3 did not do its part of ring all_reduce #8, bucket 4");
}

TEST(Culprit, ReportsTheOwnErrorOfARank) {
  Ring ring;
  for (const std::size_t rank : {0, 1}) ring.job.write(ring[rank]);
  ring.job.write(ring[3], "error", "the data are broken");
  EXPECT_EQ(ring.of(1).ended, 3);
  EXPECT_EQ(without_time(ring.of(0)), std::string(kRank2) + " (rank 0 waits for rank 3 waits for rank 2)");
}

// Others write theirs at the same time: what is not whole may be soon.
TEST(Culprit, WaitsForLateRecords) {
  Ring ring;
  ring.job.write(ring[3]);
  std::filesystem::resize_file(ring.job.file(3), 400);
  std::thread late([&] {
    std::this_thread::sleep_for(100ms);
    ring.job.write(ring[3]);
    std::this_thread::sleep_for(100ms);
    FlightJob::enter(ring[2], FlightJob::kSum, -1);
    ring.job.write(ring[2]);
  });
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(without_time(ring.of(0, 60s)),
            std::string(kRank2) + " (rank 0 waits for rank 3 waits for rank 2)");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
  late.join();
}

// One that comes late uses it up: for the next there is only what is left.
TEST(Culprit, TheTimeoutIsSharedByAllRecords) {
  Ring ring;
  std::thread late([&] {
    std::this_thread::sleep_for(1800ms);
    ring.job.write(ring[3]);
  });
  const auto began = std::chrono::steady_clock::now();
  ring.of(0, 2s);
  const auto took = std::chrono::steady_clock::now() - began;
  late.join();
  EXPECT_GE(took, 2s);
  EXPECT_LT(took, 3300ms) << "with patience for each: 3.8 s";
}

// There is a second for all of it: the first line and the newest entries say enough.
TEST(Culprit, ReadsNoMoreThanTheFirstLines) {
  Ring ring;
  ring.job.write(ring[3]);
  std::filesystem::resize_file(ring.job.file(3), 1000);  // those, and some
  std::ofstream(ring.job.file(3), std::ios::app) << std::string(1 << 20, 'x') << '\n';
  EXPECT_EQ(without_time(ring.of(0)), std::string(kRank2) + " (rank 0 waits for rank 3 waits for rank 2)");
}

// Whoever it waits for by its record is no rank.
TEST(Culprit, ARecordThatWaitsForNoRankIsNotFollowed) {
  for (const char* nobody : {"4", "2147483648", "4294967295", "-5"}) {
    Ring ring;
    ring.job.write(ring[3]);
    std::stringstream text;
    text << std::ifstream(ring.job.file(3)).rdbuf();
    std::string changed = text.str();
    const std::string before = "\"waits_for\":2";
    changed.replace(changed.find(before), before.size(), fmt::format("\"waits_for\":{}", nobody));
    std::ofstream(ring.job.file(3)) << changed;
    EXPECT_EQ(without_time(ring.of(0)), "rank 3 did not do its part of ring all_reduce #8, bucket 4")
        << nobody;
  }
}

// Nobody writes any: what lies in the working directory is of another run.
TEST(Culprit, WithoutAFolderItReadsNothing) {
  Ring ring;
  ring.job.write(ring[3], "error");
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(ring.job.folder());
  const Culprit blame = dist::find_culprit(ring[0], {}, 10s);
  std::filesystem::current_path(here);
  EXPECT_EQ(without_time(blame), "rank 3 did not do its part of ring all_reduce #8, bucket 4");
  EXPECT_EQ(blame.ended, -1);
}

TEST(Culprit, ARankThatWaitsForNoneReportsWhereItIs) {
  Ring ring;
  EXPECT_EQ(
      ring.of(2).text.find("rank 2 is in no collective: its last, ring all_reduce #7, bucket 4, was done 0"),
      0u);
  FlightJob::enter(ring[2], FlightJob::kSum, -1);
  EXPECT_EQ(without_time(ring.of(2)), "ring all_reduce #8, bucket 4 made no progress, and waits for no rank");
  const FlightRecord fresh(1, 4);
  EXPECT_EQ(dist::find_culprit(fresh, ring.job.folder(), 0ms).text,
            "rank 1 has not reached its first collective");
}

}  // namespace
}  // namespace athanor
