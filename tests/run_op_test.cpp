#include "examples/athanor_tool/run_op.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace athanor::tool {
namespace {

TEST(RunOp, NamesWhatIsWrong) {
  const auto message = [](const OpCall& call, const std::string& impl = "automatic") -> std::string {
    try {
      run_op(call, kCpu, impl);
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  StateDict tensors;
  tensors.set("x", Tensor::from(std::vector<float>{1, -2}, {2}));
  StateDict losses;
  losses.set("logits", Tensor::from(std::vector<float>{1, 2}, {1, 2}));
  losses.set("target", Tensor::from(std::vector<std::int64_t>{1}, {1}));
  const auto empty = nlohmann::json::object();

  EXPECT_EQ(message({"relu", empty, tensors}), "");
  EXPECT_NE(message({"rellu", empty, tensors}).find("did you mean 'relu'"), std::string::npos);
  EXPECT_NE(message({"relu", {{"slope", 1}}, tensors}).find("no attribute 'slope'"), std::string::npos);
  EXPECT_NE(message({"cross_entropy", {{"reduction", "avg"}}, losses}).find("mean, sum, none"),
            std::string::npos);
  EXPECT_NE(message({"cross_entropy", {{"label_smoothing", "much"}}, losses}).find("like 0.0"),
            std::string::npos);
  EXPECT_NE(message({"add", empty, tensors}).find("'a'"), std::string::npos);
  EXPECT_NE(message({"relu", empty, tensors}, "vendor").find("--impl"), std::string::npos);

  tensors.set("z", Tensor::from(std::vector<float>{1}, {1}));
  EXPECT_NE(message({"relu", empty, tensors}).find("'z'"), std::string::npos);
}

TEST(RunOp, ReturnsResultGradientsAndNothingElse) {
  StateDict tensors;
  tensors.set("a", Tensor::from(std::vector<float>{1, -2}, {2}));
  tensors.set("b", Tensor::from(std::vector<float>{3, 4}, {2}));
  EXPECT_EQ(run_op({"mul", nlohmann::json::object(), tensors}).names(), std::vector<std::string>{"y"});

  tensors.set("dy", Tensor::from(std::vector<float>{1, 10}, {2}));
  const StateDict results = run_op({"mul", nlohmann::json::object(), tensors});
  EXPECT_EQ(results.names(), (std::vector<std::string>{"y", "da", "db"}));
  EXPECT_EQ(results.tensor("y").to_vector(), (std::vector<double>{3, -8}));
  EXPECT_EQ(results.tensor("da").to_vector(), (std::vector<double>{3, 40}));
  EXPECT_EQ(results.tensor("db").to_vector(), (std::vector<double>{1, -20}));
}

}  // namespace
}  // namespace athanor::tool
