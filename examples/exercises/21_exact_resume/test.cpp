#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "state.h"
#include "training.h"

namespace {

constexpr int kSteps = 60;

Training after(int steps) {
  Training training;
  for (int i = 0; i < steps; ++i) training.step();
  return training;
}

// The first field that differs, or "".
std::string differs(const Training& a, const Training& b) {
  if (a.weights != b.weights) return "weights";
  if (a.momentum != b.momentum) return "momentum";
  if (a.updates != b.updates) return "updates";
  if (a.epoch != b.epoch) return "epoch";
  if (a.position != b.position) return "position";
  if (a.noise != b.noise) return "noise";
  if (a.epoch_loss != b.epoch_loss) return "epoch_loss";
  if (a.best_loss != b.best_loss) return "best_loss";
  if (a.best_weights != b.best_weights) return "best_weights";
  return "";
}

Training resumed(int saved_after, int steps) {
  Training training;
  load(training, save(after(saved_after)));
  for (int i = saved_after; i < steps; ++i) training.step();
  return training;
}

TEST(Resume, AtTheEndOfAnEpoch) {
  Training training;
  load(training, save(after(16)));
  EXPECT_EQ(differs(training, after(16)), "") << "this field is not restored";
  EXPECT_EQ(differs(resumed(16, kSteps), after(kSteps)), "")
      << "this field ends otherwise than without a stop";
}

TEST(Resume, FromEveryStep) {
  for (int at = 0; at <= kSteps; ++at) {
    Training training;
    load(training, save(after(at)));
    ASSERT_EQ(differs(training, after(at)), "")
        << "saved after step " << at << ", this field is not restored";
    ASSERT_EQ(differs(resumed(at, kSteps), after(kSteps)), "")
        << "saved after step " << at
        << ", in the middle of an epoch: this field ends otherwise than without a stop";
  }
}

TEST(Resume, KeepsEveryBit) {
  Training odd;
  odd.weights = {0.1 + 0.2, 1.0 / 3};
  odd.momentum = {1e-300, -0.0};
  odd.noise = 0xfedc'ba98'7654'3211;
  Training training;
  load(training, save(odd));
  EXPECT_EQ(training.weights[0], 0.1 + 0.2) << "digits were lost: std::to_string writes six after the point";
  EXPECT_EQ(training.momentum[0], 1e-300) << "a small number became 0";
  EXPECT_EQ(training.noise, odd.noise) << "a 64-bit integer does not fit into a double, nor into an int64";
  EXPECT_EQ(training.best_loss, odd.best_loss) << "before the first epoch the best loss is infinity";
}

// What is thrown, or "nothing".
std::string refusal(Training& training, const State& state) {
  try {
    load(training, state);
  } catch (const std::runtime_error& error) {
    return error.what();
  } catch (const std::exception&) {
    return "not a runtime_error";
  }
  return "nothing";
}

TEST(Resume, RefusesAMissingField) {
  const State whole = save(after(20));
  ASSERT_GE(whole.size(), 10u) << "fields are missing from save()";
  for (const auto& [name, text] : whole) {
    State state = whole;
    state.erase(name);
    Training training = after(3);
    const std::string said = refusal(training, state);
    EXPECT_NE(said.find(name), std::string::npos)
        << "without the field " << name << ", load said: " << said
        << "; a default value would change the training without a word";
    EXPECT_EQ(differs(training, after(3)), "") << "a refused state must change nothing";
  }
}

TEST(Resume, RefusesAnUnknownField) {
  State state = save(after(20));
  state["weight_of_a_later_version"] = "1";
  Training training = after(3);
  const std::string said = refusal(training, state);
  EXPECT_NE(said.find("weight_of_a_later_version"), std::string::npos)
      << "load said: " << said << "; a field that is not understood may matter";
  EXPECT_EQ(differs(training, after(3)), "") << "a refused state must change nothing";
}

}  // namespace
