#include "tensor/state_dict.h"

#include <gtest/gtest.h>

#include "tensor/nearest.h"

namespace athanor {
namespace {

StateDict sample() {
  StateDict dict;
  dict.set("model.weight", Tensor::zeros({2, 3}));
  dict.set("model.bias", Tensor::zeros({2}));
  dict.set("step", std::int64_t{7});
  dict.set("scale", 0.5);
  dict.set("format", std::string("athanor"));
  return dict;
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
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
  EXPECT_EQ(message_of([] { sample().tensor("model.wieght"); }),
            "state_dict: 'model.wieght' (a tensor) is missing; did you mean 'model.weight'?");
}

TEST(StateDict, WrongKindNamesBoth) {
  EXPECT_EQ(message_of([] { sample().integer("scale"); }),
            "state_dict: 'scale' must be an integer, but is a real number");
  EXPECT_EQ(message_of([] { sample().text("model.bias"); }),
            "state_dict: 'model.bias' must be a string, but is a tensor");
  EXPECT_EQ(message_of([] { sample().tensor("model.bias", {3}); }),
            "state_dict: 'model.bias' must have shape [3], but has [2]");
}

TEST(StateDict, UnusedEntriesAreNamed) {
  const StateDict dict = sample();
  EXPECT_TRUE(dict.contains("step"));
  EXPECT_NE(dict.find("step"), nullptr);  // looking is no use
  dict.real("scale");
  dict.under("model.");
  EXPECT_EQ(message_of([&] { dict.require_all_used("trainer"); }),
            "trainer: every entry must be known, but got unknown entries: 'step', 'format'");
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
  EXPECT_EQ(did_you_mean("cifar_net", names), "; did you mean 'cifarnet'?");
}

}  // namespace
}  // namespace athanor
