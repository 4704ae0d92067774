// What the records of all ranks say, whatever is left of them.
#include "examples/athanor_tool/flight_report.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dist/watch/flight_record.h"
#include "tests/support/errors.h"
#include "tests/support/flight_job.h"

namespace athanor::flight_report_test {

using dist::FlightRecord;
using dist::RankRecord;
using test::FlightJob;
using test::names;
using tool::FlightReport;

void cut(const std::filesystem::path& path, double share) {
  std::filesystem::resize_file(
      path, static_cast<std::uintmax_t>(share * static_cast<double>(std::filesystem::file_size(path))));
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
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.ranks.size(), 2u);
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 1", "#12"}));
  EXPECT_EQ(report.last_common, 11);
}

TEST(FlightReport, AMissingFileIsAFinding) {
  FlightJob job(4);
  for (const int rank : {0, 1, 3}) {
    FlightRecord& flight = job.rank(rank, 10);
    FlightJob::enter(flight, FlightJob::kSum, 2);
    job.write(flight, "SIGTERM");
  }
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_TRUE(names(report.findings[0], {"rank 2", "ranks 0, 1, 3", "#10", "ring all_reduce, bucket 4"}));
  EXPECT_TRUE(test::has_line(report.str(), {"flight.2.json"}));
  EXPECT_EQ(report.last_common, 9);  // of those who have said so
}

// However little is left of a file, the rest is read; newest entries come first, so that they are there.
TEST(FlightReport, ATruncatedFileIsStillUsed) {
  for (const double share : {0.999, 0.5, 0.02}) {
    FlightJob job(3);
    for (int rank = 0; rank < 3; ++rank) {
      FlightRecord& flight = job.rank(rank, 300);
      if (rank != 1) FlightJob::enter(flight, FlightJob::kSum, 1);
      job.write(flight);
      if (rank == 1) cut(job.file(1), share);
    }
    const FlightReport report = tool::read_flight(job.folder());
    EXPECT_TRUE(names(report.findings[0], {"rank 1", "#300", "ring all_reduce, bucket 4"}));
    EXPECT_TRUE(names(report.ranks[1].damage, {fmt::to_string(report.ranks[1].entries.size())}));
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
  const FlightReport report = tool::read_flight(job.folder());
  ASSERT_EQ(report.ranks.size(), 3u);
  for (const RankRecord& record : report.ranks) {
    EXPECT_NE(record.damage, "");
    EXPECT_EQ(record.entries.back().seq, 4);
  }
  EXPECT_EQ(report.last_common, 4);
}

TEST(FlightReport, DuplicatesCountOnceAndBadEntriesAreReported) {
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
  EXPECT_TRUE(names(dist::read_record(job.file(0), 0).damage, {"1"}));
}

TEST(FlightReport, GarbageIsNoRecord) {
  FlightJob job(3);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 5));
  std::ofstream(job.file(2)) << std::string_view("\0\1 not JSON\n[1,2]\n{\"seq\":\"x\"}\n{\"seq\":1e99}\n",
                                                 43);
  std::ofstream(job.folder() / "flight.99.json") << "{}";  // of nobody
  std::ofstream(job.folder() / "flight.x.json") << "{}";
  const FlightReport report = tool::read_flight(job.folder());
  EXPECT_EQ(report.ranks.size(), 3u);
  EXPECT_FALSE(report.ranks[2].found);
  EXPECT_EQ(report.ranks[2].damage, RankRecord::kUnreadable);
  EXPECT_TRUE(names(report.findings[0], {"rank 2"}));
}

// Until it is whole it has another name, and is read by that one if there is no other.
TEST(FlightReport, AnUnfinishedFileIsReadWhereThereIsNoOther) {
  FlightJob job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 300));
  const std::filesystem::path part = job.file(1).string() + FlightRecord::kUnfinished;
  std::filesystem::copy_file(job.file(1), part);
  cut(part, 0.5);
  EXPECT_EQ(tool::read_flight(job.folder()).ranks[1].damage, "");
  std::filesystem::remove(job.file(1));
  const RankRecord cut_off = tool::read_flight(job.folder()).ranks[1];
  EXPECT_TRUE(names(cut_off.damage, {fmt::to_string(cut_off.entries.size())}));
  EXPECT_EQ(cut_off.entered(), 299);
}

// Every byte of a file may be wrong.
TEST(FlightReport, SurvivesAnyWrongByte) {
  FlightJob job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 3));
  std::stringstream text;
  text << std::ifstream(job.file(1)).rdbuf();
  for (std::size_t i = 0; i < text.str().size(); ++i) {
    for (const char c : {'\0', '\n', '{', '9', '\xff'}) {
      std::string damaged = text.str();
      damaged[i] = c;
      std::ofstream(job.file(1), std::ios::binary) << damaged;
      const FlightReport report = tool::read_flight(job.folder());
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
    EXPECT_TRUE(names(record.damage, {"8"})) << name << " " << value;
    EXPECT_FALSE(tool::read_flight(job.folder()).str().empty());
  }
}

TEST(FlightReport, ARecordOfMoreRanksThanThereCanBeHasNoHead) {
  FlightJob job(2);
  job.write(job.rank(0, 3));
  for (const char* world : {"1099511627776", "0", "-1", "65537"}) {
    job.write(job.rank(1, 3));
    rewrite(job, 1, "\"world_size\":2", fmt::format("\"world_size\":{}", world));
    EXPECT_NE(dist::read_record(job.file(1), 1).damage, "") << world;
    EXPECT_EQ(tool::read_flight(job.folder()).ranks.size(), 2u);
  }
}

// A terminal obeys what begins with an escape.
TEST(FlightReport, ForeignTextIsEscaped) {
  FlightJob job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 3), "error", "ERROR");
  for (const int rank : {0, 1}) {
    rewrite(job, rank, "ERROR", R"(\u001b[2J\u009b31m\nrank 9 crashed)");
    rewrite(job, rank, "\"host\":\"", R"("host":"\u001b]0;me\u0007)");
    rewrite(job, rank, "\"dtype\":\"", R"("dtype":"\u007f)");
    rewrite(job, rank, "\"op\":\"", R"("op":"\u001b[A)");
  }
  const std::string text = tool::read_flight(job.folder()).str();
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << text;
  EXPECT_NE(text.find(R"(\x1b[2J\xc2\x9b31m\nrank 9 crashed)"), std::string::npos) << text;
}

// Opening a FIFO would wait for its writer.
TEST(FlightReport, IgnoresWhatIsNotAFile) {
  FlightJob job(2);
  job.write(job.rank(0, 3));
  ASSERT_EQ(mkfifo(job.file(1).c_str(), 0600), 0);
  EXPECT_EQ(tool::read_flight(job.folder()).ranks[1].damage, RankRecord::kUnreadable);
}

}  // namespace athanor::flight_report_test
