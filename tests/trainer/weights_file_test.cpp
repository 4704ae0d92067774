// Checkpoints that timm, torchvision's references and Lightning have written:
// tests/golden/make_checkpoints.py. Their weights are 1 and, where they hold it, the running average is 2.
#include "trainer/inference/weights_file.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "tests/support/folder.h"

namespace athanor::weights_file_test {

using Names = std::vector<std::string>;

struct Net final : nn::Module {
  nn::Conv2d conv{1, 2, 3};
  nn::BatchNorm bn{2};
  nn::Linear fc{2, 3};

  Net() {
    register_module("conv", conv);
    register_module("bn", bn);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override { return x; }
};

struct Taken {
  nn::Pretrained pretrained;
  double value;  ///< of all parameters and statistics; NaN: they differ
};

Taken take(const std::string& name, bool averages) {
  Net net;
  net.initialize(0);
  const std::filesystem::path folder = test::folder("ATHANOR_GOLDEN_DIR", ATHANOR_GOLDEN_DIR);
  Taken taken{load_weights(folder / "checkpoints" / name, net, {.averages = averages}), 0};
  taken.value = net.parameters()[0].tensor.to_vector()[0];
  for (const StateDict::Entry& entry : net.state_dict()) {
    for (const double value : std::get<Tensor>(entry.value).to_vector()) {
      if (value != taken.value) ADD_FAILURE() << name << ": " << entry.name << " is " << value;
    }
  }
  return taken;
}

TEST(Checkpoints, TheRunningAverageIsTakenWhereThereIsOne) {
  const struct {
    const char* file;
    Names with, without;
  } cases[] = {
      {"timm.pth.tar", {"state_dict_ema", "state_dict"}, {"state_dict", "state_dict_ema"}},
      {"torchvision.pth", {"model_ema", "model"}, {"model", "model_ema"}},
      {"lightning_averaging.ckpt",
       {"state_dict.net", "state_dict.criterion", "current_model_state"},
       {"current_model_state.net", "current_model_state.criterion", "state_dict"}},
      {"lightning_module.ckpt",
       {"state_dict.ema.module", "state_dict.net", "state_dict.criterion"},
       {"state_dict.net", "state_dict.ema.module", "state_dict.criterion"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.file);
    const Taken average = take(c.file, true), weights = take(c.file, false);
    EXPECT_EQ(average.value, 2);
    EXPECT_TRUE(average.pretrained.averaged);
    EXPECT_EQ(average.pretrained.parts, c.with);
    EXPECT_EQ(weights.value, 1);
    EXPECT_FALSE(weights.pretrained.averaged);
    EXPECT_EQ(weights.pretrained.parts, c.without);
  }
  const Taken plain = take("plain.pth", true);
  EXPECT_EQ(plain.value, 1);
  EXPECT_FALSE(plain.pretrained.averaged);
  EXPECT_EQ(choice_of(plain.pretrained), "");
}

TEST(Checkpoints, TheChoiceIsTold) {
  EXPECT_EQ(choice_of(take("timm.pth.tar", true).pretrained),
            "under 'state_dict_ema', a running average, not 'state_dict'");
  EXPECT_EQ(choice_of(take("lightning_module.ckpt", false).pretrained),
            "under 'state_dict.net', not 'state_dict.ema.module', 'state_dict.criterion'");
}

}  // namespace athanor::weights_file_test
