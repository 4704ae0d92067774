#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "data/formats/manifest.h"
#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "data/image/transform.h"
#include "examples/athanor_tool/data_commands.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/readable.h"
#include "trainer/tool/detail/live_line.h"

namespace athanor::tool {
namespace {

struct Arguments {
  std::string path, part = "train";
  int threads = 0;
  bool no_decode = false;
};

/// Reads and decodes samples with several threads.
class Decoding {
 public:
  /// Samples in `known` are already known to be damaged, and skipped.
  Decoding(const Dataset& store, bool decode, std::set<std::int64_t> known)
      : store_(store), fields_(store.fields()), decode_(decode), known_(std::move(known)) {}

  /// Prints a line for each failure, with `prefix`. Returns their number.
  std::size_t run(int threads, const std::string& prefix) {
    {
      std::vector<std::jthread> helpers;
      for (int i = 1; i < threads; ++i) helpers.emplace_back([&] { work(); });
      work();
    }
    line_.clear();
    if (error_) std::rethrow_exception(error_);
    std::sort(failed_.begin(), failed_.end());
    for (const auto& [sample, what] : failed_)
      fmt::print("{}sample {}: {}\n", printable(prefix), sample, printable(what));
    return failed_.size();
  }

 private:
  void work() {
    ImageReader reader;
    std::vector<std::byte> scratch;
    for (std::int64_t i; (i = next_++) < store_.size();) {
      std::string what;
      try {
        if (!known_.contains(i)) what = try_sample(i, reader, scratch);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
        next_ = store_.size();
      }
      const std::lock_guard lock(mutex_);
      if (!what.empty()) failed_.emplace_back(i, std::move(what));
      if (line_.due())
        line_.show(fmt::format("{} of {} samples", with_commas(i + 1), with_commas(store_.size())));
    }
  }

  std::string try_sample(std::int64_t i, ImageReader& reader, std::vector<std::byte>& scratch) const {
    StoredSample sample;
    try {
      sample = store_.fetch(i, scratch);
    } catch (const IoError& error) {
      return error.what();
    }
    try {
      if (decode_) reader.check(sample, fields_);
    } catch (const IoError& error) {
      return fmt::format("{}: {}", store_.where(i), error.what());
    }
    return {};
  }

  const Dataset& store_;
  const std::vector<FieldSpec> fields_;
  const bool decode_;
  const std::set<std::int64_t> known_;
  std::atomic<std::int64_t> next_{0};
  std::mutex mutex_;  // guards the following
  LiveLine line_;
  std::vector<std::pair<std::int64_t, std::string>> failed_;
  std::exception_ptr error_;
};

/// Prints the damage in a packed file, each line with `prefix`. Returns its extent.
std::size_t verify_packed(const std::filesystem::path& path, const Arguments& arguments, int threads,
                          const std::string& prefix, std::int64_t& samples) {
  LiveLine line;
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
  if (!arguments.no_decode) places += Decoding(store, true, std::move(known)).run(threads, prefix);
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
  if (PackedStore::recognises(arguments.path)) {
    places = verify_packed(arguments.path, arguments, threads, "", samples);
  } else if (format_of(arguments.path) == "manifest of packed files") {
    for (const std::filesystem::path& file : manifest_files(arguments.path)) {
      places += verify_packed(file, arguments, threads, file.string() + ", ", samples);
    }
    if (places == 0) (void)open_manifest(arguments.path);  // checks them against the manifest
  } else {
    const std::unique_ptr<Dataset> store = open_data(arguments.path, arguments.part);
    places = Decoding(*store, !arguments.no_decode, {}).run(threads, "");
    samples = store->size();
    if (places == 0) {
      fmt::print("{}: {} samples, all can be read{}\n", printable(arguments.path), with_commas(samples),
                 arguments.no_decode ? "" : " and are whole images");
    }
  }
  if (places > 0) {
    detail::fail<IoError>("verify: {}: {} samples must be {}, but {} place{} damaged", arguments.path,
                          samples, arguments.no_decode ? "as they were written" : "whole images", places,
                          places == 1 ? " is" : "s are");
  }
}

}  // namespace

void add_verify(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("verify", "Checks all of a data set, and names damaged samples");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("FILE", arguments->path, "A file or folder of samples, of any format")->required();
  command->add_option("--threads", arguments->threads, "Threads; 0: one per core")
      ->check(CLI::Range(0, 1024));
  command->add_option("--part", arguments->part, "Part of a folder that has both: train or test")
      ->check(CLI::IsMember({"train", "test"}));
  command->add_flag("--no-decode", arguments->no_decode,
                    "Only compares CRCs, without decoding images: faster");
  command->callback([arguments] { run_verify(*arguments); });
}

}  // namespace athanor::tool
