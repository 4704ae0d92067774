#include "trainer/inference/evaluation.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"

namespace athanor::evaluation_test {

/// Four images of three classes: 0 as 0, 0 as 1, 1 as 1, 2 as 0.
Evaluation example(std::int64_t top = 2, std::int64_t worst = 10) {
  Evaluation all(3, {"cat", "dog", "owl"}, top, worst);
  all.add(Tensor::from(std::vector<float>{0.25f, 1.5f, 0.5f, 3.0f}, {4}),
          Tensor::from(std::vector<float>{2, 1, 0,   //
                                          1, 2, 0,   //
                                          0, 5, 1,   //
                                          9, 4, 1},  //
                       {4, 3}),
          Tensor::from(std::vector<std::int64_t>{0, 0, 1, 2}, {4}),
          Tensor::from(std::vector<std::int64_t>{10, 11, 12, 13}, {4}));
  return all;
}

TEST(Evaluation, FiguresAreThoseWorkedOutByHand) {
  const Evaluation all = example();
  EXPECT_EQ(all.images(), 4);
  EXPECT_EQ(all.loss(), 5.25 / 4);
  EXPECT_EQ(all.top1(), 2.0 / 4);
  EXPECT_EQ(all.top_k(), 3.0 / 4) << "2 is the last of three";
  EXPECT_EQ(all.figures(0).recall(), 1.0 / 2);
  EXPECT_EQ(all.figures(0).precision(), 1.0 / 2);
  EXPECT_EQ(all.figures(1).recall(), 1);
  EXPECT_EQ(all.figures(1).precision(), 1.0 / 2);
  EXPECT_EQ(all.figures(2).recall(), 0);
  EXPECT_TRUE(std::isnan(all.figures(2).precision())) << "the model says so of none";
  EXPECT_EQ(all.confusion(), (Evaluation::Confusion{{{0, 0}, 1}, {{0, 1}, 1}, {{1, 1}, 1}, {{2, 0}, 1}}));
}

TEST(Evaluation, NamesTheWorstMistakesFirst) {
  const Evaluation all = example(2, 1);
  EXPECT_EQ(all.mistakes(), 2);
  ASSERT_EQ(all.worst().size(), 1u);
  EXPECT_EQ(all.worst()[0].sample, 13);
  EXPECT_EQ(all.worst()[0].label, 2);
  EXPECT_EQ(all.worst()[0].predicted, 0);
  EXPECT_NEAR(all.worst()[0].probability, 1 / (1 + std::exp(-5.0) + std::exp(-8.0)), 1e-12);
  EXPECT_EQ(example().worst().at(1).sample, 11);
  EXPECT_TRUE(example(2, 0).worst().empty());
}

TEST(Evaluation, OfEqualLogitsTheFirstIsTheAnswerAndANaNIsWrong) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Evaluation all(2, {}, 1);
  all.add(Tensor::from(std::vector<float>{1, 1, kNaN}, {3}),
          Tensor::from(std::vector<float>{3, 3, 3, 3, 1, kNaN}, {3, 2}),
          Tensor::from(std::vector<std::int64_t>{0, 1, 0}, {3}),
          Tensor::from(std::vector<std::int64_t>{0, 1, 2}, {3}));
  EXPECT_EQ(all.top1(), 1.0 / 3);
  EXPECT_EQ(all.top_k(), 1.0 / 3);
  EXPECT_TRUE(std::isnan(all.loss()));
  EXPECT_EQ(all.worst().at(0).sample, 2) << "what is no number is worst";
  EXPECT_EQ(all.worst().at(0).predicted, Evaluation::kNone);
  EXPECT_TRUE(test::has_line(text_of(all), {"1", "NaN"}));
  EXPECT_TRUE(nlohmann::json::parse(json_of(all)).at("loss").is_null());
}

TEST(Evaluation, BatchesMayComeInAnyOrder) {
  const auto add = [](Evaluation& all, std::vector<float> loss, std::int64_t first) {
    const auto n = std::ssize(loss);
    std::vector<std::int64_t> index;
    for (std::int64_t i = 0; i < n; ++i) index.push_back(first + i);
    all.add(Tensor::from(loss, {n}), Tensor::zeros({n, 2}), Tensor::zeros({n}, {DType::i64}),
            Tensor::from(index, {n}));
  };
  Evaluation one(2), other(2);
  add(one, {0.1f, 1e6f, 0.7f}, 0);
  add(other, {0.7f}, 2);
  add(other, {0.1f, 1e6f}, 0);
  EXPECT_EQ(one.loss(), other.loss()) << "the same bits";
}

TEST(Evaluation, TextHasTheTablesWhereClassesAreFew) {
  const std::string text = text_of(
      example(), {.where = [](std::int64_t sample) { return sample == 13 ? "owl/\x1b[31m.jpg" : ""; }});
  EXPECT_NE(text.find("class     images   precision      recall\n"
                      "cat            2     50.00 %     50.00 %\n"
                      "dog            1     50.00 %    100.00 %\n"
                      "owl            1           -      0.00 %\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("      cat dog owl\n"
                      "cat     1   1   .\n"
                      "dog     .   1   .\n"
                      "owl     1   .   .\n"),
            std::string::npos)
      << text;
  EXPECT_TRUE(test::has_line(text, {"2 mistakes"}));
  EXPECT_TRUE(test::has_line(text, {"3.00", "owl/\\x1b[31m.jpg", "owl", "cat", "99.3 %"}));
  EXPECT_TRUE(test::has_line(text, {"1.50", "11", "cat", "dog", "66.5 %"}));
}

TEST(Evaluation, LongNamesWidenTheMatrixOrBecomeIndices) {
  const auto text_with = [](std::vector<std::string> names) {
    Evaluation all(2, std::move(names), 1);
    all.add(Tensor::zeros({2}), Tensor::from(std::vector<float>{1, 0, 1, 0}, {2, 2}),
            Tensor::from(std::vector<std::int64_t>{0, 1}, {2}),
            Tensor::from(std::vector<std::int64_t>{0, 1}, {2}));
    return text_of(all);
  };
  const std::string wide = text_with({"horse", "zebra"});
  EXPECT_NE(wide.find("      horse zebra\nhorse     1     .\nzebra     1     .\n"), std::string::npos)
      << wide;
  const std::string longer = text_with({"a rather long name", "b"});
  EXPECT_NE(longer.find("   0   1\n0 a rather long name   1   .\n1 b                    1   .\n"),
            std::string::npos)
      << longer;
}

TEST(Evaluation, OfManyClassesTheWorstAreShown) {
  constexpr std::int64_t kClasses = 1000, kImages = 40;
  Evaluation all(kClasses);
  std::vector<float> logits(kImages * kClasses);
  std::vector<std::int64_t> label(kImages), index(kImages);
  for (std::int64_t i = 0; i < kImages; ++i) {
    label[static_cast<std::size_t>(i)] = 900 + i % 4;
    logits[static_cast<std::size_t>(i * kClasses + 900 + (i % 4 == 3 ? 7 : i % 4))] = 1;
  }
  all.add(Tensor::zeros({kImages}), Tensor::from(logits, {kImages, kClasses}), Tensor::from(label, {kImages}),
          Tensor::from(index, {kImages}));
  const std::string text = text_of(all);
  EXPECT_TRUE(test::has_line(text, {"4", "1,000"}));
  EXPECT_TRUE(test::has_line(text, {"10", "903", "907"}));
  EXPECT_LT(text.size(), 2000u);
  EXPECT_LT(svg_of(all).size(), 3000u) << "of cells that are empty nothing is drawn";
}

TEST(Evaluation, JsonHasAllOfIt) {
  const auto json =
      nlohmann::json::parse(json_of(example(), {"m", "d", [](std::int64_t) { return "owl/1.jpg"; }}));
  EXPECT_EQ(json.at("model"), "m");
  EXPECT_EQ(json.at("images"), 4);
  EXPECT_EQ(json.at("loss"), 5.25 / 4);
  EXPECT_EQ(json.at("top1"), 0.5);
  EXPECT_EQ(json.at("top2"), 0.75);
  EXPECT_EQ(json.at("classes").at(1), (nlohmann::json{{"class", "dog"},
                                                      {"index", 1},
                                                      {"images", 1},
                                                      {"predicted", 2},
                                                      {"precision", 0.5},
                                                      {"recall", 1.0}}));
  EXPECT_TRUE(json.at("classes").at(2).at("precision").is_null());
  EXPECT_EQ(json.at("confusion").size(), 4u);
  EXPECT_EQ(json.at("confusion").at(1), (nlohmann::json{{"actual", 0}, {"predicted", 1}, {"images", 1}}));
  EXPECT_EQ(json.at("mistakes").at(0).at("file"), "owl/1.jpg");
}

TEST(Evaluation, SvgEscapesNamesAndDrawsEachCellOnce) {
  Evaluation all(2, {"<&>", "\"b\""});
  all.add(Tensor::zeros({2}), Tensor::from(std::vector<float>{1, 0, 1, 0}, {2, 2}),
          Tensor::from(std::vector<std::int64_t>{0, 1}, {2}),
          Tensor::from(std::vector<std::int64_t>{0, 1}, {2}));
  const std::string svg = svg_of(all);
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (std::size_t at = 0; (at = svg.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_TRUE(svg.starts_with("<svg xmlns=")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count("<title>"), 2) << svg;
  EXPECT_EQ(count("<title>1 of 1: &quot;b&quot; predicted as &lt;&amp;&gt;</title>"), 1) << svg;
  EXPECT_EQ(count("<&>"), 0);
}

TEST(Evaluation, RejectsInvalidBatches) {
  Evaluation all(3);
  const auto add = [&](std::int64_t n, std::int64_t classes, std::int64_t label) {
    all.add(Tensor::zeros({n}), Tensor::zeros({n, classes}),
            Tensor::from(std::vector<std::int64_t>{label}, {1}), Tensor::zeros({1}, {DType::i64}));
  };
  EXPECT_ERROR(ArgumentError, add(2, 3, 0), "evaluation", "[N, 3]", "[2, 3]");
  EXPECT_ERROR(ArgumentError, add(1, 4, 0), "evaluation", "[N, 3]", "[1, 4]");
  EXPECT_ERROR(ArgumentError, add(1, 3, 3), "evaluation", "[0, 3)", "3");
  EXPECT_ERROR(ArgumentError, Evaluation(3, {"one"}), "evaluation", "3", "1");
}

}  // namespace athanor::evaluation_test
