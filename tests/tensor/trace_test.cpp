#include "tensor/base/trace.h"

#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tensor/base/error.h"
#include "tests/support/temp_dir.h"

namespace athanor::trace_test {

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const TraceEvent& event : trace_events()) result.emplace_back(event.name);
  return result;
}

TEST(Trace, OffRecordsNothing) {
  start_trace(4);
  stop_trace();
  { const TraceScope scope("unseen"); }
  EXPECT_TRUE(trace_events().empty());
}

TEST(Trace, NestedScopesEndInnerFirst) {
  start_trace(16);
  {
    const TraceScope outer("outer");
    const TraceScope inner("inner");
  }
  stop_trace();
  const std::vector<TraceEvent> events = trace_events();
  EXPECT_EQ(names(), (std::vector<std::string>{"inner", "outer"}));
  EXPECT_LE(events[1].begin_ns, events[0].begin_ns);
  EXPECT_GE(events[1].end_ns, events[0].end_ns);
  EXPECT_EQ(events[0].thread, events[1].thread);
}

TEST(Trace, RingKeepsTheLast) {
  start_trace(3);
  static constexpr const char* kNames[] = {"a", "b", "c", "d", "e"};
  for (const char* name : kNames) const TraceScope scope(name);
  stop_trace();
  EXPECT_EQ(names(), (std::vector<std::string>{"c", "d", "e"}));
  start_trace(3);
  EXPECT_TRUE(trace_events().empty());
  stop_trace();
  EXPECT_THROW(start_trace(0), ArgumentError);
}

TEST(Trace, ThreadsWriteWithoutLosingEvents) {
  constexpr int kThreads = 4, kEvents = 5000;
  start_trace(kThreads * kEvents);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kEvents; ++i) const TraceScope scope("work");
    });
  }
  for (int i = 0; i < 20; ++i) {
    for (const TraceEvent& event : trace_events()) {
      ASSERT_EQ(std::string_view(event.name), "work");
      ASSERT_LE(event.begin_ns, event.end_ns);
    }
  }
  for (std::thread& thread : threads) thread.join();
  stop_trace();
  EXPECT_EQ(trace_events().size(), std::size_t{kThreads} * kEvents);
}

TEST(Trace, SmallRingUnderManyThreadsStaysSane) {
  start_trace(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 5000; ++i) const TraceScope scope("work");
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop_trace();
  EXPECT_LE(trace_events().size(), 8u);
}

// From the last read of a batch to what used it first; not for one that was not used.
TEST(Trace, ArrowsFollowABatch) {
  start_trace(16);
  std::thread reader([] {
    name_thread("reader");
    { const TraceScope scope("read", "read", 7); }
    { const TraceScope scope("read", "read", 7); }
    { const TraceScope scope("read", "read", 8); }
  });
  reader.join();
  { const TraceScope scope("use", "copy", 7); }
  { const TraceScope scope("use again", "copy", 7); }
  stop_trace();
  const auto json = nlohmann::json::parse("[" + trace_json(3) + "]");
  nlohmann::json arrows = nlohmann::json::array(), reads = arrows, uses = arrows, named = arrows;
  for (const auto& event : json) {
    EXPECT_EQ(event["pid"], 3);
    if (event["ph"] == "s" || event["ph"] == "f") arrows.push_back(event);
    if (event["name"] == "read" && event["args"]["batch"] == 7) reads.push_back(event);
    if (event["name"] == "use") uses.push_back(event);
    if (event["name"] == "thread_name" && event["args"]["name"] == "reader") named.push_back(event);
  }
  ASSERT_EQ(arrows.size(), 2u) << arrows;
  EXPECT_EQ(arrows[0]["id"], arrows[1]["id"]);
  EXPECT_EQ(arrows[0]["ph"], "s");
  EXPECT_EQ(arrows[0]["tid"], reads[1]["tid"]);
  EXPECT_GE(arrows[0]["ts"], reads[1]["ts"]);
  EXPECT_EQ(arrows[1]["tid"], uses[0]["tid"]);
  EXPECT_GE(arrows[1]["ts"], uses[0]["ts"]);
  EXPECT_GE(arrows[1]["ts"], arrows[0]["ts"]);
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0]["tid"], reads[0]["tid"]);
}

TEST(Trace, NamesAreKeptOnce) {
  const std::string name = "layer1.0";
  EXPECT_EQ(interned_name(name), interned_name("layer1.0"));
  EXPECT_STREQ(interned_name(name), "layer1.0");
}

TEST(Trace, WritesChromeJson) {
  start_trace(8);
  { const TraceScope scope("a \"quoted\" name"); }
  { const TraceScope scope("plain"); }
  stop_trace();
  const test::TempDir dir;
  const std::string path = dir / "trace.json";
  write_trace(path);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const auto json = nlohmann::json::parse(text.str());
  std::vector<std::string> spans;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event["name"]);
  }
  EXPECT_EQ(spans, (std::vector<std::string>{"a \"quoted\" name", "plain"}));
  EXPECT_THROW(write_trace("/nonexistent/folder/trace.json"), IoError);
}

}  // namespace athanor::trace_test
