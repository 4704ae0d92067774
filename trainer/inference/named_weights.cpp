#include "trainer/inference/named_weights.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "data/formats/import/cache.h"
#include "tensor/base/error.h"
#include "tensor/base/nearest.h"

namespace athanor {

namespace fs = std::filesystem;

// nn/models/weights.txt, embedded.
extern const unsigned char kKnownWeights[];
extern const std::size_t kKnownWeightsBytes;

namespace {

struct Row {
  std::string name;   ///< MODEL.TAG
  std::string model;  ///< the first row of a model is meant by the model's name alone
  std::string file;   ///< its name in the cache
};

/// The last part of a URL; of a file that all repositories of Hugging Face have, the repository's name
/// instead. As file_of() in scripts/get_weights.sh.
std::string file_of(std::string url) {
  constexpr std::string_view kGeneral = "/resolve/main/model.safetensors";
  const bool general = url.ends_with(kGeneral);
  if (general) url.resize(url.size() - kGeneral.size());
  return url.substr(url.rfind('/') + 1) + (general ? ".safetensors" : "");
}

std::vector<Row> read_rows() {
  std::istringstream table(std::string(reinterpret_cast<const char*>(kKnownWeights), kKnownWeightsBytes));
  std::vector<Row> rows;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name, pixels, top1, sum, url;
    words >> name >> pixels >> top1 >> sum >> url;
    rows.push_back({name, name.substr(0, name.find('.')), file_of(url)});
  }
  return rows;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = read_rows();
  return all;
}

/// Null if there is none of that name.
const Row* row_of(std::string_view name) {
  for (const Row& row : rows())
    if (row.name == name || row.model == name) return &row;
  return nullptr;
}

}  // namespace

NamedWeights find_weights(const fs::path& given, std::string_view model, std::string_view who) {
  std::error_code error;
  const bool own = given == "imagenet";
  // A folder of that name is rather the data than a run.
  const bool is_data =
      own && fs::is_directory(given, error) && !fs::exists(given / "model.safetensors", error);
  if (fs::exists(given, error) && !is_data) return {given, ""};
  const std::string name = own ? std::string(model) : given.string();
  const Row* const row = row_of(name);
  if (!row) {
    ATH_CHECK(!own, "{}: imagenet must be weights of the network, but none are known for '{}'", who, model);
    std::vector<std::string> names;
    for (const Row& known : rows()) names.push_back(known.name);
    for (const Row& known : rows()) names.push_back(known.model);
    detail::fail<>("{}: must be a file with weights, but there is no {}{}", who, name,
                   did_you_mean(name, names));
  }
  ATH_CHECK(model.empty() || row->model == model, "{}: {} are weights of {}, but the network is {}", who,
            name, row->model, model);
  const fs::path file = cache_folder("weights") / row->file;
  ATH_CHECK(fs::exists(file, error),
            "{}: {} must be in {}, but is not: get it with scripts/get_weights.sh {}", who, name,
            file.string(), row->name);
  return {file, row->model};
}

}  // namespace athanor
