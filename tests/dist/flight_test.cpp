// What is put on record, and comes back from a file: flight_report_test is about what follows from it.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "dist/collectives/communicator.h"
#include "dist/transports/thread_transport.h"
#include "dist/watch/flight_record.h"
#include "dist/watch/rank_record.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::flight_test {

using namespace std::chrono_literals;
using dist::Communicator;
using dist::FlightRecord;
using dist::RankRecord;
using dist::run_ranks;
using dist::ThreadJob;
using dist::Transport;
using test::TempDir;

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
      const FlightRecord& flight = transport.session().flight();
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

// Others have folders here, too: what they put in the way is neither written to nor taken over.
TEST(FlightRecord, IsPrivateAndFollowsNoLink) {
  const test::TempDir folder;
  const auto file = folder.path() / "flight.0.json", other = folder.path() / "other";
  const std::string unfinished = file.string() + FlightRecord::kUnfinished;
  std::ofstream(other) << "theirs";
  const FlightRecord flight(0, 2);
  for (const bool link : {true, false}) {
    std::filesystem::remove(unfinished);
    if (link) {
      std::filesystem::create_symlink(other, unfinished);
    } else {
      std::ofstream(unfinished) << "open to all";
      std::filesystem::permissions(unfinished, std::filesystem::perms(0666));
    }
    ASSERT_TRUE(flight.write(file.c_str(), "deadline"));
    EXPECT_EQ(std::filesystem::file_size(other), 6u);
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(file)));
    EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0600));
  }
}

TEST(FlightRecord, RecordsTheAwaitedRank) {
  ThreadJob job(4);
  job.stop(2);
  std::atomic<int> waiting{3};
  run_ranks(job, 4, [&](Transport& transport) {
    const auto all_have_waited = [&] {  // who goes first is lost to the others
      while (waiting > 0) std::this_thread::sleep_for(1ms);
    };
    if (transport.rank() == 2) return all_have_waited();
    Communicator comm(transport, {.timeout = 1500ms});
    int failures = 0;
    transport.session().on_failure = [&](dist::Failure kind, const std::exception&) {
      EXPECT_EQ(kind, dist::Failure::deadline);
      ++failures;
    };
    EXPECT_THROW(comm.run(*comm.all_reduce(Tensor::zeros({64})), 7), PeerLostError);
    EXPECT_EQ(failures, 1);
    const FlightRecord::Entry entry = transport.session().flight().last();
    EXPECT_TRUE(entry.under_way());
    EXPECT_EQ(entry.waits_for, 2);
    EXPECT_TRUE(test::names(describe_wait(transport.session().flight()),
                            {"rank 2", "rank_order all_reduce #0", "bucket 7"}));
    transport.session().on_failure = nullptr;
    --waiting;
    all_have_waited();
  });
}

TEST(FlightRecord, KeepsTheNewest) {
  FlightRecord flight(0, 2);
  EXPECT_EQ(flight.last().seq, -1);
  EXPECT_TRUE(test::names(describe_wait(flight), {"rank 0"}));
  EXPECT_EQ(describe_wait(flight).find('#'), std::string::npos) << "no collective yet";
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
  EXPECT_TRUE(test::names(describe_wait(flight), {"rank 0", "barrier #4195"}));
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

// Half a character is no JSON, and a record without its first line says nothing.
TEST(FlightRecord, ALongErrorEndsWithAWholeCharacter) {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "flight.0.json";
  const std::string letters(4095, 'x');
  ASSERT_TRUE(FlightRecord(0, 2).write(path.c_str(), "error", letters + "\u00e9"));
  const RankRecord record = dist::read_record(path, 0);
  EXPECT_EQ(record.damage, "");
  EXPECT_EQ(record.error, letters);
}

// On a device, the next bucket is queued behind the one that a rank waits in: it stands in the older one.
TEST(FlightRecord, OfTwoThatAreQueuedTheOlderIsWhereTheRankStands) {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "flight.0.json";
  FlightRecord flight(0, 2);
  const auto stands_in = [&](std::int64_t seq, bool waits) {
    EXPECT_EQ(flight.oldest_open().seq, seq);
    ASSERT_TRUE(flight.write(path.c_str(), "deadline"));
    const RankRecord record = dist::read_record(path, 0);
    ASSERT_NE(record.last(), nullptr);
    EXPECT_EQ(record.entered(), seq);
    EXPECT_EQ(record.under_way(), waits);
  };
  flight.begin(0, {"barrier"});
  flight.end();
  stands_in(0, false);
  flight.begin(1, {"ring all_reduce", DType::f32, 8, 0});
  flight.begin(2, {"ring all_reduce", DType::f32, 8, 1});
  flight.waits_for(1, 1);
  stands_in(1, true);
  EXPECT_EQ(flight.at(1).waits_for, 1);
  EXPECT_EQ(flight.at(2).waits_for, -1);
  EXPECT_TRUE(test::names(describe_wait(flight), {"rank 1", "ring all_reduce #1", "bucket 0"}));
  flight.end(1);
  stands_in(2, true);
  flight.end(2);
  stands_in(2, false);
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
  EXPECT_FALSE(record.at(0)->under_way());
  EXPECT_TRUE(record.under_way());
  EXPECT_EQ(record.entered(), 1);
  const RankRecord::Entry& entry = *record.at(1);
  EXPECT_EQ(entry.name, "ring all_reduce");
  EXPECT_EQ(entry.bucket, 2);
  EXPECT_EQ(entry.dtype, "bf16");
  EXPECT_EQ(entry.count, 4096);
  EXPECT_EQ(entry.payload, 8192);
  EXPECT_EQ(record.at(0)->name, "barrier");
  EXPECT_EQ(record.at(0)->bucket, -1);
  EXPECT_EQ(entry.bytes, 123);
  EXPECT_EQ(entry.waits_for, 1);
  EXPECT_EQ(entry.start_us, flight.at(1).start_us);
  EXPECT_FALSE(flight.write((folder.path() / "absent" / "x").c_str(), "error"));
}

}  // namespace athanor::flight_test
