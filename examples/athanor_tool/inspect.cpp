#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/check_labels.h"
#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "data/label_kind.h"
#include "examples/athanor_tool/data_commands.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/readable.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kClassesShown = 20, kMaxClasses = 1'000'000;

/// The smallest number that at least `share` of the sorted values do not exceed.
std::int64_t quantile(const std::vector<std::int64_t>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

Json describe_sizes(std::vector<std::int64_t> sizes) {
  if (sizes.empty()) return nullptr;
  std::sort(sizes.begin(), sizes.end());
  double total = 0;
  for (const std::int64_t size : sizes) total += static_cast<double>(size);
  return {{"min", sizes.front()},
          {"p10", quantile(sizes, 0.1)},
          {"median", quantile(sizes, 0.5)},
          {"p90", quantile(sizes, 0.9)},
          {"max", sizes.back()},
          {"mean", total / static_cast<double>(sizes.size())}};
}

/// How many samples have each of several labels; empty if these are numbers, not 0 to 1.
std::vector<std::int64_t> label_sizes(const Dataset& store) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(store.spec().classes));
  const std::vector<double> labels = store.numbers(kLabelsField);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (!(labels[i] >= 0 && labels[i] <= 1)) return {};
    if (labels[i] > 0) ++sizes[i % sizes.size()];
  }
  return sizes;
}

Json describe_samples(const Dataset& store) {
  // A damaged label or a forged header must not exhaust memory.
  if (store.spec().classes > kMaxClasses) {
    detail::fail<IoError>("inspect: there must be at most {} classes, but there are {}", kMaxClasses,
                          store.spec().classes);
  }
  std::vector<std::int64_t> sizes;
  std::map<std::string, std::int64_t> codecs;
  std::vector<std::int64_t> per_class(static_cast<std::size_t>(store.spec().classes));
  std::vector<std::byte> scratch;
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const StoredSample sample = store.fetch(i, scratch);
    sizes.push_back(sample.stored_bytes());
    ++codecs[name_of(sample.codec)];
    if (!per_class.empty()) ++per_class[static_cast<std::size_t>(sample.label)];
  }
  const ImageSpec& spec = store.spec();
  if (has_several_labels(store) && label_count(store) == store.spec().classes) per_class = label_sizes(store);
  Json classes = Json::array();
  const std::vector<std::string> names = store.class_names();
  for (std::size_t c = 0; c < static_cast<std::size_t>(spec.classes); ++c) {
    Json entry = Json::object();
    if (c < per_class.size()) entry["samples"] = per_class[c];
    if (c < names.size()) entry["name"] = names[c];
    classes.push_back(entry);
  }
  Json all{{"samples", store.size()}, {"codecs", codecs}, {"sample_bytes", describe_sizes(std::move(sizes))}};
  if (spec.height > 0) all["shape"] = {spec.height, spec.width, spec.channels};
  for (const FieldSpec& field : store.fields()) {
    const std::vector<std::int64_t> shape(field.shape.begin(), field.shape.end());
    all["fields"].push_back({{"name", field.name},
                             {"kind", name_of(field.kind)},
                             {"dtype", name_of(field.dtype)},
                             {"shape", shape}});
  }
  all["classes"] = classes;
  for (const Unused& one : store.unused())
    all["unused"].push_back({{"cause", one.cause}, {"count", one.count}, {"names", one.names}});
  return all;
}

Json describe(const DataSource& source) {
  const std::string& path = source.path;
  Json all{{"path", path}, {"format", format_of(path)}};
  if (!PackedStore::recognises(path)) {
    all.update(describe_samples(*open_data(source)));
    return all;
  }
  const PackedStore store(path, {.check = false});  // inspect describes; verify checks
  all["content_id"] = store.content_id();
  all["file_bytes"] = store.file_bytes();
  all["page_bytes"] = store.page_bytes();
  all["pages"] = (store.data_bytes() + store.page_bytes() - 1) / store.page_bytes();
  std::int64_t filled = 0;
  for (std::int64_t i = 0; i < store.size(); ++i) filled += store.length(i);
  all["page_fill"] =
      store.data_bytes() > 0 ? static_cast<double>(filled) / static_cast<double>(store.data_bytes()) : 1.0;
  all.update(describe_samples(store));
  return all;
}

void print(const Json& all) {
  const auto number = [](const Json& value) { return with_commas(value.get<std::int64_t>()); };
  fmt::print("{}: {}\n", printable(all["path"].get<std::string>()), all["format"].get<std::string>());
  const auto row = [](const char* what, const std::string& value) {
    fmt::print("  {:<14} {}\n", what, value);
  };
  if (all.contains("content_id")) row("content id", all["content_id"].get<std::string>());
  std::string codecs;
  for (const auto& [name, count] : all["codecs"].items()) {
    codecs += fmt::format("{}{} {}", codecs.empty() ? "" : ", ", number(count), name);
  }
  row("samples", fmt::format("{}{}", number(all["samples"]), codecs.empty() ? "" : " (" + codecs + ")"));
  if (all.contains("shape")) {
    const Json& shape = all["shape"];
    row("shape", fmt::format("{}x{}x{} u8", shape[0].get<int>(), shape[1].get<int>(), shape[2].get<int>()));
  }
  if (const Json& sizes = all["sample_bytes"]; !sizes.is_null()) {
    row("sample bytes", fmt::format("{} least, {} 10 %, {} median, {} 90 %, {} most, {:.0f} mean",
                                    number(sizes["min"]), number(sizes["p10"]), number(sizes["median"]),
                                    number(sizes["p90"]), number(sizes["max"]), sizes["mean"].get<double>()));
  }
  if (all.contains("pages")) {
    row("file bytes", number(all["file_bytes"]));
    row("pages", fmt::format("{} of {} bytes, {:.1f} % filled by samples", number(all["pages"]),
                             number(all["page_bytes"]), 100 * all["page_fill"].get<double>()));
  }
  for (const Json& field : all["fields"]) {
    const std::string name = field["name"].get<std::string>();
    if (name == "image" || name == "label") continue;
    row("field", fmt::format("{}: {}, {} {}", printable(name), field["kind"].get<std::string>(),
                             field["dtype"].get<std::string>(), field["shape"].dump()));
  }
  const Json& classes = all["classes"];
  const bool counted = classes.empty() || classes[0].contains("samples");
  row(counted ? "classes" : "numbers", with_commas(std::ssize(classes)));
  std::int64_t shown = 0;
  for (const Json& entry : classes) {
    if (shown == kClassesShown) {
      fmt::print("    ... and {} more\n", with_commas(std::ssize(classes) - shown));
      break;
    }
    const std::string samples = counted ? fmt::format("{:>12} samples  ", number(entry["samples"])) : "";
    fmt::print("    {:>6}  {}{}\n", shown++, samples, printable(entry.value("name", "")));
  }
}

void add_inspect(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("inspect", "Describes a file or folder of samples");
  struct Arguments {
    DataSource source;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("FILE", arguments->source.path, "A file or folder of samples, of any format")
      ->required();
  command->add_flag("--json", arguments->json, "Prints JSON");
  add_source_flags(*command, arguments->source);
  command->callback([arguments] {
    const Json all = describe(arguments->source);
    if (arguments->json) {
      fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
      print(all);
    }
  });
}

const Command inspect_command("inspect", add_inspect);

}  // namespace
}  // namespace athanor::tool
