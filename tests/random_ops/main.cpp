// Random cases of every op, forward and backward, against a reference of its own; and a table of the errors.
//
//     random_ops --cases 100000 --limits pytorch.csv --others pytorch_others.csv
//     random_ops --seed 0 --op pow --case 123
//     random_ops --weekly --cases 40000
//
// The second runs one case alone, as a failure names it; the files are in tests/random_ops/. The third draws
// other cases every week, and prints the seed with which it does so again.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <CLI/CLI.hpp>

#include "tests/random_ops/errors.h"
#include "tests/random_ops/run.h"
#include "tests/random_ops/weekly.h"

namespace {

using namespace athanor;
using namespace athanor::random_ops;

int run(int argc, char** argv) {
  Options options;
  std::vector<std::string> columns;
  std::string device = "cpu", table, csv, limits, others, dump, measure;
  CLI::App app("Runs every op on random shapes, layouts, dtypes and values, and compares with a reference");
  app.add_option("--cases", options.cases, "How many")->capture_default_str();
  app.add_option("--seed", options.seed, "Of all random choices")->capture_default_str();
  bool weekly = false;
  app.add_flag("--weekly", weekly, "The week's number as --seed, another one every week");
  app.add_option("--first", options.first, "Number of each op's first case")->capture_default_str();
  const auto* one = app.add_option("--case", options.first, "That case of one --op alone: shows all of it");
  app.add_option("--op", options.op, "Regular expression that the names of ops must match");
  app.add_option("--device", device, "cpu or cuda")->capture_default_str();
  app.add_option("--limits", limits, "CSV of a peer's errors: twice as much is a failure");
  app.add_option(
      "--others", others,
      "CSV of results of seed 0 that are other numbers with the peer, and which of ours may be, too. "
      "--measure writes it");
  app.add_option("--csv", csv, "Where the largest errors go");
  app.add_option("--dump", dump, "Folder for the cases' inputs; no op is run");
  app.add_option("--measure", measure, "Folder of --dump, with a peer's results: measures these");
  app.add_option("--table", table, "Markdown file; its columns are given by --column");
  app.add_option("--column", columns, "NAME=FILE of --csv: a column of the table; nothing is run");
  CLI11_PARSE(app, argc, argv);
  if (weekly) options.seed = seed_of_the_week();
  if (one->count() > 0) options.cases = 1;
  options.show = one->count() > 0;
  options.device = Device::parse(device);

  if (!columns.empty()) {
    write_table(table, columns, others.empty() ? Results() : Results::read(others));
    return 0;
  }
  if (!dump.empty()) {
    dump_cases(options, dump);
    return 0;
  }
  if (!limits.empty()) options.limits = Errors::read(limits);
  const bool of_peer = !measure.empty();
  if (!others.empty() && !of_peer) options.others = Results::read(others);
  const Report report = of_peer ? measure_cases(options, measure) : run_cases(options);
  if (!csv.empty()) report.errors.write(csv);
  if (!others.empty() && of_peer) report.others.write(others);
  std::printf("%s", report.errors.text(options.limits).c_str());
  std::printf("%lld cases of %zu ops, %lld wrong\n", static_cast<long long>(report.cases),
              report.errors.ops(), static_cast<long long>(report.failures));
  if (of_peer) return 0;
  const std::vector<std::string> never = report.never_compared();
  for (const std::string& name : never) std::printf("never compared: %s\n", name.c_str());
  const bool many =
      one->count() == 0 && report.cases >= 1000 * static_cast<std::int64_t>(report.errors.ops());
  return report.failures == 0 && (never.empty() || !many) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  setenv("ATHANOR_WINOGRAD", "off", 1);  // its errors are of another kind: conv_list_test bounds them
  return run(argc, argv);
} catch (const std::exception& error) {
  std::fprintf(stderr, "random_ops: %s\n", error.what());
  return 2;
}
