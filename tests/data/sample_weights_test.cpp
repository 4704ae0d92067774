#include "data/sample_weights.h"

#include <memory>

#include <gtest/gtest.h>

#include "data/formats/open.h"
#include "data/in_memory.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::sample_weights_test {

using Numbers = std::vector<double>;

InMemoryDataset labelled(const std::vector<std::int64_t>& labels) {
  return {{1, 1, 1, 4}, std::vector<std::uint8_t>(labels.size(), 7), labels};
}

TEST(SampleWeights, BalanceClassesOfDifferentSizes) {
  const InMemoryDataset data = labelled({0, 0, 3, 0, 1, 3, 0});
  EXPECT_EQ(class_sizes(data, "x"), (std::vector<std::int64_t>{4, 1, 0, 2}));
  EXPECT_EQ(balanced_sample_weights(data), (Numbers{0.25, 0.25, 0.5, 0.25, 1, 0.5, 0.25}));
}

/// A table with a column of weights, and one of two numbers.
struct Table {
  test::TempDir folder;
  std::shared_ptr<const Dataset> data;

  explicit Table(const std::string& text) {
    test::write_file(folder / "a.csv", text);
    data = open_samples(folder / "a.csv");
  }
};

TEST(SampleWeights, AreAColumnOfATable) {
  const Table whole("image,label,at.0,at.1,weight\nx.png,0,1,2.5,3\ny.png,1,3,4,0\nz.png,1,5,6,1\n");
  EXPECT_EQ(stored_sample_weights(*whole.data, "--sampler weights"), (Numbers{3, 0, 1}))
      << "and no image is read: there is none";
  EXPECT_EQ(whole.data->numbers("at"), (Numbers{1, 2.5, 3, 4, 5, 6}));
  const Table broken("image,weight\nx.png,0.5\ny.png,2\n");
  EXPECT_EQ(stored_sample_weights(*broken.data, "--sampler weights"), (Numbers{0.5, 2}));

  const Subset part(whole.data, {2, 0});
  EXPECT_EQ(stored_sample_weights(part, "--sampler weights"), (Numbers{1, 3}));
  EXPECT_EQ(part.numbers("at"), (Numbers{5, 6, 1, 2.5}));
}

TEST(SampleWeights, ThatAreNotThereAreNamed) {
  const auto refused = [](const std::string& table) {
    const Table it(table);
    return test::message_of([&] { stored_sample_weights(*it.data, "--sampler weights"); });
  };
  EXPECT_TRUE(test::names(refused("image,label\nx.png,0\n"), {"--sampler weights", "'weight'", "none"}));
  EXPECT_TRUE(test::names(refused("image,weight.0,weight.1\nx.png,1,2\n"), {"--sampler weights", "[2]"}));
  EXPECT_TRUE(
      test::names(refused("image,weight\nx.png,1\ny.png,-2\n"), {"--sampler weights", "1", "y.png", "-2"}));
  const Table unlabelled("image,weight\nx.png,1\n");
  EXPECT_TRUE(test::names(test::message_of([&] { balanced_sample_weights(*unlabelled.data); }),
                          {"--sampler balanced", "label"}));
  EXPECT_TRUE(test::names(test::message_of([&] { (void)unlabelled.data->numbers("other"); }), {"'other'"}));
}

// A data set that knows no better reads the numbers from its samples.
class OfFields final : public Dataset {
 public:
  std::int64_t size() const override { return 2; }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override {
    return {{"mask", DType::u8, {1, 1}, FieldKind::mask},
            {"image", DType::u8, {1, 1, 1}, FieldKind::picture},
            {"weight", DType::f32}};
  }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>&) const override {
    fields_[1].bytes =
        std::as_bytes(std::span(weights_)).subspan(static_cast<std::size_t>(4 * index), lacking_ ? 2 : 4);
    return {.bytes = std::as_bytes(std::span(&pixel_, 1)), .more = fields_};
  }
  bool lacking_ = false;

 private:
  ImageSpec spec_{1, 1, 1, 0};
  std::uint8_t pixel_ = 0;
  std::vector<float> weights_{2, 0.25};
  mutable std::vector<StoredField> fields_{{}, {}};
};

TEST(SampleWeights, AreReadFromSamples) {
  OfFields data;
  EXPECT_EQ(stored_sample_weights(data, "--sampler weights"), (Numbers{2, 0.25}));
  data.lacking_ = true;
  EXPECT_TRUE(
      test::names(test::message_of<IoError>([&] { stored_sample_weights(data, "--sampler weights"); }),
                  {"'weight'", "4", "2"}));
}

}  // namespace athanor::sample_weights_test
