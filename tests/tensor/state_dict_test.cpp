#include "tensor/state_dict.h"

#include <gtest/gtest.h>

#include "tensor/base/nearest.h"
#include "tests/support/errors.h"

namespace athanor::state_dict_test {

StateDict sample() {
  StateDict dict;
  dict.set("model.weight", Tensor::zeros({2, 3}));
  dict.set("model.bias", Tensor::zeros({2}));
  dict.set("step", std::int64_t{7});
  dict.set("scale", 0.5);
  dict.set("format", std::string("athanor"));
  return dict;
}

TEST(StateDict, KeepsOrderAndValues) {
  const StateDict dict = sample();
  EXPECT_EQ(dict.names(),
            (std::vector<std::string>{"model.weight", "model.bias", "step", "scale", "format"}));
  EXPECT_EQ(dict.tensor("model.weight").shape(), Shape({2, 3}));
  EXPECT_EQ(dict.integer("step"), 7);
  EXPECT_EQ(dict.real("scale"), 0.5);
  EXPECT_EQ(dict.text("format"), "athanor");
}

TEST(StateDict, TensorsAreHandles) {
  const Tensor weight = Tensor::zeros({2});
  StateDict dict;
  dict.set("weight", weight);
  EXPECT_TRUE(dict.tensor("weight").same_as(weight));
}

TEST(StateDict, MissingEntryNamesTheNearest) {
  EXPECT_ERROR(ArgumentError, sample().tensor("model.wieght"), "state_dict", "model.wieght", "tensor",
               "model.weight");
}

TEST(StateDict, WrongKindNamesBoth) {
  EXPECT_ERROR(ArgumentError, sample().integer("scale"), "state_dict", "scale", "integer", "real");
  EXPECT_ERROR(ArgumentError, sample().text("model.bias"), "state_dict", "model.bias", "string", "tensor");
  EXPECT_ERROR(ArgumentError, sample().tensor("model.bias", {3}), "state_dict", "model.bias", "[3]", "[2]");
}

TEST(StateDict, UnusedEntriesAreNamed) {
  const StateDict dict = sample();
  EXPECT_TRUE(dict.contains("step"));
  EXPECT_NE(dict.find("step"), nullptr);  // looking is no use
  dict.real("scale");
  dict.under("model.");
  EXPECT_ERROR(ArgumentError, dict.require_all_used("trainer"), "trainer", "step", "format");
  dict.integer("step");
  dict.text("format");
  EXPECT_NO_THROW(dict.require_all_used("trainer"));
}

TEST(StateDict, PrefixesJoinAndSplit) {
  StateDict whole;
  whole.set_all("a.", sample());
  whole.set_all("b.", sample());
  EXPECT_EQ(whole.size(), 10u);
  EXPECT_EQ(whole.under("b.").names(), sample().names());
  EXPECT_EQ(whole.under("b.model.").names(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_TRUE(whole.contains_prefix("a.model."));
  EXPECT_FALSE(whole.contains_prefix("c."));
  EXPECT_TRUE(whole.under("a.step").empty());  // a name is not under itself
}

TEST(StateDict, RefusesTakenEmptyAndUndefined) {
  StateDict dict = sample();
  EXPECT_THROW(dict.set("step", std::int64_t{8}), ArgumentError);
  EXPECT_THROW(dict.set("", 1.0), ArgumentError);
  EXPECT_THROW(dict.set("nothing", Tensor()), ArgumentError);
  EXPECT_THROW(dict.set_all("", sample()), ArgumentError);
}

TEST(NearestName, FindsSlipsOfTheKeyboardAndNothingElse) {
  const std::vector<std::string> names{"lenet5", "resnet18", "resnet34", "cifarnet"};
  EXPECT_EQ(nearest_name("resnet81", names), "resnet18");
  EXPECT_EQ(nearest_name("lenet", names), "lenet5");
  EXPECT_EQ(nearest_name("transformer", names), std::nullopt);
  EXPECT_EQ(nearest_name("", names), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(100'000, 'x'), names), std::nullopt);
  EXPECT_EQ(nearest_name("ResNet34", names), "resnet34");
  EXPECT_TRUE(test::names(did_you_mean("cifar_net", names), {"cifarnet"}));
}

TEST(NearestName, ProposesNoOtherThing) {
  const std::vector<std::string> flags{"--loss-scale", "--devices", "--warmup", "--optimizer",
                                       "--batch-size"};
  EXPECT_EQ(nearest_name("--loss", flags), std::nullopt);
  EXPECT_EQ(nearest_name("--degrees", flags), std::nullopt);
  EXPECT_EQ(nearest_name("--warmup-lr", flags), std::nullopt);
  EXPECT_EQ(nearest_name("--optim", flags), "--optimizer");
  EXPECT_EQ(nearest_name("--bathc_size", flags), "--batch-size");
  const std::vector<std::string> parts{"fc", "conv1.weight"};
  EXPECT_EQ(nearest_name("10", parts), std::nullopt);
  EXPECT_EQ(nearest_name("weight", parts), "conv1.weight");
}

}  // namespace athanor::state_dict_test
