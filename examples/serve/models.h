#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/serve/metrics.h"
#include "tensor/base/error.h"
#include "trainer/inference/predictor.h"

namespace athanor::serve {

/// A loaded model. Requests hold it until they are answered, whatever becomes of its name meanwhile.
struct Model {
  std::string name;
  std::int64_t version;
  std::uint64_t generation;  ///< its number among all models since the start: 1, 2, ...
  std::filesystem::path path;
  ModelCounts& counts;  ///< of its name
  const Predictor predictor;
};

/// There is no model of that name.
class UnknownModelError : public ArgumentError {
 public:
  using ArgumentError::ArgumentError;
};

/// The name of a model that was given without one.
inline constexpr char kUnnamed[] = "default";

/// A model by name: a run's folder, a link to it, or its model.safetensors.
struct NamedPath {
  std::string name;
  std::filesystem::path path;
};

struct ModelsOptions {
  std::vector<NamedPath> given = {};  ///< each loaded at the start, or the start fails
  std::filesystem::path folder = {};  ///< with NAME/VERSION/, whose models may come and go; empty: none
  std::size_t versions = 1;           ///< how many of a name's newest in `folder` answer
  std::size_t max_batch = 32;         ///< with which each is tried before it answers
  int threads = 1;
  Precision precision = Precision::f32;  ///< in which those compute that are not quantized
};

/// The models that answer, by name and version. A given path is one version, whose number grows by one each
/// time its file is loaded; in a folder, VERSION is the number. A file that cannot be used changes nothing:
/// what answered before still does. Any thread may call anything at any time.
class Models {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// Throws what Predictor throws on a given path, ArgumentError on a name that is no name, or is there
  /// twice, and on a folder that is none. `say` gets a line for whatever changes or fails later.
  Models(ModelsOptions options, Metrics& metrics, Say say);
  ~Models();

  const ModelsOptions& options() const { return options_; }
  /// A version, or the newest if `version` is empty; null if it is not loaded.
  std::shared_ptr<const Model> find(std::string_view name, std::string_view version = {}) const;
  /// That of requests without a name: the first given one; without one, the only one. Else null.
  std::shared_ptr<const Model> standard() const;

  struct Listed {
    std::string name;
    std::int64_t version = 0;                 ///< 0: none is known
    std::shared_ptr<const Model> model = {};  ///< null: not loaded
    std::string reason = {};                  ///< why it, or what its file has become, was not loaded
  };
  /// All known versions, by name, then version.
  std::vector<Listed> list() const;
  /// The number of names.
  std::size_t names() const;
  /// Why a model that should answer cannot, if one cannot; without its name, which needs a token.
  std::optional<std::string> not_ready() const;

  /// Looks at all files. With `all`, loads each given one again, and what failed before; else only what has
  /// changed since it was last read.
  void refresh(bool all);
  /// Loads a known name again, after unload() too. Throws UnknownModelError, and ArgumentError with
  /// what is wrong with its files.
  void load(std::string_view name);
  /// The name no longer answers, until load(). Throws UnknownModelError.
  void unload(std::string_view name);

 private:
  /// What a file was when it was read.
  struct Stamp {
    std::uintmax_t device = 0, inode = 0, size = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  struct Version {
    std::shared_ptr<const Model> model = {};
    Stamp tried = {};
    std::string reason = {};  ///< why that file could not be loaded
  };
  struct Entry {
    std::filesystem::path given = {};  ///< empty: in the folder
    std::map<std::int64_t, Version> versions = {};
    bool unloaded = false;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  static Stamp stamp_of(const std::filesystem::path& model);
  std::shared_ptr<const Model> make(const std::string& name, std::int64_t version,
                                    const std::filesystem::path& path);
  bool try_to_load(const std::string& name, std::int64_t number, const std::filesystem::path& path,
                   Version& version);
  std::string refresh_given(const std::string& name, Entry entry, bool all);
  std::string refresh_in_folder(const std::string& name, Entry entry, bool all);
  std::string refresh_one(const std::string& name, Entry entry, bool all);
  void set(const std::string& name, Entry entry);
  Entry known(std::string_view name) const;

  const ModelsOptions options_;
  Metrics& metrics_;
  const Say say_;
  std::mutex changing_;       // held by whoever changes anything, while it loads too
  mutable std::mutex mutex_;  // guards entries_
  Entries entries_;
  std::uint64_t generation_ = 0;
  bool started_ = false;
};

/// "resnet18 of PATH, 2 classes, images 224x224x3"
std::string describe(const Model& model);

}  // namespace athanor::serve
