// What follows from the records of all ranks, whatever is left of them.
#include "examples/athanor_tool/flight_report.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dist/watch/flight_record.h"
#include "tests/support/flight_job.h"
#include "tests/support/temp_dir.h"

namespace athanor {
namespace {

using dist::Call;
using dist::FlightRecord;
using dist::RankRecord;
using test::FlightJob;
using test::TempDir;
using tool::FlightReport;

FlightReport report_of(const FlightJob& job) {
  return tool::read_flight(job.folder());
}

void cut(const std::filesystem::path& path, double share) {
  std::filesystem::resize_file(
      path, static_cast<std::uintmax_t>(share * static_cast<double>(std::filesystem::file_size(path))));
}

TEST(FlightReport, SaysWhoNeverEntered) {
  FlightJob job(4);
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 688);
    if (rank != 1) FlightJob::enter(flight, FlightJob::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_EQ(
      report.findings[0].find("rank 1 never entered #688 ring all_reduce, bucket 4; its last was done 0"), 0u)
      << report.findings[0];
  EXPECT_EQ(report.last_common, 687);
  EXPECT_NE(report.str().find("the last that all have finished: #687 ring all_reduce, bucket 4\n"),
            std::string::npos)
      << report.str();
  EXPECT_NE(report.str().find("ring all_reduce, bucket 4 (4096 f32, 16384 bytes)\n"), std::string::npos)
      << report.str();
}

TEST(FlightReport, RecordsOfAnEarlierRunSayNothing) {
  FlightJob job(2);
  {
    const FlightRecord old_rank(3, 4);  // of four ranks
    job.write(old_rank);
  }
  for (int rank = 0; rank < 2; ++rank) {
    FlightRecord& flight = job.rank(rank, 12);
    if (rank == 0) FlightJob::enter(flight, FlightJob::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.ranks.size(), 2u);
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_EQ(report.findings[0].find("rank 1 never entered #12"), 0u) << report.str();
  EXPECT_EQ(report.last_common, 11);
}

// Others may have gone on without it: what counts is the first it lacks.
TEST(FlightReport, TheFirstThatARankLacksIsNamed) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, rank == 1 ? 5 : 7);
    if (rank != 1) FlightJob::enter(flight, FlightJob::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = report_of(job);
  EXPECT_EQ(report.findings[0].find("rank 1 never entered #5 ring all_reduce, bucket 4"), 0u) << report.str();
  EXPECT_EQ(report.last_common, 4);
}

TEST(FlightReport, AMissingFileIsAFinding) {
  FlightJob job(4);
  for (const int rank : {0, 1, 3}) {
    FlightRecord& flight = job.rank(rank, 10);
    FlightJob::enter(flight, FlightJob::kSum, 2);
    job.write(flight, "SIGTERM");
  }
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_EQ(
      report.findings[0],
      "rank 2 left no record: it was killed, ended without a word, or its machine is gone; ranks 0, 1, 3 "
      "wait for it in #10 ring all_reduce, bucket 4");
  EXPECT_NE(report.str().find("flight.2.json is missing\n"), std::string::npos);
  EXPECT_EQ(report.last_common, 9);  // of those who have said so
}

// However little is left of a file, the rest is read; newest entries come first, so that they are there.
TEST(FlightReport, ACutFileStillTells) {
  for (const double share : {0.999, 0.5, 0.02}) {
    FlightJob job(3);
    for (int rank = 0; rank < 3; ++rank) {
      FlightRecord& flight = job.rank(rank, 300);
      if (rank != 1) FlightJob::enter(flight, FlightJob::kSum, 1);
      job.write(flight);
      if (rank == 1) cut(job.file(1), share);
    }
    const FlightReport report = report_of(job);
    EXPECT_EQ(report.findings[0].find("rank 1 never entered #300 ring all_reduce, bucket 4"), 0u)
        << report.str();
    EXPECT_EQ(report.ranks[1].damage.find("was cut: "), 0u) << report.ranks[1].damage;
    EXPECT_EQ(report.ranks[0].damage, "");
  }
}

TEST(FlightReport, WithoutFirstLinesThereAreAsManyRanksAsFiles) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    job.write(job.rank(rank, 5));
    std::stringstream text;
    text << std::ifstream(job.file(rank)).rdbuf();
    std::ofstream(job.file(rank)) << "lost" << text.str().substr(text.str().find('\n'));
  }
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.ranks.size(), 3u);
  for (const RankRecord& record : report.ranks) {
    EXPECT_EQ(record.damage, "does not say whose it is");
    EXPECT_EQ(record.entries.back().seq, 4);
  }
  EXPECT_EQ(report.last_common, 4);
}

TEST(FlightReport, WhatIsThereTwiceCountsOnceAndWhatIsNoEntryIsSaid) {
  FlightJob job(2);
  job.write(job.rank(0, 3));
  std::stringstream text;
  text << std::ifstream(job.file(0)).rdbuf();
  const std::size_t first = text.str().find('\n') + 1, second = text.str().find('\n', first) + 1;
  std::ofstream(job.file(0), std::ios::app) << text.str().substr(first, second - first);
  const RankRecord record = dist::read_record(job.file(0), 0);
  EXPECT_EQ(record.damage, "");
  EXPECT_EQ(record.entries.size(), 3u);
  std::ofstream(job.file(0), std::ios::app) << "something else\n";
  EXPECT_EQ(dist::read_record(job.file(0), 0).damage, "has 1 lines that are no entries");
}

TEST(FlightReport, GarbageIsNoRecord) {
  FlightJob job(3);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 5));
  std::ofstream(job.file(2)) << std::string_view("\0\1 not JSON\n[1,2]\n{\"seq\":\"x\"}\n{\"seq\":1e99}\n",
                                                 43);
  std::ofstream(job.folder() / "flight.99.json") << "{}";  // of nobody
  std::ofstream(job.folder() / "flight.x.json") << "{}";
  const FlightReport report = report_of(job);
  EXPECT_EQ(report.ranks.size(), 3u);
  EXPECT_FALSE(report.ranks[2].found);
  EXPECT_EQ(report.ranks[2].damage, "holds nothing that can be read");
  EXPECT_EQ(report.findings[0], "rank 2 left a record that cannot be read: it was killed as it wrote it");
}

// Until it is whole it has another name, and is read by that one if there is no other.
TEST(FlightReport, AnUnfinishedFileIsReadWhereThereIsNoOther) {
  FlightJob job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 300));
  const std::filesystem::path part = job.file(1).string() + FlightRecord::kUnfinished;
  std::filesystem::copy_file(job.file(1), part);
  cut(part, 0.5);
  EXPECT_EQ(report_of(job).ranks[1].damage, "");
  std::filesystem::remove(job.file(1));
  EXPECT_EQ(report_of(job).ranks[1].damage.find("was cut: "), 0u);
  EXPECT_EQ(report_of(job).ranks[1].entered(), 299);
}

// Every byte of a file may be wrong.
TEST(FlightReport, AnyByteMayBeWrong) {
  FlightJob job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 3));
  std::stringstream text;
  text << std::ifstream(job.file(1)).rdbuf();
  for (std::size_t i = 0; i < text.str().size(); ++i) {
    for (const char c : {'\0', '\n', '{', '9', '\xff'}) {
      std::string damaged = text.str();
      damaged[i] = c;
      std::ofstream(job.file(1), std::ios::binary) << damaged;
      const FlightReport report = report_of(job);
      ASSERT_GE(report.ranks.size(), 2u);
      ASSERT_FALSE(report.str().empty());
    }
  }
}

/// The record of `rank`, whose text `from`, where it is first, becomes `to`.
void rewrite(const FlightJob& job, int rank, std::string_view from, std::string_view to) {
  std::stringstream text;
  text << std::ifstream(job.file(rank)).rdbuf();
  std::string changed = text.str();
  const std::size_t at = changed.find(from);
  ASSERT_NE(at, std::string::npos) << changed;
  std::ofstream(job.file(rank), std::ios::binary) << changed.replace(at, from.size(), to);
}

// Rank 0 waits for rank 1, and that for one that no job has: such a line is none.
TEST(FlightReport, NumbersOutOfRangeAreNoEntries) {
  const std::vector<std::string> always{
      "-2",  "-9223372036854775808", "9223372036854775807", "\"1\"", "1e300", "18446744073709551615", "0.5",
      "null"};
  std::vector<std::pair<std::string, std::string>> wrong{
      {"waits_for", "3"}, {"waits_for", "2147483648"}, {"waits_for", "4294967295"}};
  for (const char* name : {"waits_for", "seq", "bytes", "last_us", "count"}) {
    for (const std::string& value : always) wrong.emplace_back(name, value);
  }
  for (const auto& [name, value] : wrong) {
    FlightJob job(3);
    for (int rank = 0; rank < 3; ++rank) {
      FlightRecord& flight = job.rank(rank, 8);
      FlightJob::enter(flight, FlightJob::kSum, rank == 2 ? -1 : rank + 1);
      job.write(flight);
    }
    std::stringstream text;
    text << std::ifstream(job.file(1)).rdbuf();
    std::string changed = text.str();
    const std::string key = fmt::format("\"{}\":", name);
    const std::size_t newest = changed.find('\n'), from = changed.find(key, newest) + key.size();
    changed.replace(from, changed.find_first_of(",}", from) - from, value);
    std::ofstream(job.file(1), std::ios::binary) << changed;
    const RankRecord record = dist::read_record(job.file(1), 1);
    EXPECT_EQ(record.entries.size(), 8u) << name << " " << value;
    EXPECT_EQ(record.damage, "was cut: 8 entries can be read") << name << " " << value;
    EXPECT_FALSE(report_of(job).str().empty());
  }
}

TEST(FlightReport, ARecordOfMoreRanksThanThereCanBeHasNoHead) {
  FlightJob job(2);
  job.write(job.rank(0, 3));
  for (const char* world : {"1099511627776", "0", "-1", "65537"}) {
    job.write(job.rank(1, 3));
    rewrite(job, 1, "\"world_size\":2", fmt::format("\"world_size\":{}", world));
    EXPECT_EQ(dist::read_record(job.file(1), 1).damage, "does not say whose it is") << world;
    EXPECT_EQ(report_of(job).ranks.size(), 2u);
  }
}

// A terminal obeys what begins with an escape.
TEST(FlightReport, WhatOthersWroteIsShownAsText) {
  FlightJob job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 3), "error", "ERROR");
  for (const int rank : {0, 1}) {
    rewrite(job, rank, "ERROR", R"(\u001b[2J\u009b31m\nrank 9 crashed)");
    rewrite(job, rank, "\"host\":\"", R"("host":"\u001b]0;me\u0007)");
    rewrite(job, rank, "\"dtype\":\"", R"("dtype":"\u007f)");
    rewrite(job, rank, "\"op\":\"", R"("op":"\u001b[A)");
  }
  const std::string text = report_of(job).str();
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << text;
  EXPECT_NE(text.find(R"(\x1b[2J\xc2\x9b31m\nrank 9 crashed)"), std::string::npos) << text;
}

// Opening a FIFO would wait for its writer.
TEST(FlightReport, WhatIsNoFileIsNoRecord) {
  FlightJob job(2);
  job.write(job.rank(0, 3));
  ASSERT_EQ(mkfifo(job.file(1).c_str(), 0600), 0);
  EXPECT_EQ(report_of(job).ranks[1].damage, "holds nothing that can be read");
}

TEST(FlightReport, RanksThatDoDifferentThingsAreNamedFirst) {
  for (const char* other : {"barrier", "turn"}) {  // the few come first, not the alphabet
    FlightJob job(4);
    for (int rank = 0; rank < 4; ++rank) {
      FlightRecord& flight = job.rank(rank, 30);
      FlightJob::enter(flight, rank == 1 ? Call{other} : FlightJob::kSum, rank == 2 ? 1 : 0);
      job.write(flight);
    }
    const FlightReport report = report_of(job);
    EXPECT_EQ(report.findings[0],
              fmt::format("ranks do not do the same: rank 1 entered #30 {}; but ranks 0, 2, 3 entered #30 "
                          "ring all_reduce, bucket 4, 4096 f32",
                          other));
  }
}

TEST(FlightReport, OfManySidesTheSmallestComesFirst) {
  FlightJob job(6);
  for (int rank = 0; rank < 6; ++rank) {
    FlightRecord& flight = job.rank(rank, 30);
    FlightJob::enter(flight, rank == 4 ? Call{"turn"} : rank % 4 == 1 ? Call{"barrier"} : FlightJob::kSum, 0);
    job.write(flight);
  }
  EXPECT_EQ(
      report_of(job).findings[0],
      "ranks do not do the same: rank 4 entered #30 turn; but ranks 1, 5 entered #30 barrier; but ranks "
      "0, 2, 3 entered #30 ring all_reduce, bucket 4, 4096 f32");
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
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_EQ(report.findings[0],
            "ranks do not do the same: rank 1 entered #3 barrier; but rank 0 entered #3 ring all_reduce, "
            "bucket 4, 4096 f32");
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
    EXPECT_EQ(report_of(job).findings[0].find("ranks do not do the same: "), 0u) << report_of(job).str();
  }
}

// Rank 3 is gone. Rank 1 is in the next one already, and waits for those that wait for rank 3.
TEST(FlightReport, WhoIsBehindBecauseOfAnotherIsNotNamed) {
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
    const FlightReport report = report_of(job);
    ASSERT_EQ(report.findings.size(), 1u) << report.str();
    EXPECT_EQ(report.findings[0].find(
                  record_of_3 ? "rank 3 never entered #7 ring all_reduce, bucket 4; its last was"
                              : "rank 3 left no record: it was killed, ended without a word, or its "
                                "machine is gone; ranks 0, 2 wait for it in #7 ring all_reduce"),
              0u)
        << report.str();
  }
}

// Rank 2 was stopped, and woken to be ended: it found its messages there, and is the front now.
TEST(FlightReport, WhoWasLateIsNamedThoughItIsAhead) {
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
  EXPECT_EQ(report.findings[0], "rank 2: it had been stopped for 3.3 s itself");
  EXPECT_EQ(report.findings[1],
            "rank 2 was late: ranks 0, 1, 3 had waited for it in #8 ring all_reduce, bucket 4");
}

// It may also be in the same collective by now, and wait there for those that have given up; and one of them
// may have been in the next already.
TEST(FlightReport, WhoWaitsInACircleIsBehindBecauseOfIt) {
  for (const bool stopped : {true, false}) {
    for (const int ahead : {-1, 1}) {
      FlightJob job(4);
      for (int rank = 0; rank < 4; ++rank) {
        FlightRecord& flight = job.rank(rank, rank == ahead ? 9 : 8);
        FlightJob::enter(flight, FlightJob::kSum, rank == 2 ? 0 : 2, rank == 1 ? 10 : 20 + rank);
        job.write(flight, rank == 2 && stopped ? "stopped" : "deadline",
                  "it had been stopped for 3.3 s itself");
      }
      const FlightReport report = report_of(job);
      ASSERT_EQ(report.findings.size(), 1u) << report.str();
      EXPECT_EQ(report.findings[0],
                stopped
                    ? "rank 2: it had been stopped for 3.3 s itself"
                    : fmt::format("in #8 ring all_reduce, bucket 4 ranks wait for each other (0 -> 2 -> 0); "
                                  "rank {} has got least far, with {} bytes",
                                  ahead == 1 ? 0 : 1, ahead == 1 ? 20 : 10));
    }
  }
}

// On a cable that is cut, what was sent is gone.
TEST(FlightReport, WhoHasDoneItsPartIsNotCalledLate) {
  FlightJob job(2);
  for (int rank = 0; rank < 2; ++rank) {
    FlightRecord& flight = job.rank(rank, rank == 1 ? 9 : 8);
    FlightJob::enter(flight, FlightJob::kSum, 1 - rank);
    job.write(flight);
  }
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_EQ(
      report.findings[0],
      "rank 0 waits for rank 1 in #8 ring all_reduce, bucket 4, which has done its part: what it sent is "
      "lost, or rank 0 was held up");
}

TEST(FlightReport, AnErrorOfAllIsSaidOnce) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank)
    job.write(job.rank(rank, 3), "error", rank == 1 ? "another" : "the data are broken");
  EXPECT_EQ(report_of(job).findings[0], "ranks 0, 2 ended by an error of their own: the data are broken");
  EXPECT_EQ(report_of(job).findings[1], "rank 1 ended by an error of its own: another");
}

// In a ring each waits for the one before it. Who has got least far stopped first.
TEST(FlightReport, InARingTheOneThatGotLeastFarIsNamed) {
  FlightJob job(4);
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, (rank + 3) % 4, rank == 2 ? 1000 : 2000 + rank);
    job.write(flight);
  }
  EXPECT_EQ(
      report_of(job).findings[0],
      "in #8 ring all_reduce, bucket 4 ranks wait for each other (0 -> 3 -> 2 -> 1 -> 0); rank 2 has got "
      "least far, with 1000 bytes");
}

// Who is waited for, and waits for nobody: at the end of the chain.
TEST(FlightReport, WhoWaitsForNobodyIsNamed) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, rank < 2 ? rank + 1 : -1);
    job.write(flight);
  }
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_EQ(report.findings[0], "rank 2 did not do its part of #8 ring all_reduce, bucket 4 (0 -> 1 -> 2)");
}

TEST(FlightReport, OneThatCameLateIsNamed) {
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
  EXPECT_EQ(
      tool::conclude(records).findings[0].find("rank 1 came to #8 ring all_reduce, bucket 4 10.5 s after"),
      0u)
      << tool::conclude(records).str();
}

// Two that came late have something in common: neither of them is the one.
TEST(FlightReport, OfTwoThatCameLateNeitherIsNamed) {
  FlightJob job(4);
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, (rank + 3) % 4, rank == 3 ? 1000 : 2000);
    job.write(flight);
    records.push_back(dist::read_record(job.file(rank), rank));
    if (rank % 2 == 0) records.back().entries.back().start_us += 10'000'000;
  }
  EXPECT_NE(tool::conclude(records).findings[0].find("rank 3 has got least far, with 1000 bytes"),
            std::string::npos)
      << tool::conclude(records).str();
}

// Where all have got equally far, by the one clock that they have here.
TEST(FlightReport, OfEqualsTheOneThatStoppedFirstIsNamed) {
  FlightJob job(4);
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    FlightJob::enter(flight, FlightJob::kSum, (rank + 3) % 4, 2000);
    job.write(flight);
    records.push_back(dist::read_record(job.file(rank), rank));
    records.back().entries.back().last_us += rank == 2 ? 0 : 500'000;
  }
  EXPECT_NE(tool::conclude(records).findings[0].find("rank 2 has got least far"), std::string::npos)
      << tool::conclude(records).str();
}

TEST(FlightReport, WhoLacksMostComesFirst) {
  FlightJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, 7 - rank);
    if (rank == 0) FlightJob::enter(flight, FlightJob::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.findings.size(), 2u) << report.str();
  EXPECT_EQ(report.findings[0].find("rank 2 never entered #5 "), 0u) << report.str();
  EXPECT_EQ(report.findings[1].find("rank 1 never entered #6 "), 0u) << report.str();
  EXPECT_NE(report.str().find(" ring all_reduce, bucket 4 (4096 f32, 16384 bytes)\n"), std::string::npos)
      << report.str();
}

TEST(FlightReport, AnErrorComesBeforeWhoLeftNoRecord) {
  FlightJob job(3);
  job.write(job.rank(1, 8));
  job.write(job.rank(2, 8), "error", "the data are broken");
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.findings.size(), 2u) << report.str();
  EXPECT_EQ(report.findings[0], "rank 2 ended by an error of its own: the data are broken");
  EXPECT_EQ(report.findings[1].find("rank 0 left no record"), 0u);
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
  const FlightReport report = report_of(job);
  ASSERT_EQ(report.findings.size(), 3u) << report.str();
  EXPECT_EQ(report.findings[0], "rank 0 crashed (SIGSEGV)");
  EXPECT_EQ(report.findings[1], "rank 2 ended by an error of its own: the data are broken");
  EXPECT_EQ(report.findings[2].find("rank 2 never entered #8"), 0u);
}

TEST(FlightReport, WithoutAnyRecordItIsAnError) {
  const TempDir folder;
  EXPECT_THROW((void)tool::read_flight(folder.path()), IoError);
  EXPECT_THROW((void)tool::read_flight(folder.path() / "absent"), IoError);
  std::ofstream(folder.path() / "flight.0.json") << "";
  EXPECT_THROW((void)tool::read_flight(folder.path()), IoError);
}

TEST(FlightReport, NobodyToBlame) {
  FlightJob job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 3), "SIGTERM");
  EXPECT_EQ(report_of(job).findings[0], "no rank is behind: all have finished what they entered");
}

}  // namespace
}  // namespace athanor
