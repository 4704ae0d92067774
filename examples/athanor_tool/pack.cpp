#include <algorithm>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "data/convert.h"
#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "data/formats/shards.h"
#include "data/image/resize.h"
#include "data/recode.h"
#include "examples/athanor_tool/crash_line.h"
#include "examples/athanor_tool/data_commands.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/readable.h"
#include "trainer/signals.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

struct PackArguments {
  std::vector<std::string> names;  ///< sources, then the target
  DataSource source;
  std::string target, raw;
  std::int64_t shorter_side = 0;
  int threads = 0;
  std::int64_t limit = 0, file_mb = 1024, shard_bytes = 0;
  std::optional<std::uint64_t> shuffle_seed;
  bool no_decode = false;
};

/// Says in the usage line that DST comes behind SRC: its words are one option, as flags may follow them.
class SourceThenTarget final : public CLI::Formatter {
  std::string make_option_usage(const CLI::Option* option) const override {
    return CLI::Formatter::make_option_usage(option) + " DST";
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::max(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1e-9);
}

/// "224x192" as height and width.
ImageSize read_size(const std::string& text) {
  ImageSize size;
  int end = 0;
  // No trailing text: %n is only reached after a complete match.
  const int count = std::sscanf(text.c_str(), "%6" SCNd64 "x%6" SCNd64 "%n", &size.height, &size.width, &end);
  ATH_CHECK(count == 2 && static_cast<std::size_t>(end) == text.size() && size.height > 0 && size.width > 0,
            "pack: --raw must be HEIGHTxWIDTH, like 224x224, but is '{}'", text);
  return size;
}

/// "1.5GB" as "1500000000", and "1KiB" as "1024": CLI11 reads whole numbers of units alone. Returns what is
/// wrong, or "".
std::string bytes_of(std::string& text) {
  constexpr std::string_view kUnits = "kmgtpe";
  const std::string number = text.substr(0, text.find_first_not_of("0123456789."));
  std::string unit = read_flag::lower_case(text.substr(number.size()));
  unit.erase(0, unit.find_first_not_of(' '));
  const std::size_t power = unit.empty() ? kUnits.npos : kUnits.find(unit[0]);
  const bool has_power = power != kUnits.npos;
  if (has_power) unit.erase(0, 1);
  const bool is_binary = has_power && (unit == "i" || unit == "ib");
  double bytes = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bytes);
  const bool is_number = error == std::errc() && end == number.data() + number.size();
  if (has_power) bytes *= std::pow(is_binary ? 1024 : 1000, static_cast<double>(power + 1));
  if (!is_number || !(unit.empty() || unit == "b" || is_binary) || bytes < 1 || bytes > 0x1p60)
    return fmt::format("must be a number of bytes such as 500MB or 1.5GB, but is '{}'", text);
  text = fmt::to_string(static_cast<std::int64_t>(bytes));
  return {};
}

/// The last name is what to write; the others are the shards of one set.
void divide_names(PackArguments& arguments) {
  const std::vector<std::string>& names = arguments.names;
  ATH_CHECK(names.size() > 1, "pack: DST is required: what to write, behind what to read, {}", names[0]);
  arguments.target = names.back();
  // Of a pattern that the shell expanded, with DST forgotten, the last match would be replaced by the others.
  std::error_code ignored;
  ATH_CHECK(names.size() == 2 || !std::filesystem::exists(arguments.target, ignored),
            "pack: DST, behind several names of what to read, must not exist yet, but {} does: remove it, or "
            "name another",
            arguments.target);
  arguments.source.path = joined_shards({names.begin(), names.end() - 1}).string();
}

/// "0 cat, 1 dog, 2 hen, ..."
std::string numbered(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::string all;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    all += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, printable(names[i]));
  return names.size() > kShown ? all + ", ..." : all;
}

void run_pack(PackArguments& arguments) {
  divide_names(arguments);
  RecodeOptions recode{.shorter_side = arguments.shorter_side, .check = !arguments.no_decode};
  if (!arguments.raw.empty()) recode.raw = read_size(arguments.raw);
  (void)make_recoder(recode);  // checks the combination before anything is opened
  const SignalGuard signals;
  const std::string& source = arguments.source.path;
  std::optional<CrashLine> crash;
  if (is_imported(source))
    crash.emplace(fmt::format("pack: {} must be whole, but its library crashed or hung on it", source));
  const std::unique_ptr<Dataset> from = open_data(arguments.source, true);
  recode.fields = from->fields();
  const int threads = arguments.threads > 0
                          ? arguments.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::unique_ptr<SampleWriter> to =
      create_samples(arguments.target, {.threads = threads > 1 ? 1 : 0,
                                        .file_bytes = arguments.file_mb << 20,
                                        .shard_bytes = arguments.shard_bytes,
                                        .classes = from->spec().classes,
                                        .class_names = from->class_names(),
                                        .fields = from->fields()});
  if (const std::vector<std::string> names = from->class_names();
      !names.empty() && !keeps_class_names(arguments.target))
    terminal::say(stderr,
                  fmt::format("not kept: the names of {} classes ({}), of which {} has the numbers alone; "
                              "packed files, tar archives and folders keep them",
                              names.size(), numbered(names), printable(arguments.target)));

  const auto start = std::chrono::steady_clock::now();
  const std::int64_t total = arguments.limit > 0 ? std::min(arguments.limit, from->size()) : from->size();
  std::int64_t bytes_written = 0;
  terminal::LiveLine line;
  const auto progress = [&](std::int64_t samples, std::int64_t bytes) {
    bytes_written = bytes;
    if (crash) CrashLine::alive();
    if (line.due()) {
      const double seconds = seconds_since(start);
      const double left = seconds * static_cast<double>(total - samples) / static_cast<double>(samples);
      line.show(fmt::format("{:3} %   {} of {} samples   {:.0f} samples/s   {:.1f} MB/s   {} left",
                            100 * samples / total, with_commas(samples), with_commas(total),
                            static_cast<double>(samples) / seconds,
                            static_cast<double>(bytes) / seconds * 1e-6, duration(left)));
    }
    return signals.caught() == 0;
  };
  const bool done = convert(*from, *to,
                            {.threads = threads,
                             .limit = arguments.limit,
                             .shuffle_seed = arguments.shuffle_seed,
                             .make_change = [&]() { return make_recoder(recode); },
                             .progress = progress});
  line.clear();
  if (!done) {
    throw Interrupted(signals.caught(), fmt::format("pack: ended by SIG{}; {} is unchanged",
                                                    ::sigabbrev_np(signals.caught()), arguments.target));
  }
  to->finish();
  const double seconds = seconds_since(start);
  fmt::print("{}: {} samples, {:.1f} MB, in {} ({:.0f} samples/s, {:.1f} MB/s)\n",
             printable(written_name(arguments.target, arguments.shard_bytes).string()), with_commas(total),
             static_cast<double>(bytes_written) * 1e-6, duration(seconds),
             static_cast<double>(total) / seconds, static_cast<double>(bytes_written) / seconds * 1e-6);
  if (arguments.shard_bytes == 0 && PackedStore::recognises(arguments.target)) {
    fmt::print("content id {}\n", PackedStore(arguments.target).content_id());
  }
}

}  // namespace

void add_source_flags(CLI::App& command, DataSource& source) {
  command.add_option("--part", source.part, "Part of a folder that has both: train or test")
      ->check(CLI::IsMember({"train", "test"}));
  command.add_option(
      "--fields", source.fields,
      "image=NAME,label=NAME: what an HDF5, LMDB, TFRecord, npz or tar source or a table calls them; the "
      "labels of HDF5 may lie in another file, label=FILE:NAME; a table may have several, label=A,B,C");
  command
      .add_option("--task", source.task,
                  "What the columns of a table are labels for: classify, multilabel or regression")
      ->check(CLI::IsMember({"classify", "multilabel", "regression"}));
}

std::unique_ptr<Dataset> open_data(const DataSource& source, bool in_process) {
  const auto say = [](const std::string& line) { terminal::say(stderr, line); };
  const auto& [path, part, fields, task] = source;
  std::unique_ptr<Dataset> data = open_samples(path, {.split = part == "test" ? Split::test : Split::train,
                                                      .fields = fields,
                                                      .labels = *label_kind_named(task),
                                                      .in_process = in_process,
                                                      .on_import = say});
  if (has_parts(path)) say(fmt::format("{} has a training and a test part; this is --part {}", path, part));
  if (const std::string unused = text_of(data->unused()); !unused.empty()) say("not used: " + unused);
  return data;
}

void add_pack(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("pack", "Converts a data set from one format to another");
  command->formatter(std::make_shared<SourceThenTarget>());
  const auto arguments = std::make_shared<PackArguments>();
  command
      ->add_option(
          "SRC", arguments->names,
          "What to read: a file or folder of any format (data/formats/open.h), or several, which are "
          "joined: words, 'x-{000..147}.tar', 'x-*.tar'. DST, what to write: " +
              written_formats())
      ->option_text("... DST")
      ->required();
  CLI::Option* const in_mb =
      command->add_option("--file-mb", arguments->file_mb, "MiB of samples in each file of an .athp.json")
          ->check(CLI::Range(1, 1 << 30));
  command
      ->add_option(
          "--shard-size", arguments->shard_bytes,
          "1GB, 1.5GB, 500MB: writes shards of so many bytes of samples, NAME-00000.tar, ...: tar, TFRecord, "
          "or packed files and their manifest")
      ->transform(CLI::Validator(bytes_of, ""))
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 60))
      ->excludes(in_mb);
  command
      ->add_option("--threads", arguments->threads,
                   "Threads; 0: one per core. Any number writes the same bytes")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--resize", arguments->shorter_side,
                   "Scales larger images down to this shorter side, as JPEGs of quality 90; 0: none")
      ->check(CLI::Range(std::int64_t{0}, kMaxImageSide));
  command->add_option("--raw", arguments->raw,
                      "HxW: stores all images as raw pixels of this size, centre-cropped");
  command->add_option("--limit", arguments->limit, "Takes only the first N samples; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command->add_option("--shuffle-seed", arguments->shuffle_seed, "Shuffles the samples with this seed");
  add_source_flags(*command, arguments->source);
  command->add_flag("--no-decode", arguments->no_decode,
                    "Copies unchanged images without decoding them: faster, but keeps damaged ones");
  command->callback([arguments] { run_pack(*arguments); });
}

const Command pack_command("pack", add_pack);

}  // namespace athanor::tool
