#include "data/formats/field_names.h"

#include <array>
#include <sstream>
#include <utility>

#include "data/formats/detail/bytes.h"
#include "tensor/base/error.h"

namespace athanor {

FieldNames field_names(const std::string& text) {
  FieldNames names;
  std::istringstream parts(text);
  bool more = false;  // labels may follow
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t at = part.find('=');
    if (at == std::string::npos && more && !part.empty()) {
      names.label += "," + part;
      continue;
    }
    const std::string field = part.substr(0, at);
    more = field == "label";
    std::string* const name = field == "image" ? &names.image : field == "label" ? &names.label : nullptr;
    ATH_CHECK(name && name->empty() && at != std::string::npos && at + 1 < part.size(),
              "--fields: must be image=NAME,label=NAME, or one of the two, but is '{}'",
              detail::printable(text));
    *name = part.substr(at + 1);
  }
  return names;
}

std::optional<FieldNames> usual_names(const FieldNames& names,
                                      const std::function<bool(const std::string&)>& has_image,
                                      const std::function<bool(const std::string&)>& has_label) {
  constexpr std::array<std::pair<const char*, const char*>, 10> kPairs{{{"images", "labels"},
                                                                        {"image", "label"},
                                                                        {"x", "y"},
                                                                        {"x_train", "y_train"},
                                                                        {"x_test", "y_test"},
                                                                        {"train_images", "train_labels"},
                                                                        {"test_images", "test_labels"},
                                                                        {"data", "label"},
                                                                        {"X", "Y"},
                                                                        {"arr_0", "arr_1"}}};
  if (!names.image.empty() && !names.label.empty()) return names;
  for (const auto& [image, label] : kPairs) {
    const FieldNames pair{names.image.empty() ? image : names.image,
                          names.label.empty() ? label : names.label};
    if (has_image(pair.image) && has_label(pair.label)) return pair;
  }
  return std::nullopt;
}

}  // namespace athanor
