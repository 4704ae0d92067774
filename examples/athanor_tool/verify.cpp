#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "data/decoded_dataset.h"
#include "data/defects.h"
#include "data/formats/manifest.h"
#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "examples/athanor_tool/data_commands.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/readable.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

struct Arguments {
  DataSource source;
  int threads = 0;
  bool no_decode = false;
};

/// Reads samples by several threads, and decodes them if wanted. Prints a line, with `prefix`, for each that
/// cannot be read, and one for harmless defects. Samples in `known` are already known to be damaged, and
/// skipped. Returns the number of those it found.
std::size_t verify_samples(const Dataset& store, bool decode, int threads, const std::string& prefix,
                           const std::set<std::int64_t>& known = {}) {
  terminal::LiveLine line;
  const auto check = [&](std::int64_t index) {
    if (known.contains(index)) return std::string();
    return decode ? check_images(store, index) : store.check_sample(index);
  };
  const auto progress = [&](std::int64_t samples) {
    if (line.due())
      line.show(fmt::format("{} of {} samples", with_commas(samples), with_commas(store.size())));
  };
  const Defects found = find_defects(store.size(), check, {.threads = threads, .progress = progress});
  line.clear();
  for (const Defects::Sample& one : found.unreadable)
    fmt::print("{}sample {}: {}\n", printable(prefix), one.index, printable(one.what));
  if (found.harmless > 0)
    fmt::print("{}{}\n", printable(prefix),
               printable(harmless_note(found.harmless, found.first_harmless.what)));
  return found.unreadable.size();
}

/// Prints the damage in a packed file, each line with `prefix`. Returns its extent.
std::size_t verify_packed(const std::filesystem::path& path, const Arguments& arguments, int threads,
                          const std::string& prefix, std::int64_t& samples) {
  terminal::LiveLine line;
  const PackedStore store(path, {.check = false});
  const std::vector<Damage> found = store.verify(threads, [&](std::int64_t done) {
    if (line.due()) {
      line.show(fmt::format("{:3} %   {} of {} MB", 100 * done / store.data_bytes(),
                            with_commas(done / 1'000'000), with_commas(store.data_bytes() / 1'000'000)));
    }
    return true;
  });
  line.clear();
  std::set<std::int64_t> known;
  for (const Damage& damage : found) {
    fmt::print("{}offset {}: {}\n", printable(prefix), damage.offset, printable(damage.what));
    known.insert(damage.sample);
  }
  samples += store.size();
  std::size_t places = found.size();
  if (!arguments.no_decode) places += verify_samples(store, true, threads, prefix, known);
  if (places == 0) {
    fmt::print("{}: {} samples, all as they were written{}, content id {}\n", printable(path.string()),
               with_commas(store.size()), arguments.no_decode ? "" : " and whole images", store.content_id());
  }
  return places;
}

void run_verify(const Arguments& arguments) {
  const int threads = arguments.threads > 0
                          ? arguments.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::size_t places = 0;
  std::int64_t samples = 0;
  if (PackedStore::recognises(arguments.source.path)) {
    places = verify_packed(arguments.source.path, arguments, threads, "", samples);
  } else if (format_of(arguments.source.path) == "manifest of packed files") {
    for (const std::filesystem::path& file : manifest_files(arguments.source.path)) {
      places += verify_packed(file, arguments, threads, file.string() + ", ", samples);
    }
    if (places == 0) (void)open_manifest(arguments.source.path);  // checks them against the manifest
  } else {
    const std::unique_ptr<Dataset> store = open_data(arguments.source);
    places = verify_samples(*store, !arguments.no_decode, threads, "");
    samples = store->size();
    if (places == 0) {
      fmt::print("{}: {} samples, all can be read{}\n", printable(arguments.source.path),
                 with_commas(samples), arguments.no_decode ? "" : " and are whole images");
    }
  }
  if (places > 0) {
    detail::fail<IoError>("verify: {}: {} samples must be {}, but {} place{} damaged", arguments.source.path,
                          samples, arguments.no_decode ? "as they were written" : "whole images", places,
                          places == 1 ? " is" : "s are");
  }
}

}  // namespace

void add_verify(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("verify", "Checks all of a data set, and names damaged samples");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("FILE", arguments->source.path, "A file or folder of samples, of any format")
      ->required();
  command->add_option("--threads", arguments->threads, "Threads; 0: one per core")
      ->check(CLI::Range(0, 1024));
  add_source_flags(*command, arguments->source);
  command->add_flag("--no-decode", arguments->no_decode,
                    "Only compares CRCs, without decoding images: faster");
  command->callback([arguments] { run_verify(*arguments); });
}

const Command verify_command("verify", add_verify);

}  // namespace athanor::tool
