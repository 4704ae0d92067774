// When collectives of buckets start, advance and are seen to end.
#include "dist/bucket_runner.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "dist/transports/thread_transport.h"

namespace athanor::bucket_runner_test {

using namespace std::chrono_literals;
using dist::Overlap;

/// A collective that is done when the test says so; on a made-up device, its work is queued at once.
struct Bucket {
  std::atomic<bool> started{false}, may_end{false}, seen{false};
};
class Held final : public dist::Collective {
 public:
  Held(Bucket& bucket, bool on_device) : bucket_(bucket), on_device_(on_device) {}
  void start(dist::Tag) override { bucket_.started = true; }
  bool advance() override {
    if (bucket_.may_end) bucket_.seen = true;
    return bucket_.may_end;
  }
  bool queued() const override { return on_device_ && bucket_.started; }
  std::int64_t progress() const override { return 0; }
  int waits_for() const override { return -1; }
  dist::Call call() const override { return {"held"}; }

 private:
  Bucket& bucket_;
  bool on_device_;
};

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 120'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

struct Buckets {
  std::array<Bucket, 4> all;
  dist::ThreadJob job{1};
  dist::Communicator comm{job.transport(0), {.timeout = 600s}};
  dist::BucketRunner runner;

  Buckets(Overlap overlap, bool on_device) : runner(comm, overlap, collectives(on_device)) {}
  std::vector<std::unique_ptr<dist::Collective>> collectives(bool on_device) {
    std::vector<std::unique_ptr<dist::Collective>> held;
    for (Bucket& bucket : all) held.push_back(std::make_unique<Held>(bucket, on_device));
    return held;
  }
  void launch_all() {
    for (std::size_t i = 0; i < all.size(); ++i) runner.launch();
  }
  int started() const {
    int count = 0;
    for (const Bucket& bucket : all) count += bucket.started;
    return count;
  }
  const dist::FlightRecord& flight() const { return comm.session().flight(); }
};

// The stream must never wait for the host between two buckets.
TEST(BucketRunner, TheNextBucketIsQueuedBeforeTheLastIsSeenToEnd) {
  Buckets buckets(Overlap::thread, true);
  buckets.launch_all();
  EXPECT_TRUE(comes_true([&] { return buckets.started() == 2; }));
  EXPECT_FALSE(buckets.all[0].seen);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(buckets.started(), 2) << "one ahead is enough";
  EXPECT_EQ(buckets.flight().last().call.bucket, 1);
  EXPECT_EQ(buckets.flight().oldest_open().call.bucket, 0);
  buckets.all[0].may_end = true;
  buckets.runner.wait(1);
  EXPECT_TRUE(comes_true([&] { return buckets.started() == 3; }));
  EXPECT_EQ(buckets.flight().oldest_open().call.bucket, 1);
  for (Bucket& bucket : buckets.all) bucket.may_end = true;
  buckets.runner.finish();
  for (std::int64_t seq = 0; seq < 4; ++seq) {
    EXPECT_EQ(buckets.flight().at(seq).call.bucket, seq);
    EXPECT_FALSE(buckets.flight().at(seq).under_way());
  }
  // Once more, from the first.
  for (Bucket& bucket : buckets.all) bucket.started = false;
  buckets.launch_all();
  buckets.runner.finish();
  EXPECT_EQ(buckets.started(), 4);
  EXPECT_EQ(buckets.flight().size(), 8);
}

TEST(BucketRunner, APumpedOneQueuesTheNextAsWell) {
  Buckets buckets(Overlap::pumped, true);
  buckets.launch_all();
  EXPECT_EQ(buckets.started(), 2);
  for (Bucket& bucket : buckets.all) bucket.may_end = true;
  buckets.runner.finish();
  EXPECT_EQ(buckets.started(), 4);
}

// Their messages share memory, and on the host they are done when they are seen to be.
TEST(BucketRunner, OnTheHostOneRunsAtATime) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped}) {
    Buckets buckets(overlap, false);
    buckets.launch_all();
    EXPECT_TRUE(comes_true([&] { return buckets.started() == 1; }));
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(buckets.started(), 1);
    for (Bucket& bucket : buckets.all) bucket.may_end = true;
    buckets.runner.finish();
    EXPECT_EQ(buckets.started(), 4);
  }
}

// What was not launched yet must not start, whatever is queued.
TEST(BucketRunner, OnlyLaunchedBucketsAreQueued) {
  Buckets buckets(Overlap::thread, true);
  buckets.runner.launch();
  EXPECT_TRUE(comes_true([&] { return buckets.started() == 1; }));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(buckets.started(), 1);
  buckets.runner.launch();
  EXPECT_TRUE(comes_true([&] { return buckets.started() == 2; }));
  EXPECT_FALSE(buckets.all[0].seen);
  buckets.runner.launch();
  buckets.runner.launch();
  for (Bucket& bucket : buckets.all) bucket.may_end = true;
  buckets.runner.finish();
}

}  // namespace athanor::bucket_runner_test
