#include "examples/athanor_tool/run_op.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace athanor::tool::run_op_test {

TEST(RunOp, NamesWhatIsWrong) {
  const auto run = [](const OpCall& call, const std::string& impl = "automatic") {
    return run_op(call, kCpu, impl);
  };
  StateDict tensors;
  tensors.set("x", Tensor::from(std::vector<float>{1, -2}, {2}));
  StateDict losses;
  losses.set("logits", Tensor::from(std::vector<float>{1, 2}, {1, 2}));
  losses.set("target", Tensor::from(std::vector<std::int64_t>{1}, {1}));
  const auto empty = nlohmann::json::object();

  EXPECT_NO_THROW((void)run({"relu", empty, tensors}));
  EXPECT_ERROR(ArgumentError, run({"rellu", empty, tensors}), "run-op", "'rellu'", "'relu'");
  EXPECT_ERROR(ArgumentError, run({"relu", {{"slope", 1}}, tensors}), "relu", "'slope'");
  EXPECT_ERROR(ArgumentError, run({"cross_entropy", {{"reduction", "avg"}}, losses}), "cross_entropy",
               "reduction", "mean, sum, none", "'avg'");
  EXPECT_ERROR(ArgumentError, run({"cross_entropy", {{"label_smoothing", "much"}}, losses}), "cross_entropy",
               "'label_smoothing'", "0.0", "much");
  EXPECT_ERROR(ArgumentError, run({"add", empty, tensors}), "'a'");
  EXPECT_ERROR(ArgumentError, run({"relu", empty, tensors}, "vendor"), "relu", "--impl", "vendor");

  tensors.set("z", Tensor::from(std::vector<float>{1}, {1}));
  EXPECT_ERROR(ArgumentError, run({"relu", empty, tensors}), "'z'");
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

}  // namespace athanor::tool::run_op_test
