// What is put on record, what survives of it, and what follows from the records of all ranks.
#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "dist/communicator.h"
#include "dist/flight_report.h"
#include "dist/thread_transport.h"
#include "dist/watchdog.h"
#include "tests/support/temp_dir.h"

namespace athanor {
namespace {

using namespace std::chrono_literals;
using dist::Call;
using dist::Communicator;
using dist::FlightRecord;
using dist::FlightReport;
using dist::RankRecord;
using dist::run_ranks;
using dist::ThreadJob;
using dist::Transport;
using test::TempDir;

// Recording ------------------------------------------------------------------------------------------------

TEST(FlightRecord, HasEveryCollective) {
  for (const auto algorithm : {dist::Algorithm::rank_order, dist::Algorithm::ring}) {
    run_ranks(2, [&](Transport& transport) {
      Communicator comm(transport, {.algorithm = algorithm});
      const Tensor x = Tensor::zeros({1000}), rows = Tensor::zeros({10}, {DType::f64, kCpu});
      const std::int64_t before = FlightRecord::now_us();
      comm.run(*comm.all_reduce(x), 4);
      comm.run(*comm.barrier());
      comm.run(*comm.all_gather_small(rows));
      comm.run(*comm.broadcast(x, 1));
      const FlightRecord& flight = transport.flight();
      ASSERT_EQ(flight.size(), 4);
      EXPECT_EQ(std::string(flight.at(0).call.name), fmt::format("{} all_reduce", name_of(algorithm)));
      EXPECT_EQ(flight.at(0).call.dtype, DType::f32);
      EXPECT_EQ(flight.at(0).call.count, 1000);
      EXPECT_EQ(flight.at(0).call.bucket, 4);
      EXPECT_EQ(flight.at(0).bytes, 2 * 4000);  // half of it each way, there and back
      EXPECT_EQ(std::string(flight.at(1).call.name), "barrier");
      EXPECT_EQ(flight.at(1).call.count, 0);
      EXPECT_EQ(flight.at(1).call.bucket, -1);
      EXPECT_EQ(flight.at(1).bytes, 2);
      EXPECT_EQ(flight.at(2).call.dtype, DType::f64);
      EXPECT_EQ(flight.at(2).call.count, 10);
      EXPECT_EQ(flight.at(3).bytes, 4000);
      std::int64_t time = before;
      for (std::int64_t seq = 0; seq < 4; ++seq) {
        const FlightRecord::Entry entry = flight.at(seq);
        EXPECT_EQ(entry.seq, seq);
        for (const std::int64_t next : {entry.launch_us, entry.start_us, entry.last_us, entry.end_us}) {
          EXPECT_GE(next, time) << seq;
          time = next;
        }
        EXPECT_EQ(entry.waits_for, -1);
      }
      EXPECT_LE(time, FlightRecord::now_us());
    });
  }
}

TEST(FlightRecord, KnowsWhoIsWaitedFor) {
  ThreadJob job(4);
  job.stop(2);
  run_ranks(job, 4, [](Transport& transport) {
    if (transport.rank() == 2) return std::this_thread::sleep_for(2s);
    Communicator comm(transport, {.timeout = 300ms});
    int failures = 0;
    transport.on_failure = [&](dist::Failure kind, const std::exception&) {
      EXPECT_EQ(kind, dist::Failure::deadline);
      ++failures;
    };
    EXPECT_THROW(comm.run(*comm.all_reduce(Tensor::zeros({64})), 7), PeerLostError);
    EXPECT_EQ(failures, 1);
    const FlightRecord::Entry entry = transport.flight().last();
    EXPECT_TRUE(entry.under_way());
    EXPECT_EQ(entry.waits_for, 2);
    const std::string doing = dist::doing(transport.flight());
    EXPECT_EQ(doing.find("rank 2 did not do its part of rank_order all_reduce #0, bucket 7, for 0."), 0u)
        << doing;
    transport.on_failure = nullptr;
  });
}

TEST(FlightRecord, KeepsTheNewest) {
  FlightRecord flight(0, 2);
  EXPECT_EQ(flight.last().seq, -1);
  EXPECT_EQ(dist::doing(flight), "rank 0 has not come to its first collective");
  constexpr std::int64_t kAll = FlightRecord::kEntries + 100;
  for (std::int64_t seq = 0; seq < kAll; ++seq) {
    flight.begin(seq, {"barrier"});
    flight.end();
  }
  EXPECT_EQ(flight.size(), kAll);
  EXPECT_EQ(flight.at(99).seq, -1);
  EXPECT_EQ(flight.at(100).seq, 100);
  EXPECT_EQ(flight.last().seq, kAll - 1);
  EXPECT_EQ(flight.at(kAll).seq, -1);
  EXPECT_EQ(dist::doing(flight).find("rank 0 is in no collective: its last, barrier #4195, was done 0"), 0u);
}

TEST(FlightRecord, IsReadWhileItIsWritten) {
  FlightRecord flight(0, 2);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    std::int64_t seen = 0;
    while (!stop || seen == 0) {
      const std::int64_t newest = flight.size() - 1;
      // The oldest is about to be overwritten, by the one after the newest.
      for (const std::int64_t seq : {newest, newest + 1, newest - FlightRecord::kEntries + 1}) {
        const FlightRecord::Entry entry = flight.at(seq);
        if (entry.seq < 0) continue;
        ++seen;
        ASSERT_EQ(entry.call.count, 3 * seq);
        ASSERT_EQ(entry.call.bucket, seq % 7);
        ASSERT_EQ(entry.launch_us, seq + 1);
      }
    }
  });
  for (std::int64_t seq = 0; seq < 300'000; ++seq) {
    flight.begin(seq, {"ring all_reduce", DType::bf16, 3 * seq, seq % 7}, seq + 1);
    flight.moved(10);
    flight.end();
  }
  stop = true;
  reader.join();
}

TEST(FlightRecord, ComesBackFromItsFile) {
  const TempDir folder;
  FlightRecord flight(3, 4);
  flight.begin(0, {"barrier"});
  flight.end();
  flight.begin(1, {"ring all_reduce", DType::bf16, 4096, 2});
  flight.moved(123);
  flight.waits_for(1);
  const std::filesystem::path path = folder.path() / "flight.3.json";
  ASSERT_TRUE(flight.write(path.c_str(), "deadline", "a \"quote\", a \\ and\na line"));
  const RankRecord record = dist::read_record(path, 3);
  EXPECT_TRUE(record.found);
  EXPECT_EQ(record.damage, "");
  EXPECT_EQ(record.world_size, 4);
  EXPECT_EQ(record.reason, "deadline");
  EXPECT_EQ(record.error, "a \"quote\", a \\ and a line");
  ASSERT_EQ(record.entries.size(), 2u);
  EXPECT_EQ(record.finished(), 0);
  EXPECT_EQ(record.entered(), 1);
  const RankRecord::Entry& entry = *record.at(1);
  EXPECT_EQ(entry.str(), "ring all_reduce, bucket 2");
  EXPECT_EQ(entry.dtype, "bf16");
  EXPECT_EQ(entry.count, 4096);
  EXPECT_EQ(entry.payload, 8192);
  EXPECT_EQ(entry.with_payload(), "ring all_reduce, bucket 2 (4096 bf16, 8192 bytes)");
  EXPECT_EQ(record.at(0)->with_payload(), "barrier");
  EXPECT_EQ(entry.bytes, 123);
  EXPECT_EQ(entry.waits_for, 1);
  EXPECT_EQ(entry.start_us, flight.at(1).start_us);
  EXPECT_FALSE(flight.write((folder.path() / "absent" / "x").c_str(), "error"));
}

// Concluding -----------------------------------------------------------------------------------------------

/// Records made up, as files.
class Job {
 public:
  explicit Job(int world_size) : world_size_(world_size) {}

  /// A rank that has finished `finished` collectives, and then those of `more`.
  FlightRecord& rank(int rank, std::int64_t finished) {
    flights_.push_back(std::make_unique<FlightRecord>(rank, world_size_));
    FlightRecord& flight = *flights_.back();
    for (std::int64_t seq = 0; seq < finished; ++seq) {
      flight.begin(seq, kSum);
      flight.end();
    }
    return flight;
  }
  static void enter(FlightRecord& flight, const Call& call, int waits_for, std::int64_t bytes = 0) {
    flight.begin(flight.size(), call);
    flight.moved(bytes);
    flight.waits_for(waits_for);
  }
  std::filesystem::path file(int rank) const { return folder_.path() / fmt::format("flight.{}.json", rank); }
  void write(const FlightRecord& flight, const char* reason = "deadline", const char* error = "") {
    ASSERT_TRUE(flight.write(file(flight.rank()).c_str(), reason, error));
  }
  FlightReport report() const { return dist::read_flight(folder_.path()); }
  const std::filesystem::path& folder() const { return folder_.path(); }

  static constexpr Call kSum{"ring all_reduce", DType::f32, 4096, 4};

 private:
  int world_size_;
  TempDir folder_;
  std::vector<std::unique_ptr<FlightRecord>> flights_;
};

void cut(const std::filesystem::path& path, double share) {
  std::filesystem::resize_file(
      path, static_cast<std::uintmax_t>(share * static_cast<double>(std::filesystem::file_size(path))));
}

TEST(FlightReport, SaysWhoNeverEntered) {
  Job job(4);
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 688);
    if (rank != 1) Job::enter(flight, Job::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = job.report();
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
  Job job(2);
  {
    const FlightRecord old_rank(3, 4);  // of four ranks
    job.write(old_rank);
  }
  for (int rank = 0; rank < 2; ++rank) {
    FlightRecord& flight = job.rank(rank, 12);
    if (rank == 0) Job::enter(flight, Job::kSum, 1);
    job.write(flight);
  }
  const FlightReport report = job.report();
  ASSERT_EQ(report.ranks.size(), 2u);
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_EQ(report.findings[0].find("rank 1 never entered #12"), 0u) << report.str();
  EXPECT_EQ(report.last_common, 11);
}

TEST(FlightReport, AMissingFileIsAFinding) {
  Job job(4);
  for (const int rank : {0, 1, 3}) {
    FlightRecord& flight = job.rank(rank, 10);
    Job::enter(flight, Job::kSum, 2);
    job.write(flight, "SIGTERM");
  }
  const FlightReport report = job.report();
  ASSERT_EQ(report.findings.size(), 1u) << report.str();
  EXPECT_EQ(
      report.findings[0],
      "rank 2 left no record: it was killed, ended without a word, or its machine is gone; ranks 0, 1, 3 "
      "wait for it in #10 ring all_reduce, bucket 4");
  EXPECT_NE(report.str().find("flight.2.json is missing\n"), std::string::npos);
}

// However little is left of a file, the rest is read; newest entries come first, so that they are there.
TEST(FlightReport, ACutFileStillTells) {
  for (const double share : {0.999, 0.5, 0.02}) {
    Job job(3);
    for (int rank = 0; rank < 3; ++rank) {
      FlightRecord& flight = job.rank(rank, 300);
      if (rank != 1) Job::enter(flight, Job::kSum, 1);
      job.write(flight);
      if (rank == 1) cut(job.file(1), share);
    }
    const FlightReport report = job.report();
    EXPECT_EQ(report.findings[0].find("rank 1 never entered #300 ring all_reduce, bucket 4"), 0u)
        << report.str();
    EXPECT_EQ(report.ranks[1].damage.find("was cut: "), 0u) << report.ranks[1].damage;
    EXPECT_EQ(report.ranks[0].damage, "");
  }
}

TEST(FlightReport, GarbageIsNoRecord) {
  Job job(3);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 5));
  std::ofstream(job.file(2)) << std::string_view("\0\1 not JSON\n[1,2]\n{\"seq\":\"x\"}\n{\"seq\":1e99}\n",
                                                 43);
  std::ofstream(job.folder() / "flight.99.json") << "{}";  // of nobody
  std::ofstream(job.folder() / "flight.x.json") << "{}";
  const FlightReport report = job.report();
  EXPECT_EQ(report.ranks.size(), 3u);
  EXPECT_FALSE(report.ranks[2].found);
  EXPECT_EQ(report.ranks[2].damage, "holds nothing that can be read");
  EXPECT_EQ(report.findings[0].find("rank 2 left no record"), 0u) << report.str();
}

// Every byte of a file may be wrong.
TEST(FlightReport, AnyByteMayBeWrong) {
  Job job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 3));
  std::stringstream text;
  text << std::ifstream(job.file(1)).rdbuf();
  for (std::size_t i = 0; i < text.str().size(); ++i) {
    for (const char c : {'\0', '\n', '{', '9', '\xff'}) {
      std::string damaged = text.str();
      damaged[i] = c;
      std::ofstream(job.file(1), std::ios::binary) << damaged;
      const FlightReport report = job.report();
      ASSERT_GE(report.ranks.size(), 2u);
      ASSERT_FALSE(report.str().empty());
    }
  }
}

TEST(FlightReport, RanksThatDoDifferentThingsAreNamedFirst) {
  Job job(4);
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 30);
    Job::enter(flight, rank == 1 ? Call{"barrier"} : Job::kSum, rank == 2 ? 1 : 0);
    job.write(flight);
  }
  const FlightReport report = job.report();
  EXPECT_EQ(report.findings[0],
            "ranks do not do the same: rank 1 entered #30 barrier; but ranks 0, 2, 3 entered #30 ring "
            "all_reduce, bucket 4, 4096 f32");
}

TEST(FlightReport, CountsAndDTypesMustBeEqualToo) {
  for (const Call& other :
       {Call{"ring all_reduce", DType::f32, 4097, 4}, Call{"ring all_reduce", DType::bf16, 4096, 4},
        Call{"ring all_reduce", DType::f32, 4096, 5}}) {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank) {
      FlightRecord& flight = job.rank(rank, 2);
      Job::enter(flight, rank == 1 ? other : Job::kSum, 1 - rank);
      job.write(flight);
    }
    EXPECT_EQ(job.report().findings[0].find("ranks do not do the same: "), 0u) << job.report().str();
  }
}

// In a ring each waits for the one before it. Who has got least far stopped first.
TEST(FlightReport, InARingTheOneThatGotLeastFarIsNamed) {
  Job job(4);
  for (int rank = 0; rank < 4; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    Job::enter(flight, Job::kSum, (rank + 3) % 4, rank == 2 ? 1000 : 2000 + rank);
    job.write(flight);
  }
  EXPECT_EQ(
      job.report().findings[0],
      "in #8 ring all_reduce, bucket 4 ranks wait for each other (0 -> 3 -> 2 -> 1 -> 0); rank 2 has got "
      "least far, with 1000 bytes");
}

TEST(FlightReport, OneThatCameLateIsNamed) {
  Job job(3);
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    Job::enter(flight, Job::kSum, (rank + 2) % 3);
    job.write(flight);
    records.push_back(dist::read_record(job.file(rank), rank));
  }
  records[1].entries.back().start_us += 10'500'000;
  EXPECT_EQ(
      dist::conclude(records).findings[0].find("rank 1 came to #8 ring all_reduce, bucket 4 10.5 s after"),
      0u)
      << dist::conclude(records).str();
}

TEST(FlightReport, ItsOwnErrorIsTheFirstFinding) {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecord& flight = job.rank(rank, 8);
    if (rank != 2) Job::enter(flight, Job::kSum, 2);
    if (rank == 0) job.write(flight, "SIGSEGV");
    if (rank == 1) job.write(flight, "SIGTERM");
    if (rank == 2) job.write(flight, "error", "the data are broken");
  }
  const FlightReport report = job.report();
  ASSERT_EQ(report.findings.size(), 3u) << report.str();
  EXPECT_EQ(report.findings[0], "rank 0 crashed (SIGSEGV)");
  EXPECT_EQ(report.findings[1], "rank 2 ended by an error of its own: the data are broken");
  EXPECT_EQ(report.findings[2].find("rank 2 never entered #8"), 0u);
}

TEST(FlightReport, WithoutAnyRecordItIsAnError) {
  const TempDir folder;
  EXPECT_THROW((void)dist::read_flight(folder.path()), IoError);
  EXPECT_THROW((void)dist::read_flight(folder.path() / "absent"), IoError);
  std::ofstream(folder.path() / "flight.0.json") << "";
  EXPECT_THROW((void)dist::read_flight(folder.path()), IoError);
}

TEST(FlightReport, NobodyToBlame) {
  Job job(2);
  for (const int rank : {0, 1}) job.write(job.rank(rank, 3), "SIGTERM");
  EXPECT_EQ(job.report().findings[0], "no rank is behind: all have finished what they entered");
}

}  // namespace
}  // namespace athanor
