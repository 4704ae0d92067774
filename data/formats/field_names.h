#pragma once

#include <functional>
#include <optional>
#include <string>

namespace athanor {

/// What a source calls the parts of a sample; empty: the format's usual names.
struct FieldNames {
  std::string image = {}, label = {};
};

/// Of "image=NAME,label=NAME", in any order; label=A,B,C is the label "A,B,C", for tables with several.
/// Throws ArgumentError on any other text.
FieldNames field_names(const std::string& text);

/// `names`, or where they are empty those of the first usual pair whose two parts are there: images and
/// labels, image and label, x and y, x_train and y_train, x_test and y_test, train_images and train_labels,
/// test_images and test_labels, data and label, X and Y, arr_0 and arr_1. nullopt if there is none.
std::optional<FieldNames> usual_names(const FieldNames& names,
                                      const std::function<bool(const std::string&)>& has_image,
                                      const std::function<bool(const std::string&)>& has_label);

}  // namespace athanor
