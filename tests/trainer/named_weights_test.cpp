#include "trainer/inference/named_weights.h"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "nn/models/model.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor {
extern const unsigned char kKnownWeights[];  // nn/models/weights.txt
extern const std::size_t kKnownWeightsBytes;
}  // namespace athanor

namespace athanor::named_weights_test {

class NamedWeightsOf : public testing::Test {
 protected:
  NamedWeightsOf() { ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1); }
  ~NamedWeightsOf() override { ::unsetenv("XDG_CACHE_HOME"); }

  std::filesystem::path folder() const { return cache_ / "athanor/weights"; }
  std::filesystem::path put(const std::string& file) const {
    std::filesystem::create_directories(folder());
    test::write_file(folder() / file, "x");
    return folder() / file;
  }

  test::TempDir cache_;
};

TEST_F(NamedWeightsOf, ANameIsAFileInTheCache) {
  const auto second = put("resnet50-11ad3fa6.pth"), first = put("resnet50-0676ba61.pth"),
             timms = put("resnet50.a1_in1k.safetensors"),
             deit = put("deit_tiny_patch16_224.fb_in1k.safetensors");
  EXPECT_EQ(find_weights("resnet50", "resnet50", "x").path, second);
  EXPECT_EQ(find_weights("imagenet", "resnet50", "x").path, second);
  EXPECT_EQ(find_weights("resnet50.imagenet1k_v1", "resnet50", "x").path, first);
  EXPECT_EQ(find_weights("resnet50.a1_in1k", "", "x").path, timms);
  EXPECT_EQ(find_weights("resnet50.a1_in1k", "", "x").model, "resnet50");
  EXPECT_EQ(find_weights("vit_tiny", "", "x").path, deit);
}

TEST_F(NamedWeightsOf, APathComesFirst) {
  test::write_file(cache_ / "mine.pth", "x");
  const NamedWeights found = find_weights(cache_ / "mine.pth", "resnet50", "x");
  EXPECT_EQ(found.path, cache_ / "mine.pth");
  EXPECT_EQ(found.model, "");
}

TEST_F(NamedWeightsOf, WhatIsNotThereIsNamedWithTheCommandThatGetsIt) {
  EXPECT_ERROR(ArgumentError, find_weights("resnet18", "resnet18", "--pretrained"), "--pretrained",
               "resnet18", (folder() / "resnet18-f37072fd.pth").string(),
               "scripts/get_weights.sh resnet18.imagenet1k_v1");
  put("resnet18-f37072fd.pth");
  EXPECT_ERROR(ArgumentError, find_weights("resnet18", "resnet50", "--pretrained"), "resnet18", "resnet50");
  EXPECT_ERROR(ArgumentError, find_weights("imagenet", "lenet5", "--pretrained"), "imagenet", "'lenet5'");
  EXPECT_ERROR(ArgumentError, find_weights("imagenet", "", "convert"), "convert", "''");
  EXPECT_ERROR(ArgumentError, find_weights("resnet_18", "resnet18", "x"), "resnet_18", "'resnet18'");
  EXPECT_ERROR(ArgumentError, find_weights("", "resnet18", "x"), "x");
}

TEST_F(NamedWeightsOf, EachIsOfAModelOfImageNet) {
  std::istringstream table(std::string(reinterpret_cast<const char*>(kKnownWeights), kKnownWeightsBytes));
  std::set<std::string> models;
  for (std::string line; std::getline(table, line);) {
    if (!line.starts_with('#')) models.insert(line.substr(0, line.find('.')));
  }
  EXPECT_GT(models.size(), 20u);
  for (const std::string& model : models) {
    EXPECT_EQ(nn::model_options(model).classes, 1000) << model;
    EXPECT_ERROR(ArgumentError, find_weights("imagenet", model, "x"),
                 "scripts/get_weights.sh " + model + ".");
  }
}

}  // namespace athanor::named_weights_test
