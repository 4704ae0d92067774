#include "examples/serve/models.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "examples/serve/batcher.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::serve {
namespace {

namespace fs = std::filesystem;

/// A whole number of at least 1, as a folder or a path of HTTP spells it; else 0.
std::int64_t version_named(std::string_view text) {
  std::int64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && version > 0 && text.front() != '0' ? version : 0;
}

bool is_model_name(std::string_view name) {
  return is_name(name, "_-.") && name.front() != '.';
}

/// The names of models in a folder. What has another name is none. Empty if the folder cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (is_model_name(name) && at->is_directory(ignored)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The versions of a model in its folder, the newest first. `error`: why the folder could not be read; none
/// if there is no such folder.
std::vector<std::int64_t> versions_in(const fs::path& folder, std::error_code& error) {
  std::vector<std::int64_t> versions;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::int64_t version = version_named(at->path().filename().string());
    if (version > 0 && at->is_directory(ignored)) versions.push_back(version);
  }
  if (error == std::errc::no_such_file_or_directory) error.clear();
  std::sort(versions.rbegin(), versions.rend());
  return versions;
}

/// Of a line about a model.
std::string prefix(std::string_view name) {
  return name == kUnnamed ? std::string() : fmt::format("{}: ", name);
}

/// The first batch packs the weights, and the first of each size compiles: before clients wait.
void warm_up(const Predictor& predictor, std::size_t max_batch, int threads) {
  const ImageSpec& images = predictor.info().images;
  const int threads_before = cpu_context().threads();
  cpu_context().set_threads(threads);  // primitives depend on the number of threads
  std::vector<std::size_t> sizes = batch_sizes(max_batch);
  std::reverse(sizes.begin(), sizes.end());  // smaller ones can reuse memory of larger ones
  for (const std::size_t size : sizes) {
    const auto n = static_cast<std::int64_t>(size);
    predictor.predict(Tensor::zeros({n, images.height, images.width, images.channels}, {DType::u8}));
  }
  cpu_context().set_threads(threads_before);
}

Predictor predictor_of(const fs::path& path, Precision precision) {
  OpenModel open = open_model(path);
  const bool quantized = open.file.info.is_quantized();
  return {std::move(open.network), std::move(open.file.info), quantized ? Precision::f32 : precision};
}

}  // namespace

std::string describe(const Model& model) {
  const ModelInfo& info = model.predictor.info();
  const ImageSpec& images = info.images;
  const std::string computes =
      info.is_quantized() ? info.quantized : std::string(name_of(model.predictor.precision()));
  return fmt::format("{} of {}, {}, images {}x{}x{}{}", info.model, model.path.string(),
                     counted_outputs(info), images.height, images.width, images.channels,
                     computes == "f32" ? "" : ", " + computes);
}

Models::Models(ModelsOptions options, Metrics& metrics, Say say)
    : options_(std::move(options)), metrics_(metrics), say_(std::move(say)) {
  const std::lock_guard changing(changing_);
  for (const auto& [name, path] : options_.given) {
    ATH_CHECK(is_model_name(name),
              "serve: the name of a model must be letters, digits, '_', '-' and '.', but is '{}'",
              printable(name));
    ATH_CHECK(!entries_.contains(name), "serve: there are two models {}; name each, as in NAME={}",
              name == kUnnamed ? "without a name" : fmt::format("'{}'", name), printable(path.string()));
    Entry entry{.given = path};
    Version& first = entry.versions[1];
    first.tried = stamp_of(path);
    first.model = make(name, 1, path);
    ++metrics_.of_model(name).loads;
    set(name, std::move(entry));
  }
  if (!options_.folder.empty()) {
    ATH_CHECK(fs::is_directory(options_.folder), "serve: --models must be a folder, but {} is not",
              printable(options_.folder.string()));
    for (const std::string& name : names_in(options_.folder)) {
      ATH_CHECK(!entries_.contains(name), "serve: there are two models '{}', one of them in {}", name,
                printable(options_.folder.string()));
      refresh_one(name, {}, true);
    }
    if (entries_.empty())
      say_(fmt::format("{} has no model yet: they must be in NAME/VERSION/, VERSION a whole number",
                       printable(options_.folder.string())));
  }
  started_ = true;
}

Models::~Models() = default;

Models::Stamp Models::stamp_of(const fs::path& model) {
  std::error_code ignored;
  struct stat found {};
  const fs::path file = fs::is_directory(model, ignored) ? model / "model.safetensors" : model;
  if (::stat(file.c_str(), &found) != 0) return {};
  return {static_cast<std::uintmax_t>(found.st_dev), static_cast<std::uintmax_t>(found.st_ino),
          static_cast<std::uintmax_t>(found.st_size),
          std::int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec};
}

// Changes, with changing_ held: so entries_ may be read without mutex_ --------------------------------------

/// Loads a model and tries it.
std::shared_ptr<const Model> Models::make(const std::string& name, std::int64_t version,
                                          const fs::path& path) {
  std::shared_ptr<const Model> model(new Model{name, version, generation_ + 1, path, metrics_.of_model(name),
                                               predictor_of(path, options_.precision)});
  const std::int64_t channels = model->predictor.info().images.channels;
  ATH_CHECK(channels == 1 || channels == 3,
            "serve: the model must take images of 1 or 3 channels, but takes {}", channels);
  warm_up(model->predictor, options_.max_batch, options_.threads);
  ++generation_;
  return model;
}

/// False if the file cannot be used: then the version has a reason, and the model that it had.
bool Models::try_to_load(const std::string& name, std::int64_t number, const fs::path& path,
                         Version& version) {
  const auto begin = Clock::now();
  version.tried = stamp_of(path);
  ModelCounts& counts = metrics_.of_model(name);
  const bool was_there = version.model != nullptr;
  try {
    version.model = make(name, number, path);
    version.reason.clear();
  } catch (const std::exception& error) {
    version.reason = error.what();
    ++counts.failed_loads;
    if (started_) ++metrics_.failed_reloads;
    return false;
  }
  ++counts.loads;
  if (started_) {
    ++metrics_.reloads;
    say_(fmt::format("{}{} {} in {:.2f} s", prefix(name), was_there ? "reloaded" : "loaded",
                     describe(*version.model), std::chrono::duration<double>(Clock::now() - begin).count()));
  }
  return true;
}

/// Like the next two, returns why a file could not be used; empty if all could, or were not tried.
std::string Models::refresh_given(const std::string& name, Entry entry, bool all) {
  const auto [number, before] = *entry.versions.rbegin();
  if (!all && before.tried == stamp_of(entry.given)) return {};
  Version next = before;
  const bool loaded = try_to_load(name, number + 1, entry.given, next);
  if (!loaded) say_(fmt::format("{}the model is unchanged: {}", prefix(name), next.reason));
  std::string reason = next.reason;
  entry.versions.clear();
  entry.versions[loaded ? number + 1 : number] = std::move(next);
  set(name, std::move(entry));
  return reason;
}

/// Of a name's versions, the newest that can be used answer from now on.
std::string Models::refresh_in_folder(const std::string& name, Entry entry, bool all) {
  const fs::path folder = options_.folder / name;
  std::map<std::int64_t, Version> next;
  std::error_code error;  // too many open files, for example: no reason to retire what answers
  const std::vector<std::int64_t> numbers = versions_in(folder, error);
  std::string reason;
  if (error) {
    reason = fmt::format("{} cannot be read: {}", printable(folder.string()), error.message());
    say_(fmt::format("{}: the model is unchanged: {}", name, reason));
    return reason;
  }
  std::size_t answering = 0;
  for (const std::int64_t number : numbers) {
    if (answering == options_.versions) break;
    Version version = entry.versions[number];
    const fs::path path = folder / std::to_string(number);
    const bool is_new = !version.model && version.reason.empty();
    const bool must_try = is_new || version.tried != stamp_of(path) || (all && !version.reason.empty());
    if (must_try && !try_to_load(name, number, path, version)) {
      say_(fmt::format("{}: version {} cannot be used, and the model is unchanged: {}", name, number,
                       version.reason));
      if (reason.empty()) reason = version.reason;
    }
    answering += version.model != nullptr;
    next[number] = std::move(version);
  }
  for (const auto& [number, version] : entry.versions) {
    if (version.model && !next.contains(number)) say_(fmt::format("{}: version {} is retired", name, number));
  }
  entry.versions = std::move(next);
  set(name, std::move(entry));
  return reason;
}

std::string Models::refresh_one(const std::string& name, Entry entry, bool all) {
  return entry.given.empty() ? refresh_in_folder(name, std::move(entry), all)
                             : refresh_given(name, std::move(entry), all);
}

/// Publishes what has changed of a name; one without versions is forgotten.
void Models::set(const std::string& name, Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    if (entry.versions.empty()) {
      entries_.erase(name);
    } else {
      std::swap(entries_[name], entry);  // models are freed after the lock
    }
  }
  const auto newest = find(name);
  metrics_.of_model(name).version = newest ? newest->version : 0;
  if (const auto model = standard()) {
    metrics_.model_classes = model->predictor.info().images.classes;
    metrics_.model_generation = static_cast<std::int64_t>(model->generation);
  }
}

void Models::refresh(bool all) {
  const std::lock_guard changing(changing_);
  const Entries before = entries_;
  for (const auto& [name, entry] : before) {
    if (!entry.unloaded) refresh_one(name, entry, all);
  }
  if (options_.folder.empty()) return;
  for (const std::string& name : names_in(options_.folder)) {
    if (!before.contains(name)) refresh_one(name, {}, all);
  }
}

Models::Entry Models::known(std::string_view name) const {
  const auto at = entries_.find(name);
  if (at != entries_.end()) return at->second;
  Entry entry;
  std::error_code ignored;
  if (!options_.folder.empty() && is_model_name(name)) {
    for (const std::int64_t number : versions_in(options_.folder / std::string(name), ignored))
      entry.versions[number] = {};
  }
  if (entry.versions.empty())
    detail::fail<UnknownModelError>("there is no model '{}'", printable(name.substr(0, 80)));
  return entry;
}

void Models::load(std::string_view name) {
  const std::lock_guard changing(changing_);
  Entry entry = known(name);
  entry.unloaded = false;
  for (auto& [number, version] : entry.versions) version.tried = {};
  const std::string reason = refresh_one(std::string(name), std::move(entry), true);
  ATH_CHECK(reason.empty(), "{}", reason);
}

void Models::unload(std::string_view name) {
  const std::lock_guard changing(changing_);
  Entry entry = known(name);
  entry.unloaded = true;
  for (auto& [number, version] : entry.versions) version = {.tried = {}, .reason = "unloaded"};
  set(std::string(name), std::move(entry));
  say_(fmt::format("{}unloaded", prefix(name)));
}

// What there is ---------------------------------------------------------------------------------------------

std::shared_ptr<const Model> Models::find(std::string_view name, std::string_view version) const {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return nullptr;
  const std::map<std::int64_t, Version>& versions = entry->second.versions;
  if (!version.empty()) {
    const auto at = versions.find(version_named(version));
    return at == versions.end() ? nullptr : at->second.model;
  }
  const auto newest =
      std::find_if(versions.rbegin(), versions.rend(), [](const auto& one) { return one.second.model; });
  return newest == versions.rend() ? nullptr : newest->second.model;
}

std::shared_ptr<const Model> Models::standard() const {
  if (!options_.given.empty()) return find(options_.given.front().name);
  std::string only;
  {
    const std::lock_guard lock(mutex_);
    if (entries_.size() != 1) return nullptr;
    only = entries_.begin()->first;
  }
  return find(only);
}

std::vector<Models::Listed> Models::list() const {
  std::vector<Listed> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    for (const auto& [number, version] : entry.versions)
      all.push_back({name, number, version.model, version.reason});
  }
  return all;
}

std::size_t Models::names() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::optional<std::string> Models::not_ready() const {
  const std::lock_guard lock(mutex_);
  const auto missing = std::count_if(entries_.begin(), entries_.end(), [](const auto& one) {
    const Entry& entry = one.second;
    return !entry.unloaded && std::none_of(entry.versions.begin(), entry.versions.end(),
                                           [](const auto& version) { return version.second.model; });
  });
  if (missing == 0) return std::nullopt;
  return fmt::format("{} of {} models cannot answer: POST /v2/repository/index names them", missing,
                     entries_.size());
}

}  // namespace athanor::serve
