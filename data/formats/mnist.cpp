#include "data/formats/mnist.h"

#include <string>

#include "data/formats/detail/file_bytes.h"
#include "data/formats/idx.h"

namespace athanor {

std::unique_ptr<Dataset> open_mnist(const std::filesystem::path& folder, Split split) {
  constexpr std::int64_t kClasses = 10;
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const std::string advice = "fetch it with scripts/get_data.sh mnist, or name its folder with --data-dir";
  const auto find = [&](const char* name) {
    return detail::find_plain_or_gz(folder, prefix + name, "mnist", advice);
  };
  return open_idx(find("-images-idx3-ubyte"),
                  {.labels = find("-labels-idx1-ubyte"), .classes = kClasses, .format = "mnist"});
}

std::unique_ptr<InMemoryDataset> mnist(const std::filesystem::path& folder, Split split) {
  return std::make_unique<InMemoryDataset>(*open_mnist(folder, split));
}

}  // namespace athanor
