// Who is to blame, by the records of all ranks.
#include <fstream>

#include <gtest/gtest.h>

#include "dist/watch/flight_record.h"
#include "examples/athanor_tool/flight_report.h"
#include "tests/support/errors.h"
#include "tests/support/flight_job.h"
#include "tests/support/temp_dir.h"

namespace athanor::flight_findings_test {

using dist::Call;
using dist::FlightRecord;
using dist::RankRecord;
using test::FlightJob;
using test::has_line;
using test::names;
using test::TempDir;
using tool::FlightReport;

TEST(FlightReport, NamesRanksThatNeverEntered) {
  FlightJob job(4);
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 688);
    if (rank != 1) FlightJob::enter(flight, FlightJob::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 1", "#688", "ring all_reduce, bucket 4"}));
  EXPECT_EQ(report.last_common, 687);
  EXPECT_TRUE(has_line(report.str(), {"#687", "ring all_reduce, bucket 4"}));
  EXPECT_TRUE(has_line(report.str(), {"ring all_reduce, bucket 4", "4096 f32", "16384 bytes"}));
}

// Others may have gone on without it: what counts is the first it lacks.
TEST(FlightReport, NamesTheFirstCollectiveThatARankLacks) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, rank == 1 ? 5 : 7);
    if (rank != 1) FlightJob::enter(flight, FlightJob::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = tool::read_flight(job.folder());
  EXPECT_TRUE(names(report.findings[0], {"rank 1", "#5", "ring all_reduce, bucket 4"}));
  EXPECT_EQ(report.last_common, 4);
}

TEST(FlightReport, NamesMismatchedRanksFirst) {
  for (const char* other : {"barrier", "turn"}) {  // the few come first, not the alphabet
    FlightJob job(4);
    for (int rank = 0; rank < 4; ++rank) {
      FlightRecord& flight = job.rank(rank, 30);
      FlightJob::enter(flight, rank == 1 ? Call{other} : FlightJob::kSum, rank == 2 ? 1 : 0);
      job.write(flight);
    }
    const FlightReport report = tool::read_flight(job.folder());
    EXPECT_TRUE(names(report.findings[0],
                      {"rank 1", "#30", other, "ranks 0, 2, 3", "ring all_reduce, bucket 4, 4096 f32"}));
  }
}

TEST(FlightReport, ListsTheSmallestGroupFirst) {
  FlightJob job(6);
  for (int rank = 0; rank < 6; ++rank) {
    FlightRecord& flight = job.rank(rank, 30);
    FlightJob::enter(flight, rank == 4 ? Call{"turn"} : rank % 4 == 1 ? Call{"barrier"} : FlightJob::kSum, 0);
    job.write(flight);
  }
  const std::string finding = tool::read_flight(job.folder()).findings[0];
  EXPECT_TRUE(names(finding, {"rank 4", "turn", "ranks 1, 5", "barrier", "ranks 0, 2, 3", "#30",
                              "ring all_reduce, bucket 4, 4096 f32"}));
  EXPECT_LT(finding.find("rank 4"), finding.find("ranks 1, 5"));
  EXPECT_LT(finding.find("ranks 1, 5"), finding.find("ranks 0, 2, 3"));
}

// All that follows from it is no finding: neither later differences, nor that one is behind.
TEST(FlightReport, OnlyTheFirstDifferenceIsNamed) {
  FlightJob job(2);
  for (int rank = 0; rank < 2; ++rank) {
    FlightRecord& flight = job.rank(rank, 3);
    for (const char* name : {"barrier", "turn"}) {
      FlightJob::enter(flight, rank == 1 ? Call{name} : FlightJob::kSum, 1 - rank);
      flight.end();
    }
    if (rank == 0) FlightJob::enter(flight, FlightJob::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_TRUE(names(report.findings[0],
                    {"rank 1", "#3", "barrier", "rank 0", "ring all_reduce, bucket 4, 4096 f32"}));
}

TEST(FlightReport, CountsAndDTypesMustBeEqualToo) {
  for (const Call& other :
       {Call{"ring all_reduce", DType::f32, 4097, 4}, Call{"ring all_reduce", DType::bf16, 4096, 4},
        Call{"ring all_reduce", DType::f32, 4096, 5}}) {
    FlightJob job(2);
    for (int rank = 0; rank < 2; ++rank) {
      FlightRecord& flight = job.rank(rank, 2);
      FlightJob::enter(flight, rank == 1 ? other : FlightJob::kSum, 1 - rank);
      job.write(flight);
    }
    EXPECT_TRUE(names(tool::read_flight(job.folder()).findings[0],
                      {"rank 0", "rank 1", "bucket 4, 4096 f32",
                       fmt::format("bucket {}, {} {}", other.bucket, other.count, other.dtype)}));
  }
}

// Rank 3 is gone. Rank 1 is in the next one already, and waits for those that wait for rank 3.
TEST(FlightReport, DoesNotNameARankHeldUpByAnother) {
  for (const bool record_of_3 : {false, true}) {
    FlightJob job(4);
    for (const int rank : {0, 2}) {
      FlightRecord& flight = job.rank(rank, 7);
      FlightJob::enter(flight, FlightJob::kSum, 3);
      job.write(flight);
    }
    FlightRecord& ahead = job.rank(1, 8);
    FlightJob::enter(ahead, FlightJob::kSum, 0);
    job.write(ahead);
    if (record_of_3) job.write(job.rank(3, 7));
    const FlightReport report = tool::read_flight(job.folder());
    ASSERT_EQ(report.findings.size(), 1u) << report.str();
    EXPECT_TRUE(names(report.findings[0], {"rank 3", "#7", "ring all_reduce, bucket 4"}));
    EXPECT_EQ(test::holds(report.findings[0], "ranks 0, 2"), !record_of_3) << report.str();
  }
}

// Rank 2 was stopped, and woken to be ended: it found its messages there, and is the front now.
TEST(FlightReport, NamesALateRankEvenIfItIsAhead) {
  FlightJob job(4);
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, rank == 2 ? 9 : 8);
    FlightJob::enter(flight, FlightJob::kSum, rank == 2 ? 1 : 2);
    job.write(flight, rank == 2 ? "stopped" : "deadline", "it had been stopped for 3.3 s itself");
    records.push_back(dist::read_record(job.file(rank), rank));
  }
  for (RankRecord& record : records) record.now_us += record.rank == 2 ? 900'000 : 3'300'000;
  const FlightReport report = tool::conclude(records);
  ASSERT_EQ(report.findings.size(), 2u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 2", "it had been stopped for 3.3 s itself"}));
  EXPECT_TRUE(names(report.findings[1], {"rank 2", "ranks 0, 1, 3", "#8", "ring all_reduce, bucket 4"}));
}

// It may also be in the same collective by now, and wait there for those that have given up; and one of them
// may have been in the next already.
TEST(FlightReport, RanksInACycleAreHeldUpByIt) {
  for (const bool stopped : {true, false}) {
    for (const int ahead : {-1, 1}) {
      FlightJob job(4);
      for (int rank = 0; rank < 4; ++rank) {
        FlightRecord& flight = job.rank(rank, rank == ahead ? 9 : 8);
        FlightJob::enter(flight, FlightJob::kSum, rank == 2 ? 0 : 2, rank == 1 ? 10 : 20 + rank);
        job.write(flight, rank == 2 && stopped ? "stopped" : "deadline",
                  "it had been stopped for 3.3 s itself");
      }
      const FlightReport report = tool::read_flight(job.folder());
      ASSERT_EQ(report.findings.size(), 1u) << report.str();
      if (stopped) {
        EXPECT_TRUE(names(report.findings[0], {"rank 2", "it had been stopped for 3.3 s itself"}));
      } else {
        EXPECT_TRUE(names(report.findings[0],
                          {"#8", "ring all_reduce, bucket 4", "0 -> 2 -> 0", ahead == 1 ? "rank 0" : "rank 1",
                           ahead == 1 ? "20 bytes" : "10 bytes"}));
      }
    }
  }
}

// On a cable that is cut, what was sent is gone.
TEST(FlightReport, AFinishedRankIsNotCalledLate) {
  FlightJob job(2);
  for (int rank = 0; rank < 2; ++rank) {
    FlightRecord& flight = job.rank(rank, rank == 1 ? 9 : 8);
    FlightJob::enter(flight, FlightJob::kSum, 1 - rank);
    job.write(flight);
  }
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 0", "rank 1", "#8", "ring all_reduce, bucket 4"}));
}

TEST(FlightReport, ACommonErrorIsReportedOnce) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank)
    job.write(job.rank(rank, 3), "error", rank == 1 ? "another" : "the data are broken");
  EXPECT_TRUE(names(tool::read_flight(job.folder()).findings[0], {"ranks 0, 2", "the data are broken"}));
  EXPECT_TRUE(names(tool::read_flight(job.folder()).findings[1], {"rank 1", "another"}));
}

// In a ring each waits for the one before it. Who has got least far stopped first.
TEST(FlightReport, InARingNamesTheRankFurthestBehind) {
  FlightJob job(4);
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, (rank + 3) % 4, rank == 2 ? 1000 : 2000 + rank);
    job.write(flight);
  }
  EXPECT_TRUE(names(tool::read_flight(job.folder()).findings[0],
                    {"#8", "ring all_reduce, bucket 4", "0 -> 3 -> 2 -> 1 -> 0", "rank 2", "1000 bytes"}));
}

// Who is waited for, and waits for nobody: at the end of the chain.
TEST(FlightReport, NamesARankThatWaitsForNone) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, rank < 2 ? rank + 1 : -1);
    job.write(flight);
  }
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 2", "#8", "ring all_reduce, bucket 4", "0 -> 1 -> 2"}));
}

TEST(FlightReport, NamesTheLateRank) {
  FlightJob job(3);
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, (rank + 2) % 3);
    job.write(flight);
    records.push_back(dist::read_record(job.file(rank), rank));
  }
  records[1].entries.back().start_us = records[0].entries.back().start_us + 10'500'000;
  records[2].entries.back().start_us = records[0].entries.back().start_us + 400'000;
  EXPECT_TRUE(
      names(tool::conclude(records).findings[0], {"rank 1", "#8", "ring all_reduce, bucket 4", "10.5 s"}));
}

// Two that came late have something in common: neither of them is the one.
TEST(FlightReport, NamesNeitherOfTwoLateRanks) {
  FlightJob job(4);
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, (rank + 3) % 4, rank == 3 ? 1000 : 2000);
    job.write(flight);
    records.push_back(dist::read_record(job.file(rank), rank));
    if (rank % 2 == 0) records.back().entries.back().start_us += 10'000'000;
  }
  EXPECT_TRUE(names(tool::conclude(records).findings[0], {"rank 3", "1000 bytes"}));
}

// Where all have got equally far, by the one clock that they have here.
TEST(FlightReport, OnATieNamesTheRankThatStoppedFirst) {
  FlightJob job(4);
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, (rank + 3) % 4, 2000);
    job.write(flight);
    records.push_back(dist::read_record(job.file(rank), rank));
    records.back().entries.back().last_us += rank == 2 ? 0 : 500'000;
  }
  EXPECT_TRUE(names(tool::conclude(records).findings[0], {"rank 2"}));
}

TEST(FlightReport, TheRankThatLacksMostComesFirst) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, 7 - rank);
    if (rank == 0) FlightJob::enter(flight, FlightJob::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 2u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 2", "#5"}));
  EXPECT_TRUE(names(report.findings[1], {"rank 1", "#6"}));
  EXPECT_TRUE(has_line(report.str(), {"ring all_reduce, bucket 4", "4096 f32", "16384 bytes"}));
}

TEST(FlightReport, AnErrorComesBeforeAMissingRecord) {
  FlightJob job(3);
  job.write(job.rank(1, 8));
  job.write(job.rank(2, 8), "error", "the data are broken");
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 2u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 2", "the data are broken"}));
  EXPECT_TRUE(names(report.findings[1], {"rank 0"}));
}

TEST(FlightReport, ItsOwnErrorIsTheFirstFinding) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    if (rank != 2) FlightJob::enter(flight, FlightJob::kSum, 2);
    if (rank == 0) job.write(flight, "SIGSEGV");
    if (rank == 1) job.write(flight, "SIGTERM");
    if (rank == 2) job.write(flight, "error", "the data are broken");
  }
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 3u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 0", "SIGSEGV"}));
  EXPECT_TRUE(names(report.findings[1], {"rank 2", "the data are broken"}));
  EXPECT_TRUE(names(report.findings[2], {"rank 2", "#8"}));
}

TEST(FlightReport, WithoutAnyRecordItIsAnError) {
  const TempDir folder;
  EXPECT_THROW((void)tool::read_flight(folder.path()), IoError);
  EXPECT_THROW((void)tool::read_flight(folder.path() / "absent"), IoError);
  std::ofstream(folder.path() / "flight.0.json") << "";
  EXPECT_THROW((void)tool::read_flight(folder.path()), IoError);
}

TEST(FlightReport, NoCulprit) {
  FlightJob job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 3), "SIGTERM");
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  for (const char* rank : {"rank 0", "rank 1", "ranks"})
    EXPECT_FALSE(test::holds(report.findings[0], rank)) << report.findings[0];
}

}  // namespace athanor::flight_findings_test
