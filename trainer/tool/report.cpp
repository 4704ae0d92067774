#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/atomic_file.h"
#include "trainer/report/detail/page.h"
#include "trainer/tool/commands.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
};

void write_report(const ReportOptions& options) {
  std::vector<report::Record> runs;
  for (const std::string& folder : options.runs) {
    for (report::Record& run : report::read_runs(folder)) runs.push_back(std::move(run));
  }
  const fs::path out = !options.out.empty()       ? fs::path(options.out)
                       : options.runs.size() == 1 ? fs::path(options.runs[0]) / "report.html"
                                                  : fs::path("comparison.html");
  const std::string page = runs.size() == 1 ? report::page_of(runs[0]) : report::comparison_of(runs);
  write_atomically(out, page);
  fmt::print("{}: {}\n", printable(out.string()),
             runs.size() == 1 ? "the report of " + printable(runs[0].name)
                              : fmt::format("{} runs compared", runs.size()));
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "write the report page of a run, or compare several runs");
  const auto options = std::make_shared<ReportOptions>();
  command->add_option("RUN", options->runs, "folders of runs")->required();
  command->add_option("--out", options->out,
                      "the page to write [report.html of the run; of several, comparison.html here]");
  command->callback([options] { write_report(*options); });
}

}  // namespace athanor::tool
