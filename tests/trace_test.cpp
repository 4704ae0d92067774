#include "tensor/trace.h"

#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>

#include "support/temp_dir.h"
#include "tensor/error.h"

namespace athanor {
namespace {

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

TEST(Trace, RingKeepsTheLastAndCountsTheRest) {
  start_trace(3);
  static constexpr const char* kNames[] = {"a", "b", "c", "d", "e"};
  for (const char* name : kNames) const TraceScope scope(name);
  stop_trace();
  EXPECT_EQ(names(), (std::vector<std::string>{"c", "d", "e"}));
  EXPECT_EQ(trace_overwritten(), 2);
  start_trace(3);
  EXPECT_TRUE(trace_events().empty());
  EXPECT_EQ(trace_overwritten(), 0);
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
  EXPECT_EQ(trace_overwritten(), 4 * 5000 - 8);
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
  EXPECT_EQ(text.str().find("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                            "{\"name\":\"a \\\"quoted\\\" name\",\"ph\":\"X\",\"ts\":0.000,\"dur\":"),
            0u)
      << text.str();
  EXPECT_NE(text.str().find("\"name\":\"plain\""), std::string::npos);
  EXPECT_EQ(text.str().substr(text.str().size() - 4), "\n]}\n");
  EXPECT_THROW(write_trace("/nonexistent/folder/trace.json"), IoError);
}

}  // namespace
}  // namespace athanor
