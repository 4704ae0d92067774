#include "fuzz.h"
#include "trainer/report/detail/page.h"

using namespace athanor;

namespace {

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Whatever a run's files hold, its page has no more elements that a browser would run than an empty one has.
void check(const std::string& page) {
  static const std::size_t scripts = count(report::page_of({}), "<script");
  if (count(page, "<script") != scripts || count(page, "</script") != scripts) std::abort();
}

}  // namespace

/// A run's metrics.jsonl, config.json and report.html: its page, and that of two such runs.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::split_parts(fuzz::text_of(data, size), 3);
  fuzz::put("metrics.jsonl", parts[0]);
  fuzz::put("config.json", parts[1]);
  fuzz::put("report.html", parts[2]);
  std::vector<report::Record> runs;
  try {
    runs = report::read_runs(fuzz::folder());
  } catch (const IoError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    return 0;
  }
  if (runs.empty()) std::abort();
  for (const report::Record& run : runs) {
    check(report::page_of(run));
    (void)report::json_of(report::record_of(report::json_of(run)));
  }
  runs.insert(runs.end(), {runs[0], report::Record{}});
  check(report::comparison_of(runs));
  return 0;
}
