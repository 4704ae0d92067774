// Whom one rank blames, in the moment before it ends.
#include "dist/watch/detail/culprit.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/flight_job.h"

namespace athanor::culprit_test {

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

/// The ranks that a text names, in its order: the one that is missing, then who waits for whom.
std::vector<int> ranks_in(const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t at = text.find("rank "); at != text.npos; at = text.find("rank ", at + 1))
    ranks.push_back(std::stoi(text.substr(at + 5)));
  return ranks;
}

/// The blame names these ranks, and the collective.
void expect_blame(const Culprit& blame, const std::vector<int>& ranks,
                  const std::string& collective = "ring all_reduce #8") {
  EXPECT_EQ(ranks_in(blame.text), ranks) << blame.text;
  EXPECT_TRUE(test::names(blame.text, {collective, "bucket 4"}));
}

TEST(Culprit, FollowsARingToTheMissingRank) {
  Ring ring;
  for (const std::size_t rank : {0, 1, 3}) ring.job.write(ring[rank]);
  expect_blame(ring.of(3), {2});
  expect_blame(ring.of(0), {2, 0, 3, 2});
  expect_blame(ring.of(1), {2, 1, 0, 3, 2});
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
    expect_blame(ring.of(0), {2, 0, 3, 2});
  }
}

// Who is one collective behind has not come to this one because of whom it waits for in that.
TEST(Culprit, FollowsRanksThatAreBehind) {
  FlightJob job(4);
  FlightRecord &mine = job.rank(1, 8), &behind = job.rank(0, 7);
  FlightJob::enter(mine, FlightJob::kSum, 0);
  FlightJob::enter(behind, FlightJob::kSum, 3);
  job.write(behind);
  const std::vector<int> way{3, 1, 0, 3};
  expect_blame(dist::find_culprit(mine, job.folder(), 0ms), way, "ring all_reduce #7");  // no record
  FlightRecord& elsewhere = job.rank(3, 7);
  job.write(elsewhere);
  expect_blame(dist::find_culprit(mine, job.folder(), 0ms), way, "ring all_reduce #7");  // in no collective
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
    const Culprit blame = dist::find_culprit(mine, job.folder(), 0ms);
    if (late) {
      expect_blame(blame, {2, 0, 3, 2});
    } else {
      expect_blame(blame, {3}, "ring all_reduce #9");
    }
  }
}

TEST(Culprit, SearchEndsAtARankThatWaitsForNone) {
  Ring ring;
  FlightJob::enter(ring[2], FlightJob::kSum, -1);
  for (const std::size_t rank : {0, 1, 2, 3}) ring.job.write(ring[rank]);
  expect_blame(ring.of(3), {2});
}

TEST(Culprit, InACycleTheNextRankIsNamed) {
  Ring ring;
  FlightJob::enter(ring[2], FlightJob::kSum, 1);
  for (const std::size_t rank : {0, 1, 2, 3}) ring.job.write(ring[rank], rank == 3 ? "error" : "deadline");
  expect_blame(ring.of(3), {2});
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
      SCOPED_TRACE(fmt::format("{} {} {}", bytes[0], bytes[1], bytes[2]));
      const Culprit blame = dist::find_culprit(*mine, cut.job.folder(), 0ms);
      const std::vector<int> ranks = ranks_in(blame.text);
      ASSERT_FALSE(ranks.empty()) << blame.text;
      EXPECT_EQ(ranks[0], 3);
      EXPECT_TRUE(test::names(blame.text, {"ring all_reduce #8", "bucket 4"}));
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
  expect_blame(dist::find_culprit(one, job.folder(), 0ms), {3, 1, 0, 3});
  expect_blame(dist::find_culprit(zero, job.folder(), 0ms), {3});
}

TEST(Culprit, ReportsTheOwnErrorOfARank) {
  Ring ring;
  for (const std::size_t rank : {0, 1}) ring.job.write(ring[rank]);
  ring.job.write(ring[3], "error", "the data are broken");
  EXPECT_EQ(ring.of(1).ended, 3);
  expect_blame(ring.of(0), {2, 0, 3, 2});
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
  expect_blame(ring.of(0, 60s), {2, 0, 3, 2});
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
  expect_blame(ring.of(0), {2, 0, 3, 2});
}

// Whoever it waits for by its record is no rank.
TEST(Culprit, ARecordThatWaitsForNoRankIsNotFollowed) {
  for (const char* nobody : {"4", "2147483648", "4294967295", "-5"}) {
    SCOPED_TRACE(nobody);
    Ring ring;
    ring.job.write(ring[3]);
    std::stringstream text;
    text << std::ifstream(ring.job.file(3)).rdbuf();
    std::string changed = text.str();
    const std::string before = "\"waits_for\":2";
    changed.replace(changed.find(before), before.size(), fmt::format("\"waits_for\":{}", nobody));
    std::ofstream(ring.job.file(3)) << changed;
    expect_blame(ring.of(0), {3});
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
  expect_blame(blame, {3});
  EXPECT_EQ(blame.ended, -1);
}

TEST(Culprit, ARankThatWaitsForNoneReportsWhereItIs) {
  Ring ring;
  expect_blame(ring.of(2), {2}, "ring all_reduce #7");
  FlightJob::enter(ring[2], FlightJob::kSum, -1);
  expect_blame(ring.of(2), {});
  const FlightRecord fresh(1, 4);
  const Culprit blame = dist::find_culprit(fresh, ring.job.folder(), 0ms);
  EXPECT_EQ(ranks_in(blame.text), std::vector<int>{1});
  EXPECT_EQ(blame.text.find('#'), std::string::npos) << blame.text;
}

}  // namespace athanor::culprit_test
